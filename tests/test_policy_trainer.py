"""The trainer as a whole, on a 2-layer random model and recorded rollouts."""

import json
import math
import pathlib
from typing import ClassVar

import pytest
import torch
from policy_toys import RecordedSampler, toy_grade, toy_model, toy_score, toy_tokenizer, toy_trainer

from common.models import weights_hash
from common.records import FinishReason
from data_gen.engines import Completion, TransformersEngine
from data_gen.steps import answer_token_start
from policy.monitors import Limits
from policy.options import PolicySettings
from policy.trainer import NonFiniteUpdates, ProcessPPOTrainer, last_complete_checkpoint
from prm.model import build_prm
from prm.score import PRMScorer


def weights(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def assert_same_weights(one, other):
    for name, weight in weights(one).items():
        assert torch.equal(weight, weights(other)[name]), name


def logged(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


def nan_score(prompt_ids, paths):
    return [[math.nan] * len(path.steps) for path in paths]


def prm_of_nan_weights(folder, surprise):
    """A real PRM, read from disk, into whose weights NaN is written."""
    toy_model().save_pretrained(folder / "policy")
    toy_tokenizer().save_pretrained(folder / "policy")
    scorer = PRMScorer(build_prm(str(folder / "policy"), surprise=surprise))
    with torch.no_grad():
        for weight in scorer.model.parameters():
            weight.fill_(math.nan)
    return scorer


# ---- must show F ----


@pytest.mark.parametrize("surprise", [True, False])
def test_run_whose_prm_has_nan_weights_is_the_run_that_loads_no_prm_bit_for_bit(tmp_path, surprise):
    scorer = prm_of_nan_weights(tmp_path, surprise)
    before = scorer.weights_hash()
    broken = toy_trainer(tmp_path / "nan", score=scorer.score)
    broken.train()
    alone = toy_trainer(tmp_path / "outcome", score=None)
    alone.train()
    assert_same_weights(broken, alone)
    assert logged(broken, "loss") == logged(alone, "loss")
    assert sum(logged(broken, "rollout/fallbacks")) > 0
    assert scorer.weights_hash() == before


@pytest.mark.parametrize("baseline", ["moving_average", "group"])
def test_run_with_every_score_nan_is_the_outcome_only_run_bit_for_bit(tmp_path, baseline):
    settings = PolicySettings(baseline=baseline)
    runs = []
    for score in (nan_score, None, toy_score):
        trainer = toy_trainer(tmp_path, score=score, settings=settings)
        trainer.train()
        runs.append(trainer)
    assert_same_weights(runs[0], runs[1])
    assert logged(runs[0], "loss") == logged(runs[1], "loss")
    assert sum(logged(runs[0], "rollout/fallbacks")) > 0
    assert sum(logged(runs[1], "rollout/fallbacks")) == 0
    assert logged(runs[0], "loss") != logged(runs[2], "loss")  # and scores do change a run


def test_gradient_of_the_kl_term_in_a_run_is_zero_on_answer_tokens(tmp_path):
    """With advantages 0 the loss is the KL term: its gradient is 0 on answer tokens, and not with the mask off."""

    class Spy(ProcessPPOTrainer):
        gradients: ClassVar[list] = []

        def _get_per_token_logps_and_entropies(self, *args, **kwargs):
            logprobs_BT, *rest = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            if torch.is_grad_enabled():
                logprobs_BT.retain_grad()
                self.latest = logprobs_BT
            return logprobs_BT, *rest

        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = super().training_step(model, inputs, num_items_in_batch)
            batch = self._buffered_inputs[(self._step - 1) % self.args.steps_per_generation]
            self.gradients.append((batch, self.latest.grad))
            return loss

    for is_masked in (True, False):
        Spy.gradients = []
        trainer = toy_trainer(
            tmp_path,
            settings=PolicySettings(process_weight=0.0, outcome_weight=0.0, mask_answer_kl=is_masked),
            arguments={"max_steps": 4},
            reference=toy_model(5),
            trainer_class=Spy,
        )
        trainer.train()
        num_answer = 0
        for batch, gradient_BT in Spy.gradients:
            for row, ids in enumerate(batch["completion_ids"]):
                length = int(batch["completion_mask"][row].sum())
                start = answer_token_start(ids[:length].tolist(), toy_tokenizer())
                assert (gradient_BT[row, :start] != 0).all()
                assert (gradient_BT[row, start:length] == 0).all().item() is is_masked or start == length
                assert (gradient_BT[row, length:] == 0).all()
                num_answer += length - start
        assert num_answer > 100


def test_moving_average_is_carried_across_two_batches_and_a_resume(tmp_path):
    """Fails when the second batch, or the resumed run, starts the average afresh."""
    straight = toy_trainer(tmp_path / "straight")
    straight.train()
    means = logged(straight, "reward/outcome")
    assert len(set(means)) == 2
    wanted = 0.9 * means[0] + 0.1 * means[1]
    assert straight.moving_average.mean_K[0].item() == pytest.approx(wanted, rel=1e-6)
    resumed = resumed_run(tmp_path / "resumed")
    assert torch.equal(resumed.moving_average.mean_K, straight.moving_average.mean_K)


# ---- resume ----


def resumed_run(folder, fresh_model=lambda: None, **changes):
    """Train one generation batch (4 updates), save, and let a new trainer, with a fresh model, train the second."""
    first = toy_trainer(folder, arguments={"max_steps": 4, "save_strategy": "steps", "save_steps": 4}, **changes)
    first.train()
    torch.manual_seed(99)  # nothing may depend on the global state that a new process would have
    checkpoint = last_complete_checkpoint(folder)
    assert checkpoint is not None
    assert checkpoint.endswith("checkpoint-4")
    second = toy_trainer(folder, **(changes | {"model": fresh_model()}))
    second.train(resume_from_checkpoint=checkpoint)
    return second


@pytest.mark.parametrize("baseline", ["moving_average", "rloo"])
def test_L57_two_plus_two_is_four_bit_for_bit(tmp_path, baseline):
    settings = PolicySettings(baseline=baseline, difficulty_bands=2)
    straight = toy_trainer(tmp_path / "straight", settings=settings)
    straight.train()
    resumed = resumed_run(tmp_path / "resumed", settings=settings)
    assert_same_weights(straight, resumed)
    assert resumed.sampler.calls == straight.sampler.calls[1:]  # same problems, same seeds
    for name in ("loss", "learning_rate", "kl/coef", "kl/reference", "reward/outcome"):
        assert logged(resumed, name) == logged(straight, name), name
    assert resumed.monitors.state_dict() == straight.monitors.state_dict()
    assert resumed._step == straight._step == 16


def test_reference_stays_the_start_of_the_round(tmp_path):
    start = weights_hash(toy_model())
    resumed = resumed_run(tmp_path)
    assert weights_hash(resumed.ref_model) == start
    assert weights_hash(resumed.model) != start
    assert logged(resumed, "kl/reference")[0] == 0
    with pytest.raises(ValueError, match="the reference model is not the one this run started with"):
        toy_trainer(tmp_path, toy_model(1)).train(resume_from_checkpoint=last_complete_checkpoint(tmp_path))


def test_checkpoint_that_cannot_be_resumed_is_refused(tmp_path):
    resumed_run(tmp_path)
    checkpoint = pathlib.Path(last_complete_checkpoint(tmp_path))
    (checkpoint / "optimizer.pt").rename(checkpoint / "elsewhere.pt")
    with pytest.raises(ValueError, match=r"no optimizer.pt; this checkpoint cannot be resumed"):
        toy_trainer(tmp_path).train(resume_from_checkpoint=str(checkpoint))
    (checkpoint / "policy_state.json").unlink()
    assert last_complete_checkpoint(tmp_path) is None
    with pytest.raises(ValueError, match=r"no policy_state.json"):
        toy_trainer(tmp_path).train(resume_from_checkpoint=str(checkpoint))


def test_half_written_checkpoint_is_passed_over(tmp_path):
    for step, text in ((4, "{}"), (8, '{"cut')):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "policy_state.json").write_text("{}")
        (folder / "trainer_state.json").write_text(text)
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
    assert last_complete_checkpoint(tmp_path / "none") is None


def test_checkpoint_inside_a_generation_batch_is_refused(tmp_path):
    trainer = toy_trainer(tmp_path)
    trainer._step = 3
    with pytest.raises(RuntimeError, match="save at a multiple of 4 updates"):
        trainer._save_checkpoint(trainer.model, None)


# ---- updates ----


def test_L45_first_ratio_is_one_with_a_real_engine(tmp_path):
    """Old log-probs come from other batches and paddings; sampling uses the trainer's own module."""
    model = toy_model()
    engine = TransformersEngine(model, toy_tokenizer())
    trainer = toy_trainer(
        tmp_path, model, arguments={"max_completion_length": 24, "learning_rate": 1e-2}, sampler=engine
    )
    trainer.train()
    errors = logged(trainer, "update/max_ratio_error")
    assert errors[0] < 1e-4
    assert errors[4] < 1e-4  # also in the second batch, after the weights have moved
    assert errors[1] > 1e-2
    assert logged(trainer, "kl/reference")[0] == pytest.approx(0, abs=1e-9)


def test_batch_is_one_whatever_the_micro_batches(tmp_path):
    """Golden class: 16 paths in 1, 2 or 4 micro-batches an update give the same weights."""
    runs = []
    for size in (16, 8, 4):
        steps = 16 // size
        shape = {
            "per_device_train_batch_size": size,
            "steps_per_generation": steps,
            "gradient_accumulation_steps": steps,
        }
        trainer = toy_trainer(tmp_path, arguments=shape | {"max_steps": 4, "learning_rate": 1e-4})
        trainer.train()
        runs.append(weights(trainer))
    for other in runs[1:]:
        for name, weight in runs[0].items():
            torch.testing.assert_close(other[name], weight, rtol=0, atol=2e-6)


class PoisonedTrainer(ProcessPPOTrainer):
    """Makes the loss of chosen micro-steps NaN."""

    poisoned = frozenset()
    seen: ClassVar[list] = []

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if self._step in self.poisoned:
            loss = loss * math.nan
        return loss

    def _get_grad_norm(self, model, grad_norm=None):
        self.seen.append({name: weight.clone() for name, weight in model.named_parameters()})
        return super()._get_grad_norm(model, grad_norm)


def test_L29_update_with_a_nan_micro_batch_is_skipped(tmp_path):
    class Trainer(PoisonedTrainer):
        poisoned, seen = frozenset({3}), []

    trainer = toy_trainer(tmp_path, trainer_class=Trainer, arguments={"max_steps": 4})
    trainer.train()
    before = Trainer.seen
    assert all(torch.equal(before[1][name], before[2][name]) for name in before[1])  # update 2 changed nothing
    assert any(not torch.equal(before[2][name], before[3][name]) for name in before[1])
    assert (trainer.skipped_updates, trainer.skipped_in_a_row) == (1, 0)
    assert logged(trainer, "update/skipped") == [0, 1, 1, 1]
    assert all(torch.isfinite(weight).all() for weight in weights(trainer).values())


def test_L29_three_in_a_row_end_the_run(tmp_path):
    class Trainer(PoisonedTrainer):
        poisoned, seen = frozenset(range(100)), []

    start = toy_model()
    trainer = toy_trainer(tmp_path, trainer_class=Trainer)
    with pytest.raises(NonFiniteUpdates, match="3 updates in a row had a non-finite loss or gradient"):
        trainer.train()
    for name, weight in start.named_parameters():
        assert torch.equal(weight, weights(trainer)[name])


class OddSampler(RecordedSampler):
    """Every first path of a problem is empty, every second one cut at the limit."""

    def _one(self, prompt, path, seed, limit):
        one = super()._one(prompt, path, seed, limit)
        if path == 0:
            return Completion((), FinishReason.STOP)
        return Completion(one.token_ids[:6], FinishReason.LENGTH) if path == 1 else one


def test_L28_empty_completion_trains_nothing_and_counts_in_its_group(tmp_path):
    trainer = toy_trainer(tmp_path, sampler=OddSampler(), arguments={"max_steps": 4})
    trainer.train()
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    for batch in trainer._buffered_inputs:
        is_empty = batch["completion_mask"].sum(1) == 0
        assert not batch["is_trained"][is_empty].any()
        assert not batch["is_reasoning"][is_empty].any()
        assert (batch["advantages"][is_empty] == 0).all()
    assert logged(trainer, "verdict/UNPARSED")[0] >= 4


def test_L40_truncated_paths_have_outcome_0_or_no_gradient(tmp_path):
    for trains in (True, False):
        settings = PolicySettings(train_on_truncated=trains)
        trainer = toy_trainer(tmp_path, sampler=OddSampler(), arguments={"max_steps": 4}, settings=settings)
        trainer.train()
        assert logged(trainer, "rollout/truncated") == [0.25]
        is_cut = [batch["completion_mask"].sum(1) == 6 for batch in trainer._buffered_inputs]
        trained = [
            batch["is_trained"][rows].any() for batch, rows in zip(trainer._buffered_inputs, is_cut, strict=True)
        ]
        assert any(trained) is trains


def test_base_kl_and_evaluation_are_logged_and_leave_the_run_as_it_is(tmp_path):
    """Evaluation draws random numbers; the trained weights are those of a run without it."""
    seen = []

    def evaluate(model):
        assert not model.training
        seen.append(torch.rand(1).item())
        return {"accuracy": 0.25 * len(seen)}

    plain = toy_trainer(tmp_path / "plain")
    plain.train()
    trainer = toy_trainer(
        tmp_path / "evaluated",
        base_model=toy_model(7),
        evaluate_policy=evaluate,
        arguments={
            "eval_strategy": "steps",
            "eval_steps": 4,
            "save_strategy": "steps",
            "save_steps": 4,
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_accuracy",
        },
    )
    trainer.train()
    assert_same_weights(plain, trainer)
    assert logged(trainer, "eval_accuracy") == [0.25, 0.5]
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-8")
    assert len(logged(trainer, "kl/base")) == 2
    assert logged(trainer, "kl/base")[0] != 0


def test_monitor_stops_the_run_and_a_resumed_run_stays_stopped(tmp_path):
    limits = Limits(flat_evaluations=1)
    arguments = {"max_steps": 16, "eval_strategy": "steps", "eval_steps": 4, "save_strategy": "steps", "save_steps": 4}
    changes = {"limits": limits, "evaluate_policy": lambda model: {"accuracy": 0.5}, "arguments": arguments}
    trainer = toy_trainer(tmp_path, **changes)
    trainer.train()
    assert trainer.state.global_step == 8
    assert trainer.stopped_by.startswith("validation accuracy flat for 1 evaluations")
    resumed = toy_trainer(tmp_path, **changes)
    resumed.train(resume_from_checkpoint=last_complete_checkpoint(tmp_path))
    assert resumed.state.global_step == 8
    assert resumed.stopped_by == trainer.stopped_by
    assert resumed.sampler.calls == []
    assert_same_weights(trainer, resumed)


def test_every_logged_number_is_finite_and_the_monitors_keys_are_there(tmp_path):
    trainer = toy_trainer(tmp_path, arguments={"logging_steps": 4})
    trainer.train()
    row = trainer.state.log_history[0]
    wanted = (
        "reward/outcome reward/process_share update/clip_fraction entropy grad_norm rollout/fallbacks rollout/anchors"
    )
    wanted += " rollout/no_step verdict/CORRECT kl/reference rollout/steps rollout/truncated rollout/repeated_ngrams"
    wanted += " seconds/sampling seconds/grading seconds/prm seconds/logprobs seconds/update kl/coef prm/mean_score"
    assert set(wanted.split()) <= set(row)
    assert all(math.isfinite(value) for value in row.values())
    assert 0 < row["reward/process_share"] < 1
    assert json.dumps(row)


# ---- refusals ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss_type": "grpo"}, r"loss_type = 'grpo' is not served; wanted 'dapo'"),
        ({"importance_sampling_level": "sequence"}, "importance_sampling_level = 'sequence'"),
        (
            {"top_p": 0.9},
            r"top_p = 0.9 is not served; wanted 1.0 \(a filtered sampling distribution biases the ratio\)",
        ),
        ({"entropy_coef": 0.1}, "entropy_coef = 0.1"),
        ({"disable_dropout": False}, r"disable_dropout = False .* first ratio is not 1"),
        ({"logging_nan_inf_filter": True}, "logging_nan_inf_filter = True"),
        ({"max_steps": -1}, "max_steps = -1"),
        ({"max_steps": 6}, "max_steps = 6 is not served; wanted a multiple of 4"),
        ({"save_strategy": "steps", "save_steps": 2}, "save_steps = 2 is not served; wanted a multiple of 4"),
        ({"gradient_accumulation_steps": 3}, "wanted a multiple of gradient_accumulation_steps 3"),
        ({"eval_strategy": "steps", "eval_steps": 4}, "needs evaluate_policy"),
    ],
)
def test_arguments_that_are_not_served_are_refused_by_name(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        toy_trainer(tmp_path, arguments=arguments)


def test_settings_are_checked():
    for wrong in ({"credit": "max"}, {"baseline": "mean"}, {"flow": "back"}, {"anchor_fraction": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PolicySettings(**wrong)


def test_score_of_another_length_and_changed_ids_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"0 PRM scores for \d steps; they must match"):
        toy_trainer(tmp_path, score=lambda ids, paths: [[] for _ in paths]).train()

    def lossy_grade(problems, sampled, **settings):
        return toy_grade(problems, [(ids[:-1], reason) for ids, reason in sampled], **settings)

    with pytest.raises(ValueError, match="the sampled ids must flow unchanged"):
        toy_trainer(tmp_path, grade=lossy_grade).train()

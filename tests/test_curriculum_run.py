"""Curriculum in the trainer: promotion, resume in a later stage, adapters carried over; and no dropout anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from policy_toys import RecordedSampler, toy_model, toy_problems, toy_tokenizer, toy_trainer
from test_curriculum import staged_plan
from test_policy_trainer import assert_same_weights, logged

from common.adapters import ADAPTER_OFF, NAME, with_adapter
from common.config import LoraSection
from common.models import weights_hash
from data_gen.engines import TransformersEngine
from policy.batches import BatchPlan
from policy.checkpoints import policy_state
from policy.curriculum import Stage, StagedPlan
from policy.monitors import Limits
from policy.trainer import last_complete_checkpoint

ACCURACIES = {0: 1.0, 1: 0.3, 2: 0.8, 3: 0.9, 4: 0.9}
"""Accuracy on the stage's checked problems after so many batches."""


def trained(folder: Path, max_steps: int = 16, resume: bool = False, **changes: Any) -> Any:
    """A run of 4 batches whose accuracies promote it after the second."""
    plan, steps = staged_plan(), {"eval_steps": 4, "save_steps": 4, "max_steps": max_steps}
    holder: list[Any] = []

    def evaluate(_: Any) -> dict[str, float]:
        stage = float(plan.progress.stage + 1)
        batch = holder[0]._step // holder[0].generate_every
        return {"accuracy": 0.5, "stage_accuracy": ACCURACIES[batch], "stage": stage}

    said: list[tuple[int, str]] = []
    trainer = toy_trainer(
        folder,
        arguments={"eval_strategy": "steps", "save_strategy": "steps", "logging_steps": 4} | steps,
        evaluate_policy=evaluate,
        announce=lambda update, line: said.append((update, line)),
        limits=Limits(flat_evaluations=None, steps_kept=None),
        plan=plan,
        **changes,
    )
    holder.append(trainer)
    trainer.said = said
    if not resume:
        trainer.evaluate()
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(folder) if resume else None)
    return trainer


def asked(trainer: Any) -> list[set[str]]:
    """The problems of each sampled batch."""
    decode, prompts = toy_tokenizer().decode, {p.text + "\n": p.id for p in toy_problems()}
    return [{prompts[decode(ids)] for ids in call} for _, call in trainer.sampler.calls]


def test_a_run_is_promoted_and_samples_the_stage_s_problems_alone(tmp_path):
    trainer = trained(tmp_path)
    easy, hard = trainer.plan.stages
    names = [problem.id for problem in toy_problems()]
    assert asked(trainer) == [{names[i] for i in stage.train} for stage in (easy, easy, hard, hard)]
    assert logged(trainer, "curriculum/stage") == [1.0, 1.0, 2.0, 2.0]
    promotions = [(update, line) for update, line in trainer.said if line.startswith("curriculum: ")]
    assert promotions == [
        (8, "curriculum: stage 1 of 2 ended after 2 batches: validation accuracy 0.800 on its problems reached 0.7")
    ]
    assert trainer.optimizer.state_dict()["state"][0]["step"] == 16  # one optimiser throughout


def test_two_stages_and_a_resume_in_the_second_end_bit_for_bit(tmp_path):
    straight = trained(tmp_path / "straight")
    trained(tmp_path / "cut", max_steps=12)  # three batches: the last of them in stage 2
    torch.manual_seed(99)
    assert policy_state(last_complete_checkpoint(tmp_path / "cut"))["plan"] == {"stage": 1, "entered": 2}
    resumed = trained(tmp_path / "cut", resume=True)
    assert_same_weights(straight, resumed)
    assert resumed.sampler.calls == straight.sampler.calls[3:]
    assert resumed.monitors.state_dict() == straight.monitors.state_dict()
    assert resumed.plan.state_dict() == straight.plan.state_dict() == {"stage": 1, "entered": 2}
    for name in ("loss", "curriculum/stage", "reward/outcome"):
        assert logged(resumed, name) == logged(straight, name), name


def test_a_plan_of_one_stage_is_the_flat_run_bit_for_bit(tmp_path):
    """Without promotion nothing but the order of the same problems could differ, and its seed is the stage's."""
    problems = toy_problems()
    everything = Stage(0.0, 1.0, tuple(range(len(problems))), ())
    difficulties = [problem.difficulty for problem in problems]
    plan = StagedPlan([everything], difficulties, batch_size=4, bands=1, seed=3, promote_at=None)
    plan._plans = [BatchPlan(difficulties, 4, 1, 3)]
    staged = toy_trainer(tmp_path / "staged", plan=plan)
    flat = toy_trainer(tmp_path / "flat")
    for trainer in (staged, flat):
        trainer.train()
    assert_same_weights(staged, flat)
    assert staged.sampler.calls == flat.sampler.calls


def test_adapters_are_carried_over_a_promotion(tmp_path):
    def adapted() -> dict[str, Any]:
        model = with_adapter(toy_model(), LoraSection(rank=2), "CAUSAL_LM", seed=3)
        return {"model": model, "reference": ADAPTER_OFF}

    straight = trained(tmp_path / "straight", **adapted())
    assert weights_hash(straight.model, without=f".{NAME}.") == weights_hash(adapted()["model"], without=f".{NAME}.")
    moved = [w for name, w in straight.model.named_parameters() if "lora_B" in name and bool((w != 0).any())]
    assert len(moved) == 14  # 7 linear layers in each of 2
    trained(tmp_path / "cut", max_steps=12, **adapted())
    assert_same_weights(straight, trained(tmp_path / "cut", resume=True, **adapted()))


# ---- dropout ----


def with_dropout(share: float) -> Any:
    """The toy model as if its configuration asked for dropout in attention and in a module of its own."""
    model = toy_model()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = share
        layer.mlp.act_fn = torch.nn.Sequential(layer.mlp.act_fn, torch.nn.Dropout(share))
    return model


def test_dropout_is_off_in_rollouts_scoring_and_updates(tmp_path):
    """A run of a model with dropout 0.5 is the run of the same model without, bit for bit; its first ratio is 1."""
    runs = []
    for share in (0.0, 0.5):
        model = with_dropout(share)
        engine = TransformersEngine(model, toy_tokenizer())
        trainer = toy_trainer(tmp_path / str(share), model, arguments={"max_completion_length": 24}, sampler=engine)
        trainer.train()
        assert logged(trainer, "update/max_ratio_error")[0] < 1e-4
        runs.append(trainer)
    assert_same_weights(*runs)
    assert logged(runs[0], "loss") == logged(runs[1], "loss")


def test_log_probs_of_a_policy_in_training_are_the_same_twice(tmp_path):
    trainer = toy_trainer(tmp_path, with_dropout(0.5), sampler=RecordedSampler())
    trainer.model.train()
    ids = torch.arange(2, 26).reshape(2, 12)
    once, twice = (
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 8)[0] for _ in range(2)
    )
    assert torch.equal(once, twice)

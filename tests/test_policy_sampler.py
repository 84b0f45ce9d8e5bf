"""A sampler with weights of its own beside the trainer: synced before every use, weighted, watched. No vLLM needed.

The engine here is a second module with the policy's weights, so synced log-probs agree to float32; a gap is put in by
hand or comes from leaving the sync out. ``tests/test_vllm.py`` does the same with vLLM.
"""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace

import pytest
import torch
from policy_toys import RecordedSampler, toy_model, toy_tokenizer, toy_trainer

from common.adapters import NAME, plain_weights, with_adapter
from common.config import LoraSection, load_config
from common.errors import InputError
from common.models import weights_hash
from data_gen.engines import TransformersEngine
from policy.actions import RULES
from policy.arguments import trainer_arguments
from policy.monitors import Limits
from policy.rollouts import collect_rollout
from policy.sampler import ColocatedSampler, StoppingSampler, make_sampler, refuse_colocation


class Beside:
    """An engine of its own weights that gives log-probs, ``shift`` nats above the true ones.

    Attributes:
        is_synced: False = weights are taken and dropped. syncs, uses: what happened, in order.
    """

    def __init__(self, shift: float = 0.0, is_synced: bool = True) -> None:
        self.model, self.shift, self.is_synced = toy_model().eval(), shift, is_synced
        self.engine = TransformersEngine(self.model, toy_tokenizer())
        self.events: list[str] = []

    def update_weights(self, model):
        self.events.append("sync")
        if self.is_synced:
            with torch.no_grad():
                own = dict(self.model.named_parameters())
                for name, weight in plain_weights(model):
                    own.pop(name).copy_(weight)
                assert not own

    def sample(self, prompts, *, temperature, **settings):
        self.events.append("sample")
        groups = self.engine.sample(prompts, temperature=temperature, **settings)
        return [
            [dataclasses.replace(one, logprobs=self._logprobs(prompt, one.token_ids, temperature)) for one in group]
            for prompt, group in zip(prompts, groups, strict=True)
        ]

    @torch.no_grad()
    def _logprobs(self, prompt, ids, temperature):
        logits = self.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / temperature
        found = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0] + self.shift
        return tuple(found.tolist())


def rows(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


def run(folder, sampler, **changes):
    arguments = {"max_completion_length": 12, "max_steps": 12, "learning_rate": 3e-2, "beta": 0.01, "temperature": 1.2}
    arguments |= {"vllm_importance_sampling_mode": "token_truncate"} | changes.pop("arguments", {})
    trainer = toy_trainer(folder, sampler=sampler, arguments=arguments, **changes)
    trainer.train()
    return trainer


def test_weights_are_the_policys_before_every_batch_and_every_evaluation(tmp_path):
    beside = Beside()

    def measure(policy):
        beside.events.append("measure")
        assert weights_hash(beside.model) == weights_hash(policy)
        return {"accuracy": 0.5}

    trainer = run(tmp_path, beside, evaluate_policy=measure, arguments={"eval_strategy": "steps", "eval_steps": 4})
    assert beside.events == ["sync", "sample", "sync", "measure"] * 3
    assert max(rows(trainer, "sampling/logp_difference")) < 1e-5
    assert rows(trainer, "sampling/importance_ratio") == pytest.approx([1.0] * 3, abs=1e-5)
    assert rows(trainer, "sampling/bounded_share") == [0.0] * 3
    assert len(rows(trainer, "seconds/sync")) == 3


def test_without_the_sync_the_difference_grows_and_the_alarm_ends_the_run(tmp_path):
    notes = []
    alone = Limits(kl_cap=None, rules=tuple(rule for rule in RULES if rule.name == "sampler_mismatch"))
    trainer = run(tmp_path, Beside(is_synced=False), limits=alone, announce=lambda update, line: notes.append(line))
    first, *later = rows(trainer, "sampling/logp_difference")
    assert first < 1e-5  # the engine started with the policy's weights
    assert min(later) > 0.1
    assert any(note.startswith("sampler_mismatch: ") and "action: rollback" in note for note in notes)
    assert trainer.stopped_by.startswith("sampler_mismatch")


def test_a_known_shift_is_the_weight_of_every_token(tmp_path):
    """log mu half a nat too high: every weight is exp(-0.5), and the surrogate's gradient shrinks with it."""
    shifted = run(tmp_path / "a", Beside(0.5), arguments={"max_steps": 4, "beta": 0.0})
    assert rows(shifted, "sampling/logp_difference") == pytest.approx([0.5], abs=1e-5)
    assert rows(shifted, "sampling/max_logp_difference") == pytest.approx([0.5], abs=1e-5)
    assert rows(shifted, "sampling/importance_ratio") == pytest.approx([0.60653], abs=1e-5)
    true = run(tmp_path / "b", Beside(), arguments={"max_steps": 4, "beta": 0.0})
    first = [rows(trainer, "grad_norm")[0] for trainer in (shifted, true)]
    assert first[0] / first[1] == pytest.approx(0.60653, rel=1e-3)
    arguments = {"max_steps": 4, "beta": 0.0, "vllm_importance_sampling_correction": False}
    off = run(tmp_path / "c", Beside(0.5), arguments=arguments)
    assert rows(off, "grad_norm")[0] == pytest.approx(first[1], rel=1e-4)
    assert rows(off, "sampling/logp_difference") == pytest.approx([0.5], abs=1e-5)  # still watched


def test_one_update_a_batch_has_its_own_pass_for_the_log_probs(tmp_path):
    arguments = {"max_steps": 2, "gradient_accumulation_steps": 4, "num_iterations": 1}
    trainer = run(tmp_path, Beside(0.25), arguments=arguments)
    assert rows(trainer, "sampling/logp_difference") == pytest.approx([0.25] * 2, abs=1e-4)


def test_a_log_prob_that_is_no_number_skips_the_update(tmp_path):
    trainer = run(tmp_path, Beside(float("nan")), arguments={"max_steps": 2, "num_iterations": 1})
    assert trainer.skipped_updates == 2
    assert weights_hash(trainer.model) == weights_hash(toy_model())


def test_the_trained_module_as_sampler_has_no_metric_and_no_weight(tmp_path):
    trainer = toy_trainer(tmp_path, arguments={"max_steps": 4})
    trainer.train()
    assert not [
        name for row in trainer.state.log_history for name in row if name.startswith("sampling/") or "sync" in name
    ]
    assert "importance_sampling_ratio" not in trainer._buffered_inputs[0]


def test_log_probs_must_be_complete():
    class Partial(RecordedSampler):
        def sample(self, prompts, **settings):
            groups = super().sample(prompts, **settings)
            groups[0][0] = dataclasses.replace(groups[0][0], logprobs=(0.0,))
            return groups

    with pytest.raises(ValueError, match="one log-prob for each sampled id of every path, or none"):
        collected(Partial())


def collected(sampler):
    from policy_toys import toy_grade, toy_problems

    from policy.options import PolicySettings

    problems = [problem for problem in toy_problems(2) for _ in range(2)]
    return collect_rollout(
        problems, [[5, 6]] * 4, sampler=sampler, grade=toy_grade, settings=PolicySettings(), num_paths=2,
        temperature=1.0, max_new_tokens=48, seed=1, run_seed=0, generation=0, known_theorems=set(), end_id=1,
    )  # fmt: skip


def test_an_empty_completion_has_a_log_prob_for_its_stand_in():
    class Empty(RecordedSampler):
        def sample(self, prompts, **settings):
            groups = super().sample(prompts, **settings)
            full = [[dataclasses.replace(one, logprobs=(-1.0,) * len(one.token_ids)) for one in g] for g in groups]
            full[0][0] = dataclasses.replace(full[0][0], token_ids=(), logprobs=())
            return full

    found = collected(Empty())
    assert found.sampling_logprobs[0] == [0.0]
    assert [len(row) for row in found.sampling_logprobs] == [len(ids) for ids in found.completion_ids]
    assert collected(RecordedSampler()).sampling_logprobs is None


def test_plain_weights_are_the_merged_ones_and_change_nothing():
    policy = with_adapter(toy_model(), LoraSection(rank=2), "CAUSAL_LM", seed=0)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=torch.Generator().manual_seed(len(name)))
    before = weights_hash(policy)
    found = dict(plain_weights(policy))
    assert weights_hash(policy) == before
    merged = copy.deepcopy(policy).merge_and_unload()
    wanted = dict(merged.named_parameters())
    assert found.keys() == wanted.keys() == dict(toy_model().named_parameters()).keys()
    for name, weight in wanted.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)
    changed = [name for name, weight in toy_model().named_parameters() if not torch.equal(weight, found[name])]
    assert len(changed) == 2 * 7  # two layers of seven linear maps
    policy.add_adapter("reference", policy.peft_config[NAME])  # a frozen copy beside it is not merged
    assert dict(plain_weights(policy)).keys() == wanted.keys()


def test_engine_of_the_configuration(tmp_path):
    config = load_config("configs/micro.yaml", ["base.stop=[Q]"])
    sampler = make_sampler(config, toy_model(), toy_tokenizer(), "nowhere", iter(()))
    assert type(sampler) is StoppingSampler
    assert (type(sampler.engine), sampler.stop) == (TransformersEngine, ("Q",))
    assert not hasattr(sampler, "update_weights")
    changed = ["ppo.vllm_importance_sampling_mode=sequence_mask", "ppo.vllm_importance_sampling_clip_min=0.5"]
    arguments = trainer_arguments(load_config("configs/micro.yaml", changed), tmp_path)
    assert arguments.vllm_importance_sampling_mode == "sequence_mask"
    assert (arguments.vllm_importance_sampling_clip_min, arguments.vllm_importance_sampling_clip_max) == (0.5, 3.0)
    assert trainer_arguments(config, tmp_path).vllm_importance_sampling_mode == "token_truncate"


@pytest.mark.parametrize(("stage", "fsdp"), [(3, None), (0, object())])
def test_sharded_weights_and_an_engine_beside_them_are_refused(stage, fsdp):
    plugins = SimpleNamespace(deepspeed_plugin=SimpleNamespace(zero_stage=stage), fsdp_plugin=fsdp)
    trainer = SimpleNamespace(accelerator=SimpleNamespace(state=plugins), sampler=ColocatedSampler(Beside(), ()))
    with pytest.raises(InputError, match=r"not supported under FSDP or ZeRO-3.*ppo\.engine=transformers"):
        refuse_colocation(trainer)
    trainer.sampler = StoppingSampler(Beside(), ())
    refuse_colocation(trainer)
    plugins.deepspeed_plugin.zero_stage, plugins.fsdp_plugin = 2, None
    trainer.sampler = ColocatedSampler(Beside(), ())
    refuse_colocation(trainer)

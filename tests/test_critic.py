"""The critic on a 2-layer random model: what a value may see, learning, warm-up, resume, faults."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib

import pytest
import torch
from policy_toys import toy_model, toy_score, toy_trainer

from policy.critic import CRITIC_FILE, Critic, ValueModel, backbone_of
from policy.forward import state_vectors
from policy.gae import PROCESS
from policy.options import CriticSettings, PolicySettings
from policy.trainer import NonFiniteUpdates, last_complete_checkpoint

GAE = PolicySettings(baseline="gae", critic=CriticSettings(warmup=0, learning_rate=3e-3))


def with_critic(**changes):
    return dataclasses.replace(GAE, critic=dataclasses.replace(GAE.critic, **changes))


def logged(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


def weights(module):
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


def assert_same(one, other):
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def differ(one, other):
    return any(not torch.equal(weight, other[name]) for name, weight in one.items())


# ---- what a value may see ----


def padded(prompts, completions):
    """Ids and mask as the trainer has them: pads in front of prompts and behind completions."""
    width, length = max(map(len, prompts)), max(map(len, completions))
    ids = [[0] * (width - len(p)) + p + c + [0] * (length - len(c)) for p, c in zip(prompts, completions, strict=True)]
    return torch.tensor(ids), (torch.tensor(ids) != 0).long(), length


def test_state_depends_on_nothing_from_its_segment_on():
    torch.manual_seed(0)
    backbone = toy_model().base_model
    prompts, completions = [[5, 6, 7]], [[8, 9, 10, 11, 12, 13]]
    starts = torch.tensor([[0, 2, 5]])
    with torch.no_grad():
        before = state_vectors(backbone, *padded(prompts, completions), starts)
        for n, start in enumerate([0, 2, 5]):
            changed = [completions[0][:start] + [20] * (6 - start)]
            after = state_vectors(backbone, *padded(prompts, changed), starts)
            torch.testing.assert_close(after[:, : n + 1], before[:, : n + 1])
            if n < 2:
                assert not torch.allclose(after[:, n + 1], before[:, n + 1], atol=1e-3)
        one_earlier = [[*completions[0][:1], 20, *completions[0][2:]]]
        assert not torch.allclose(state_vectors(backbone, *padded(prompts, one_earlier), starts)[:, 1], before[:, 1])


def test_state_is_that_of_the_row_alone_whatever_the_padding():
    backbone = toy_model().base_model
    prompts, completions = [[5, 6, 7, 8, 9], [10, 11]], [[12, 13, 14], [15, 16, 17, 18, 19, 20]]
    starts = torch.tensor([[0, 2, 0], [0, 3, 5]])
    with torch.no_grad():
        together = state_vectors(backbone, *padded(prompts, completions), starts)
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            plain = backbone(input_ids=torch.tensor([prompt + completion])).last_hidden_state[0]
            wanted = plain[torch.tensor([len(prompt) - 1 + start for start in starts[row].tolist()])]
            torch.testing.assert_close(together[row], wanted, rtol=0, atol=1e-5)


def test_prompt_without_a_token_is_refused():
    with pytest.raises(ValueError, match="a prompt without a token has no state"):
        state_vectors(toy_model().base_model, *padded([[5], []], [[6], [7]]), torch.zeros(2, 1, dtype=torch.long))


# ---- the model ----


def test_own_trunk_is_a_float32_copy_and_the_head_starts_at_zero():
    policy = toy_model().to(torch.bfloat16)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    critic = ValueModel(policy, has_backbone=True)
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in critic.backbone.named_parameters():
        other = policy.base_model.get_parameter(name)
        assert weight.dtype == torch.float32
        assert torch.equal(weight, other.float())
        assert weight.data_ptr() != other.data_ptr()
    assert (critic(torch.randn(1, 2, 32)) == 0).all()
    assert sum(weight.numel() for weight in ValueModel(policy, has_backbone=False).parameters()) == 2 * 32 + 2


def test_adapters_are_merged_into_the_copy():
    from peft import LoraConfig, get_peft_model

    policy = get_peft_model(toy_model(), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    critic = ValueModel(policy, has_backbone=True)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        wanted = backbone_of(policy)(input_ids=ids).last_hidden_state
        torch.testing.assert_close(critic.backbone(input_ids=ids).last_hidden_state, wanted)
    assert not any("lora" in name for name, _ in critic.named_parameters())
    assert all(weight.requires_grad for weight in critic.parameters())


# ---- runs ----


def value_error(trainer):
    """Mean squared error of the critic now on the targets of the batch at hand."""
    total = count = 0.0
    for batch in trainer._buffered_inputs:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        critic = trainer.critic.model
        with torch.no_grad():
            states = batch.get("state_vectors")
            if states is None:
                width = batch["completion_ids"].size(1)
                states = state_vectors(critic.backbone, ids, mask, width, batch["state_starts"])
            errors = (critic(states) - batch["value_targets"])[batch["is_valued"]]
        total, count = total + float(errors.square().sum()), count + errors.numel()
    return total / count


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_critic_learns_a_fixed_batch_and_the_policy_waits_for_it(tmp_path, trunk):
    """8 passes over one batch in the warm-up: the value error falls, no weight of the policy moves."""
    start = toy_model()
    settings = with_critic(trunk=trunk, clip=None, warmup=1, learning_rate=3e-3 if trunk == "own" else 3e-2)
    trainer = toy_trainer(tmp_path, settings=settings, arguments={"max_steps": 32, "num_iterations": 8})
    seen = []
    learn = trainer.critic.learn
    trainer.critic.learn = lambda batch: (seen.append((trainer._step, value_error(trainer))), learn(batch))
    policies = []
    update = trainer.critic.update
    trainer.critic.update = lambda *args: (policies.append(weights(trainer.model)), update(*args))[1]
    trainer.train()
    errors = [error for step, error in seen if step <= trainer.generate_every]
    assert errors[-1] < 0.5 * errors[0]
    for before in policies[:16]:
        assert_same(before, weights(start))
    assert differ(policies[17], weights(start))
    assert logged(trainer, "critic/warming_up") == [1.0] * 16 + [0.0] * 16
    assert logged(trainer, "update/max_ratio_error")[15] < 1e-6


def test_value_loss_of_the_log_falls_and_memory_is_counted(tmp_path):
    trainer = toy_trainer(tmp_path, settings=with_critic(clip=None), arguments={"max_steps": 32, "num_iterations": 8})
    trainer.train()
    losses = logged(trainer, "critic/loss")
    assert losses[14] < 0.5 * losses[0]
    num_policy = sum(weight.numel() for weight in trainer.model.parameters())
    num_critic = sum(weight.numel() for weight in trainer.critic.model.parameters())
    steps = 4 * len(list(trainer.critic.model.parameters()))  # AdamW keeps a count a tensor
    megabytes, share = logged(trainer, "critic/megabytes")[-1], logged(trainer, "critic/memory_share")[-1]
    assert megabytes * 1e6 == 3 * 4 * num_critic + steps
    policy_steps = 4 * len(list(trainer.model.parameters()))
    others = 4 * 4 * num_policy + policy_steps  # weights and two moments of the policy, weights of the reference
    assert share == pytest.approx(megabytes * 1e6 / (megabytes * 1e6 + others))
    row = trainer.state.log_history[0]
    assert row["critic/explained_variance_process"] == pytest.approx(0, abs=1e-6)  # a head of zeros knows nothing
    assert row["critic/explained_variance_outcome"] == pytest.approx(0, abs=1e-6)
    assert row["critic/value_outcome"] == 0
    assert len(logged(trainer, "seconds/critic")) == 2
    assert all(math.isfinite(value) for row in trainer.state.log_history[:32] for value in row.values())


@pytest.mark.parametrize(("trunk", "flow"), [("own", "immediate"), ("shared", "whole")])
def test_two_plus_two_is_four_bit_for_bit_with_a_critic(tmp_path, trunk, flow):
    settings = dataclasses.replace(with_critic(trunk=trunk, warmup=1), flow=flow, credit="mean")
    arguments = {"max_steps": 12, "save_strategy": "steps", "save_steps": 4}
    straight = toy_trainer(tmp_path / "straight", settings=settings, arguments=arguments)
    straight.train()
    first = toy_trainer(tmp_path / "resumed", settings=settings, arguments=arguments | {"max_steps": 8})
    first.train()
    checkpoint = last_complete_checkpoint(tmp_path / "resumed")
    assert checkpoint is not None
    assert f'"{CRITIC_FILE}"' in pathlib.Path(checkpoint, "sha256.json").read_text()
    torch.manual_seed(99)
    resumed = toy_trainer(tmp_path / "resumed", settings=settings, arguments=arguments)
    resumed.train(resume_from_checkpoint=checkpoint)
    assert_same(weights(straight.model), weights(resumed.model))
    assert_same(weights(straight.critic.model), weights(resumed.critic.model))
    for name in ("loss", "critic/loss", "critic/grad_norm", "critic/explained_variance_outcome", "critic/warming_up"):
        assert logged(resumed, name) == logged(straight, name), name
    pathlib.Path(checkpoint, CRITIC_FILE).unlink()
    with pytest.raises(ValueError, match=r"no critic.pt; a run with baseline gae cannot be resumed from it"):
        toy_trainer(tmp_path, settings=settings, arguments=arguments).train(resume_from_checkpoint=checkpoint)


def test_run_with_every_score_nan_is_the_outcome_only_run_bit_for_bit_with_a_critic(tmp_path):
    def nan_score(prompt_ids, paths):
        return [[math.nan] * len(path.steps) for path in paths]

    runs = []
    for score in (nan_score, None, toy_score):
        trainer = toy_trainer(tmp_path, score=score, settings=GAE)
        trainer.train()
        runs.append(trainer)
    assert_same(weights(runs[0].model), weights(runs[1].model))
    assert_same(weights(runs[0].critic.model), weights(runs[1].critic.model))
    assert sum(logged(runs[0], "rollout/fallbacks")) > 0
    assert not any(batch["is_valued"][..., PROCESS].any() for batch in runs[0]._buffered_inputs)
    assert runs[0].critic.model.head.weight[PROCESS].abs().max() == 0
    assert runs[2].critic.model.head.weight[PROCESS].abs().max() > 0
    assert differ(weights(runs[0].model), weights(runs[2].model))


def test_critic_is_one_whatever_the_micro_batches(tmp_path):
    runs = []
    for size in (16, 4):
        steps = 16 // size
        shape = {
            "per_device_train_batch_size": size,
            "steps_per_generation": steps,
            "gradient_accumulation_steps": steps,
        }
        trainer = toy_trainer(tmp_path, settings=GAE, arguments=shape | {"max_steps": 2, "num_iterations": 2})
        gradients = []
        trainer.critic.optimiser.step = lambda model=trainer.critic.model, kept=gradients: kept.append(
            {name: weight.grad.clone() for name, weight in model.named_parameters()}
        )
        trainer.train()
        runs.append(gradients[0])
    for name, gradient in runs[0].items():
        torch.testing.assert_close(runs[1][name], gradient, rtol=0, atol=1e-6)
    assert runs[0]["head.weight"].abs().max() > 1e-3


# ---- faults and refusals ----


def test_gradients_of_ranks_are_added_and_a_bad_one_is_skipped_by_all():
    def critic_with(gradient):
        settings = CriticSettings(trunk="shared", learning_rate=0.5)
        critic = Critic(toy_model(), settings, autocast=contextlib.nullcontext, max_grad_norm=10.0)
        critic._losses, critic._clipped = [torch.tensor(1.0)], [torch.tensor(0.0)]
        critic.model.head.weight.grad = torch.full((2, 32), gradient)
        return critic

    seen = []
    other = critic_with(0.25)
    found = other.update(4.0, lambda sums: (seen.append(sums.clone()), sums + 1 if sums.ndim == 2 else sums)[1], False)
    assert found["grad_norm"] == pytest.approx(1.25 * 8)
    assert [tuple(sums.shape) for sums in seen] == [(2,), (2, 32), (2,)]
    torch.testing.assert_close(other.model.head.weight.detach(), torch.full((2, 32), -0.5))  # AdamW's first step
    broken = critic_with(math.inf)
    assert broken.update(4.0, lambda sums: sums, False) == {"clip_fraction": 0.0, "skipped": 1.0}
    assert (broken.skipped_in_a_row, float(broken.model.head.weight.abs().max())) == (1, 0.0)
    assert broken.model.head.weight.grad is None
    passed = critic_with(0.25)
    assert passed.update(4.0, lambda sums: sums, True)["skipped"] == 0
    assert (passed.model.head.weight == 0).all()


def test_three_bad_updates_of_the_critic_end_the_run(tmp_path):
    trainer = toy_trainer(tmp_path, settings=GAE)
    trainer.critic.model.head.weight.register_hook(lambda gradient: gradient * math.nan)
    start = weights(trainer.critic.model)
    with pytest.raises(NonFiniteUpdates, match="3 updates in a row: loss or gradient of the critic not finite"):
        trainer.train()
    assert_same(weights(trainer.critic.model), start)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trunk": "none"}, r"critic.trunk = 'none' is not served; wanted one of own, shared"),
        ({"gamma": 1.5}, r"critic.gamma = 1.5 .* in \[0, 1\]"),
        ({"clip": 0.0}, r"critic.clip = 0.0 .* > 0 or none"),
        ({"warmup": -1}, r"critic.warmup = -1"),
    ],
)
def test_settings_of_the_critic_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        CriticSettings(**changes)


def test_runs_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"critic.warmup = 2 is not served; wanted below the run's 2 generation batches"
    ):
        toy_trainer(tmp_path, settings=with_critic(warmup=2))
    trainer = toy_trainer(tmp_path, settings=GAE)
    trainer.is_deepspeed_enabled = True
    with pytest.raises(ValueError, match=r"not served under DeepSpeed or FSDP .* wanted one of group, rloo, grpo"):
        trainer._place_critic()

"""Faults that public training loops had, where no test of a single module is the place for them; docs/loop_cases.md has
the table of all of them.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import pathlib
import re

import pytest
import torch
from fault_toys import run_with, toy_prm
from peft import LoraConfig, get_peft_model
from policy_toys import RecordedSampler, toy_grade, toy_model, toy_problems, toy_tokenizer, toy_trainer
from prm_support import toy_inputs
from test_policy_advantages import computed, inputs_of
from test_policy_batches import rollout_of
from torch import tensor
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import add_fused_lm_head

from common.config import load_config
from common.errors import InputError, RunError
from common.models import weights_hash
from common.records import FinishReason
from data_gen.engines import Completion, TransformersEngine
from policy.advantages import MovingAverage
from policy.forward import token_logprobs
from policy.monitors import Limits, below_zero
from policy.objective import policy_loss
from policy.options import PolicySettings
from policy.rewards import outcome_of
from policy.rollouts import advantage_inputs
from policy.train import refuse_untrained
from prm.score import score_logits, to_probabilities

PROJECT = pathlib.Path(__file__).parent.parent
TABLE = PROJECT / "docs" / "loop_cases.md"


def logged(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


# ---- degenerate batches ----


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3, 0.9])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_L16_equal_rewards_under_a_moving_average_are_not_blown_up(size, value):
    """A whole batch of one reward: 0 against the batch's own mean, and against the average after it."""
    paths = {
        "returns_BS": torch.zeros(size, 1),
        "is_step_BS": torch.zeros(size, 1, dtype=torch.bool),
        "outcome_B": torch.full((size,), value),
        "is_counted_B": torch.ones(size, dtype=torch.bool),
        "is_anchor_B": torch.zeros(size, dtype=torch.bool),
        "group_B": torch.zeros(size, dtype=torch.long),
        "step_of_token_BT": torch.full((size, 2), -1),
        "is_separator_BT": torch.zeros(size, 2, dtype=torch.bool),
        "is_completion_BT": torch.ones(size, 2, dtype=torch.bool),
    }
    average = MovingAverage.create()
    for _ in range(3):
        found = computed(inputs_of(**paths), baseline="moving_average", normalise_sources=True, moving_average=average)
        average = found.moving_average
        assert found.advantages_BT.abs().max() < 1e-9


def test_L17_L43_sizes_that_leave_nothing_to_compare_are_refused_by_name():
    config = str(PROJECT / "configs" / "micro.yaml")
    for override in ("ppo.paths=1", "ppo.minibatches=0", "ppo.micro_batch=0", "ppo.problems=0", "prm.batch_paths=0"):
        with pytest.raises(InputError, match=re.escape(override.split("=")[0])):
            load_config(config, [override])


class CutSampler(RecordedSampler):
    """Every completion is cut at the limit."""

    def _one(self, prompt, path, seed, limit):
        return Completion(super()._one(prompt, path, seed, limit).token_ids[:6], FinishReason.LENGTH)


def test_L26_L30_batch_of_which_no_path_counts_trains_nothing_and_says_so(tmp_path):
    settings = PolicySettings(train_on_truncated=False)
    trainer = run_with(tmp_path, sampler=CutSampler(), settings=settings)
    assert logged(trainer, "loss") == [0, 0, 0, 0]
    assert logged(trainer, "grad_norm") == [0, 0, 0, 0]
    assert trainer.skipped_updates == 0
    assert weights_hash(trainer.model) == weights_hash(toy_model())
    assert any(note.startswith("no path of the batch counts") for note in trainer.notes)
    numbers = [value for row in trainer.state.log_history for value in row.values() if isinstance(value, float)]
    assert numbers
    assert all(math.isfinite(value) for value in numbers)
    with pytest.raises(RunError, match="nothing was trained"):
        refuse_untrained(trainer, weights_hash(toy_model()))


class HalfCutSampler(RecordedSampler):
    """Every second completion is cut after 6 tokens."""

    def _one(self, prompt, path, seed, limit):
        one = super()._one(prompt, path, seed, limit)
        return Completion(one.token_ids[:6], FinishReason.LENGTH) if path % 2 else one


def test_L40_truncated_paths_without_a_gradient_are_in_no_statistic_of_length(tmp_path):
    trainer = toy_trainer(
        tmp_path,
        sampler=HalfCutSampler(),
        settings=PolicySettings(train_on_truncated=False),
        arguments={"max_steps": 4},
    )
    trainer.train()
    whole = [path for path in trainer._rollout.paths if not path.is_truncated]
    assert len(whole) == 8
    assert logged(trainer, "rollout/truncated") == [0.5]
    assert logged(trainer, "rollout/counted_share") == [0.5]
    assert logged(trainer, "rollout/tokens") == [pytest.approx(sum(len(path.token_ids) for path in whole) / 8)]
    assert logged(trainer, "rollout/steps") == [pytest.approx(sum(len(path.steps) for path in whole) / 8)]


# ---- log-probs and entropy ----


def with_bias(value):
    """A toy model whose last token has this logit beside what the weights give."""
    model = toy_model()
    model.lm_head = torch.nn.Linear(32, model.config.vocab_size, bias=True)
    torch.nn.init.normal_(model.lm_head.weight, generator=torch.Generator().manual_seed(1))
    model.lm_head.bias.data.zero_()
    model.lm_head.bias.data[-1] = value
    return model


def test_L23_entropy_with_a_token_of_probability_zero():
    """exp underflows to 0 at -1e30: entropy and gradient are those of the other tokens."""
    ids, mask = tensor([[5, 6, 7, 8]]), torch.ones(1, 4, dtype=torch.long)
    model = with_bias(-1e30)
    hidden = model.model(input_ids=ids).last_hidden_state[0, :-1]
    rest = torch.log_softmax((hidden @ model.lm_head.weight.T)[:, :-1].double(), -1)
    wanted = -(rest.exp() * rest).sum(-1)
    add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
    logprobs_BT, entropy_BT = token_logprobs(model, ids, mask, 3)
    torch.testing.assert_close(entropy_BT[0].double(), wanted, rtol=0, atol=1e-4)
    (logprobs_BT.sum() + entropy_BT.sum()).backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


def test_L23_logit_of_minus_infinity_needs_a_weight_that_ends_the_run(tmp_path):
    trainer = run_with(tmp_path, model=with_bias(-math.inf))
    assert trainer.notes[-1].startswith("ended: update 0: weight lm_head.bias is not finite")


def test_L25_log_softmax_of_a_large_vocabulary_is_taken_in_float32():
    """151 671 logits in bfloat16: the log-prob errs by less than 1e-4 against float64 of the same logits."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=151_671,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=16,
        initializer_range=1.0,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    ids = tensor([[5, 151_000, 70_000, 8, 42]])
    with torch.no_grad():
        wanted = torch.log_softmax(model(input_ids=ids).logits[0, :-1].double(), -1)
        naive = torch.log_softmax(model(input_ids=ids).logits[0, :-1], -1)
        add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
        found, _ = token_logprobs(model, ids, torch.ones_like(ids), 4)
    wanted, naive = (values.gather(1, ids[0, 1:, None])[:, 0].double() for values in (wanted, naive))
    assert found.dtype == torch.float32
    assert (found[0].double() - wanted).abs().max() < 1e-4
    assert (naive - wanted).abs().max() > 1e-2  # what bfloat16 would do


# ---- ends ----


def test_L32_outcome_stands_up_to_the_end_token_and_not_behind_it():
    """Two tokens and the end token of 5 places: the last advantage is at index 2; without an end token at index 4."""
    rollout = rollout_of("12", "1234", scores=[[], []])
    cut = rollout.paths[1]
    rollout.paths[1] = dataclasses.replace(cut, token_ids=(*cut.token_ids[:-1], 7))
    rollout.rewards[1] = type(rollout.rewards[0])(0.0, 0.0, True)
    batch = advantage_inputs(rollout, PolicySettings(), toy_tokenizer(), 5)
    found = computed(batch, baseline="group", normalise_sources=False).advantages_BT
    assert (found != 0).tolist() == [[True, True, True, False, False], [True] * 5]


def test_L33_end_token_in_the_prompt_ends_no_path():
    """The prompt holds the end token: a completion counts as finished only when it holds one itself."""
    tokenizer = toy_tokenizer()
    engine = TransformersEngine(toy_model(), tokenizer)
    (group,) = engine.sample([[5, 1, 6]], n=60, temperature=1.0, max_new_tokens=6, seed=0)
    problems = toy_problems(1) * len(group)
    paths = toy_grade(problems, [(p.token_ids, p.finish_reason) for p in group], seed=0, indices=range(len(group)))
    assert [path.is_truncated for path in paths] == [1 not in path.token_ids for path in paths]
    assert 0 < sum(path.is_truncated for path in paths) < len(paths)
    assert all(outcome_of(path)[0] == 0 for path in paths if path.is_truncated)


# ---- KL ----


def test_L47_log_probs_of_the_next_token_raise_the_alarm_and_sound_ones_do_not():
    """A policy whose taste changes from token to token, a flat reference; the shifted row reads each token's log-prob
    one place too early.
    """
    generator = torch.Generator().manual_seed(0)
    taste_T = torch.tensor([0.9, 0.1] * 100)
    tokens_T = (torch.rand(200, generator=generator) > taste_T).long()
    probs_TV = torch.stack([taste_T, 1 - taste_T], 1)
    everything = torch.ones(1, 199, dtype=torch.bool)
    found = []
    for shift in (0, 1):
        logprobs_BT = probs_TV[:199].gather(1, tokens_T[shift : 199 + shift, None]).log().T
        out = policy_loss(
            logprobs_BT,
            logprobs_BT,
            torch.zeros(1, 199),
            everything,
            reference_logprobs_BT=torch.full((1, 199), 0.5).log(),
            is_reasoning_BT=everything,
            entropy_BT=torch.zeros(1, 199),
            num_trained=199.0,
            num_reasoning=199.0,
        )
        mean, error = out.kl_k1_sum.item() / 199, math.sqrt(out.kl_k1_squares.item()) / 199
        found.append((mean, below_zero(mean, error, Limits())))
    assert found[0][0] == pytest.approx(0.368, abs=0.1)  # KL of (.9, .1) to (.5, .5)
    assert found[0][1] is None
    assert found[1][0] < -1
    assert "standard errors below 0" in found[1][1]
    assert below_zero(-0.01, 0.005, Limits()) is None  # two standard errors: chance
    assert below_zero(-5e-5, 1e-6, Limits()) is None  # rounding of equal weights


def adapted_model():
    """The toy model with a LoRA adapter that is not zero, as after supervised training."""
    torch.manual_seed(1)
    config = LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(toy_model(), config)


def test_L50_reference_of_a_trained_adapter_is_that_adapter_and_not_the_base(tmp_path):
    trainer = toy_trainer(tmp_path, adapted_model(), arguments={"max_steps": 4, "learning_rate": 1e-2})
    trainer.train()
    kls = logged(trainer, "kl/reference")
    assert kls[0] == pytest.approx(0, abs=1e-9)
    assert kls[-1] > 1e-4
    batch = trainer._buffered_inputs[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    model = trainer.accelerator.unwrap_model(trainer.model)
    with torch.no_grad(), model.disable_adapter():
        base_BT, _ = token_logprobs(model, ids, mask, batch["completion_ids"].size(1))
    assert (base_BT - batch["old_per_token_logps"]).abs().max() > 1e-2  # the base would have been another reference


def test_L51_L52_sampler_sees_an_adapters_new_weights_at_once():
    model = adapted_model().eval()
    engine = TransformersEngine(model, toy_tokenizer())
    prompts = [[5, 6, 7], [9, 9], [4, 20, 33]]
    sampled = []
    for scale in (1.0, 8.0):
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.mul_(scale)
        merged = TransformersEngine(copy.deepcopy(model).merge_and_unload(), toy_tokenizer())
        for one in (engine, merged):
            sampled.append(one.sample(prompts, n=4, temperature=1.0, max_new_tokens=12, seed=3))
    assert sampled[0] == sampled[1]
    assert sampled[2] == sampled[3]
    assert sampled[0] != sampled[2]


# ---- PRM ----


def test_L63_scores_are_no_softmax_over_one_entry(tmp_path):
    logits = score_logits(toy_prm(tmp_path / "policy").model, toy_inputs(20))
    right = [p for path in to_probabilities(logits) for p in path]
    assert all(0 < p < 1 for p in right)
    assert len(set(right)) > 10
    alone = [[z] for path in logits for z in path]
    for (p,), (q,) in zip(to_probabilities(alone), to_probabilities([[-z] for (z,) in alone]), strict=True):
        assert p + q == pytest.approx(1, abs=1e-6)


# ---- the table ----


def test_every_rule_is_in_the_table_and_every_test_it_names_is_there():
    rows = re.findall(r"^\| (L\d\d) \|(.*)\|$", TABLE.read_text(), re.MULTILINE)
    assert [rule for rule, _ in rows] == [f"L{number}" for number in range(15, 71)]
    defined = {
        name
        for path in (PROJECT / "tests").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for rule, row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named or "does not apply" in row, rule
        assert set(named) <= defined, (rule, set(named) - defined)

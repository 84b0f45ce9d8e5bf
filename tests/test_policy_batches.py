"""Plan of the batches, windows of updates, log-probs on packed rows, and tensors of a rollout."""

import dataclasses

import pytest
import torch
from policy_toys import toy_arguments, toy_model, toy_tokenizer
from torch import tensor
from trl.trainer.utils import add_fused_lm_head

from common.records import FinishReason, Path, Problem, Step, Verdict
from policy.batches import BatchPlan, PlanSampler, derived_seed, generations_needed, sort_windows
from policy.forward import packed_left, token_logprobs
from policy.options import PolicySettings, check_arguments, updates_per_generation
from policy.rewards import OutcomeReward
from policy.rollouts import Rollout, advantage_inputs, reasoning_mask

# ---- plan ----


def test_batches_of_a_pass_are_disjoint_and_passes_differ():
    plan = BatchPlan([None] * 10, batch_size=5, bands=1, seed=0)
    first, second, third, fourth = (plan.batch(i) for i in range(4))
    assert sorted(first + second) == sorted(third + fourth) == list(range(10))
    assert first != third
    assert plan.batch(2) == third  # random access


def test_bands_rotate_and_hold_problems_of_like_difficulty():
    difficulties = [0.9, 0.1, 0.5, 0.2, 0.8, 0.6]
    plan = BatchPlan(difficulties, batch_size=2, bands=3, seed=1)
    found = [sorted(difficulties[i] for i in plan.batch(turn)) for turn in range(6)]
    assert found == [[0.1, 0.2], [0.5, 0.6], [0.8, 0.9]] * 2


def test_plan_depends_on_its_seed_only():
    one, same, other = (BatchPlan([0.5] * 20, 4, 1, seed) for seed in (3, 3, 4))
    assert [one.batch(i) for i in range(5)] == [same.batch(i) for i in range(5)]
    assert [one.batch(i) for i in range(5)] != [other.batch(i) for i in range(5)]


def test_L43_too_few_problems_are_refused_at_the_start():
    with pytest.raises(ValueError, match=r"10 problems in 3 difficulty band\(s\) give bands of 3; a batch needs 4"):
        BatchPlan([0.5] * 10, batch_size=4, bands=3, seed=0)


def test_sampler_repeats_each_batch_for_every_micro_step():
    plan = BatchPlan([None] * 4, batch_size=2, bands=1, seed=0)
    rows = list(PlanSampler(plan, generations=2, paths=3, repeats=2))
    one, two = ([index for index in plan.batch(i) for _ in range(3)] for i in range(2))
    assert rows == one + one + two + two
    assert len(PlanSampler(plan, 2, 3, 2)) == len(rows)


def test_counts_of_updates_and_generations(tmp_path):
    args = toy_arguments(tmp_path, max_steps=8)  # 4 micro-batches x 2 epochs, 2 an update
    assert updates_per_generation(args) == 4
    assert generations_needed(args) == 2


def test_groups_must_not_span_ranks(tmp_path):
    args = toy_arguments(tmp_path)
    args.num_generations = 5
    with pytest.raises(ValueError, match=r"= 16 is not served; wanted a multiple of num_generations 5"):
        check_arguments(args, PolicySettings())


def test_derived_seeds_differ():
    seeds = {derived_seed(a, b) for a in range(30) for b in range(30)}
    assert len(seeds) == 900
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(1, 2) != derived_seed(2, 1)


# ---- windows ----


def test_windows_are_sorted_inside_and_counted():
    lengths = [5, 1, 4, 2, 6, 3, 8, 7]
    completion_mask = torch.arange(8)[None, :] < tensor(lengths)[:, None]
    rows = {
        "completion_ids": torch.arange(8)[:, None].expand(8, 8).clone(),
        "prompt_mask": torch.ones(8, 2, dtype=torch.long),
        "completion_mask": completion_mask.long(),
        "is_trained": completion_mask,
        "is_reasoning": completion_mask & (torch.arange(8) < 4),
        "num_items_in_batch": tensor(36),
    }
    batches = [
        {key: value if value.ndim == 0 else value[start : start + 2] for key, value in rows.items()}
        for start in range(0, 8, 2)
    ]
    found = sort_windows(batches, accumulation=2)
    assert [batch["completion_ids"][:, 0].tolist() for batch in found] == [[1, 3], [2, 0], [5, 4], [7, 6]]
    assert [int(batch["window_trained"]) for batch in found] == [12, 12, 24, 24]
    assert [int(batch["window_reasoning"]) for batch in found] == [1 + 2 + 4 + 4] * 2 + [3 + 4 + 4 + 4] * 2
    assert all(batch["num_items_in_batch"] == 36 for batch in found)


# ---- log-probs ----


def test_packed_left():
    ids = tensor([[0, 0, 5, 6, 7, 0], [1, 2, 3, 4, 0, 0]])
    mask = tensor([[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]])
    found = packed_left(ids, mask)
    assert found[0, :3].tolist() == [5, 6, 7]
    assert found[1, :4].tolist() == [1, 2, 3, 4]


def naive_logprobs(model, prompt, completion, temperature):
    """One row, no padding, float64 softmax: an independent computation."""
    ids = tensor([prompt + completion])
    logits = model(input_ids=ids).logits[0].double() / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    place = range(len(prompt) - 1, len(prompt) + len(completion) - 1)
    values = [logprobs[i, token].item() for i, token in zip(place, completion, strict=True)]
    entropy = [-(logprobs[i].exp() * logprobs[i]).sum().item() for i in place]
    return values, entropy


@pytest.mark.parametrize("batch_size", [None, 2])
def test_L42_L46_logprobs_are_those_of_the_row_alone_at_the_sampling_temperature(batch_size):
    model, temperature = toy_model(), 0.7
    prompts, completions = [[5, 6, 7], [8], [9, 3]], [[4, 5, 1], [7, 7, 7, 2, 1], [6]]
    wanted = [naive_logprobs(model, p, c, temperature) for p, c in zip(prompts, completions, strict=True)]
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    for pads in (0, 3, 7):
        rows = [
            [0] * (pads + 3 - len(p)) + p + c + [0] * (5 - len(c)) for p, c in zip(prompts, completions, strict=True)
        ]
        masks = [
            [0] * (pads + 3 - len(p)) + [1] * (len(p) + len(c)) + [0] * (5 - len(c))
            for p, c in zip(prompts, completions, strict=True)
        ]
        logprobs_BT, entropy_BT = token_logprobs(model, tensor(rows), tensor(masks), 5, batch_size)
        for row, (values, entropy) in enumerate(wanted):
            assert logprobs_BT[row, : len(values)].tolist() == pytest.approx(values, abs=1e-5)
            assert entropy_BT[row, : len(values)].tolist() == pytest.approx(entropy, abs=1e-5)
            assert (logprobs_BT[row, len(values) :] == 0).all()


def test_L31_end_token_that_is_the_pad_token_is_scored():
    """ids [5, 6, end] with end == pad == 0: the mask is by position, so the true end token counts."""
    model = toy_model()
    wanted, _ = naive_logprobs(model, [3], [5, 6, 0], 1.0)
    add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
    logprobs_BT, _ = token_logprobs(model, tensor([[3, 5, 6, 0, 0, 0]]), tensor([[1, 1, 1, 1, 0, 0]]), 5)
    assert logprobs_BT[0, :3].tolist() == pytest.approx(wanted, abs=1e-5)
    assert (logprobs_BT[0, 3:] == 0).all()


# ---- tensors of a rollout ----


def rollout_of(*texts, scores, counted=None):
    """Paths whose steps are their lines but the last, each with the newline that follows it (a separator)."""
    tokenizer, paths = toy_tokenizer(), []
    for text in texts:
        ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"] + [1])
        steps, place = [], 0
        for line in text.split("\n")[:-1]:
            steps.append(Step(line + "\n", place, place + len(line) + 1, place, place + len(line) + 1))
            place += len(line) + 1
        paths.append(Path("p", "x", text, ids, tuple(steps), "3", Verdict.CORRECT, FinishReason.STOP))
    counted = [True] * len(paths) if counted is None else counted
    problem = Problem("p", "?", "3", "toy", "sum")
    return Rollout(
        problems=[problem] * len(paths),
        paths=paths,
        rewards=[OutcomeReward(1.0, 0.25, is_counted) for is_counted in counted],
        is_anchor=[False] * len(paths),
        prompt_ids=[[5]] * len(paths),
        completion_ids=[list(path.token_ids) for path in paths],
        is_empty=[False] * len(paths),
        num_paths=len(paths),
        scores=scores,
    )


def test_tensors_of_a_rollout():
    rollout = rollout_of("1 +1\n=2\nAnswer: 2", "A: 2", scores=[[0.5, 0.9], []])
    found = advantage_inputs(rollout, PolicySettings(credit="sum", flow="immediate"), toy_tokenizer(), 20)
    torch.testing.assert_close(found.returns_BS, tensor([[0.5, 0.9], [0.0, 0.0]]))
    assert found.is_step_BS.tolist() == [[True, True], [False, False]]
    assert found.step_of_token_BT[0].tolist() == [0] * 5 + [1] * 3 + [-1] * 12
    # the newlines part steps, the space inside "1 +1" belongs to its step
    assert found.is_separator_BT[0].nonzero().flatten().tolist() == [4, 7, 15]
    assert found.is_completion_BT.sum(1).tolist() == [18, 5]
    assert found.outcome_B.tolist() == [0.75, 0.75]
    assert found.is_anchor_B.tolist() == [False, False]
    assert found.group_B.tolist() == [0, 0]


def test_floor_of_right_paths_leaves_wrong_ones_and_nan_alone():
    text, nan = "1+1\n=2\nAnswer: 2", float("nan")
    rollout = rollout_of(text, text, text, text, scores=[[0.5, 0.9], [0.5, 0.9], [0.5, nan], [0.5, 0.9]])
    rollout.paths[1] = dataclasses.replace(rollout.paths[1], verdict=Verdict.WRONG)
    rollout.paths[3] = dataclasses.replace(rollout.paths[3], finish_reason=FinishReason.LENGTH)
    settings = PolicySettings(credit="sum", flow="immediate", correct_floor=0.8)
    found = advantage_inputs(rollout, settings, toy_tokenizer(), 20).returns_BS
    torch.testing.assert_close(found, tensor([[0.8, 0.9], [0.5, 0.9], [0.8, nan], [0.5, 0.9]]), equal_nan=True)
    with pytest.raises(ValueError, match=r"correct_floor = 1\.5"):
        PolicySettings(correct_floor=1.5)


def test_path_without_scores_is_an_anchor():
    rollout = rollout_of("1+1\nAnswer: 2", "Answer: 2", scores=[[], []])
    found = advantage_inputs(rollout, PolicySettings(), toy_tokenizer(), 20)
    assert found.is_anchor_B.tolist() == [True, False]


def test_reasoning_is_what_stands_before_the_answer():
    """Path 1 has no answer line: all its tokens are reasoning, the end token included. Path 2 does not count."""
    rollout = rollout_of(
        "1+1\nAnswer: 2", "1+1 and so on", "1+1\nAnswer: 2", scores=[[]] * 3, counted=[True, True, False]
    )
    found = reasoning_mask(rollout, PolicySettings(), toy_tokenizer(), 20)
    assert found.sum(1).tolist()[1:] == [14, 0]
    assert found[0].sum() in (3, 4)  # "1+1", and the newline if it counts as reasoning
    everything = reasoning_mask(rollout, PolicySettings(mask_answer_kl=False), toy_tokenizer(), 20)
    assert everything.sum(1).tolist() == [14, 14, 0]


def test_answer_of_more_than_64_tokens_is_not_spared():
    rollout = rollout_of("1+1\nAnswer: 2" + "0" * 80, scores=[[]])
    found = reasoning_mask(rollout, PolicySettings(), toy_tokenizer(), 120)
    assert found.sum() == len(rollout.paths[0].token_ids)

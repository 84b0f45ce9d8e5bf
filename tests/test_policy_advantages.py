"""Baselines, normalisation and the mix against hand-computed numbers, and faults of public trainers (L numbers)."""

import dataclasses
import json
import math

import pytest
import shape_checks  # noqa: F401 (checks shapes in what is imported below)
import torch
from torch import tensor

from policy.advantages import (
    AdvantageInputs,
    MovingAverage,
    compute_advantages,
    count_equal_groups,
    group_advantages,
    is_anchor,
    normalise,
)


def grouped(values, kind="group", groups=None, counted=None, dtype=torch.float32):
    values_N = tensor(values, dtype=dtype)
    group_N = torch.zeros(len(values), dtype=torch.long) if groups is None else tensor(groups)
    counted_N = torch.ones(len(values), dtype=torch.bool) if counted is None else tensor(counted)
    return group_advantages(values_N, group_N, counted_N, kind)


def inputs_of(**changes):
    """Two paths of one group. Path 0: tokens a a _ b b end with steps aa and bb and a separator; path 1: one step."""
    fields = {
        "returns_BS": tensor([[0.8, 0.2], [0.4, 0.0]]),
        "is_step_BS": tensor([[True, True], [True, False]]),
        "outcome_B": tensor([1.0, 0.0]),
        "is_counted_B": tensor([True, True]),
        "is_anchor_B": tensor([False, False]),
        "group_B": tensor([0, 0]),
        "step_of_token_BT": tensor([[0, 0, 0, 1, 1, -1], [0, 0, -1, -1, -1, -1]]),
        "is_separator_BT": tensor([[False, False, True, False, False, False], [False] * 6]),
        "is_completion_BT": tensor([[True] * 6, [True, True, True, False, False, False]]),
    }
    return AdvantageInputs(**(fields | changes))


def computed(inputs, **changes):
    settings = {
        "process_weight": 0.7,
        "outcome_weight": 0.3,
        "baseline": "group",
        "normalise_sources": False,
        "moving_average": MovingAverage.create(4),
    }
    return compute_advantages(inputs, **(settings | changes))


# ---- inside groups ----


def test_group_kinds_by_hand():
    """Values 1, 0, 0, 1: mean 1/2, mean of the others 1/3 or 2/3, std sqrt(1/3)."""
    torch.testing.assert_close(grouped([1.0, 0.0, 0.0, 1.0]), tensor([0.5, -0.5, -0.5, 0.5]))
    torch.testing.assert_close(grouped([1.0, 0.0, 0.0, 1.0], "rloo"), tensor([2.0, -2.0, -2.0, 2.0]) / 3)
    std = math.sqrt(1 / 3) + 1e-4
    torch.testing.assert_close(grouped([1.0, 0.0, 0.0, 1.0], "grpo"), tensor([0.5, -0.5, -0.5, 0.5]) / std)


def test_rloo_is_the_mean_of_the_others():
    values = [0.3, 0.9, 0.1, 0.4, 0.6]
    wanted = [value - (sum(values) - value) / 4 for value in values]
    torch.testing.assert_close(grouped(values, "rloo"), tensor(wanted))


@pytest.mark.parametrize("kind", ["group", "rloo", "grpo"])
@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 3, 4, 8, 16])
def test_L15_L16_L17_equal_rewards_give_exactly_zero(size, dtype, value, kind):
    """Also where the float32 mean is not the value (eight times 0.1), and for a group of one."""
    assert torch.equal(grouped([value] * size, kind, dtype=dtype), torch.zeros(size, dtype=dtype))


def test_L16_values_that_are_nearly_equal_are_not_blown_up():
    values = [0.1, 0.1, 0.1, float(torch.nextafter(tensor(0.1), tensor(1.0)))]
    assert grouped(values, "grpo").abs().max() < 1e-3


@pytest.mark.parametrize("kind", ["group", "rloo", "grpo"])
def test_L19_values_that_do_not_count_leave_the_group(kind):
    found = grouped([1.0, math.nan, 0.0, 1.0], kind, counted=[True, False, True, True])
    assert found[1] == 0
    torch.testing.assert_close(found[[0, 2, 3]], grouped([1.0, 0.0, 1.0], kind))


def test_L53_groups_go_by_their_id_in_any_order():
    found = grouped([1.0, 0.0, 0.0, 0.0], groups=[7, 3, 7, 3])
    assert torch.equal(found, tensor([0.5, 0.0, -0.5, 0.0]))


def test_L54_share_of_groups_with_equal_rewards():
    generator = torch.Generator().manual_seed(0)
    p, size, groups = 0.1819, 8, 40_000
    values_N = (torch.rand(size * groups, generator=generator) < p).float()
    total, equal = count_equal_groups(
        values_N, torch.arange(size * groups) // size, torch.ones(size * groups, dtype=torch.bool)
    )
    assert total == groups
    assert equal / total == pytest.approx(p**size + (1 - p) ** size, abs=0.01)


def test_unknown_baselines_are_refused():
    with pytest.raises(ValueError, match="unknown baseline 'mean'; known: moving_average, group"):
        computed(inputs_of(), baseline="mean")
    with pytest.raises(ValueError, match="unknown group baseline"):
        grouped([1.0], "moving_average")


# ---- moving average ----


def test_moving_average_by_hand():
    """Batch 1 uses its own mean (1, 2); batch 2 is seen against it, then 0.9 * old + 0.1 * new."""
    first = MovingAverage.create(1)
    batch = tensor([1.0, 2.0], dtype=torch.float64)
    assert torch.equal(first.baseline(batch), batch)
    second = first.updated(batch, tensor([4.0, 4.0]))
    later = tensor([2.0, 12.0], dtype=torch.float64)
    assert torch.equal(second.baseline(later), batch)
    torch.testing.assert_close(
        second.updated(later, tensor([4.0, 4.0])).mean_K, tensor([1.1, 3.0], dtype=torch.float64)
    )


def test_a_slot_without_data_stays_as_it_is():
    average = MovingAverage.create(1).updated(tensor([1.0, 0.0], dtype=torch.float64), tensor([3.0, 0.0]))
    assert average.is_set_K.tolist() == [True, False]
    again = average.updated(tensor([0.0, 5.0], dtype=torch.float64), tensor([0.0, 1.0]))
    assert again.mean_K.tolist() == [1.0, 5.0]
    assert again.is_set_K.tolist() == [True, True]


def test_moving_average_has_a_baseline_for_each_step_position():
    """Means: outcome 1/2, position 1 (0.8 + 0.4) / 2 = 0.6, position 2 0.2."""
    found = computed(inputs_of(), baseline="moving_average")
    process, outcome = 0.7 * 0.2, 0.3 * 0.5
    torch.testing.assert_close(
        found.advantages_BT[0], tensor([process + outcome] * 2 + [outcome] + [outcome] * 2 + [outcome])
    )
    torch.testing.assert_close(found.moving_average.mean_K[:4], tensor([0.5, 0.6, 0.2, 0.0], dtype=torch.float64))
    assert found.moving_average.is_set_K.tolist() == [True, True, True, False, False]


def test_moving_average_is_carried_from_batch_to_batch():
    """Must show F: fails when the second batch starts afresh."""
    first = computed(inputs_of(), baseline="moving_average")
    better = inputs_of(outcome_B=tensor([1.0, 1.0]), returns_BS=tensor([[1.0, 1.0], [1.0, 0.0]]))
    second = computed(better, baseline="moving_average", moving_average=first.moving_average)
    torch.testing.assert_close(second.advantages_BT[0, 5], tensor(0.3 * 0.5))  # 1 - 0.5, not 1 - 1
    torch.testing.assert_close(second.advantages_BT[0, 0], tensor(0.7 * 0.4 + 0.3 * 0.5))
    torch.testing.assert_close(second.moving_average.mean_K[0].item(), 0.55)


def test_moving_average_survives_json_exactly():
    average = computed(
        inputs_of(returns_BS=tensor([[1 / 3, 0.1], [0.7, 0.0]])), baseline="moving_average"
    ).moving_average
    restored = MovingAverage.from_state_dict(json.loads(json.dumps(average.state_dict())))
    assert torch.equal(restored.mean_K, average.mean_K)
    assert torch.equal(restored.is_set_K, average.is_set_K)
    assert restored.momentum == average.momentum


def test_steps_beyond_the_last_position_share_it():
    found = computed(inputs_of(), baseline="moving_average", moving_average=MovingAverage.create(1))
    torch.testing.assert_close(found.moving_average.mean_K[1].item(), (0.8 + 0.2 + 0.4) / 3, rtol=1e-6, atol=0)


@pytest.mark.parametrize("baseline", ["moving_average", "group", "rloo", "grpo"])
@pytest.mark.parametrize("normalised", [False, True])
def test_two_ranks_sum_to_the_whole(baseline, normalised):
    """Each rank sees its half; sums are added over ranks (here: by a function that knows both halves)."""
    generator = torch.Generator().manual_seed(1)
    whole = AdvantageInputs(
        returns_BS=torch.rand(4, 3, generator=generator),
        is_step_BS=torch.ones(4, 3, dtype=torch.bool),
        outcome_B=tensor([1.0, 0.0, 0.0, 0.0]),
        is_counted_B=torch.ones(4, dtype=torch.bool),
        is_anchor_B=torch.zeros(4, dtype=torch.bool),
        group_B=tensor([0, 0, 1, 1]),
        step_of_token_BT=torch.arange(3).repeat(4, 1),
        is_separator_BT=torch.zeros(4, 3, dtype=torch.bool),
        is_completion_BT=torch.ones(4, 3, dtype=torch.bool),
    )
    halves = [
        AdvantageInputs(
            **{f.name: getattr(whole, f.name)[rows] for f in dataclasses.fields(whole) if f.name != "segments"}
        )
        for rows in (slice(0, 2), slice(2, 4))
    ]
    settings = {"baseline": baseline, "normalise_sources": normalised}
    recorded = []
    for half in halves:
        sums = []
        computed(half, **settings, reduce_sum=lambda value, sums=sums: sums.append(value.clone()) or value)
        recorded.append(sums)
    expected = computed(whole, **settings)
    # collect the k-th sum of both ranks; those that depend on earlier ones are settled by repeating
    for _ in range(4):
        totals = [a + b for a, b in zip(*recorded, strict=True)]
        fresh, found = [], []
        for half in halves:
            sums, given = [], iter(totals)
            found.append(
                computed(half, **settings, reduce_sum=lambda v, s=sums, g=given: s.append(v.clone()) or next(g))
            )
            fresh.append(sums)
        recorded = fresh
    torch.testing.assert_close(torch.cat([part.advantages_BT for part in found]), expected.advantages_BT)
    assert found[0].process_share == pytest.approx(expected.process_share)
    assert torch.allclose(found[0].moving_average.mean_K, expected.moving_average.mean_K)
    assert torch.equal(found[0].moving_average.mean_K, found[1].moving_average.mean_K)


# ---- normalisation ----


def test_normalise_by_hand():
    """Deviation about the baseline: sqrt((9 + 16 + 0) / 3); entries that do not count are 0 and do not enter."""
    found = normalise(tensor([3.0, -4.0, 0.0, 99.0]), tensor([True, True, True, False]), lambda sums: sums)
    torch.testing.assert_close(found, tensor([3.0, -4.0, 0.0, 0.0]) / (math.sqrt(25 / 3) + 1e-4))


def test_normalise_does_not_blow_up_a_constant():
    """A whole batch below a moving baseline: the standard deviation is 0, the result -1."""
    found = normalise(torch.full((8,), -0.3), torch.ones(8, dtype=torch.bool), lambda sums: sums)
    torch.testing.assert_close(found, torch.full((8,), -0.3 / 0.3001))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_L18_few_values_stay_finite(count):
    counted = torch.arange(4) < count
    assert torch.isfinite(normalise(tensor([1.0, 2.0, 3.0, 4.0]), counted, lambda sums: sums)).all()


def test_normalised_sources_have_the_weights_as_their_sizes():
    """With one step a path and both sources of deviation 1 the process share is 0.7 up to EPSILON."""
    found = computed(
        inputs_of(
            returns_BS=tensor([[0.9], [0.5]]),
            is_step_BS=tensor([[True], [True]]),
            step_of_token_BT=tensor([[0, 0], [0, 0]]),
            is_separator_BT=torch.zeros(2, 2, dtype=torch.bool),
            is_completion_BT=torch.ones(2, 2, dtype=torch.bool),
        ),
        normalise_sources=True,
    )
    assert found.process_share == pytest.approx(0.7, abs=1e-3)
    torch.testing.assert_close(found.advantages_BT, tensor([[1.0, 1.0], [-1.0, -1.0]]), rtol=0, atol=1e-3)


# ---- the mix ----


def test_mix_by_hand():
    """group: A^p = (0.2, 0) for path 0 and -0.2 for path 1, A^o = +-0.5."""
    found = computed(inputs_of())
    wanted = [[0.14 + 0.15, 0.14 + 0.15, 0.15, 0.15, 0.15, 0.15], [-0.14 - 0.15, -0.14 - 0.15, -0.15, 0, 0, 0]]
    torch.testing.assert_close(found.advantages_BT, tensor(wanted))
    process, outcome = 4 * 0.14, 9 * 0.15
    assert found.process_share == pytest.approx(process / (process + outcome))
    assert (found.num_anchors, found.num_fallbacks, found.num_no_step, found.num_uncounted) == (0, 0, 0, 0)


def test_anchor_has_the_unscaled_outcome_and_leaves_the_process_baseline():
    """Path 0 is an anchor: A = A^o = 0.5 on all its tokens; path 1 is then alone at its position: A^p = 0."""
    found = computed(inputs_of(is_anchor_B=tensor([True, False])))
    torch.testing.assert_close(found.advantages_BT, tensor([[0.5] * 6, [-0.15, -0.15, -0.15, 0, 0, 0]]))
    assert found.num_anchors == 1


def test_fallback_is_an_anchor_that_is_counted():
    failed = inputs_of(returns_BS=tensor([[0.8, math.nan], [0.4, 0.0]]))
    anchored = inputs_of(is_anchor_B=tensor([True, False]))
    found = computed(failed)
    assert torch.equal(found.advantages_BT, computed(anchored).advantages_BT)
    assert (found.num_fallbacks, found.num_anchors) == (1, 0)


def test_value_of_a_place_without_a_step_is_not_read():
    nan = inputs_of(returns_BS=tensor([[0.8, 0.2], [0.4, math.nan]]))
    assert computed(nan).num_fallbacks == 0
    assert torch.equal(computed(nan).advantages_BT, computed(inputs_of()).advantages_BT)


@pytest.mark.parametrize("baseline", ["moving_average", "group"])
def test_all_scores_nan_is_the_run_without_scores(baseline):
    """Path 1 has no step: also its tokens are those of the outcome-only run."""
    steps = {"is_step_BS": tensor([[True, True], [False, False]])}
    failed = computed(inputs_of(returns_BS=torch.full((2, 2), math.nan), **steps), baseline=baseline)
    without = computed(inputs_of(is_anchor_B=tensor([True, False]), **steps), baseline=baseline)
    assert torch.equal(failed.advantages_BT, without.advantages_BT)
    torch.testing.assert_close(failed.advantages_BT[1, :3], torch.full((3,), -0.5))
    assert torch.equal(failed.moving_average.mean_K, without.moving_average.mean_K)
    assert not failed.moving_average.is_set_K[1:].any()


def test_path_without_a_step_has_the_outcome_part_only_and_is_counted():
    inputs = inputs_of(
        is_step_BS=tensor([[True, True], [False, False]]),
        step_of_token_BT=tensor([[0, 0, 0, 1, 1, -1], [-1] * 6]),
    )
    found = computed(inputs)
    torch.testing.assert_close(found.advantages_BT[1], tensor([-0.15, -0.15, -0.15, 0, 0, 0]))
    assert found.num_no_step == 1


def test_paths_that_do_not_count_have_no_gradient_and_enter_no_statistic():
    """A third path with verdict TIMEOUT changes nothing for the other two."""

    def with_third(inputs):
        third = {
            "returns_BS": tensor([[9.0, 9.0]]),
            "is_step_BS": tensor([[True, True]]),
            "outcome_B": tensor([9.0]),
            "is_counted_B": tensor([False]),
            "is_anchor_B": tensor([False]),
            "group_B": tensor([0]),
            "step_of_token_BT": tensor([[0, 0, 0, 1, 1, -1]]),
            "is_separator_BT": tensor([[False] * 6]),
            "is_completion_BT": tensor([[True] * 6]),
        }
        return AdvantageInputs(**{name: torch.cat([getattr(inputs, name), value]) for name, value in third.items()})

    for baseline in ("moving_average", "group", "rloo", "grpo"):
        alone = computed(inputs_of(), baseline=baseline, normalise_sources=True)
        found = computed(with_third(inputs_of()), baseline=baseline, normalise_sources=True)
        assert torch.equal(found.advantages_BT[:2], alone.advantages_BT)
        assert torch.equal(found.advantages_BT[2], torch.zeros(6))
        assert torch.equal(found.moving_average.mean_K, alone.moving_average.mean_K)
        assert (found.num_uncounted, found.process_share) == (1, alone.process_share)


def test_outcome_that_is_not_finite_does_not_count():
    found = computed(inputs_of(outcome_B=tensor([1.0, math.nan])))
    assert torch.isfinite(found.advantages_BT).all()
    assert (found.advantages_BT[1] == 0).all()
    assert found.num_uncounted == 1


def test_padding_has_no_advantage():
    found = computed(inputs_of())
    assert (found.advantages_BT[~inputs_of().is_completion_BT] == 0).all()


# ---- anchors ----


def test_anchors_are_the_same_everywhere_and_about_the_asked_share():
    chosen = [is_anchor(3, f"problem {i}", 0, 0.15) for i in range(4000)]
    assert chosen == [is_anchor(3, f"problem {i}", 0, 0.15) for i in range(4000)]
    assert sum(chosen) / 4000 == pytest.approx(0.15, abs=0.02)
    assert chosen != [is_anchor(3, f"problem {i}", 1, 0.15) for i in range(4000)]
    assert chosen != [is_anchor(4, f"problem {i}", 0, 0.15) for i in range(4000)]
    assert not any(is_anchor(3, f"problem {i}", 0, 0.0) for i in range(100))
    assert all(is_anchor(3, f"problem {i}", 0, 1.0) for i in range(100))

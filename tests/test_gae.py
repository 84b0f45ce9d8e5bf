"""GAE over steps against hand-computed numbers and identities; value loss; explained variance."""

import dataclasses
import math

import pytest
import shape_checks  # noqa: F401 (checks shapes in what is imported below)
import torch
from torch import tensor

from policy.advantages import AdvantageInputs, MovingAverage, compute_advantages
from policy.gae import (
    OUTCOME,
    PROCESS,
    Estimates,
    Segments,
    ValueTargets,
    explained_variance,
    flow_rewards,
    gae,
    segment_starts,
    source_advantages,
    value_loss,
    variance_sums,
)

nan = math.nan
YES3 = tensor([[True, True, True]])


# ---- gae ----


def test_gae_by_hand():
    """r = 1, 0, 2; V = 0.5, 1, -1; gamma 0.5, lambda 0.5. delta = 1, -1.5, 3; A_3 = 3, A_2 = -1.5 + 0.25 * 3, ..."""
    found = gae(tensor([[1.0, 0.0, 2.0]]), tensor([[0.5, 1.0, -1.0]]), YES3, 0.5, 0.5)
    torch.testing.assert_close(found, tensor([[0.8125, -0.75, 3.0]]))


def test_L55_end_of_a_path_is_terminal_and_padding_has_no_advantage():
    """V = 0.2, 0.4, 0.6, gamma 1, lambda 0.95, reward 1 at the end: 0.751, 0.58, 0.4. No value is read behind the end,
    also not of a truncated path: the limit is part of the task, and its outcome is 0.
    """
    rewards, values = tensor([[0.0, 0.0, 1.0, nan]]), tensor([[0.2, 0.4, 0.6, 0.5]])
    found = gae(rewards, values, tensor([[True, True, True, False]]), 1.0, 0.95)
    torch.testing.assert_close(found, tensor([[0.751, 0.58, 0.4, 0.0]]))
    cut = gae(torch.zeros(1, 4), values, tensor([[True, True, True, False]]), 1.0, 0.95)
    torch.testing.assert_close(cut, tensor([[-0.1515, -0.37, -0.6, 0.0]]))


def test_lambda_1_is_the_discounted_return_minus_the_value():
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.rand(2, 5, 6, generator=generator)
    is_state = torch.arange(6)[None, :] < tensor([6, 1, 4, 0, 5])[:, None]
    found = gae(rewards, values, is_state, 0.9, 1.0)
    for row, length in enumerate([6, 1, 4, 0, 5]):
        for n in range(6):
            ahead = sum(0.9 ** (m - n) * float(rewards[row, m]) for m in range(n, length))
            wanted = ahead - float(values[row, n]) if n < length else 0.0
            assert float(found[row, n]) == pytest.approx(wanted, abs=1e-6)


def test_lambda_0_is_the_temporal_difference():
    rewards, values = tensor([[0.2, 0.7, 0.1]]), tensor([[0.3, 0.6, 0.9]])
    wanted = tensor([[0.2 + 0.9 * 0.6 - 0.3, 0.7 + 0.9 * 0.9 - 0.6, 0.1 - 0.9]])
    torch.testing.assert_close(gae(rewards, values, YES3, 0.9, 0.0), wanted)


def test_what_stands_behind_a_path_is_not_read():
    rewards, values = tensor([[1.0, 2.0, nan]]), tensor([[0.5, 0.25, nan]])
    found = gae(rewards, values, tensor([[True, True, False]]), 0.9, 0.9)
    alone = gae(rewards[:, :2], values[:, :2], tensor([[True, True]]), 0.9, 0.9)
    assert torch.equal(found, torch.cat([alone, tensor([[0.0]])], dim=1))


def test_a_critic_that_knows_leaves_no_advantage():
    rewards, values = tensor([[1.0, 0.0, 2.0]]), tensor([[1.0 + 0.25 * 2, 0.5 * 2, 2.0]])
    torch.testing.assert_close(gae(rewards, values, YES3, 0.5, 0.95), torch.zeros(1, 3))


# ---- segments and flows ----


def test_segments_begin_at_the_prompt_at_each_later_step_and_behind_the_last():
    assert segment_starts([(1, 4), (5, 9), (10, 12)], 15) == [0, 5, 10, 12]
    assert segment_starts([(0, 4), (5, 9)], 9) == [0, 5]
    assert segment_starts([], 7) == segment_starts([], 0) == [0]


def test_tokens_belong_to_the_last_segment_begun():
    """Tokens a a _ b b | answer end: white space behind a step is of its segment."""
    segments = Segments(
        torch.zeros(2, 2), tensor([[0, 3, 5], [0, 0, 0]]), tensor([[True, True, True], [True, False, False]])
    )
    assert segments.of_tokens(7).tolist() == [[0, 0, 0, 1, 1, 2, 2], [0] * 7]


def test_flows_by_hand():
    rewards = tensor([[0.5, 0.25, 0.125], [1.0, 9.0, nan]])
    is_step = tensor([[True, True, True], [True, False, False]])
    assert torch.equal(flow_rewards(rewards, is_step, "to_go", 0.9)[0][0], rewards[0])
    assert flow_rewards(rewards, is_step, "to_go", 0.9)[1] == 0.9
    assert torch.equal(flow_rewards(rewards, is_step, "immediate", 0.9)[0][0], rewards[0])
    assert flow_rewards(rewards, is_step, "immediate", 0.9)[1] == 0.0
    whole, gamma = flow_rewards(rewards, is_step, "whole", 0.9)
    assert torch.equal(whole, tensor([[0.0, 0.0, 0.875], [1.0, 0.0, 0.0]]))
    assert gamma == 0.9
    with pytest.raises(ValueError, match="unknown credit flow 'back'"):
        flow_rewards(rewards, is_step, "back", 0.9)


@pytest.mark.parametrize("flow", ["to_go", "immediate", "whole"])
def test_without_discount_and_critic_the_advantages_are_the_returns_of_the_credit_rules(flow):
    """gamma = lambda = 1 and V = 0: A^p_k = G_k of ``prm.credit``, A^o = o."""
    from prm.credit import step_returns, step_rewards

    probs, is_step = tensor([[0.9, 0.4, 0.7], [0.8, 0.1, 0.3]]), tensor([[True, True, True], [True, True, False]])
    is_segment = tensor([[True] * 4, [True, True, True, False]])
    segments = Segments(step_rewards(probs, is_step, "delta"), torch.zeros(2, 4, dtype=torch.long), is_segment)
    estimates = Estimates(torch.zeros(2, 4, 2), flow, 1.0, 1.0)
    process, outcome, targets = source_advantages(
        segments, estimates, is_step, tensor([1.0, 0.5]), tensor([True, True])
    )
    torch.testing.assert_close(process, step_returns(probs, is_step, "delta", flow))
    assert torch.equal(outcome, tensor([[1.0] * 4, [0.5, 0.5, 0.5, 0.0]]))
    assert torch.equal(
        targets.is_valued_BN2[..., PROCESS], tensor([[True, True, True, False], [True, True] + [False] * 2])
    )
    assert torch.equal(targets.is_valued_BN2[..., OUTCOME], is_segment)


# ---- in the mix ----


def gae_inputs(**changes):
    """Path 0: tokens a a _ b b end, two steps and a rest; path 1: a a end, one step and a rest; path 2: end alone."""
    fields = {
        "returns_BS": torch.zeros(3, 2),
        "is_step_BS": tensor([[True, True], [True, False], [False, False]]),
        "outcome_B": tensor([1.0, 0.0, 0.5]),
        "is_counted_B": tensor([True, True, True]),
        "is_anchor_B": tensor([False, False, False]),
        "group_B": tensor([0, 0, 0]),
        "step_of_token_BT": tensor([[0, 0, 0, 1, 1, -1], [0, 0, -1, -1, -1, -1], [-1] * 6]),
        "is_separator_BT": tensor([[False, False, True, False, False, False], [False] * 6, [False] * 6]),
        "is_completion_BT": tensor([[True] * 6, [True] * 3 + [False] * 3, [True] + [False] * 5]),
        "segments": Segments(
            tensor([[0.5, -0.25], [0.25, 0.0], [0.0, 0.0]]),
            tensor([[0, 3, 5], [0, 2, 0], [0, 0, 0]]),
            tensor([[True, True, True], [True, True, False], [True, False, False]]),
        ),
    }
    return AdvantageInputs(**(fields | changes))


VALUES = tensor(
    [[[0.1, 0.6], [0.2, 0.7], [9.0, 0.8]], [[0.3, 0.4], [9.0, 0.2], [nan, nan]], [[9.0, 0.3], [nan, nan], [nan, nan]]]
)


def mixed(inputs, values=VALUES, flow="to_go", normalise=False, **changes):
    return compute_advantages(
        inputs,
        process_weight=0.7,
        outcome_weight=0.3,
        baseline="gae",
        normalise_sources=normalise,
        moving_average=MovingAverage.create(4),
        estimates=Estimates(values, flow, 0.5, 0.5),
        **changes,
    )


def test_mix_by_hand():
    """Process of path 0: delta = 0.5 + 0.5*0.2 - 0.1 = 0.5, -0.25 - 0.2 = -0.45; A = 0.3875, -0.45. Outcome of path 0:
    delta = 0.35 - 0.6, 0.4 - 0.7, 1 - 0.8 = -0.25, -0.3, 0.2; A = -0.3125, -0.25, 0.2. Path 1: A^p = 0.25 - 0.3;
    delta = 0.1 - 0.4, 0 - 0.2; A = -0.35, -0.2. Path 2: A^o = 0.5 - 0.3."""
    found = mixed(gae_inputs())
    one, two, rest = 0.7 * 0.3875 - 0.3 * 0.3125, -0.7 * 0.45 - 0.3 * 0.25, 0.3 * 0.2
    wanted = tensor(
        [
            [one, one, -0.3 * 0.3125, two, two, rest],
            [0.7 * -0.05 - 0.3 * 0.35, 0.7 * -0.05 - 0.3 * 0.35, -0.3 * 0.2, 0, 0, 0],
            [0.3 * 0.2, 0, 0, 0, 0, 0],
        ]
    )
    torch.testing.assert_close(found.advantages_BT, wanted)
    assert found.num_no_step == 1
    targets = tensor([[0.3875 + 0.1, -0.45 + 0.2], [-0.05 + 0.3, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(found.targets.targets_BN2[:, :2, PROCESS], targets)
    assert torch.isfinite(found.targets.targets_BN2).all()


def test_anchor_and_fallback_are_trained_on_the_outcome_alone_and_teach_no_process_value():
    plain = mixed(gae_inputs())
    outcome_BT = tensor([[-0.3125, -0.3125, -0.3125, -0.25, -0.25, 0.2]])
    anchored = mixed(gae_inputs(is_anchor_B=tensor([True, False, False])))
    broken = gae_inputs(returns_BS=tensor([[nan, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    broken = mixed(dataclasses.replace(broken, segments=nan_rewards(broken.segments)))
    for found in (anchored, broken):
        torch.testing.assert_close(found.advantages_BT[:1], outcome_BT)
        assert torch.equal(found.advantages_BT[1:], plain.advantages_BT[1:])
        assert not found.targets.is_valued_BN2[0, :, PROCESS].any()
        assert found.targets.is_valued_BN2[0, :, OUTCOME].all()
        assert torch.isfinite(found.targets.targets_BN2).all()
    assert (anchored.num_anchors, broken.num_fallbacks) == (1, 1)


def nan_rewards(segments):
    rewards_BS = segments.rewards_BS.clone()
    rewards_BS[0] = nan
    return dataclasses.replace(segments, rewards_BS=rewards_BS)


def test_path_that_does_not_count_teaches_nothing():
    found = mixed(gae_inputs(is_counted_B=tensor([False, True, True]), outcome_B=tensor([nan, 0.0, 0.5])))
    assert (found.advantages_BT[0] == 0).all()
    assert not found.targets.is_valued_BN2[0].any()
    assert torch.equal(found.advantages_BT[1:], mixed(gae_inputs()).advantages_BT[1:])


def test_sources_are_normalised_over_steps_and_over_segments():
    process = tensor([0.3875, -0.45, -0.05])
    outcome = tensor([-0.3125, -0.25, 0.2, -0.35, -0.2, 0.2])
    scales = [float(x.square().mean().sqrt()) + 1e-4 for x in (process, outcome)]
    found = mixed(gae_inputs(), normalise=True).advantages_BT
    assert float(found[0, 3]) == pytest.approx(0.7 * -0.45 / scales[0] + 0.3 * -0.25 / scales[1], rel=1e-5)
    assert float(found[2, 0]) == pytest.approx(0.3 * 0.2 / scales[1], rel=1e-5)


def test_estimates_are_needed():
    with pytest.raises(ValueError, match="needs the segments of the paths and a critic's estimates"):
        compute_advantages(
            gae_inputs(),
            process_weight=0.7,
            outcome_weight=0.3,
            baseline="gae",
            normalise_sources=False,
            moving_average=MovingAverage.create(4),
        )


# ---- value loss ----


def loss_of(values, old, targets, clip=0.2, valued=None, num=None):
    pair = [torch.stack([tensor(x), torch.zeros(len(x))], dim=-1)[None] for x in (values, old, targets)]
    is_valued = tensor([[[True, False]] * len(values)]) if valued is None else tensor([[[v, False] for v in valued]])
    num_valued = tensor([float(len(values)) if num is None else num, 0.0])
    leaf = pair[0].requires_grad_()
    found = value_loss(leaf, pair[1], pair[2], is_valued, num_valued_2=num_valued, clip=clip)
    found.loss.backward()
    return dataclasses.replace(found, loss=found.loss.detach()), leaf.grad[0, :, 0]


def test_value_loss_by_hand():
    """Inside the clip; twice beyond it towards the target (0.2 away from 1, no gradient); beyond it away from it."""
    rows = [0.1, 0.5, 0.6, -0.5], [0.0] * 4, [1.0] * 4
    found, gradient = loss_of(*rows)
    assert float(found.loss) == pytest.approx(0.5 / 4 * (0.9**2 + 0.8**2 + 0.8**2 + 1.5**2))
    torch.testing.assert_close(gradient, tensor([-0.9, 0.0, 0.0, -1.5]) / 4)
    assert float(found.clipped_sum) == 2
    free, gradient = loss_of(*rows, clip=None)
    assert float(free.loss) == pytest.approx(0.5 / 4 * (0.9**2 + 0.5**2 + 0.4**2 + 1.5**2))
    torch.testing.assert_close(gradient, tensor([-0.9, -0.5, -0.4, -1.5]) / 4)
    assert float(free.clipped_sum) == 0


def test_states_that_do_not_count_have_no_value_loss_and_no_gradient():
    found, gradient = loss_of([0.5, nan], [0.5, nan], [1.0, nan], valued=[True, False], num=1.0)
    assert float(found.loss) == pytest.approx(0.125)
    assert gradient.tolist() == [-0.5, 0.0]


def test_each_source_is_a_mean_of_its_own():
    values = tensor([[[1.0, 2.0], [1.0, 0.0]]])
    is_valued = tensor([[[True, True], [True, False]]])
    zeros = torch.zeros_like(values)
    found = value_loss(values, zeros, zeros, is_valued, num_valued_2=tensor([2.0, 1.0]), clip=None)
    assert float(found.loss) == pytest.approx(0.5 * 1 + 0.5 * 4)


# ---- explained variance ----


def variance_of(returns, values):
    pair = lambda x: torch.stack([tensor(x), torch.zeros(len(x))], dim=-1)[None]  # noqa: E731
    is_valued = pair([1.0] * len(returns)).bool()
    targets = ValueTargets(torch.zeros_like(pair(returns)), is_valued, pair(returns))
    return explained_variance(variance_sums(targets, pair(values)))


def test_explained_variance_by_hand():
    assert variance_of([0.0, 1.0], [0.0, 1.0]) == {"process": pytest.approx(1)}
    assert variance_of([0.0, 1.0], [3.0, 3.0]) == {"process": pytest.approx(0)}  # a constant, whatever it is
    assert variance_of([0.0, 1.0], [1.0, 0.0]) == {"process": pytest.approx(-3)}
    assert variance_of([0.0, 1.0, 2.0], [0.0, 1.0, 1.0]) == {"process": pytest.approx(2 / 3)}
    assert variance_of([0.5, 0.5], [0.0, 1.0]) == {}
    assert variance_of([0.5], [0.0]) == {}


def test_explained_variance_of_two_ranks_is_that_of_the_whole():
    generator = torch.Generator().manual_seed(1)
    returns, values = torch.rand(2, 6, 3, 2, generator=generator)
    is_valued = torch.rand(6, 3, 2, generator=generator) > 0.3
    parts = [
        variance_sums(ValueTargets(returns[rows], is_valued[rows], returns[rows]), values[rows])
        for rows in (slice(0, 2), slice(2, 6))
    ]
    found = explained_variance(parts[0] + parts[1])
    for index, source in enumerate(("process", "outcome")):
        r, v = returns[..., index][is_valued[..., index]], values[..., index][is_valued[..., index]]
        assert found[source] == pytest.approx(float(1 - (r - v).var() / r.var()), abs=1e-5)

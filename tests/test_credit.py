"""Credit rules against hand-computed numbers and identities."""

import pytest
import shape_checks  # noqa: F401 (checks shapes in what is imported below)
import torch
from torch import tensor

from prm.credit import FLOWS, RULES, default_flow, flow_returns, step_returns, step_rewards

# two paths: 3 steps and 2 steps (the third column of the second row is padding and holds NaN: it must not be read)
PROBS_BS = tensor([[0.9, 0.4, 0.4], [0.5, 0.8, torch.nan]])
IS_STEP_BS = tensor([[True, True, True], [True, True, False]])

REWARDS = {
    "sum": [[0.9, 0.4, 0.4], [0.5, 0.8, 0.0]],
    "mean": [[0.3, 0.4 / 3, 0.4 / 3], [0.25, 0.4, 0.0]],
    "min": [[0.0, 0.4, 0.0], [0.5, 0.0, 0.0]],  # the first of two equal minima
    "delta": [[-0.1, -0.5, 0.0], [-0.5, 0.3, 0.0]],  # p_0 = 1
}
TO_GO = {
    "sum": [[1.7, 0.8, 0.4], [1.3, 0.8, 0.0]],
    "min": [[0.4, 0.4, 0.0], [0.5, 0.0, 0.0]],
    "delta": [[-0.6, -0.5, 0.0], [-0.2, 0.3, 0.0]],  # p_K - p_{k-1}
}
WHOLE = {"sum": [[1.7, 1.7, 1.7], [1.3, 1.3, 0.0]], "mean": [[1.7 / 3] * 3, [0.65, 0.65, 0.0]]}


@pytest.mark.parametrize("rule", REWARDS)
def test_rewards_by_hand(rule):
    torch.testing.assert_close(step_rewards(PROBS_BS, IS_STEP_BS, rule), tensor(REWARDS[rule]))


def test_softmin_by_hand():
    """p = (0.5, 0.8), T = 0.1: weights e^-5 : e^-8 = 0.952574 : 0.047426."""
    rewards_BS = step_rewards(PROBS_BS, IS_STEP_BS, "softmin")
    torch.testing.assert_close(rewards_BS[1], tensor([0.476287, 0.037941, 0.0]), rtol=0, atol=1e-6)
    # p = (0.9, 0.4, 0.4): weights e^-5 : 1 : 1
    weight = 1 / (2 + 2.718281828**-5)
    torch.testing.assert_close(rewards_BS[0], tensor([0.9 * (1 - 2 * weight), 0.4 * weight, 0.4 * weight]))


def test_softmin_tends_to_min_and_to_mean():
    probs_BS, is_step_BS = tensor([[0.9, 0.3, 0.6]]), torch.ones(1, 3, dtype=torch.bool)
    cold_BS = step_rewards(probs_BS, is_step_BS, "softmin", temperature=1e-3)
    hot_BS = step_rewards(probs_BS, is_step_BS, "softmin", temperature=1e6)
    torch.testing.assert_close(cold_BS, step_rewards(probs_BS, is_step_BS, "min"))
    torch.testing.assert_close(hot_BS, step_rewards(probs_BS, is_step_BS, "mean"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", TO_GO)
def test_to_go_by_hand(rule):
    torch.testing.assert_close(step_returns(PROBS_BS, IS_STEP_BS, rule, "to_go"), tensor(TO_GO[rule]))


@pytest.mark.parametrize("rule", WHOLE)
def test_whole_by_hand(rule):
    torch.testing.assert_close(step_returns(PROBS_BS, IS_STEP_BS, rule, "whole"), tensor(WHOLE[rule]))


def test_immediate_is_the_reward_and_the_default_of_delta_only():
    for rule in RULES:
        rewards_BS = step_rewards(PROBS_BS, IS_STEP_BS, rule)
        assert torch.equal(flow_returns(rewards_BS, IS_STEP_BS, "immediate"), rewards_BS)
        wanted = "immediate" if rule == "delta" else "to_go"
        assert default_flow(rule) == wanted
        assert torch.equal(step_returns(PROBS_BS, IS_STEP_BS, rule), step_returns(PROBS_BS, IS_STEP_BS, rule, wanted))


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("rule", RULES)
def test_padding_changes_nothing_and_stays_zero(rule, flow):
    alone_BS = step_returns(PROBS_BS[1:, :2], IS_STEP_BS[1:, :2], rule, flow)
    padded_BS = step_returns(PROBS_BS, IS_STEP_BS, rule, flow)
    torch.testing.assert_close(padded_BS[1:, :2], alone_BS)
    assert padded_BS[1, 2] == 0


@pytest.mark.parametrize("rule", RULES)
def test_a_failed_score_makes_only_its_own_path_non_finite(rule):
    probs_BS = tensor([[0.9, torch.nan, 0.4], [0.5, 0.8, 0.0]])
    returns_BS = step_returns(probs_BS, IS_STEP_BS, rule, "to_go")
    assert not torch.isfinite(returns_BS[0]).all()
    assert torch.isfinite(returns_BS[1]).all()


def test_path_without_steps_is_zero():
    none_BS = torch.zeros(2, 3, dtype=torch.bool)
    for rule in RULES:
        for flow in FLOWS:
            assert torch.equal(step_returns(PROBS_BS, none_BS, rule, flow), torch.zeros(2, 3))


def test_unknown_names_and_temperatures_are_refused():
    with pytest.raises(ValueError, match="unknown credit rule 'max'; known: sum"):
        step_rewards(PROBS_BS, IS_STEP_BS, "max")
    with pytest.raises(ValueError, match="unknown credit flow 'back'"):
        step_returns(PROBS_BS, IS_STEP_BS, "sum", "back")
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        step_rewards(PROBS_BS, IS_STEP_BS, "softmin", 0)

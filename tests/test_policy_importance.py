"""Weights for a sampler with other probabilities: numbers by hand, the identities they keep, metrics and alarm."""

import dataclasses
import math

import pytest
import torch
from test_policy_monitors import GOOD
from torch import tensor

from policy.importance import MODES, importance_ratio, mismatch
from policy.monitors import BatchFacts, Limits, Monitors

LN2, LN4 = math.log(2), math.log(4)
OLD = tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, 0.0]])
SAMPLER = OLD - tensor([[LN2, -LN2, LN4], [LN4, 0.0, 9.0]])
IS_SAMPLED = tensor([[True, True, True], [True, True, False]])


@pytest.mark.parametrize(
    ("mode", "clip_min", "clip_max", "wanted"),
    [
        ("token_truncate", None, 3.0, [[2, 0.5, 3], [3, 1, 1]]),
        ("token_truncate", 1.0, 3.0, [[2, 1, 3], [3, 1, 1]]),
        ("token_truncate", None, None, [[2, 0.5, 4], [4, 1, 1]]),
        ("token_mask", None, 3.0, [[2, 0.5, 0], [0, 1, 1]]),
        ("token_mask", 0.75, None, [[2, 0, 4], [4, 1, 1]]),
        ("sequence_truncate", None, 3.0, [[3, 3, 3], [3, 3, 3]]),  # 2 * 1/2 * 4 = 4 in the first row, 4 in the second
        ("sequence_truncate", 5.0, None, [[5, 5, 5], [5, 5, 5]]),
        ("sequence_mask", None, 3.0, [[0, 0, 0], [0, 0, 0]]),
        ("sequence_mask", None, 4.5, [[4, 4, 4], [4, 4, 4]]),
    ],
)
def test_weights_by_hand(mode, clip_min, clip_max, wanted):
    found = importance_ratio(OLD, SAMPLER, IS_SAMPLED, mode=mode, clip_min=clip_min, clip_max=clip_max)
    torch.testing.assert_close(found, tensor(wanted, dtype=torch.float32), rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_equal_probabilities_weigh_one_and_masked_tokens_play_no_part(mode):
    assert torch.equal(importance_ratio(OLD, OLD, IS_SAMPLED, mode=mode), torch.ones(2, 3))
    spoilt = torch.where(IS_SAMPLED, SAMPLER, torch.full_like(SAMPLER, math.nan))
    bounds = {"mode": mode, "clip_max": None}
    assert torch.equal(
        importance_ratio(OLD, spoilt, IS_SAMPLED, **bounds), importance_ratio(OLD, SAMPLER, IS_SAMPLED, **bounds)
    )


def test_expectation_over_the_sampler_is_that_over_the_trainer():
    """Over all tokens of a vocabulary of 5: sum mu w A = sum pi A, exactly while no bound is met."""
    torch.manual_seed(0)
    pi, mu = (torch.randn(5).log_softmax(0) for _ in range(2))
    values = torch.randn(5)
    weights = importance_ratio(pi[None], mu[None], torch.ones(1, 5, dtype=torch.bool), clip_max=None)[0]
    torch.testing.assert_close((mu.exp() * weights * values).sum(), (pi.exp() * values).sum())


def test_far_apart_stays_finite_and_a_nan_stays_visible():
    one = torch.ones(1, 3, dtype=torch.bool)
    far = importance_ratio(tensor([[0.0, 0.0, 0.0]]), tensor([[-90.0, 90.0, 0.0]]), one, clip_max=None)
    torch.testing.assert_close(far, tensor([[math.exp(20), math.exp(-20), 1.0]]))
    for mode in MODES:
        assert bool(importance_ratio(OLD[:1], tensor([[math.nan, -1, -1]]), one, mode=mode)[0, 0].isnan())


def test_unknown_mode():
    with pytest.raises(ValueError, match="'word' is not known; wanted one of token_truncate, token_mask"):
        importance_ratio(OLD, OLD, IS_SAMPLED, mode="word")


def test_mismatch_by_hand():
    found = mismatch(OLD, SAMPLER, IS_SAMPLED)
    assert found.num_tokens == 5
    assert found.difference_sum == pytest.approx(2 * LN2 + 2 * LN4, rel=1e-6)
    assert found.difference_max == pytest.approx(LN4, rel=1e-6)
    assert found.ratio_sum == pytest.approx(2 + 0.5 + 3 + 3 + 1)
    assert found.bounded_sum == 2
    whole = mismatch(OLD, SAMPLER, IS_SAMPLED, mode="sequence_mask")
    assert (whole.ratio_sum, whole.bounded_sum) == (0, 5)
    nothing = mismatch(OLD, SAMPLER, torch.zeros_like(IS_SAMPLED))
    assert dataclasses.astuple(nothing) == (0, 0, 0, 0, 0)


def test_alarm_rolls_back_after_two_batches_above_its_limit_and_not_below():
    monitors = Monitors(Limits(kl_cap=None, repeated_ngrams=None, steps_kept=None), 0.02)
    gaps = [0.0005, 0.3, 0.09, 0.3]
    for gap in gaps:
        assert monitors.observe_batch(dataclasses.replace(GOOD, logp_difference=gap)) == []
    (note,) = monitors.observe_batch(dataclasses.replace(GOOD, logp_difference=0.2))
    assert note.startswith("sampler_mismatch: log-prob difference of engine and trainer 0.25 over 2 batches, above 0.1")
    assert monitors.rollback_before == 3
    assert monitors.stopped_by.startswith("sampler_mismatch")


def test_facts_take_the_mean_difference():
    names = ["repeated_ngrams", "steps", "fallback_share", "truncated", "unparsed", "equal_groups", "step_tokens",
             "separators", "duplicate_steps", "same_pattern", "counted_share"]  # fmt: skip
    metrics = {f"rollout/{name}": 0.0 for name in names} | {"reward/outcome": 0.0}
    assert BatchFacts.from_metrics(metrics, 0.0, None).logp_difference is None
    metrics |= {"sampling/logp_difference": 0.25, "sampling/max_logp_difference": 3.0}
    assert BatchFacts.from_metrics(metrics, 0.0, None).logp_difference == 0.25

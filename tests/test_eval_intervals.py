"""The shared bootstrap: against exact values, scipy's bootstrap and identities."""

import numpy as np
import pytest
from scipy import stats

from common.metrics import bootstrap_mean, paired_bootstrap
from eval.intervals import Resampler, per_problem, ratio


def test_ratio_is_numerator_over_denominator_and_undefined_at_zero():
    assert ratio(np.array([[3.0, 4.0], [0.0, 5.0]])).tolist() == [0.75, 0.0]
    assert np.isnan(ratio(np.array([[1.0, 0.0]])))[0]


def test_every_resample_draws_as_many_problems_as_there_are():
    resampler = Resampler.create(17, num_resamples=50, seed=3)
    assert resampler.weights_RP.shape == (50, 17)
    assert (resampler.weights_RP.sum(axis=1) == 17).all()


def test_value_is_exact_and_left_out_problems_do_not_count():
    figure = Resampler.create(4).figure(per_problem([1.0, 0.0, None, 0.5]), absent="none")
    assert figure.value == pytest.approx(0.5)
    low, high = figure.ci95
    assert 0.0 <= low < 0.5 < high <= 1.0


def test_interval_agrees_with_scipy_and_with_the_common_bootstrap():
    values = np.random.default_rng(0).random(300)
    figure = Resampler.create(300, num_resamples=4000).figure(per_problem(values.tolist()), absent="")
    other = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=1).confidence_interval
    common = bootstrap_mean(values.tolist())
    for mine, scipys, shared in zip(figure.ci95, other, common.ci95, strict=True):
        assert mine == pytest.approx(scipys, abs=0.003)
        assert mine == pytest.approx(shared, abs=0.003)


def test_difference_is_paired():
    """A policy that is 0.1 better on every problem is better by 0.1 without any uncertainty."""
    base = np.random.default_rng(0).random(50)
    figure = Resampler.create(50).difference(per_problem(base.tolist()), per_problem((base + 0.1).tolist()), absent="")
    assert figure.value == pytest.approx(0.1)
    assert figure.ci95 == pytest.approx((0.1, 0.1))


def test_difference_agrees_with_the_common_paired_bootstrap():
    draw = np.random.default_rng(1)
    base, policy = draw.random(200).tolist(), draw.random(200).tolist()
    mine = Resampler.create(200, num_resamples=4000).difference(per_problem(base), per_problem(policy), absent="")
    other = paired_bootstrap(base, policy, num_resamples=4000)
    assert mine.value == pytest.approx(other.value)
    assert mine.ci95 == pytest.approx(other.ci95, abs=0.005)


def test_absent_figures_say_why():
    nothing = Resampler.create(3).figure(per_problem([None, None, None]), absent="no path")
    assert (nothing.value, nothing.ci95, nothing.reason) == (None, None, "no path")
    single = Resampler.create(1).figure(per_problem([0.5]), absent="")
    assert (single.value, single.ci95) == (0.5, None)
    assert "single problem" in single.reason
    rare = Resampler.create(20).figure(per_problem([1.0] + [None] * 19), absent="")
    assert rare.value == 1.0
    assert rare.ci95 is None
    assert "too few" in rare.reason


def test_same_seed_same_interval():
    values = per_problem(np.random.default_rng(2).random(30).tolist())
    first, again, other = (Resampler.create(30, seed=seed).figure(values, absent="") for seed in (5, 5, 6))
    assert first == again
    assert first.ci95 != other.ci95


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="0 problems"):
        Resampler.create(0)
    with pytest.raises(ValueError, match="2 rows"):
        Resampler.create(3).figure(per_problem([1.0, 0.0]), absent="")
    with pytest.raises(ValueError, match="not finite"):
        Resampler.create(2).figure(np.array([[np.nan, 1.0], [1.0, 1.0]]), absent="")

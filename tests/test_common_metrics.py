"""Metrics against hand-computed values and identities."""

import math
from itertools import combinations

import numpy as np
import pytest

from common import metrics


def test_pass_at_k_counts_the_subsets():
    for n in (4, 6):
        for c in range(n + 1):
            for k in range(1, n + 1):
                subsets = list(combinations(range(n), k))
                hits = sum(any(i < c for i in subset) for subset in subsets)
                assert metrics.pass_at_k(n, c, k) == pytest.approx(hits / len(subsets))
    with pytest.raises(ValueError, match="k = 5"):
        metrics.pass_at_k(4, 1, 5)
    with pytest.raises(ValueError, match="num_correct"):
        metrics.pass_at_k(4, 5, 1)


def test_majority_vote():
    assert metrics.majority_vote(["3", "4", "4", None, None, None]) == "4"
    assert metrics.majority_vote(["3", "4"]) == "3"  # first seen wins a tie
    assert metrics.majority_vote(["3", "4", "4"], [0.9, 0.2, 0.3]) == "3"
    assert metrics.majority_vote([None, None]) is None


def test_first_error_f1_by_hand():
    score = metrics.first_error_f1([1, 0, None, None, 2], [1, 1, None, None, None])
    assert (score.accuracy_wrong, score.accuracy_right) == (0.5, pytest.approx(2 / 3))
    assert score.f1 == pytest.approx(2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
    assert (score.num_wrong, score.num_right) == (2, 3)
    assert metrics.first_error_f1([None], [None]).f1 == 0.0  # no wrong path: nothing shown
    assert metrics.first_error_f1([0, 0], [0, None]).f1 == 0.0


def test_first_below():
    assert metrics.first_below([0.9, 0.4, 0.1], 0.5) == 1
    assert metrics.first_below([0.5], 0.5) is None
    assert metrics.first_below([], 0.5) is None
    assert metrics.first_below([0.9, math.nan], 0.5) == 1


def test_choose_threshold_takes_the_lowest_of_the_best():
    scores = [[0.9, 0.3], [0.9, 0.8], [0.7]]
    threshold, best = metrics.choose_threshold(scores, [1, None, None], grid=[0.1, 0.4, 0.6, 0.75, 0.95])
    assert (threshold, best.f1) == (0.4, 1.0)


def test_brier_and_reliability_by_hand():
    assert metrics.brier([0.8, 0.3], [1, 0]) == pytest.approx((0.04 + 0.09) / 2)
    with pytest.raises(ValueError, match="0 probabilities"):
        metrics.brier([], [])
    bins = metrics.reliability([0.05, 0.15, 0.12, 1.0], [0, 1, 0, 1])
    assert [(b.count, b.share_right) for b in bins] == [(1, 0.0), (2, 0.5), (1, 1.0)]
    assert bins[-1].high == 1.0
    expected = (1 * 0.05 + 2 * abs(0.135 - 0.5) + 1 * 0.0) / 4
    assert metrics.expected_calibration_error(bins) == pytest.approx(expected)
    assert metrics.expected_calibration_error([]) == 0.0


def test_repeated_ngrams():
    assert metrics.repeated_ngram_share([1, 2, 1, 2, 1, 2], n=2) == pytest.approx(1 - 2 / 5)
    assert metrics.repeated_ngram_share([1, 2, 3], n=4) == 0.0
    assert metrics.repeated_ngram_share(list(range(9))) == 0.0


def test_bootstrap_interval_covers_and_is_reproducible():
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(100):
        estimate = metrics.bootstrap_mean(rng.binomial(1, 0.3, 200).tolist(), num_resamples=400, seed=trial)
        covered += estimate.ci95[0] <= 0.3 <= estimate.ci95[1]
    assert 85 <= covered <= 100
    values = [0.0, 1.0, 1.0, 0.5]
    assert metrics.bootstrap_mean(values, seed=4) == metrics.bootstrap_mean(values, seed=4)
    assert metrics.bootstrap_mean([1.0, 1.0]).ci95 == (1.0, 1.0)
    with pytest.raises(ValueError, match="1 of them not finite"):
        metrics.bootstrap_mean([1.0, math.nan])


def test_paired_bootstrap_keeps_pairs_together():
    base = np.tile([0.0, 1.0], 50)
    estimate = metrics.paired_bootstrap(base.tolist(), (base + 0.1).tolist())
    assert estimate.value == pytest.approx(0.1)
    assert estimate.ci95[1] - estimate.ci95[0] < 1e-9  # the same difference everywhere: no spread
    with pytest.raises(ValueError, match="2 base values, 1 policy"):
        metrics.paired_bootstrap([0, 1], [1])

"""Pure metrics shared by every stage: accuracy of answers, quality of a PRM, intervals.

Nothing here does I/O, logs, or knows a model. Every function states its formula, its range and what it raises.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval.

    Attributes:
        value: point estimate.
        ci95: (low, high), both ends included.
    """

    value: float
    ci95: tuple[float, float]


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased estimate of P(at least one of k samples is correct): ``1 - C(n-c, k) / C(n, k)``.

    Source: Chen et al. 2021, arXiv:2107.03374, equation 1.

    Raises:
        ValueError: unless ``1 <= k <= num_samples`` and ``0 <= num_correct <= num_samples``.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"k = {k}: must be between 1 and num_samples = {num_samples}")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct = {num_correct}: must be between 0 and num_samples = {num_samples}")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def majority_vote(answers: Sequence[Hashable | None], weights: Sequence[float] | None = None) -> Hashable | None:
    """Return the answer with the largest total weight; None answers do not vote; first seen wins a tie.

    Args:
        answers: canonical answers of the paths of one problem, None where a path has none.
        weights: one non-negative weight an answer (default 1 each), e.g. PRM scores.
    """
    totals: Counter[Hashable] = Counter()
    for answer, weight in zip(answers, weights or [1.0] * len(answers), strict=True):
        if answer is not None:
            totals[answer] += weight  # type: ignore[assignment]
    return max(totals, key=totals.__getitem__) if totals else None


@dataclasses.dataclass(frozen=True)
class FirstErrorScore:
    """ProcessBench figures (Zheng et al. 2024, arXiv:2412.06559), each in [0, 1].

    Attributes:
        f1: harmonic mean of the two accuracies; 0 when either is 0 or has no path.
        accuracy_wrong: share of paths with an error whose first wrong step is named exactly.
        accuracy_right: share of paths without an error of which none is claimed.
        num_wrong, num_right: number of paths in each class.
    """

    f1: float
    accuracy_wrong: float
    accuracy_right: float
    num_wrong: int
    num_right: int


def first_error_f1(predicted: Sequence[int | None], true: Sequence[int | None]) -> FirstErrorScore:
    """Compare predicted with true first-error indices (None: no error); one entry a path."""
    wrong = [p == t for p, t in zip(predicted, true, strict=True) if t is not None]
    right = [p is None for p, t in zip(predicted, true, strict=True) if t is None]
    accuracy_wrong = sum(wrong) / len(wrong) if wrong else 0.0
    accuracy_right = sum(right) / len(right) if right else 0.0
    total = accuracy_wrong + accuracy_right
    f1 = 2 * accuracy_wrong * accuracy_right / total if total > 0 else 0.0
    return FirstErrorScore(f1, accuracy_wrong, accuracy_right, len(wrong), len(right))


def first_below(scores: Sequence[float], threshold: float) -> int | None:
    """Index of the first step whose probability of being right is below ``threshold``; None if there is none.

    A non-finite score counts as below: a step that cannot be judged is never passed as right.
    """
    return next((k for k, score in enumerate(scores) if not score >= threshold), None)


def choose_threshold(
    scores: Sequence[Sequence[float]], true: Sequence[int | None], grid: Sequence[float] | None = None
) -> tuple[float, FirstErrorScore]:
    """Return the threshold with the best first-error F1 and that F1; the lowest one wins a tie.

    Choose on validation paths, report on test paths.

    Args:
        scores: probability of each step being right, one sequence a path.
        true: true first-error index of each path, None for none.
        grid: thresholds to try, default 0.02, 0.04, …, 0.98.
    """
    candidates = list(grid) if grid is not None else [k / 50 for k in range(1, 50)]
    scored = [(first_error_f1([first_below(path, t) for path in scores], true), t) for t in candidates]
    best, threshold = max(scored, key=lambda pair: (pair[0].f1, -pair[1]))
    return threshold, best


def brier(probabilities: Sequence[float], labels: Sequence[int]) -> float:
    """Brier score ``mean((p - y)^2)`` in [0, 1], lower is better; y = 1 means the step is right.

    Raises:
        ValueError: no probability, or lengths differ.
    """
    p, y = np.asarray(probabilities, float), np.asarray(labels, float)
    if p.shape != y.shape or p.size == 0:
        raise ValueError(f"{p.size} probabilities for {y.size} labels: need equal, non-zero numbers")
    return float(np.mean((p - y) ** 2))


@dataclasses.dataclass(frozen=True)
class ReliabilityBin:
    """One bin of a reliability diagram: range of predictions, their mean, share of right steps, count."""

    low: float
    high: float
    mean_probability: float
    share_right: float
    count: int


def reliability(probabilities: Sequence[float], labels: Sequence[int], num_bins: int = 10) -> list[ReliabilityBin]:
    """Reliability diagram with equal-width bins; empty bins are left out. The last bin includes 1."""
    p, y = np.asarray(probabilities, float), np.asarray(labels, float)
    index = np.minimum((p * num_bins).astype(int), num_bins - 1)
    bins = []
    for b in range(num_bins):
        inside = index == b
        if inside.any():
            mean_p, share = float(p[inside].mean()), float(y[inside].mean())
            bins.append(ReliabilityBin(b / num_bins, (b + 1) / num_bins, mean_p, share, int(inside.sum())))
    return bins


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """``sum_b count_b * |mean_probability_b - share_right_b| / sum_b count_b`` in [0, 1]; 0 for no bins."""
    total = sum(b.count for b in bins)
    return sum(b.count * abs(b.mean_probability - b.share_right) for b in bins) / total if total else 0.0


def auc(scores: Sequence[float], is_positive: Sequence[bool]) -> float | None:
    """Area under the ROC curve: the probability that a positive's score is above a negative's, ties counted half.

    ``(R - n(n + 1) / 2) / (n m)`` with R the rank sum of the n positives (ranks from 1, ties averaged) and m negatives.
    In [0, 1]; None without a positive or without a negative.
    """
    num_positive = sum(is_positive)
    num_negative = len(scores) - num_positive
    if not num_positive or not num_negative:
        return None
    rank_sum = float(stats.rankdata(scores)[np.asarray(is_positive, dtype=bool)].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def repeated_ngram_share(token_ids: Sequence[int], n: int = 4) -> float:
    """Share of n-grams that occurred before in the same sequence: ``1 - distinct / total`` in [0, 1]; 0 if none."""
    total = len(token_ids) - n + 1
    if total <= 0:
        return 0.0
    distinct = len({tuple(token_ids[i : i + n]) for i in range(total)})
    return 1.0 - distinct / total


def bootstrap_mean(values: Sequence[float], *, num_resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean over independent units (problems, not paths) with its 95 % percentile bootstrap interval.

    Raises:
        ValueError: no value, or a non-finite one.
    """
    data = np.asarray(values, float)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError(f"{data.size} values, {int((~np.isfinite(data)).sum())} of them not finite")
    mean = float(data.mean())
    if data.size == 1 or bool(np.all(data == data[0])):
        return Estimate(mean, (mean, mean))
    result = stats.bootstrap(
        (data,), np.mean, n_resamples=num_resamples, method="percentile", batch=256, rng=np.random.default_rng(seed)
    )
    interval = result.confidence_interval
    return Estimate(mean, (float(interval.low), float(interval.high)))


def paired_bootstrap(
    base: Sequence[float], policy: Sequence[float], *, num_resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Mean difference ``policy - base`` over the same problems with its 95 % interval; pairs are kept together.

    Raises:
        ValueError: lengths differ.
    """
    if len(base) != len(policy):
        raise ValueError(f"{len(base)} base values, {len(policy)} policy values: need one of each a problem")
    return bootstrap_mean(np.subtract(policy, base).tolist(), num_resamples=num_resamples, seed=seed)

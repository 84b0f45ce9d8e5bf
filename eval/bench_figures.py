"""Figures of a PRM benchmark: first-error F1, best-of-N over pools, calibration. Pure.

Intervals resample problems; solutions of one problem stay together. The protocol is ProcessBench's (Zheng et al. 2024,
arXiv:2412.06559): accuracy on wrong solutions (the first wrong step named exactly), accuracy on right ones (no step
called wrong), F1 their harmonic mean, each for a subset, then the mean over subsets.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from pydantic import Field

from common import metrics
from common.records import Path
from eval.bench_rows import StepRow
from eval.intervals import Array, Resampler, per_problem, ratio
from eval.pools import AGGREGATES, JudgedGroup, Pool, best_of, judged_groups, majority_of
from eval.prm_quality import PRMSettings, harmonic_f1, prm_figures
from eval.schema import CalibrationBin, Count, Figure, Share, Strict


class FirstErrorFigures(Strict):
    """One subset, or the mean over subsets.

    Attributes:
        f1, acc_wrong, acc_right: see the module.
        rows, wrong_rows, right_rows: solutions, with and without a wrong step.
        bad_rows: a score was not finite; predicted to be without error.
        cut_rows: the input was cut at the length limit, later steps have no score.
        fired: solutions in which an error is claimed.
        reached: of those, the share with a human first error at or before the claimed step.
        exact: of those, the share with the human first error at the claimed step.
    """

    f1: Figure
    acc_wrong: Figure
    acc_right: Figure
    rows: Count
    wrong_rows: Count
    right_rows: Count
    bad_rows: Count
    cut_rows: Count
    fired: Count
    reached: Figure
    exact: Figure


class CalibrationFigures(Strict):
    """Step probabilities against human labels up to each solution's first wrong step; what is behind it has none."""

    steps: Count
    brier: Figure
    calibration_error: Share | None
    reliability: list[CalibrationBin]


class PoolFigures(Strict):
    """Best of N over a pool, each keyed by N and averaged over the problems with at least N judged samples.

    Attributes:
        problems: with at least N judged samples.
        oracle: pass@N, P(one of N samples is right).
        majority: majority vote, without scores.
        vote: majority vote weighted by path score (``aggregate``).
        best: the best-scored sample, for each rule that makes a path score of step scores.
        outcome_auc: path score (``aggregate``) against right or wrong, over all pairs of samples.
        bad_samples: a step score is not finite; such a sample is chosen last and votes with weight 0.
        unscored_samples: without a step, or cut at the length limit; the same holds for them.
        unjudged_samples: the checker could not tell; left out.
    """

    samples: Count
    bad_samples: Count
    unscored_samples: Count
    unjudged_samples: Count
    problems: dict[str, Count]
    oracle: dict[str, Figure]
    majority: dict[str, Figure]
    vote: dict[str, Figure]
    best: dict[str, dict[str, Figure]]
    outcome_auc: Figure


class BenchReport(Strict):
    """The last line of ``python -m eval.prm_bench``: headline values first (None: no step row, or undefined)."""

    f1: Share | None
    acc_wrong: Share | None
    acc_right: Share | None
    scorer: str
    threshold: float | None
    threshold_rule: str
    aggregate: str
    template: str
    instruction: str
    mean: FirstErrorFigures | None
    subsets: dict[str, FirstErrorFigures] = Field(default_factory=dict)
    calibration: CalibrationFigures | None
    best_of_n: dict[str, PoolFigures] = Field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Scored:
    """A step row with what the scorer said: scores (fewer than steps when cut), predicted first error (None: none)."""

    row: StepRow
    scores: list[float]
    predicted: int | None

    @property
    def is_bad(self) -> bool:
        return not all(map(math.isfinite, self.scores))

    @property
    def is_cut(self) -> bool:
        return len(self.scores) < len(self.row.steps)


@dataclasses.dataclass(frozen=True)
class BenchSettings:
    """Path score for votes and AUC, resamples and seed of the intervals."""

    aggregate: str = "min"
    resamples: int = 2000
    seed: int = 0


_HITS = 8
"""Columns a subset: hits and rows on wrong, hits and rows on right, reached and fired, exact and fired."""


def first_error_figures(
    scored: Sequence[Scored], settings: BenchSettings
) -> tuple[FirstErrorFigures, dict[str, FirstErrorFigures]]:
    """The mean over subsets, and each subset in the order met.

    A subset without a solution of one kind has no F1; the mean is over the subsets that have one.
    """
    subsets = list(dict.fromkeys(one.row.subset for one in scored))
    units = {unit: u for u, unit in enumerate(dict.fromkeys(one.row.unit for one in scored))}
    hits = np.zeros((len(units), len(subsets) * _HITS))
    for one in scored:
        column = subsets.index(one.row.subset) * _HITS
        hits[units[one.row.unit], column : column + _HITS] += _hits(one)
    resampler = Resampler.create(len(units), num_resamples=settings.resamples, seed=settings.seed)
    each = {
        name: _figures(hits, [k], resampler, [one for one in scored if one.row.subset == name])
        for k, name in enumerate(subsets)
    }
    return _figures(hits, range(len(subsets)), resampler, scored), each


def _hits(one: Scored) -> tuple[float, ...]:
    error, predicted = one.row.first_error, one.predicted
    on_wrong = (0, 0) if error is None else (predicted == error, 1)
    on_right = (predicted is None, 1) if error is None else (0, 0)
    if predicted is None:
        return (*on_wrong, *on_right, 0, 0, 0, 0)
    return (*on_wrong, *on_right, error is not None and error <= predicted, 1, error == predicted, 1)


def _figures(hits: Array, subsets: Sequence[int], resampler: Resampler, scored: Sequence[Scored]) -> FirstErrorFigures:
    def mean(first: int, last: int, absent: str) -> Figure:
        statistic = harmonic_f1 if last - first == 4 else ratio
        blocks = [hits[:, k * _HITS + first : k * _HITS + last] for k in subsets]
        kept = [block for block in blocks if np.isfinite(statistic(block.sum(axis=0, keepdims=True))).all()]
        width = last - first

        def over_subsets(sums: Array) -> Array:
            parts = [statistic(sums[:, start : start + width]) for start in range(0, sums.shape[1], width)]
            return np.mean(parts, axis=0)

        return (
            resampler.figure(np.concatenate(kept, axis=1), over_subsets, absent=absent)
            if kept
            else Figure.absent(absent)
        )

    wrong = sum(one.row.first_error is not None for one in scored)
    return FirstErrorFigures(
        f1=mean(0, 4, "needs solutions with and without a wrong step"),
        acc_wrong=mean(0, 2, "no solution with a wrong step"),
        acc_right=mean(2, 4, "no solution without a wrong step"),
        reached=mean(4, 6, "no error is claimed"),
        exact=mean(6, 8, "no error is claimed"),
        rows=len(scored),
        wrong_rows=wrong,
        right_rows=len(scored) - wrong,
        bad_rows=sum(one.is_bad for one in scored),
        cut_rows=sum(one.is_cut for one in scored),
        fired=sum(one.predicted is not None for one in scored),
    )


def calibration_figures(scored: Sequence[Scored], settings: BenchSettings) -> CalibrationFigures:
    """Brier score, reliability diagram and expected calibration error of the finite step scores with a label."""
    units = {unit: u for u, unit in enumerate(dict.fromkeys(one.row.unit for one in scored))}
    squared = np.zeros((len(units), 2))
    probabilities: list[float] = []
    labels: list[int] = []
    for one in scored:
        error = one.row.first_error
        for k, score in enumerate(one.scores[: None if error is None else error + 1]):
            if math.isfinite(score):
                probabilities.append(score)
                labels.append(int(k != error))
                squared[units[one.row.unit]] += ((score - labels[-1]) ** 2, 1)
    bins = metrics.reliability(probabilities, labels) if labels else []
    resampler = Resampler.create(len(units), num_resamples=settings.resamples, seed=settings.seed)
    return CalibrationFigures(
        steps=len(labels),
        brier=resampler.figure(squared, absent="no labelled step with a finite score"),
        calibration_error=metrics.expected_calibration_error(bins) if bins else None,
        reliability=[CalibrationBin(**dataclasses.asdict(one)) for one in bins],
    )


def pool_figures(paths: list[list[Path]], scores: list[list[list[float]]], settings: BenchSettings) -> PoolFigures:
    """Best of N = 1, 2, 4, … over one pool: paths of each problem, and the step scores of each path.

    Exact over all subsets of N samples (majority and vote: over up to ``eval.pools.MAX_SUBSETS``, else over blocks).
    """
    usable = [
        [one if len(one) == len(path.steps) else [] for path, one in zip(group, group_scores, strict=True)]
        for group, group_scores in zip(paths, scores, strict=True)
    ]
    pool = Pool(1.0, paths, scores=usable)
    groups = judged_groups(pool)
    largest = max((len(group.rights) for group in groups), default=0)
    ks = [2**power for power in range(largest.bit_length())]
    resampler = Resampler.create(len(groups), num_resamples=settings.resamples, seed=settings.seed)

    def figure(measure: Measure) -> dict[str, Figure]:
        return {
            str(k): resampler.figure(
                per_problem([measure(group, k) if len(group.rights) >= k else None for group in groups]),
                absent=f"no problem with {k} judged samples",
            )
            for k in ks
        }

    flat = [one for group in scores for one in group]
    reading = PRMSettings(None, settings.aggregate, resamples=settings.resamples, seed=settings.seed)
    return PoolFigures(
        samples=len(flat),
        bad_samples=sum(not all(map(math.isfinite, one)) for one in flat),
        unscored_samples=sum(not one for group in usable for one in group),
        unjudged_samples=sum(not path.verdict.is_judged for group in paths for path in group),
        problems={str(k): sum(len(group.rights) >= k for group in groups) for k in ks},
        oracle=figure(lambda group, k: metrics.pass_at_k(len(group.rights), sum(group.rights), k)),
        majority=figure(lambda group, k: majority_of(group.answers, group.rights, k)),
        vote=figure(lambda group, k: majority_of(group.answers, group.rights, k, _weights(group, settings.aggregate))),
        best={rule: figure(_best_by(rule)) for rule in AGGREGATES},
        outcome_auc=prm_figures(pool, reading).outcome_auc,
    )


Measure = Callable[[JudgedGroup, int], float]


def _weights(group: JudgedGroup, aggregate: str) -> list[float]:
    return [score or 0.0 for score in group.scores[aggregate]]


def _best_by(rule: str) -> Measure:
    return lambda group, k: best_of(group.rights, group.scores[rule], k)

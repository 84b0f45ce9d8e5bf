"""From the results of an ablation's jobs to its figures. Pure functions.

Notation: S seeds, P test problems, R resamples; d_sp = score of the arm minus score of the reference, for seed s and
problem p.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bench.ablation_results import JobResult, StageCost, TestScores
from eval.intervals import Array, Resampler
from eval.schema import Figure

METRICS = ("greedy", "sampled")
CLOCKS = ("wall", "cpu")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An arm at one budget.

    Attributes:
        value: mean score by metric. difference: to the reference, with its interval; None for the reference.
        ahead: seeds in which the arm's sampled score is above the reference's; seeds: of how many.
        batches: mean generation batches trained on.
        ended_by: why a job ended before the budget, by seed; empty when all reached it.
        left_out: test problems without a judged path in some job.
    """

    value: dict[str, float | None]
    difference: dict[str, Figure] | None
    ahead: int
    seeds: int
    batches: float
    ended_by: dict[int, str]
    left_out: int


@dataclasses.dataclass(frozen=True)
class Cost:
    """What an arm costs a seed, means over seeds.

    Attributes:
        rollouts: sampled for training, to the equal-rollouts budget. label_rollouts: sampled for labels and charged.
        train: seconds of training to that budget, by clock, as all seconds here.
        stages: of label sampling, labelling and PRM fit, charged. fit: the fit alone.
        amortised: training plus the stages' seconds divided by the arms of this ablation that share them.
        batch: of one generation batch and its updates.
        prm_share: of the PRM in the wall seconds of a batch, None where there is none.
        is_whole: False = seconds of a stage that was killed are missing.
    """

    rollouts: float
    label_rollouts: float
    train: dict[str, float]
    stages: dict[str, float]
    fit: dict[str, float]
    amortised: dict[str, float]
    batch: dict[str, float]
    prm_share: float | None
    is_whole: bool


@dataclasses.dataclass(frozen=True)
class Reach:
    """Rollouts until an arm's mean validation curve first reaches the reference's accuracy at the end of its budget.

    Attributes:
        target: that accuracy. has_gain: False = it is no better than the base model's, so there is nothing to reach.
        rollouts: None when there is nothing to reach, or it is never reached. share: of the reference's budget.
        charged_share: the same with the rollouts for labels added.
    """

    target: float
    has_gain: bool
    rollouts: float | None
    share: float | None
    charged_share: float | None


def scores_SP(tests: Sequence[TestScores], metric: str) -> Array:
    """Scores of a metric, one row a seed; NaN where no path was judged.

    Raises:
        ValueError: the jobs were not tested on equally many problems.
    """
    rows = [getattr(test, metric) for test in tests]
    if len({len(row) for row in rows}) != 1:
        raise ValueError(f"jobs were tested on {sorted({len(row) for row in rows})} problems; want the same")
    return np.array([[np.nan if x is None else x for x in row] for row in rows], np.float64)


def two_level_interval(difference_SP: Array, *, num_resamples: int = 2000, seed: int = 0) -> Figure:
    """Mean of d_sp with the 95 % percentile interval of a bootstrap over seeds AND problems.

    Every resample draws S seeds and, independently, P problems, both with replacement (all seeds meet the same
    problems, so the two are crossed), and takes the mean over the drawn cells. A problem with a NaN in some seed is
    left out. With one seed the interval is over problems alone.
    """
    kept_SP = difference_SP[:, np.isfinite(difference_SP).all(axis=0)]
    num_seeds, num_problems = kept_SP.shape
    if num_problems == 0:
        return Figure.absent("no test problem was judged in every job")
    seeds_RS = Resampler.create(num_seeds, num_resamples=num_resamples, seed=seed).weights_RP
    problems_RP = Resampler.create(num_problems, num_resamples=num_resamples, seed=seed + 1).weights_RP
    means_R = ((seeds_RS @ kept_SP) * problems_RP).sum(axis=1) / (num_seeds * num_problems)
    low, high = np.quantile(means_R, [0.025, 0.975])
    return Figure(value=float(kept_SP.mean()), ci95=(float(low), float(high)))


def compare(
    tests: Mapping[int, TestScores], reference: Mapping[int, TestScores] | None, *, num_resamples: int
) -> Comparison:
    """An arm against the reference at one budget; both by seed. ``reference`` None: the arm is the reference."""
    seeds = sorted(tests if reference is None else tests.keys() & reference.keys())
    mine = {metric: scores_SP([tests[s] for s in seeds], metric) for metric in METRICS}
    theirs = {
        metric: mine[metric] if reference is None else scores_SP([reference[s] for s in seeds], metric)
        for metric in METRICS
    }
    gaps = {metric: mine[metric] - theirs[metric] for metric in METRICS}
    judged_P = np.isfinite(gaps["sampled"]).all(axis=0)
    differences = {metric: two_level_interval(gap, num_resamples=num_resamples) for metric, gap in gaps.items()}
    return Comparison(
        value={metric: _mean(mine[metric]) for metric in METRICS},
        difference=None if reference is None else differences,
        ahead=int((gaps["sampled"][:, judged_P].sum(axis=1) > 0).sum()),
        seeds=len(seeds),
        batches=float(np.mean([tests[s].batch for s in seeds])),
        ended_by={s: tests[s].ended_by for s in seeds if tests[s].ended_by != "milestone"},
        left_out=int((~judged_P).sum()),
    )


def _mean(scores_SP: Array) -> float | None:
    kept = scores_SP[np.isfinite(scores_SP)]
    return float(kept.mean()) if kept.size else None


def mean_curve(results: Sequence[JobResult]) -> list[tuple[int, float]]:
    """(batch, validation accuracy averaged over the jobs), at the batches that all jobs were validated at."""
    shared = set.intersection(*({point.batch for point in result.curve} for result in results))
    by_job = [{point.batch: point.accuracy for point in result.curve} for result in results]
    return [(batch, sum(job[batch] for job in by_job) / len(by_job)) for batch in sorted(shared)]


def batches_to_reach(curve: Sequence[tuple[int, float]], target: float) -> float | None:
    """Batches until a curve first reaches ``target``, linear between two validations; None when it never does."""
    before = None
    for batch, accuracy in curve:
        if accuracy >= target:
            if before is None:
                return float(batch)
            return before[0] + (batch - before[0]) * (target - before[1]) / (accuracy - before[1])
        before = (batch, accuracy)
    return None


def reach(
    results: Sequence[JobResult], reference: Sequence[JobResult], *, batches: int, label_rollouts: float
) -> Reach:
    """How many rollouts the arm needs for the reference's validation accuracy after ``batches``."""
    known = [accuracy for batch, accuracy in mean_curve(reference) if batch <= batches]
    target, has_gain = known[-1], known[-1] > known[0]
    found = batches_to_reach(mean_curve(results), target) if has_gain else None
    if found is None:
        return Reach(target, has_gain, None, None, None)
    rollouts, budget = found * results[0].rollouts_a_batch, batches * reference[0].rollouts_a_batch
    return Reach(target, has_gain, rollouts, rollouts / budget, (rollouts + label_rollouts) / budget)


def cost(
    results: Sequence[JobResult], stages: Mapping[int, StageCost], *, sharing: int, fitting: int, batches: int
) -> Cost:
    """Costs of an arm: training to ``batches``, and the stages of each seed.

    ``sharing`` arms share the stages before the fit of the PRM, ``fitting`` of them the fit.
    """
    ends, lasts = [result.at(batches) for result in results], [result.curve[-1] for result in results]
    charged = [stages[result.seed] for result in results]
    shares = [result.prm_share for result in results if result.prm_share is not None]
    train = {clock: _average(getattr(end, clock) for end in ends) for clock in CLOCKS}
    paid = {clock: _average(getattr(one, clock) for one in charged) for clock in CLOCKS}
    fit = {clock: _average(getattr(one, f"fit_{clock}") for one in charged) for clock in CLOCKS}
    return Cost(
        rollouts=_average(end.batch * result.rollouts_a_batch for end, result in zip(ends, results, strict=True)),
        label_rollouts=_average(one.rollouts for one in charged),
        train=train,
        stages=paid,
        fit=fit,
        amortised={
            clock: train[clock] + (paid[clock] - fit[clock]) / max(sharing, 1) + fit[clock] / max(fitting, 1)
            for clock in CLOCKS
        },
        batch={clock: _average(getattr(last, clock) / max(last.batch, 1) for last in lasts) for clock in CLOCKS},
        prm_share=_average(shares) if shares else None,
        is_whole=all(one.is_whole for one in charged),
    )


def _average(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)

"""How well the PRM's step scores point at wrong steps, on the paths a model really samples.

Truth is the exact oracle where there is one, else step labels, else nothing: then only the AUC against the outcome is
left and every other figure says why it is absent. Intervals are over problems.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from common import metrics
from common.records import Verdict
from eval.intervals import Array, Resampler, ratio
from eval.pools import Judgement, Pool, is_right, path_score
from eval.schema import CalibrationBin, Figure, PRMFigures, PRMReport

NO_TRUTH = "neither oracle nor labels for these paths"
NO_SCORES = "no PRM scores"


@dataclasses.dataclass(frozen=True)
class KnownSteps:
    """Truth from step labels in the oracle's form (``unknown`` for a path that was not labelled)."""

    first_error: int | None
    unknown: bool = False
    habit: str | None = None


@dataclasses.dataclass(frozen=True)
class PRMSettings:
    """How scores are read.

    Attributes:
        threshold: a step below it is called wrong; chosen on validation paths, never here. None: unknown.
        aggregate: path score for the AUC.
        after_error: "negative": steps after the first error are wrong; "ignore": they enter no statistic.
    """

    threshold: float | None
    aggregate: str = "min"
    after_error: Literal["negative", "ignore"] = "negative"
    resamples: int = 2000
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class _Path:
    """One scored path of problem ``row`` with its truth (None: not known)."""

    row: int
    scores: list[float]
    truth: Judgement | None
    is_right: bool
    is_judged: bool


def prm_figures(
    pool: Pool,
    settings: PRMSettings,
    *,
    truth: list[list[Judgement]] | None = None,
    truth_name: Literal["oracle", "labels"] = "oracle",
) -> PRMFigures:
    """Figures of the PRM on one pool of paths.

    Args:
        pool: paths with ``scores``; its ``judgements`` are the truth unless ``truth`` is given.
        truth: first errors from another source, e.g. step labels (``KnownSteps``).
        truth_name: where the truth comes from.
    """
    judgements = truth if truth is not None else pool.judgements
    paths = _scored_paths(pool, judgements)
    known = [path for path in paths if path.truth is not None and not path.truth.unknown]
    resampler = Resampler.create(len(pool.paths), num_resamples=settings.resamples, seed=settings.seed)
    no_scores = pool.scores is None
    reason = NO_SCORES if no_scores else NO_TRUTH if judgements is None else ""
    steps = _steps(known, settings.after_error)
    bins = metrics.reliability([s for _, s, _ in steps], [y for _, _, y in steps]) if steps else []
    squared = np.zeros((len(pool.paths), 2))
    for row, probability, label in steps:
        squared[row] += ((probability - label) ** 2, 1)
    nothing = reason or "no scored step with known truth"
    error = metrics.expected_calibration_error(bins)
    return PRMFigures(
        truth=truth_name if judgements is not None else "none",
        threshold=settings.threshold,
        paths=len(paths),
        unknown_paths=len(paths) - len(known),
        **_first_error_figures(known, len(pool.paths), settings, resampler, reason),
        brier=resampler.figure(squared, absent=nothing),
        calibration_error=Figure(value=error, ci95=None, reason="no interval: bins are biased under resampling")
        if bins
        else Figure.absent(nothing),
        outcome_auc=_outcome_auc(paths, len(pool.paths), settings, resampler, NO_SCORES if no_scores else ""),
        reliability=[CalibrationBin(**dataclasses.asdict(b)) for b in bins],
    )


def prm_report(base: PRMFigures, policy: PRMFigures) -> PRMReport:
    """The ``prm`` section of ``metrics.json``."""
    return PRMReport(**{name: getattr(base, name) for name in PRMFigures.model_fields}, on_policy=policy)


def known_from_labels(first_errors: Sequence[Sequence[int | Literal["unlabelled"] | None]]) -> list[list[Judgement]]:
    """Truth from labels: first wrong step of each path, None for a clean one, "unlabelled" for one without labels."""
    return [
        [KnownSteps(None, unknown=True) if error == "unlabelled" else KnownSteps(error) for error in group]
        for group in first_errors
    ]


def _scored_paths(pool: Pool, judgements: list[list[Judgement]] | None) -> list[_Path]:
    """The paths with as many finite scores as steps; the others were cut or could not be scored."""
    if pool.scores is None:
        return []
    found = []
    for row, (paths, groups) in enumerate(zip(pool.paths, pool.scores, strict=True)):
        for g, (path, scores) in enumerate(zip(paths, groups, strict=True)):
            if path.steps and len(scores) == len(path.steps) and all(np.isfinite(scores)):
                truth = None if judgements is None else judgements[row][g]
                found.append(_Path(row, list(scores), truth, is_right(path), path.verdict.is_judged))
    return found


def _steps(known: list[_Path], after_error: str) -> list[tuple[int, float, int]]:
    """(problem row, probability, label) of each step that has a label: 1 before the first error, 0 from it on."""
    steps = []
    for path in known:
        error = path.truth.first_error if path.truth else None
        for k, score in enumerate(path.scores):
            if error is not None and k > error and after_error == "ignore":
                break
            steps.append((path.row, score, int(error is None or k < error)))
    return steps


def harmonic_f1(sums: Array) -> Array:
    """Harmonic mean of the accuracies of columns (hits on wrong, wrong) and (hits on right, right)."""
    on_wrong, on_right = ratio(sums[:, :2]), ratio(sums[:, 2:])
    total = on_wrong + on_right
    harmonic = np.divide(2 * on_wrong * on_right, total, out=np.zeros_like(total), where=total > 0)
    return np.where(np.isnan(total), np.nan, harmonic)


def _first_error_figures(
    known: list[_Path], num_problems: int, settings: PRMSettings, resampler: Resampler, reason: str
) -> dict[str, Figure]:
    """First-error F1 and its two accuracies (Zheng et al. 2024, arXiv:2412.06559)."""
    names = ("first_error_f1", "accuracy_on_wrong", "accuracy_on_right")
    if settings.threshold is None and not reason:
        reason = "no threshold was chosen on validation"
    if reason:
        return {name: Figure.absent(reason) for name in names}
    hits = np.zeros((num_problems, 4))
    for path in known:
        error = path.truth.first_error if path.truth else None
        claimed = metrics.first_below(path.scores, float(settings.threshold or 0.0))
        hits[path.row] += (claimed == error, 1, 0, 0) if error is not None else (0, 0, claimed is None, 1)
    return {
        "first_error_f1": resampler.figure(hits, harmonic_f1, absent="needs paths with and paths without a wrong step"),
        "accuracy_on_wrong": resampler.figure(hits[:, :2], absent="no path with a wrong step"),
        "accuracy_on_right": resampler.figure(hits[:, 2:], absent="no path without a wrong step"),
    }


def _outcome_auc(
    paths: list[_Path], num_problems: int, settings: PRMSettings, resampler: Resampler, reason: str
) -> Figure:
    """AUC of the path score against the outcome, over all pairs of judged paths, ties half (Mann-Whitney U)."""
    judged = [path for path in paths if path.is_judged]
    if reason or not judged:
        return Figure.absent(reason or "no scored path with a verdict on the model")
    scores = np.array([path_score(path.scores, settings.aggregate) for path in judged], np.float64)
    levels, level_of_path = np.unique(scores, return_inverse=True)
    counts = np.zeros((2, num_problems, len(levels)))
    for path, level in zip(judged, level_of_path, strict=True):
        counts[int(path.is_right), path.row, level] += 1

    def auc(sums: Array) -> Array:
        wrong, right = np.split(sums, 2, axis=1)
        below = np.cumsum(wrong, axis=1) - wrong
        pairs = wrong.sum(axis=1) * right.sum(axis=1)
        won = (right * (below + 0.5 * wrong)).sum(axis=1)
        return np.divide(won, pairs, out=np.full(len(sums), np.nan), where=pairs > 0)

    return resampler.figure(np.concatenate([counts[0], counts[1]], axis=1), auc, absent=_one_class(judged))


def _one_class(judged: list[_Path]) -> str:
    present = Verdict.CORRECT if any(path.is_right for path in judged) else Verdict.WRONG
    return f"all paths are {present}: nothing to tell apart"

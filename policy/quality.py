"""Quality of right paths as a small part of the reward (docs/quality.md).

    reward = outcome - penalty + outcome * sum_i weight_i * measure_i        (``common.quality_settings``)

A wrong path earns nothing by quality whatever it writes; a right path never loses by it and earns at most the sum of
the weights. So no weight moves a wrong path nearer to a right one. A measure of which nothing can be said earns 0.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from common.quality_settings import MEASURES, QualityWeights
from common.records import Path, Problem
from policy.rewards import OutcomeReward
from prm.quality.coherence import coherence, neighbour_gains, segments_of
from prm.quality.measures import Quality, deriving_steps, quality_of

JudgeCoherence = Callable[[Sequence[Sequence[int]], Sequence[Path]], list[float | None]]
"""(prompt ids, paths) to the coherence of each path; of a frozen model, never of the policy that is trained."""


def coherence_judge(model: object) -> JudgeCoherence:
    """Return the coherence of sampled paths under a frozen causal language model, on the paths' own token ids."""

    def judge(prompt_ids: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[float | None]:
        gains = neighbour_gains(model, prompt_ids, [segments_of(path) for path in paths])  # type: ignore[arg-type]
        return [coherence(one) for one in gains]

    return judge


def usual_steps(problem: Problem, paths: Sequence[Path], is_right: Sequence[bool]) -> float | None:
    """Return the median number of deriving steps of the right paths of a problem; without any its level, or None."""
    counts = [
        deriving_steps(problem.text, [step.text for step in path.steps])
        for path, right in zip(paths, is_right, strict=True)
        if right
    ]
    return float(statistics.median(counts)) if counts else problem.level


def group_quality(
    problem: Problem, paths: Sequence[Path], is_right: Sequence[bool], coherences: Sequence[float | None]
) -> list[Quality | None]:
    """Return the measures of each right path of ONE problem, None for the others.

    Args:
        coherences: of each path, not read for one that is not right.
    """
    usual = usual_steps(problem, paths, is_right)
    found: list[Quality | None] = []
    for path, right, value in zip(paths, is_right, coherences, strict=True):
        steps = [step.text for step in path.steps]
        found.append(
            quality_of(problem.text, steps, path.answer, usual=usual, coherence=value) if right else None,
        )
    return found


def earned(quality: Quality | None, weights: QualityWeights) -> float:
    """Return sum_i weight_i * measure_i in [0, weights.total]; 0 for a path that is not right."""
    if quality is None:
        return 0.0
    return sum(getattr(weights, name) * (quality.value(name) or 0.0) for name in MEASURES)


def with_quality(
    leaders: Sequence[Problem],
    prompt_ids: Sequence[Sequence[int]],
    paths: Sequence[Path],
    rewards: Sequence[OutcomeReward],
    weights: QualityWeights,
    judge: JudgeCoherence | None,
) -> tuple[list[OutcomeReward], list[Quality | None]]:
    """Return the rewards with what quality earns, and the measures; both as given when every weight is 0.

    Args:
        leaders, prompt_ids: one entry a problem. paths, rewards: group by group, groups of one size.
        judge: gives coherence, asked for right paths only; None: it is not measured.
    """
    if not weights.total:
        return list(rewards), []
    size = len(paths) // len(leaders)
    is_right = [reward.is_counted and reward.outcome == 1 for reward in rewards]
    coherences: list[float | None] = [None] * len(paths)
    rows = [row for row, right in enumerate(is_right) if right]
    if judge is not None and rows:
        found = judge([prompt_ids[row // size] for row in rows], [paths[row] for row in rows])
        for row, value in zip(rows, found, strict=True):
            coherences[row] = value
    qualities: list[Quality | None] = []
    for start, problem in zip(range(0, len(paths), size), leaders, strict=True):
        group = slice(start, start + size)
        qualities += group_quality(problem, paths[group], is_right[group], coherences[group])
    return [
        dataclasses.replace(reward, quality=earned(quality, weights))
        for reward, quality in zip(rewards, qualities, strict=True)
    ], qualities


def quality_sums(qualities: Sequence[Quality | None], weights: QualityWeights) -> dict[str, float]:
    """Return the sum of each measure, and of what it earns, over right paths; {} in a run without quality."""
    if not weights.total:
        return {}
    right = [quality for quality in qualities if quality is not None]
    sums = {f"quality/{name}": sum((one.value(name) or 0.0) for one in right) for name in MEASURES}
    return sums | {"quality/total": sum(earned(one, weights) for one in right)}

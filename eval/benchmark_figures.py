"""Figures of one model on one benchmark: graded outputs to accuracies with 95 % intervals over problems.

Every sample of every problem counts: what the checker cannot judge (TIMEOUT, TOO_LONG, NO_GOLD) is not right, and is
counted. An output that the length limit cut is graded as far as it goes, as published figures are; its share is shown.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from common.records import FinishReason, Path, Problem, Verdict, content_id
from eval.benchmark_rows import Question, Sample
from eval.intervals import Array, Resampler
from eval.pools import Pool, accuracy_components, problems_by
from eval.schema import Count, Figure, Seconds, Strict
from grading.equivalence import grade
from grading.extract import extract
from grading.settings import GradingSettings

MAX_GROUPS = 20
"""Topics or levels are reported when there are more than one and at most so many."""


class Agreement(Strict):
    """Our verdicts beside the verdicts that came with recorded outputs."""

    samples: Count
    equal: Count
    only_ours_right: Count
    only_recorded_right: Count
    recorded_avg: Figure


class BenchmarkReport(Strict):
    """``result.json`` of a benchmark.

    Attributes:
        source: where the rows come from; ``problems_published``: how many belong there, None when unknown.
        avg: avg@k, the mean over problems of the share of right samples; pass@1 when there is one sample.
        pass_at, majority: unbiased pass@k, and majority of k, by k.
        answered: share of samples that state an answer; ``cut``: share that the length limit ended.
        tokens: mean sampled tokens of an output.
        seconds, sampled_tokens: of this run alone; outputs read from disk cost nothing.
    """

    benchmark: str
    model: str
    source: str
    problems: Count
    problems_published: int | None
    samples: Annotated[int, Field(ge=1)]
    settings: dict[str, Any]
    grading: dict[str, Any]
    avg: Figure
    pass_at: dict[str, Figure]
    majority: dict[str, Figure]
    answered: Figure
    cut: Figure
    tokens: Figure
    verdicts: dict[str, Count]
    by_topic: dict[str, Figure]
    by_level: dict[str, Figure]
    recorded: Agreement | None
    seconds: Seconds
    sampled_tokens: Count


@dataclasses.dataclass(frozen=True)
class Graded:
    """One output with its verdict; ``how``: how the answer was found, and the rung of the ladder that decided."""

    sample: Sample
    answer: str | None
    verdict: Verdict
    how: str


def grade_sample(sample: Sample, question: Question, settings: GradingSettings) -> Graded:
    """Extract and judge one output by the benchmark's policy and the problem's own tolerance."""
    absolute = max(settings.absolute_tolerance, question.tolerance)
    found = extract(sample.text)
    result = grade(found.answer, question.problem.answer, dataclasses.replace(settings, absolute_tolerance=absolute))
    return Graded(sample, found.answer, result.verdict, f"{found.how}/{result.how}")


def powers_of_two(top: int) -> tuple[int, ...]:
    """1, 2, 4, … up to ``top``, and ``top`` itself."""
    powers = [1 << k for k in range(top.bit_length()) if 1 << k <= top]
    return tuple(dict.fromkeys([*powers, top]))


def figures(
    questions: Sequence[Question],
    graded: Sequence[Sequence[Graded]],
    *,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """The fields of ``BenchmarkReport`` that are measured.

    Args:
        graded: for each question its graded samples, as many for each.

    Raises:
        ValueError: no question, or another number of samples for some.
    """
    count = len(graded[0]) if graded else 0
    if not questions or count == 0 or any(len(group) != count for group in graded):
        raise ValueError("figures: want at least one question and the same number of samples for each")
    paths = [
        [_path(one, k, q.problem) for k, one in enumerate(group)] for q, group in zip(questions, graded, strict=True)
    ]
    parts = accuracy_components(Pool(0.0, paths), ks=powers_of_two(count), aggregate="min")
    resampler = Resampler.create(len(questions), num_resamples=resamples, seed=seed)

    def share(measure: Callable[[Graded], float | None], absent: str) -> Figure:
        return resampler.figure(_sums(graded, measure), absent=absent)

    def family(name: str) -> dict[str, Figure]:
        return {
            key.partition(".")[2]: resampler.figure(column, absent="fewer samples")
            for key, column in parts.items()
            if key.startswith(f"{name}.")
        }

    problems = [question.problem for question in questions]
    return {
        "problems": len(questions),
        "samples": count,
        "avg": resampler.figure(parts["pass1"], absent="no sample"),
        "pass_at": family("pass_at"),
        "majority": family("majority"),
        "answered": share(lambda one: one.answer is not None, "no sample"),
        "cut": share(lambda one: one.sample.is_cut, "no sample"),
        "tokens": share(lambda one: one.sample.tokens, "recorded outputs without token counts"),
        "verdicts": dict(Counter(one.verdict.value for group in graded for one in group)),
        "by_topic": _sliced(problems, parts["pass1"], lambda problem: problem.topic, resamples, seed),
        "by_level": _sliced(problems, parts["pass1"], lambda problem: str(problem.level), resamples, seed),
        "recorded": _agreement(graded, share),
    }


def _path(one: Graded, index: int, problem: Problem) -> Path:
    """The record ``eval.pools`` reads: verdicts that are not the model's count as wrong, cut outputs as they are."""
    return Path(
        problem_id=problem.id,
        path_id=content_id(problem.id, "benchmark", index),
        text=one.sample.text,
        token_ids=(),
        steps=(),
        answer=one.answer,
        verdict=one.verdict if one.verdict.is_judged else Verdict.WRONG,
        finish_reason=FinishReason.STOP,
    )


def _sums(graded: Sequence[Sequence[Graded]], measure: Callable[[Graded], float | None]) -> Array:
    """Per-problem (sum, count) over the samples of which ``measure`` says something."""
    values = [[value for one in group if (value := measure(one)) is not None] for group in graded]
    return np.array([(sum(group), len(group)) for group in values], np.float64).reshape(-1, 2)


def _sliced(
    problems: Sequence[Problem], column: Array, key: Callable[[Problem], str], resamples: int, seed: int
) -> dict[str, Figure]:
    groups = problems_by(problems, key)
    if not 1 < len(groups) <= MAX_GROUPS:
        return {}
    return {
        name: Resampler.create(len(rows), num_resamples=resamples, seed=seed).figure(column[rows], absent="no sample")
        for name, rows in groups.items()
    }


def _agreement(
    graded: Sequence[Sequence[Graded]], share: Callable[[Callable[[Graded], float | None], str], Figure]
) -> Agreement | None:
    pairs = [
        (one.verdict is Verdict.CORRECT, one.sample.recorded)
        for group in graded
        for one in group
        if one.sample.recorded is not None
    ]
    if not pairs:
        return None
    return Agreement(
        samples=len(pairs),
        equal=sum(ours == theirs for ours, theirs in pairs),
        only_ours_right=sum(ours and not theirs for ours, theirs in pairs),
        only_recorded_right=sum(bool(theirs) and not ours for ours, theirs in pairs),
        recorded_avg=share(lambda one: one.sample.recorded, "no recorded verdict"),
    )


def verdict_rows(questions: Sequence[Question], graded: Sequence[Sequence[Graded]]) -> list[Mapping[str, Any]]:
    """Rows of ``verdicts.jsonl``: what was read of each output, and how it was judged."""
    return [
        {
            "id": question.problem.id,
            "gold": question.problem.answer,
            "samples": [
                {"answer": one.answer, "verdict": one.verdict.value, "how": one.how, "recorded": one.sample.recorded}
                for one in group
            ],
        }
        for question, group in zip(questions, graded, strict=True)
    ]

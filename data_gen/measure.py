"""Accuracy of a model: sample paths for problems through an engine, build and grade them. Used by data, ppo and
eval alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from common.records import Path, Problem, Verdict
from data_gen.engines import Engine
from data_gen.steps import build_paths

RenderPrompt = Callable[[Problem], Sequence[int]]
"""Turns a problem into prompt ids, e.g. ``lambda p: template.ids(p.text, tokenizer)``."""
Grader = Callable[[Sequence[tuple[str | None, str]]], Sequence[Verdict]]
"""Turns (extracted answer or None, gold) pairs into verdicts, one a pair, in order."""


@dataclasses.dataclass(frozen=True)
class SampleSettings:
    """How paths are drawn: see `data_gen.engines.Engine.sample`."""

    temperature: float = 1.0
    max_new_tokens: int = 160
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """What was measured.

    Attributes:
        problems: the problems, P.
        paths: for each problem its sampled paths in order, P lists of G.
    """

    problems: tuple[Problem, ...]
    paths: tuple[tuple[Path, ...], ...]

    @property
    def pass_rates(self) -> tuple[float | None, ...]:
        """For each problem `pass_rate` of its paths."""
        return tuple(pass_rate(group) for group in self.paths)

    @property
    def mean(self) -> float:
        """Mean pass rate over the problems that have one; 0.0 when none has."""
        rates = [rate for rate in self.pass_rates if rate is not None]
        return sum(rates) / len(rates) if rates else 0.0

    @property
    def flat(self) -> list[Path]:
        """All paths, problem by problem."""
        return [path for group in self.paths for path in group]


def is_right(path: Path) -> bool:
    """True for a path that ended by itself with a correct answer: a path cut at the length limit has outcome 0."""
    return path.verdict is Verdict.CORRECT and not path.is_truncated


def pass_rate(paths: Sequence[Path]) -> float | None:
    """Return the share of right paths among those whose verdict says something about the model; None when none does."""
    judged = [path for path in paths if path.verdict.is_judged]
    return sum(map(is_right, judged)) / len(judged) if judged else None


def sample_paths(
    engine: Engine,
    problems: Sequence[Problem],
    tokenizer: Any,
    render_prompt: RenderPrompt,
    *,
    n: int,
    seed: int,
    settings: SampleSettings,
    first_index: int = 0,
    grader: Grader | None = None,
) -> list[list[Path]]:
    """Sample `n` paths for each problem, in order.

    Args:
        seed: with the prompt it decides every path, so a problem's paths do not depend on its neighbours.
        first_index: index of the first path in its group (enters path ids, and the seed, so that further paths are
            new).
        grader: replaces `grading.equivalence.grade_batch`.
    """
    sampled = engine.sample(
        [render_prompt(problem) for problem in problems],
        n=n,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        seed=seed + 7919 * first_index,
        top_p=settings.top_p,
        top_k=settings.top_k,
        stop=settings.stop,
    )
    owners = [problem for problem in problems for _ in range(n)]
    completions = [(c.token_ids, c.finish_reason) for group in sampled for c in group]
    indices = [first_index + j for _ in problems for j in range(n)]
    flat = build_paths(owners, completions, tokenizer, seed=seed, indices=indices, stop=settings.stop, grader=grader)
    return [flat[i * n : (i + 1) * n] for i in range(len(problems))]


def measure_accuracy(
    engine: Engine,
    problems: Sequence[Problem],
    tokenizer: Any,
    render_prompt: RenderPrompt,
    *,
    n: int,
    seed: int,
    settings: SampleSettings | None = None,
    grader: Grader | None = None,
) -> Accuracy:
    """Sample `n` paths a problem and return them with pass rates. Temperature 0 samples one path and counts it once."""
    settings = settings or SampleSettings()
    n = 1 if settings.temperature == 0 else n
    groups = sample_paths(engine, problems, tokenizer, render_prompt, n=n, seed=seed, settings=settings, grader=grader)
    return Accuracy(tuple(problems), tuple(map(tuple, groups)))

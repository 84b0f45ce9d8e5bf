"""The exact step oracle and the reference solver; both work from the problem's text alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from types import ModuleType

from data_gen.synthetic import chain, equation, fraction, number, word
from data_gen.synthetic.habits import CATALOGUE, Careful, Dice, Forced, Habitual, Recorder, Stuck, Worksheet

KINDS: dict[str, ModuleType] = {kind.KIND: kind for kind in (chain, equation, fraction, word, number)}
_VARIANTS = 3


@dataclasses.dataclass(frozen=True)
class Solution:
    """A worked solution.

    Attributes:
        steps: one text a step.
        answer: the final answer, ``none`` when a wrong step made the problem impossible.
        habits: for each step the habit that shaped it, None for a right move (made on values that may be wrong).
    """

    steps: tuple[str, ...]
    answer: str
    habits: tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class StepJudgement:
    """The oracle's word on a path.

    Attributes:
        first_error: 0-based index of the first step that the problem and the steps before it do not entail, None when
            there is none (before the first unknown step, if any).
        unknown: True when a step (or the problem) outside the grammar was met before any wrong step.
        habit: the habit of the catalogue that explains the wrong step, None when none does or no step is wrong.
    """

    first_error: int | None
    unknown: bool
    habit: str | None


def recognise(problem_text: str) -> tuple[ModuleType, object] | None:
    """Return the kind and the parsed problem, None when the text is outside the grammar."""
    for kind in KINDS.values():
        parsed = kind.parse(problem_text)
        if parsed is not None:
            return kind, parsed
    return None


def _solve(kind: ModuleType, parsed: object, dice: Dice, limit: int | None = None) -> Solution:
    sheet = Worksheet(dice, limit)
    try:
        answer = kind.work(parsed, sheet)
    except Stuck as stuck:
        answer = stuck.answer
    return Solution(tuple(sheet.steps), answer, tuple(sheet.habits))


def solve(problem_text: str, rng: random.Random | None = None, habits: Mapping[str, float] | None = None) -> Solution:
    """Return a worked solution of the problem.

    Args:
        problem_text: a problem of the grammar.
        rng: source of the habits' dice; None gives the reference solution, without habits.
        habits: probability of each habit in its context; None takes the catalogue's.

    Raises:
        ValueError: the text is outside the grammar.
    """
    found = recognise(problem_text)
    if found is None:
        raise ValueError(f"problem {problem_text[:60]!r} is outside the generator's grammar (docs/generator.md)")
    return _solve(*found, Careful() if rng is None else Habitual(rng, habits))


def judge(problem_text: str, steps: Sequence[str]) -> StepJudgement:
    """Return the first step that is not entailed by the problem's facts and the steps before it; see each kind's
    checker for what is entailed. Never raises on model text; the work grows linearly with the number of steps."""
    found = recognise(problem_text)
    if found is None:
        return StepJudgement(None, True, None)
    kind, parsed = found
    checker = kind.checker(parsed)
    for index, step in enumerate(steps):
        verdict = checker.accepts(step.strip())
        if verdict is None:
            return StepJudgement(None, True, None)
        if not verdict:
            return StepJudgement(index, False, explain(kind, parsed, steps, index))
    return StepJudgement(None, False, None)


def explain(kind: ModuleType, parsed: object, steps: Sequence[str], index: int) -> str | None:
    """Return the habit that turns the reference solution into ``steps[:index + 1]``, None when none does.

    A habit must show in the wrong step itself; only a number may have been misread before it is used.
    """
    wrong = tuple(step.strip() for step in steps[: index + 1])
    recorder = Recorder()
    _solve(kind, parsed, recorder, index + 1)
    places = [
        (list(CATALOGUE).index(name), place)
        for place, (name, step) in enumerate(recorder.opportunities)
        if step == index or name == "misread"
    ]
    for rank, place in sorted(places):
        for variant in range(_VARIANTS):
            if _solve(kind, parsed, Forced(place, variant), index + 1).steps == wrong:
                return list(CATALOGUE)[rank]
    return None

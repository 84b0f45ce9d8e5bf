"""A draft becomes a problem row, or is refused with a reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from data_gen.synthesis.by_arithmetic import derive_again
from data_gen.synthesis.by_sympy import derive_safely
from data_gen.synthesis.results import Result, agree
from data_gen.synthesis.solve_exactly import NoSecondWay
from data_gen.synthesis.statement import StatementError, read_statement
from data_gen.synthesis.sympy_equations import Underivable
from grading.parse import ParseError, TooDeep
from grading.structure import parse_answer

MAX_ANSWER = 200
"""Characters of an answer."""


class Refused(ValueError):
    """A problem that is not taken.

    Attributes:
        reason: a short name; rejected rows are counted by it.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


@dataclasses.dataclass(frozen=True)
class Derived:
    """A derived answer: its text, and the names of the ways that gave it."""

    answer: str
    ways: tuple[str, ...]


def derive_answer(formal: Any, also: Any = None, *, twice: bool, form: str = "exact") -> Derived:
    """Derive the answer of a formal statement by SymPy, and again by other ways where there are any.

    Args:
        formal, also: statements; ``also`` is a second one that has to give the same.
        twice: refuse what only one way derives.
        form: ``exact``, or ``money``: dollars with two decimals.

    Raises:
        Refused: no statement, no answer, ways that differ, only one way, an answer our grader cannot read.
    """
    try:
        statement = read_statement(formal)
        second = None if also is None else read_statement(also)
    except StatementError as error:
        raise Refused("bad_statement", str(error)) from error
    try:
        result, answer = derive_safely(statement)
    except Underivable as error:
        raise Refused("not_derived", str(error)) from error
    ways = ["sympy"]
    for name, other in (("arithmetic", statement), ("second statement", second)):
        if other is None:
            continue
        try:
            found = derive_again(other)
        except NoSecondWay:
            if name == "arithmetic":
                continue
            try:
                found = derive_safely(other)[0]
            except Underivable as error:
                raise Refused("ways_differ", str(error)) from error
        if not agree(result, found):
            raise Refused("ways_differ", f"{answer} against {found} by {name}")
        ways.append(name)
    if twice and len(ways) < 2:
        raise Refused("derived_once", "no second way")
    return Derived(_as_answer(result, answer, form), tuple(ways))


def _as_answer(result: Result, answer: str, form: str) -> str:
    if form == "money":
        (value,) = result.numbers
        if not isinstance(value, Fraction) or (value * 100).denominator != 1:
            raise Refused("not_money", answer)
        answer = f"{float(value):.2f}"
    if len(answer) > MAX_ANSWER:
        raise Refused("answer_too_long", answer[:40])
    try:
        if parse_answer(answer)[0] == "text":
            raise Refused("answer_not_readable", answer)
    except (ParseError, TooDeep) as error:
        raise Refused("answer_not_readable", answer) from error
    return answer


def problem_row(
    text: str,
    derived: Derived,
    formal: Mapping[str, Any],
    *,
    topic: str,
    difficulty: str,
    steps: int | None,
    source: str,
) -> dict[str, Any]:
    """A row that ``data.source`` reads, with what the answer was derived from beside it."""
    return {
        "problem": text,
        "answer": derived.answer,
        "topic": topic,
        "level": steps,
        "difficulty": difficulty,
        "source": source,
        "formal": dict(formal),
        "derived_by": list(derived.ways),
    }

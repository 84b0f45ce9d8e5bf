"""Completeness: a solution as a graph of values, and the edges that it lacks. Pure functions on text, exact arithmetic.

A value that a step USES must have been stated by the problem or an earlier step. A value that a step RESULTS in must be
used by a later step or be the answer. A left-out step breaks one or the other: its result is used and never derived,
or what it would have used is derived and never used. The answer uses its value. Nothing is said of whether a
calculation holds: that is correctness, and measured elsewhere. Values are absolute, as in ``data_gen.claims``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Sequence, Set
from fractions import Fraction

from data_gen.claims import given_values, plain_text
from data_gen.grounding import combined, rational

MAX_STEPS = 64
"""Steps that are read; later ones say nothing."""
MAX_TEXT = 2_000
"""Characters of a step that are read."""
MAX_PROBLEM = 20_000
"""Characters of a problem that are read."""
MAX_NUMBERS = 32
"""Operands and results of a step that are read, in order."""
MAX_OPERANDS = 12
"""Values that are combined in search of where a result in prose or an equation with letters comes from."""

CONVENTIONS = frozenset(map(Fraction, (0, 1, 100)))
"""Values that need no source: nothing, the whole, and the whole in percent."""
_WORDS = {
    "thirteen": 13, "fourteen": 14, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "thirty": 30,
    "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "thousand": 1000,
    "million": 1_000_000, "thrice": 3, "both": 2, "pair": 2, "couple": 2, "each other": 2, "average": 2, "midpoint": 2,
}  # fmt: skip
"""Words that state a value, beside those of ``data_gen.claims.given_values``."""

_DIGITS = r"\d{1,30}(?:\.\d{1,30})?"
_NUMBER = re.compile(rf"(?<![\w.])(?:({_DIGITS})(?:\s*/\s*({_DIGITS}))?|(\.\d{{1,30}}))(%?)")
_EQUALS = re.compile(r"=|≈|\\approx(?![A-Za-z])")
_SIGN = r"[-+*/:()^\s\\$×÷·{}]|\\cdot|\\times|\\div"
_LEADING = re.compile(rf"(?:{_SIGN}|\d+(?:[.,/]\d+)*%?|\.\d+)*")
_UNIT_WORDS = r"(?:\s?[A-Za-z]{2,}){0,2}"
_TRAILING = re.compile(rf"(?:(?:\d[\d.,]*%?|\.\d+){_UNIT_WORDS}\s*(?:{_SIGN}|x(?=\s))*\s*)+$")
_UNKNOWN = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z'’])|(?<=\d)[a-z](?![a-z])")
_ARTICLES = re.compile(r"(?<![\d)*/+=-]\s)\b[aAI]\b(?!\s*[-+*/=(^)\d])")
_TIMES = re.compile(r"(?<=[\d)])\s+[xX]\s+(?=[\d($])")
_OPERATOR_BEFORE = re.compile(r"[-+*/:=(×÷·]\s*\Z")
_OPERATOR_AFTER = re.compile(r"\s*[-+*/:=)×÷·]")
_DIVISION = re.compile(r"\s*\d+\s*=\s*(\d+)\s*\*\s*\d+\s*\+\s*\d+\s*\.?\s*")


@dataclasses.dataclass(frozen=True)
class Number:
    """A number as written.

    Attributes:
        value: what it is worth. share: the same as a share, of a percentage; else None.
        parts: numerator and denominator of a fraction or division; else ().
        is_operand: True = an operator or "=" stands beside it. A fraction in prose ("3/4 of them") states its parts.
    """

    value: Fraction
    share: Fraction | None = None
    parts: tuple[Fraction, ...] = ()
    is_operand: bool = False

    @property
    def stated(self) -> frozenset[Fraction]:
        """Every value that it makes known."""
        parts = () if self.is_operand else self.parts
        return frozenset((self.value, *parts, *(() if self.share is None else (self.share,))))

    @property
    def touched(self) -> frozenset[Fraction]:
        """Every value that it may be a use of."""
        return self.stated | frozenset(self.parts)


@dataclasses.dataclass(frozen=True)
class StepValues:
    """What a step does with numbers, in the order of the text.

    Attributes:
        used: operands, and numbers that prose mentions.
        results: what stands alone behind "="; in prose without "=" its last number.
        rewritten: of each right side that is a calculation, its numbers: a rewriting of the left side.
        is_symbolic: True = an equation with a letter for an unknown.
    """

    used: tuple[Number, ...] = ()
    results: tuple[Number, ...] = ()
    rewritten: tuple[tuple[Number, ...], ...] = ()
    is_symbolic: bool = False
    has_equation: bool = False

    @property
    def numbers(self) -> tuple[Number, ...]:
        return (*self.used, *self.results, *itertools.chain.from_iterable(self.rewritten))

    @property
    def stated(self) -> frozenset[Fraction]:
        return frozenset().union(*(number.stated for number in self.numbers))

    @property
    def touched(self) -> frozenset[Fraction]:
        return frozenset().union(*(number.touched for number in self.numbers))


@dataclasses.dataclass(frozen=True)
class StepEdges:
    """Edges of the graph at one step: how many it should have, and how many are there.

    Attributes:
        wanted, found: sources of used and rewritten values, and uses of results.
    """

    wanted: int = 0
    found: int = 0

    @property
    def share(self) -> float | None:
        """In [0, 1]; None for a step that has no number."""
        return self.found / self.wanted if self.wanted else None


@functools.lru_cache(maxsize=1 << 15)
def step_values(text: str) -> StepValues:
    """Return what a step does with its numbers. List heads and calculator notes (<<2*3=6>>) are no part of it."""
    plain = _TIMES.sub("*", plain_text(text[:MAX_TEXT]))
    sides = _EQUALS.split(plain)
    if len(sides) == 1:
        numbers = _numbers(plain)
        return StepValues(tuple(numbers[:-1]), tuple(numbers[-1:]))
    used, results, rewritten = [], [], []
    for index, side in enumerate(sides):
        start = _LEADING.match(side).end() if index else 0  # type: ignore[union-attr]
        leading = _numbers(side[:start]) if index else []
        if len(leading) == 1:
            results += leading
        elif leading:
            rewritten.append(tuple(leading))
        used += _numbers(side[start:], before=side[:start])
    restated = {number.value for number in results}
    first = sides[0]
    operands = _numbers(first[_trailing_start(first) :])
    mentioned_early = [n for n in _numbers(first[: _trailing_start(first)]) if n.value not in restated]
    used = [*mentioned_early, *operands, *used[len(_numbers(first)) :]]
    is_symbolic = any(_UNKNOWN.search(_ARTICLES.sub(" ", side[-40:])) for side in sides)
    return StepValues(tuple(used[:MAX_NUMBERS]), tuple(results[:MAX_NUMBERS]), tuple(rewritten), is_symbolic, True)


def _trailing_start(side: str) -> int:
    found = _TRAILING.search(side)
    return found.start() if found else 0


def _numbers(text: str, before: str = "") -> list[Number]:
    found = []
    for match in _NUMBER.finditer(text):
        whole, over, point, percent = match.groups()
        value = Fraction(whole or point)
        if over and Fraction(over):
            is_operand = _OPERATOR_BEFORE.search((text[: match.start()] or before)[-8:]) or _OPERATOR_AFTER.match(
                text, match.end()
            )
            parts = (value, Fraction(over))
            found.append(Number(value / Fraction(over), None, parts, is_operand is not None))
        else:
            found.append(Number(value, value / 100 if percent else None))
    return found


def stated(text: str) -> frozenset[Fraction]:
    """Return the values that a problem, or the words of a step, state."""
    words = re.findall(r"[a-z]+", text.lower())
    spelt = {Fraction(_WORDS[word.removesuffix("s")]) for word in words if word.removesuffix("s") in _WORDS}
    written = frozenset().union(*(number.stated for number in _numbers(plain_text(text))))
    digits = given_values(" ".join(re.findall(r"[A-Za-z]+", text)))  # the words alone
    return written | digits | spelt


def edges(problem: str, steps: Sequence[str], answer: str | None) -> list[StepEdges]:
    """Return the edges of each step, and last those of the answer.

    Args:
        answer: the final answer as text; None or one that is no number has no edges.
    """
    read = [step_values(step) for step in steps[:MAX_STEPS]]
    final = _answer_value(answer)
    known = stated(problem) | CONVENTIONS
    digits = [str(number.value) for number in _numbers(plain_text(problem)) if number.value.denominator == 1]
    uses_after = _uses_after(read, final)
    latest: Set[Fraction] = stated(problem)
    earlier: Set[Fraction] = frozenset()
    found = []
    for step, values, later in zip(steps, read, uses_after, strict=False):
        is_division = _DIVISION.fullmatch(step) is not None
        own = known | (stated(step) - values.stated)
        flags, near = [], set(latest)
        for number in (*values.used, *(() if values.has_equation else values.results)):
            is_there = has_source(number, own) or (is_division and _is_brought_down(number.value, own, digits))
            if not is_there and (values.is_symbolic or number in values.results):
                is_there = one_operation(number.value, near & own)
            flags.append(is_there)
            near |= number.stated
        for side in values.rewritten:
            flags.append(values.is_symbolic or any(has_source(number, own) for number in side))
        if not values.is_symbolic:
            flags += [number.value in later for number in values.results if number.value not in earlier]
        found.append(StepEdges(len(flags), sum(flags)))
        known, earlier = known | values.stated, earlier | values.stated
        latest = values.stated or latest
    found += [StepEdges()] * (len(steps) - len(read))
    if final is None:
        return [*found, StepEdges()]
    is_there = final in known or _read_off(steps) == final
    return [*found, StepEdges(1, int(is_there))]


def share_found(found: Sequence[StepEdges]) -> float | None:
    """Return the share in [0, 1] of the edges that are there; None when none is wanted."""
    wanted = sum(step.wanted for step in found)
    return sum(step.found for step in found) / wanted if wanted else None


def has_source(number: Number, known: Set[Fraction]) -> bool:
    """True when the value, its share of 100, its complement to 1 or 100, or a division that undoes it is known."""
    value = number.value
    if value in known or number.share in known:
        return True
    if number.parts and all(has_source(Number(part), known) for part in number.parts):
        return True
    if value.denominator != 1:
        return bool(known & {1 - value, value - 1, value * 100, 100 - value})
    return value > 1 and Fraction(1, value) in known


def one_operation(value: Fraction, operands: Iterable[Fraction]) -> bool:
    """True when + - * / of two of the smallest ``MAX_OPERANDS`` operands gives the value."""
    few = sorted(operands)[:MAX_OPERANDS]
    return any(value in combined(a, b) for a in few for b in few)


def _uses_after(read: Sequence[StepValues], final: Fraction | None) -> list[Set[Fraction]]:
    """Return for each step the values that later steps and the answer use, each also as its reciprocal and share."""
    later: set[Fraction] = set() if final is None else {final}
    if final is None and read:
        later |= next((values.stated for values in reversed(read) if values.results), frozenset())
    found: list[Set[Fraction]] = []
    for values in reversed(read):
        found.append(frozenset(later))
        later |= values.touched
    return found[::-1]


def _is_brought_down(value: Fraction, known: Set[Fraction], digits: Sequence[str]) -> bool:
    """True in long division: the leading digits of a given number, or a remainder and the next digit behind it."""
    text = str(value)
    if any(given.startswith(text) for given in digits):
        return True
    return Fraction(text[:-1] or "0") in known and any(text[-1] in given for given in digits)


def _read_off(steps: Sequence[str]) -> Fraction | None:
    """Return the number whose digits are the quotients of division lines, None without any."""
    quotients = [match.group(1) for step in steps[:MAX_STEPS] if (match := _DIVISION.fullmatch(step))]
    return Fraction("".join(quotients)) if quotients else None


def _answer_value(answer: str | None) -> Fraction | None:
    value = rational(answer)
    return None if value is None else abs(value)

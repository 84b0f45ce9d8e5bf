"""Where the numbers of a step come from: the problem, an earlier step, an operation, an equation that holds.

Pure functions on text, by exact arithmetic. Model text is matched, parsed by the grader's bounded grammar and never
evaluated. The signals reward (``policy.signals``) and the measures of quality (``prm.quality``) read steps with it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence, Set
from fractions import Fraction

from data_gen.arithmetic import false_equation
from data_gen.claims import given_values, mentioned
from grading.equivalence import vote_key

MAX_NUMBERS = 24
"""Different numbers of a step that are read, the smallest first; more of them count as not grounded."""
MAX_OPERANDS = 10
"""Numbers of a step and the one before it that are combined in search of where a number comes from."""
_NUMERIC = r"[-+*/().\d\s^×÷·−]{1,80}"
_EQUATION = re.compile(rf"({_NUMERIC})=({_NUMERIC})")
_POWER = re.compile(r"(?:\^|\*\*(?=\s?[\d({]))[\s({]{0,3}-?\s?(\d{0,3})")
_FACTORIAL = re.compile(r"\d{3}[\s)}]{0,3}!")
MAX_POWERS = 3
"""Powers in a step whose equations are read; none with an exponent of two digits, no factorial of three: too slow."""
_OPERATION = re.compile(r"\d\s*\)*\s*[-+*/^×÷·−]")


@dataclasses.dataclass(frozen=True)
class StepNumbers:
    """What the numbers of one step are.

    Attributes:
        total: different numbers in it.
        grounded: those that the problem gives, or that follow from earlier ones; 0 in a step with a false equation.
        is_new: True = the step derives something: a grounded number that is neither the problem's nor an earlier
            step's, or a calculation that holds and that no earlier step was.
    """

    total: int
    grounded: int
    is_new: bool


def step_numbers(problem: str, steps: Sequence[str]) -> list[StepNumbers]:
    """Return where the numbers of each step come from. Absolute values; list heads count as no number.

    A number is grounded when the problem states it, an earlier step had it grounded, one operation (+ - * /) on two
    grounded numbers of this step and the one before it gives it, or it stands in a numeric equation that holds and
    whose other side has grounded numbers only. A step with an equation that exact arithmetic refutes grounds nothing.
    """
    known, seen, texts = set(given_values(problem)), set(given_values(problem)), set[str]()
    before: Set[Fraction] = mentioned(problem)
    found = []
    for step in steps:
        all_numbers, text = mentioned(step), "".join(step.split())
        numbers = set(sorted(all_numbers)[:MAX_NUMBERS])
        if is_refuted(step):
            found.append(StepNumbers(len(all_numbers), 0, False))
            numbers = set()
        else:
            holding = holding_equations(step)
            grounded = _grounded(numbers, holding, before & known, known)
            is_calculation = any(_OPERATION.search("=".join(sides)) for sides in holding) and text not in texts
            found.append(StepNumbers(len(all_numbers), len(grounded), is_calculation or not grounded <= seen))
            known |= grounded
        seen |= all_numbers
        texts.add(text)
        before = numbers
    return found


@functools.lru_cache(maxsize=1 << 13)
def is_refuted(step: str) -> bool:
    return not _is_costly(step) and false_equation(step) is not None


def _is_costly(step: str) -> bool:
    exponents = _POWER.findall(step)
    is_high = any(len(digits) > 1 for digits in exponents)
    return is_high or len(exponents) > MAX_POWERS or _FACTORIAL.search(step) is not None


@functools.lru_cache(maxsize=1 << 13)
def holding_equations(step: str) -> tuple[tuple[str, str], ...]:
    """Return the sides of the numeric equations of a step whose two sides have the same exact value."""
    if _is_costly(step):
        return ()
    pairs = [(left.strip(), right.strip()) for left, right in _EQUATION.findall(step)]
    return tuple(pair for pair in pairs if rational(pair[0]) is not None and rational(pair[0]) == rational(pair[1]))


def _grounded(
    numbers: Set[Fraction], holding: Sequence[tuple[str, str]], before: Set[Fraction], known: Set[Fraction]
) -> Set[Fraction]:
    """Return the numbers of a step that are known, follow from known ones, or stand in an equation that holds."""
    grounded = numbers & known
    for sides in holding:
        left, right = map(mentioned, sides)
        for side, other in ((left, right), (right, left)):
            if side and side <= grounded:
                grounded |= numbers & other
    for _ in range(2):  # twice: a step may hold two operations
        if grounded == numbers:
            break
        operands = sorted(grounded | before)[:MAX_OPERANDS]
        grounded |= numbers & {value for a in operands for b in operands for value in combined(a, b)}
    return grounded


def combined(a: Fraction, b: Fraction) -> tuple[Fraction, ...]:
    """Return what + - * / make of two numbers, differences without sign; a alone where b is 0."""
    return (a + b, abs(a - b), a * b, a / b) if b else (a,)


def rational(answer: str | None) -> Fraction | None:
    """Return the exact rational value of an answer, None when it has none (text, NaN, infinity, a root)."""
    key = vote_key(answer) if answer is not None else None
    return key if isinstance(key, Fraction) else None

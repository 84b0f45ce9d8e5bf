"""Results of a derivation: numbers, sets of numbers, unions of intervals, polynomials; when two of them agree."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

Number = Fraction | float
"""Exact where rational, else a float."""
Interval = tuple[Number, Number, bool, bool]
"""Low, high, low belongs to it, high belongs to it; -inf and inf are floats."""
RELATIVE_ERROR = 1e-9


@dataclasses.dataclass(frozen=True)
class Result:
    """What a problem's answer is: ``numbers`` (one, or a set in rising order), ``intervals`` or ``polynomial``."""

    numbers: tuple[Number, ...] = ()
    intervals: tuple[Interval, ...] | None = None
    polynomial: Mapping[int, Fraction] | None = None

    @classmethod
    def of(cls, *numbers: Number) -> Result:
        return cls(numbers=tuple(sorted(numbers)))


def agree(a: Result, b: Result) -> bool:
    """True when two results are the same: rationals exactly, others to a relative error of 1e-9."""
    if a.polynomial is not None or b.polynomial is not None:
        return a.polynomial == b.polynomial
    if a.intervals is not None and b.intervals is not None:
        return len(a.intervals) == len(b.intervals) and all(
            x[2:] == y[2:] and _same(x[:2], y[:2]) for x, y in zip(a.intervals, b.intervals, strict=True)
        )
    return a.intervals is None and b.intervals is None and bool(a.numbers) and _same(a.numbers, b.numbers)


def _same(a: Sequence[Number], b: Sequence[Number]) -> bool:
    return len(a) == len(b) and all(same_number(x, y) for x, y in zip(a, b, strict=True))


def same_number(x: Number, y: Number) -> bool:
    """Equality of rationals; a float is equal to what lies within the relative error."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x == y
    if math.isinf(x) or math.isinf(y):
        return float(x) == float(y)
    return abs(float(x) - float(y)) <= RELATIVE_ERROR * max(1.0, abs(float(x)), abs(float(y)))

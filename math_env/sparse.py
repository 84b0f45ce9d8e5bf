"""Polynomials as {monomial code: coefficient}: quick arithmetic for the masks. Nothing here is trusted.

A code packs the total degree and the exponents, 8 bits each, so that the product of two monomials is the sum of their
codes and the larger code is the larger monomial in the graded lexicographic order of `terms`. Coefficients are ints
where they are whole, Fractions elsewhere, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import chain

from math_env.terms import MAX_DEGREE, MAX_POWER, VARIABLES, Monomial, Poly
from math_env.tokens import LENGTH, LIMIT

Coefficient = int | Fraction
Sparse = Mapping[int, Coefficient]
Key = tuple[Coefficient, ...]

FIELD = 8
SHIFTS = {name: FIELD * (len(VARIABLES) - 1 - i) for i, name in enumerate(VARIABLES)}
DEGREE = FIELD * len(VARIABLES)
POWER = (1 << FIELD) - 1
TOO_LONG = 10 * LENGTH


@lru_cache(maxsize=20_000)
def code(mono: Monomial) -> int:
    return sum((power << SHIFTS[name]) + (power << DEGREE) for name, power in mono)


def encode(p: Poly) -> Sparse:
    return {code(mono): c.numerator if c.denominator == 1 else c for mono, c in p}


@lru_cache(maxsize=20_000)
def _tokens(mono: int) -> int:
    """Tokens of a monomial without its coefficient; TOO_LONG beyond the limits of a term."""
    powers = [power for shift in SHIFTS.values() if (power := mono >> shift & POWER)]
    if mono >> DEGREE > MAX_DEGREE or max(powers, default=0) > MAX_POWER:
        return TOO_LONG
    return sum(1 if power == 1 else 3 for power in powers) + max(0, len(powers) - 1)


def tokens(p: Sparse) -> int:
    """Tokens of `term_of(p)`; TOO_LONG or more when a state cannot hold it for another reason than its length."""
    if not p:
        return 3
    total = len(p) - 1
    for mono, coef in p.items():
        if not -LIMIT <= coef <= LIMIT:
            return TOO_LONG
        if type(coef) is not int and (abs(coef.numerator) > LIMIT or coef.denominator > LIMIT):
            return TOO_LONG
        total += _tokens(mono) if coef == 1 and mono else 4 + _tokens(mono) if mono else 3
    return total


def key(p: Sparse) -> Key:
    """Equal for equal polynomials."""
    return tuple(chain.from_iterable(sorted(p.items())))


def add(p: Sparse, q: Sparse, c: Coefficient = 1) -> Sparse:
    """p + c·q"""
    total = dict(p)
    for mono, coef in q.items():
        value = total.get(mono, 0) + c * coef
        if value:
            total[mono] = value
        else:
            total.pop(mono, None)
    return total


def times(p: Sparse, q: Sparse) -> Sparse:
    total: dict[int, Coefficient] = {}
    get = total.get
    for mono, coef in p.items():
        for other, factor in q.items():
            total[mono + other] = get(mono + other, 0) + coef * factor
    return {mono: coef for mono, coef in total.items() if coef}


def scaled(p: Sparse, c: Coefficient) -> Sparse:
    return {mono: c * coef for mono, coef in p.items()}


def denominator(p: Sparse) -> int:
    """Least common one."""
    return math.lcm(*(coef.denominator for coef in p.values()))


def primitive(p: Sparse, keep_sign: bool = False) -> dict[int, int]:
    """As `terms.primitive`."""
    if not p:
        return {}
    bottom = denominator(p)
    whole = {mono: int(coef * bottom) for mono, coef in p.items()}
    content = math.gcd(*whole.values())
    if not keep_sign and whole[max(whole)] < 0:
        content = -content
    return {mono: coef // content for mono, coef in whole.items()}


def degree_in(p: Sparse, name: str) -> int:
    return max((mono >> SHIFTS[name] & POWER for mono in p), default=0)


def names(p: Sparse) -> set[str]:
    return {name for name, shift in SHIFTS.items() if any(mono >> shift & POWER for mono in p)}


def substituted(p: Sparse, name: str, term: Sparse) -> Sparse:
    """p[name := term]"""
    shift = SHIFTS[name]
    unit = (1 << shift) + (1 << DEGREE)
    powers: list[Sparse] = [{0: 1}]
    total: Sparse = {}
    for mono, coef in p.items():
        power = mono >> shift & POWER
        while len(powers) <= power:
            powers.append(times(powers[-1], term))
        total = add(total, {other + mono - power * unit: c for other, c in powers[power].items()}, coef)
    return total


def is_surely_within_limits(p: Sparse, name: str, term: Sparse) -> bool:
    """Whether no partial result of p[name := term] on canonical terms can exceed a kernel limit, at any order."""
    power = degree_in(p, name)
    degrees = [max((mono >> DEGREE for mono in item), default=0) for item in (p, term)]
    monomials = max(1, len(term)) ** power * max(1, len(p))
    number = LIMIT.bit_length() * (power + 1) + monomials.bit_length()
    bits = number + power * denominator(term).bit_length() + denominator(p).bit_length()
    return monomials <= 300 and degrees[0] + power * degrees[1] <= MAX_DEGREE and bits <= 200


AT = dict(zip(VARIABLES, (7, 11, -13, 17, 19, 23, 29), strict=True))
AT_TOO = dict(zip(VARIABLES, (5, -6, 8, 9, -10, 14, 15), strict=True))


@lru_cache(maxsize=20_000)
def _at(mono: int) -> tuple[int, int]:
    """A monomial at the points AT and AT_TOO."""
    powers = {name: mono >> shift & POWER for name, shift in SHIFTS.items()}
    first, second = (math.prod(point[name] ** power for name, power in powers.items()) for point in (AT, AT_TOO))
    return first, second


def values(p: Mapping[int, int]) -> tuple[int, int]:
    """An integer polynomial at AT and AT_TOO."""
    found = [(coef, _at(mono)) for mono, coef in p.items()]
    return sum(coef * at[0] for coef, at in found), sum(coef * at[1] for coef, at in found)


def may_divide(divisor: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether a primitive polynomial with these `values` may divide an integer one (Gauss: its value would, too)."""
    return all(b % a == 0 if a else b == 0 for a, b in zip(divisor, other, strict=True))

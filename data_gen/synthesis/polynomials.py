"""Polynomials in one letter with rational coefficients, lowest power first; real roots by Sturm's theorem. No SymPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

from data_gen.synthesis.results import Number
from grading.parse import Node
from grading.values import exact

Polynomial = tuple[Fraction, ...]
"""Coefficients from the power 0 up, no zeros at the end; () is 0."""
ONE: Polynomial = (Fraction(1),)
MAX_DEGREE = 40


class NotPolynomial(ValueError):
    """A tree that is no quotient of two polynomials in the letter."""


def trim(coefficients: Sequence[Fraction]) -> Polynomial:
    end = len(coefficients)
    while end and coefficients[end - 1] == 0:
        end -= 1
    return tuple(coefficients[:end])


def add(a: Polynomial, b: Polynomial) -> Polynomial:
    size = max(len(a), len(b))
    return trim([sum((p[k] for p in (a, b) if k < len(p)), Fraction(0)) for k in range(size)])


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    if not a or not b:
        return ()
    if len(a) + len(b) > MAX_DEGREE + 2:
        raise NotPolynomial(f"degree above {MAX_DEGREE}")
    product = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return trim(product)


def scale(a: Polynomial, factor: Fraction) -> Polynomial:
    return trim([factor * c for c in a])


def subtract(a: Polynomial, b: Polynomial) -> Polynomial:
    return add(a, scale(b, Fraction(-1)))


def divide(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder. Raises ZeroDivisionError for b = 0."""
    if not b:
        raise ZeroDivisionError("division by the polynomial 0")
    quotient = [Fraction(0)] * max(0, len(a) - len(b) + 1)
    rest = list(a)
    for k in range(len(a) - len(b), -1, -1):
        quotient[k] = rest[k + len(b) - 1] / b[-1]
        for i, c in enumerate(b):
            rest[k + i] -= quotient[k] * c
    return trim(quotient), trim(rest)


def at(a: Polynomial, x: Number) -> Number:
    value: Number = Fraction(0)
    for c in reversed(a):
        value = value * x + (c if isinstance(x, Fraction) else float(c))
    return value


def slope(a: Polynomial) -> Polynomial:
    return trim([k * c for k, c in enumerate(a)][1:])


def read_ratio(node: Node, letter: str) -> tuple[Polynomial, Polynomial]:
    """Numerator and denominator of a tree. Raises NotPolynomial."""
    kind = node[0]
    value = exact(node)
    if value is not None:
        return trim([value]), ONE
    if kind == "sym" and node[1] == letter:
        return (Fraction(0), Fraction(1)), ONE
    if kind == "neg":
        top, bottom = read_ratio(node[1], letter)
        return scale(top, Fraction(-1)), bottom
    if kind in ("add", "mul"):
        top, bottom = ((), ONE) if kind == "add" else (ONE, ONE)
        for item in node[1]:
            t, b = read_ratio(item, letter)
            if kind == "add" and b == bottom:
                top = add(top, t)
                continue
            top = add(multiply(top, b), multiply(t, bottom)) if kind == "add" else multiply(top, t)
            bottom = multiply(bottom, b)
        return top, bottom
    if kind == "div":
        (t, b), (u, c) = read_ratio(node[1], letter), read_ratio(node[2], letter)
        return multiply(t, c), multiply(b, u)
    if kind == "pow" and (power := exact(node[2])) is not None and power.denominator == 1 and 0 <= power <= MAX_DEGREE:
        t, b = read_ratio(node[1], letter)
        top, bottom = ONE, ONE
        for _ in range(int(power)):
            top, bottom = multiply(top, t), multiply(bottom, b)
        return top, bottom
    raise NotPolynomial(f"{kind} is no polynomial in {letter}")


def read_polynomial(node: Node, letter: str) -> Polynomial:
    """Coefficients of a tree. Raises NotPolynomial."""
    top, bottom = read_ratio(node, letter)
    if len(bottom) != 1:
        raise NotPolynomial("a quotient")
    return scale(top, 1 / bottom[0])


def real_roots(a: Polynomial) -> list[Number]:
    """Different real roots in rising order: Fractions where rational, else floats; all of them, by Sturm's theorem."""
    if not a:
        raise NotPolynomial("0 has every number as root")
    if len(a) == 1:
        return []
    common = _gcd(a, slope(a))
    simple = divide(a, common)[0]
    chain = [simple, slope(simple)]
    while len(chain[-1]) > 1:
        chain.append(scale(divide(chain[-2], chain[-1])[1], Fraction(-1)))
    bound = 1 + max(abs(c / simple[-1]) for c in simple)
    found: list[Number] = []
    open_parts = [(-bound, bound)]
    while open_parts:
        low, high = open_parts.pop()
        count = _changes(chain, low) - _changes(chain, high)
        if count == 1:
            found.append(_refine(simple, low, high))
        elif count > 1:
            middle = (low + high) / 2
            open_parts += [(low, middle), (middle, high)]
    return sorted(found)


def _gcd(a: Polynomial, b: Polynomial) -> Polynomial:
    while b:
        a, b = b, divide(a, b)[1]
    return scale(a, 1 / a[-1])


def _changes(chain: Sequence[Polynomial], x: Fraction) -> int:
    signs = [value > 0 for p in chain if (value := at(p, x)) != 0]
    return sum(a != b for a, b in itertools.pairwise(signs))


def _refine(a: Polynomial, low: Fraction, high: Fraction) -> Number:
    """The one root in (low, high], a simple one: rational if a fraction near it is a root, else to about 15 digits."""
    is_positive = at(a, high) > 0
    if at(a, high) == 0:
        return high
    largest = abs(int(a[-1] * math.lcm(*(c.denominator for c in a))))  # no denominator of a rational root is larger
    halvings = max(20, 2 * largest.bit_length() + 8 + int(high - low).bit_length())
    for _ in range(halvings):
        middle = (low + high) / 2
        value = at(a, middle)
        if value == 0:
            return middle
        low, high = (low, middle) if (value > 0) == is_positive else (middle, high)
    guess = ((low + high) / 2).limit_denominator(max(1, largest))
    if at(a, guess) == 0:
        return guess
    left, right = float(low), float(high)
    for _ in range(60):
        center = (left + right) / 2
        left, right = (left, center) if (at(a, center) > 0) == is_positive else (center, right)
    return (left + right) / 2

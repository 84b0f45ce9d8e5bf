"""The second derivation, without SymPy: exact rational arithmetic, substitution, brute force, quadrature.

Each kind of statement is answered another way than in ``by_sympy``: equations by Sturm's theorem and elimination,
integrals by Gauss-Legendre quadrature, recurrences by iteration, remainders by modular powers, divisors by trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from data_gen.synthesis.polynomials import (
    NotPolynomial,
    Polynomial,
    at,
    divide,
    read_polynomial,
    read_ratio,
    real_roots,
    slope,
)
from data_gen.synthesis.results import Number, Result
from data_gen.synthesis.solve_exactly import NoSecondWay, evaluate, solve, without_bars
from data_gen.synthesis.statement import Relation, Statement, parts
from grading.parse import Node
from grading.values import Undefined, approximate, exact, symbols


def derive_again(statement: Statement) -> Result:
    """Return the result. Raises NoSecondWay where it has none, also for statements without an answer."""
    try:
        return _SOLVERS[statement.kind](statement)
    except NoSecondWay:
        raise
    except (ArithmeticError, KeyError, NotPolynomial, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise NoSecondWay(f"{type(error).__name__}: {str(error)[:80]}") from error


def _value(s: Statement) -> Result:
    return Result.of(evaluate(s["of"], {}))


def _roots(s: Statement) -> Result:
    (x,) = symbols(s["of"])
    found = np.roots([float(c) for c in reversed(read_polynomial(s["of"], x))])
    value = approximate(s["ask"], {"r": found[0], "s": found[1]})
    if abs(value.imag) > 1e-9 * max(1.0, abs(value)):
        raise NoSecondWay("no real value")
    return Result.of(float(value.real))


def _inequality(s: Statement) -> Result:
    """Signs between the points where a side may change: roots of numerators and denominators."""
    (x,) = frozenset().union(*(symbols(r.difference) for r in s["relations"]))
    points: list[Number] = []
    for relation in s["relations"]:
        inside = [part[2] for part in parts(relation.difference) if part[0] == "func" and part[1] == "abs"]
        for variant in [*without_bars(relation.difference), *inside]:
            for polynomial in read_ratio(variant, x):
                points += real_roots(polynomial)
    points = sorted(dict.fromkeys(points))

    def holds(value: Number) -> bool:
        return all(_compare(r, {x: value}) for r in s["relations"])

    ends = [-math.inf, *points, math.inf]
    intervals: list[tuple[Number, Number, bool, bool]] = []
    for low, high in itertools.pairwise(ends):
        has_low = isinstance(low, Fraction) and holds(low)
        if has_low and not (intervals and intervals[-1][1] == low and intervals[-1][3]):
            if intervals and intervals[-1][1] == low:
                intervals[-1] = (*intervals[-1][:3], True)
            else:
                intervals.append((low, low, True, True))
        if holds(_between(low, high)):
            joins = bool(intervals) and intervals[-1][1] == low and intervals[-1][3]
            if joins:
                intervals[-1] = (intervals[-1][0], high, intervals[-1][2], False)
            else:
                intervals.append((low, high, False, False))
            if isinstance(high, Fraction) and holds(high):
                intervals[-1] = (*intervals[-1][:3], True)
    if s["ask"] != "integers":
        if any(isinstance(p, float) for p in points) and not all(r.op in "<>" for r in s["relations"]):
            raise NoSecondWay("ends that are not rational")
        return Result(intervals=tuple(intervals))
    if not intervals:
        raise NoSecondWay("no solution")
    low, high = math.floor(intervals[0][0]) - 1, math.ceil(intervals[-1][1]) + 1
    return Result.of(Fraction(sum(holds(Fraction(k)) for k in range(low, high + 1))))


def _between(low: Number, high: Number) -> Fraction:
    if math.isinf(low):
        return Fraction(0) if math.isinf(high) else Fraction(high) - 1
    return Fraction(low) + 1 if math.isinf(high) else (Fraction(low) + Fraction(high)) / 2


def _compare(relation: Relation, values: Mapping[str, Number]) -> bool:
    try:
        value = evaluate(relation.difference, values)
    except (Undefined, ZeroDivisionError):
        return False
    return {"<": value < 0, "<=": value <= 0, ">": value > 0, ">=": value >= 0, "=": value == 0, "!=": value != 0}[
        relation.op
    ]


def _as_result(polynomial: Polynomial) -> Result:
    return Result(polynomial={k: c for k, c in enumerate(polynomial) if c})


def _letter(node: Node) -> str:
    return next(iter(symbols(node)), "x")


def _derivative(s: Statement) -> Result:
    found = slope(read_polynomial(s["of"], s["in"]))
    return _as_result(found) if s["at"] is None else Result.of(at(found, evaluate(s["at"], {})))


def _integral(s: Statement) -> Result:
    """Gauss-Legendre with 40 points, exact for polynomials up to rounding; a float."""
    low, high = float(evaluate(s["from"], {})), float(evaluate(s["to"], {}))
    points, weights = np.polynomial.legendre.leggauss(40)
    middle, half = (low + high) / 2, (high - low) / 2
    values = [float(evaluate(s["of"], {s["in"]: float(middle + half * point)})) for point in points]
    return Result.of(half * math.fsum(w * v for w, v in zip(weights, values, strict=True)))


def _extremum(s: Statement) -> Result:
    """Ends and the roots of the derivative that Sturm's theorem finds."""
    f = read_polynomial(s["of"], s["in"])
    low, high = evaluate(s["from"], {}), evaluate(s["to"], {})
    values = [at(f, x) for x in (low, high, *real_roots(slope(f))) if low <= x <= high]
    return Result.of(max(values) if s["ask"] == "max" else min(values))


def _remainder(s: Statement) -> Result:
    return Result.of(Fraction(_modulo(s["of"], s["by"])))


def _modulo(node: Node, m: int) -> int:
    """Value of a tree modulo m without ever building it."""
    kind = node[0]
    if kind == "num" and node[2] == 1:
        return int(node[1]) % m
    if kind == "neg":
        return -_modulo(node[1], m) % m
    if kind in ("add", "mul"):
        total = 0 if kind == "add" else 1
        for item in node[1]:
            total = (total + _modulo(item, m) if kind == "add" else total * _modulo(item, m)) % m
        return total
    if kind == "pow" and (power := exact(node[2])) is not None and power.denominator == 1 and power >= 0:
        return pow(_modulo(node[1], m), int(power), m)
    if kind == "fact" and (n := exact(node[1])) is not None and n.denominator == 1 and n >= 0:
        total = 1 % m
        for k in range(2, int(n) + 1):
            total = total * k % m
        return total
    raise NoSecondWay(f"{kind} in a remainder")


def _divisors(s: Statement) -> Result:
    n = s["of"]
    if not 1 <= n <= 10**9:
        raise NoSecondWay("too large for trial division")
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    divisors = {*small, *(n // d for d in small)}
    if s["ask"] == "primes":
        return Result.of(Fraction(sum(d > 1 and all(d % k for k in range(2, math.isqrt(d) + 1)) for d in divisors)))
    return Result.of(Fraction(len(divisors) if s["ask"] == "count" else sum(divisors)))


def _congruences(s: Statement) -> Result:
    period = math.lcm(*(m for _, m in s["pairs"]))
    if period > 200_000:
        raise NoSecondWay("too many numbers to try")
    for n in range(s["above"] + 1, s["above"] + period + 1):
        if all((n - remainder) % m == 0 for remainder, m in s["pairs"]):
            return Result.of(Fraction(n))
    raise NoSecondWay("no solution")


def _recurrence(s: Statement) -> Result:
    terms = [evaluate(value, {}) for value in s["start"]]
    while len(terms) < s["term"]:
        terms.append(evaluate(s["next"], {"p": terms[-1], **({"q": terms[-2]} if len(terms) > 1 else {})}))
    return Result.of(terms[s["term"] - 1])


def _cases(s: Statement) -> tuple[int, int]:
    names, (order, conditions) = list(s["ranges"]), (s["order"] or "any", s["such_that"] or ())
    fits = total = 0
    bounds = list(s["ranges"].values())
    cases: Any = itertools.product(*(range(low, high + 1) for low, high in bounds))
    if order == "increasing" and len(set(bounds)) == 1:
        cases = itertools.combinations(range(bounds[0][0], bounds[0][1] + 1), len(bounds))
    for values in cases:
        steps = [b - a for a, b in itertools.pairwise(values)]
        if order != "any" and any(step < (order == "increasing") for step in steps):
            continue
        total += 1
        point = {name: Fraction(v) for name, v in zip(names, values, strict=True)}
        fits += all(_compare(r, point) for r in conditions)
    return fits, total


def _count(s: Statement) -> Result:
    return Result.of(Fraction(_cases(s)[0]))


def _probability(s: Statement) -> Result:
    return Result.of(Fraction(*_cases(s)))


def _polygon(s: Statement) -> Result:
    points = [(evaluate(x, {}), evaluate(y, {})) for x, y in s["points"]]
    twice: Any = sum(x * v - u * y for (x, y), (u, v) in zip(points, points[1:] + points[:1], strict=True))
    return Result.of(abs(twice) / 2)


_SOLVERS: dict[str, Any] = {
    "value": _value, "solve": solve, "roots": _roots, "inequality": _inequality,
    "expand": lambda s: _as_result(read_polynomial(s["of"], _letter(s["of"]))),
    "coefficient": lambda s: Result.of(dict(enumerate(read_polynomial(s["of"], s["in"]))).get(s["power"], Fraction(0))),
    "polynomial_remainder": lambda s: _as_result(
        divide(read_polynomial(s["of"], s["in"]), read_polynomial(s["by"], s["in"]))[1]
    ),
    "derivative": _derivative, "integral": _integral, "extremum": _extremum, "remainder": _remainder,
    "divisors": _divisors, "congruences": _congruences, "recurrence": _recurrence, "count": _count,
    "probability": _probability, "polygon": _polygon,
}  # fmt: skip

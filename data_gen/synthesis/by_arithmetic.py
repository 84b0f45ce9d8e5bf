"""The second derivation, without SymPy: exact rational arithmetic, substitution, brute force, quadrature.

Each kind of statement is answered another way than in ``by_sympy``: equations by Sturm's theorem and elimination,
integrals by Gauss-Legendre quadrature, recurrences by iteration, remainders by modular powers, divisors by trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from data_gen.synthesis.polynomials import (
    NotPolynomial,
    Polynomial,
    at,
    divide,
    multiply,
    read_polynomial,
    read_ratio,
    real_roots,
    slope,
    subtract,
)
from data_gen.synthesis.results import Number, Result, same_number
from data_gen.synthesis.statement import Relation, Statement, parts
from grading.parse import Node
from grading.values import TooLarge, Undefined, approximate, exact, symbols


class NoSecondWay(ValueError):
    """This module has no way of its own for the statement."""


def derive_again(statement: Statement) -> Result:
    """Return the result. Raises NoSecondWay where it has none, also for statements without an answer."""
    try:
        return _SOLVERS[statement.kind](statement)
    except NoSecondWay:
        raise
    except (ArithmeticError, KeyError, NotPolynomial, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise NoSecondWay(f"{type(error).__name__}: {str(error)[:80]}") from error


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """A tree with letters replaced by trees."""
    if node[0] == "sym":
        return values.get(node[1], node)
    if node[0] == "num" or node[0] == "const":
        return node
    if node[0] in ("add", "mul"):
        return (node[0], tuple(substitute(item, values) for item in node[1]))
    if node[0] == "pick":
        return ("pick", node[1], tuple(substitute(item, values) for item in node[2]))
    return (node[0], *(substitute(part, values) if isinstance(part, tuple) else part for part in node[1:]))


def number_tree(value: Fraction) -> Node:
    return ("num", value.numerator, value.denominator)


def evaluate(node: Node, values: Mapping[str, Number]) -> Number:
    """Value of a tree: exact where rational, else a float. Raises ArithmeticError, NoSecondWay for complex ones."""
    exact_values = {name: number_tree(v) for name, v in values.items() if isinstance(v, Fraction)}
    if node[0] == "sum":
        low, high = evaluate(node[2], values), evaluate(node[3], values)
        terms = [evaluate(node[4], {**values, node[1]: Fraction(k)}) for k in range(int(low), int(high) + 1)]
        return sum(terms, Fraction(0))
    found = exact(substitute(node, exact_values))
    if found is not None:
        return found
    rough = approximate(node, {name: float(v) for name, v in values.items()})
    if abs(rough.imag) > 1e-12 * max(1.0, abs(rough)):
        raise NoSecondWay("no real value")
    return rough.real


def _value(s: Statement) -> Result:
    return Result.of(evaluate(s["of"], {}))


def _solve(s: Statement) -> Result:
    equations: tuple[Relation, ...] = s["equations"]
    unknowns = sorted(frozenset().union(*(symbols(e.difference) for e in equations)))
    solutions = _solutions([e.difference for e in equations], unknowns, s["domain"] or "real")
    target = s["find"] or ("sym", unknowns[0])
    values: list[Number] = []
    for solution in solutions:
        value = evaluate(target, solution)
        if not any(same_number(value, other) for other in values):
            values.append(value)
    return Result.of(*values)


def _solutions(differences: Sequence[Node], unknowns: Sequence[str], domain: str) -> list[dict[str, Number]]:
    if len(unknowns) == 1:
        candidates = [{unknowns[0]: root} for root in _one_unknown(differences[0], unknowns[0], domain)]
    else:
        candidates = _several_unknowns(differences, unknowns)
    return [c for c in candidates if _fits(differences, c) and all(_is_in(v, domain) for v in c.values())]


def _fits(differences: Sequence[Node], values: Mapping[str, Number]) -> bool:
    """Substitution: exact where the values are rational."""
    for difference in differences:
        try:
            value = evaluate(difference, values)
        except (ArithmeticError, NoSecondWay):
            return False
        if value != 0 and (isinstance(value, Fraction) or abs(value) > 1e-7):
            return False
    return True


def _is_in(value: Number, domain: str) -> bool:
    if domain == "positive":
        return value > 0
    return domain == "real" or (isinstance(value, Fraction) and value.denominator == 1)


def _one_unknown(difference: Node, x: str, domain: str) -> list[Number]:
    """Candidates that hold all solutions; ``_fits`` removes what squaring and case splits add."""
    roots = {part for part in parts(difference) if part[0] == "root"}
    if len(roots) == 1:
        (root,) = roots
        if root[2] != ("num", 2, 1):
            raise NoSecondWay("a root that is not square")
        p, q = (read_polynomial(_replace(difference, root, ("num", k, 1)), x) for k in (0, 1))
        twice = read_polynomial(_replace(difference, root, ("num", 2, 1)), x)
        factor = subtract(q, p)
        if subtract(twice, q) != factor:
            raise NoSecondWay("a root that is not linear")
        inner = read_polynomial(root[1], x)
        return real_roots(subtract(multiply(p, p), multiply(inner, multiply(factor, factor))))
    try:
        candidates: list[Number] = []
        for variant in _without_bars(difference):
            candidates += real_roots(read_ratio(variant, x)[0])
        return list(dict.fromkeys(candidates))
    except NotPolynomial:
        if domain != "integer":
            raise
        return [Fraction(k) for k in range(-100, 101)]


def _replace(node: Node, old: Node, new: Node) -> Node:
    if node == old:
        return new
    if node[0] in ("add", "mul"):
        return (node[0], tuple(_replace(item, old, new) for item in node[1]))
    return (node[0], *(_replace(p, old, new) if isinstance(p, tuple) and p and isinstance(p[0], str) else p for p in node[1:]))


def _without_bars(node: Node) -> list[Node]:
    """The tree with each absolute value replaced by its inside and by the inside's negative."""
    bars = next((part for part in parts(node) if part[0] == "func" and part[1] == "abs"), None)
    if bars is None:
        return [node]
    return [v for inner in (bars[2], ("neg", bars[2])) for v in _without_bars(_replace(node, bars, inner))]


def _several_unknowns(differences: Sequence[Node], unknowns: Sequence[str]) -> list[dict[str, Number]]:
    rows = [_linear_row(difference, unknowns) for difference in differences]
    if all(row is not None for row in rows):
        return [dict(zip(unknowns, _eliminate([list(row) for row in rows if row]), strict=True))]
    if len(unknowns) != 2 or len(differences) != 2:
        raise NoSecondWay("more than two unknowns")
    k = next((k for k, row in enumerate(rows) if row is not None), None)
    if k is None:
        raise NoSecondWay("no linear equation")
    row = rows[k]
    assert row is not None
    gone, kept = (0, 1) if row[0] else (1, 0)
    slope_, offset = -row[kept] / row[gone], -row[2] / row[gone]
    line: Node = ("add", (("mul", (number_tree(slope_), ("sym", unknowns[kept]))), number_tree(offset)))
    single = substitute(differences[1 - k], {unknowns[gone]: line})
    return [
        {unknowns[kept]: root, unknowns[gone]: evaluate(line, {unknowns[kept]: root})}
        for root in _one_unknown(single, unknowns[kept], "real")
    ]


def _linear_row(difference: Node, unknowns: Sequence[str]) -> list[Fraction] | None:
    """Coefficients and constant of a linear tree, None for another: values at points that would show a square."""
    zero = dict.fromkeys(unknowns, Fraction(0))
    constant = evaluate(difference, zero)
    row = [evaluate(difference, {**zero, name: Fraction(1)}) - constant for name in unknowns] + [constant]
    for points in ((2, 3, 5, 7, 11, 13), (-3, 4, 17, -5, 2, 9), (19, -6, 1, 8, -2, 3)):
        values = {name: Fraction(p) for name, p in zip(unknowns, points, strict=False)}
        if evaluate(difference, values) != sum(c * values[n] for c, n in zip(row, unknowns, strict=False)) + constant:
            return None
    return row if all(isinstance(c, Fraction) for c in row) else None  # type: ignore[return-value]


def _eliminate(rows: list[list[Fraction]]) -> list[Fraction]:
    """Solve rows of (coefficients, constant) = 0. Raises NoSecondWay unless there is exactly one solution."""
    n = len(rows[0]) - 1
    for column in range(n):
        pivot = next((k for k in range(column, len(rows)) if rows[k][column]), None)
        if pivot is None:
            raise NoSecondWay("not determined")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [c / rows[column][column] for c in rows[column]]
        for k in range(len(rows)):
            if k != column and rows[k][column]:
                factor = rows[k][column]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[column], strict=True)]
    if any(row[n] for row in rows[n:]):
        raise NoSecondWay("no solution")
    return [-row[n] for row in rows[:n]]


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
        for variant in [*_without_bars(relation.difference), *inside]:
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
    "value": _value, "solve": _solve, "roots": _roots, "inequality": _inequality,
    "expand": lambda s: _as_result(read_polynomial(s["of"], _letter(s["of"]))),
    "coefficient": lambda s: Result.of(dict(enumerate(read_polynomial(s["of"], s["in"]))).get(s["power"], Fraction(0))),
    "polynomial_remainder": lambda s: _as_result(
        divide(read_polynomial(s["of"], s["in"]), read_polynomial(s["by"], s["in"]))[1]
    ),
    "derivative": _derivative, "integral": _integral, "extremum": _extremum, "remainder": _remainder,
    "divisors": _divisors, "congruences": _congruences, "recurrence": _recurrence, "count": _count,
    "probability": _probability, "polygon": _polygon,
}  # fmt: skip

__all__ = ["NoSecondWay", "TooLarge", "derive_again"]

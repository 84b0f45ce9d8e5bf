"""Equations solved without SymPy: Sturm's theorem, case splits, elimination, and every solution substituted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from data_gen.synthesis.polynomials import NotPolynomial, multiply, read_polynomial, read_ratio, real_roots, subtract
from data_gen.synthesis.results import Number, Result, same_number
from data_gen.synthesis.statement import Relation, Statement, parts
from grading.parse import Node
from grading.values import approximate, exact, symbols


class NoSecondWay(ValueError):
    """There is no second way for the statement."""


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


def solve(s: Statement) -> Result:
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
        for variant in without_bars(difference):
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
    return (
        node[0],
        *(_replace(p, old, new) if isinstance(p, tuple) and p and isinstance(p[0], str) else p for p in node[1:]),
    )


def without_bars(node: Node) -> list[Node]:
    """The tree with each absolute value replaced by its inside and by the inside's negative."""
    bars = next((part for part in parts(node) if part[0] == "func" and part[1] == "abs"), None)
    if bars is None:
        return [node]
    return [v for inner in (bars[2], ("neg", bars[2])) for v in without_bars(_replace(node, bars, inner))]


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

"""SymPy on equations and inequalities: numbers, sets of numbers and unions of intervals."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import sympy
from sympy.solvers.inequalities import solve_rational_inequalities
from sympy.solvers.solveset import NonlinearError

from data_gen.synthesis.results import Number, Result
from data_gen.synthesis.statement import Relation, Statement
from grading import symbolic
from grading.parse import Node

COMPARISONS = {"=": sympy.Eq, "<": sympy.Lt, ">": sympy.Gt, "<=": sympy.Le, ">=": sympy.Ge, "!=": sympy.Ne}


class Underivable(ValueError):
    """A statement in the language without an answer: no solution, not determined, or beyond SymPy."""


def build(node: Node) -> Any:
    """The SymPy object of a tree; gcd and lcm of more than two are taken in pairs."""
    return symbolic.build(_in_pairs(node))


def _in_pairs(node: Node) -> Node:
    if node[0] == "pick":
        items = [_in_pairs(item) for item in node[2]]
        return functools.reduce(lambda a, b: ("pick", node[1], (a, b)), items)
    if node[0] in ("add", "mul"):
        return (node[0], tuple(_in_pairs(item) for item in node[1]))
    return (node[0], *(_in_pairs(part) if isinstance(part, tuple) else part for part in node[1:]))


def symbol(name: str) -> Any:
    return sympy.Symbol(name, real=True)


def number(value: Any) -> Number:
    """A SymPy number as Fraction or float. Raises Underivable for what is none."""
    value = sympy.sympify(value)
    if value.free_symbols:
        raise Underivable(f"not determined: {sorted(map(str, value.free_symbols))} left")
    if value.is_Rational:
        return Fraction(int(value.p), int(value.q))
    if not value.is_real or not value.is_finite:
        raise Underivable("no real number")
    return float(value.evalf(30))


def tidy(value: Any) -> Any:
    """A number multiplied out, without roots in the denominator."""
    return value if value.is_Rational else sympy.expand(sympy.radsimp(sympy.expand(value)))


def numbers(values: Any) -> tuple[Result, str]:
    """One number or a set of them, in rising order."""
    distinct = sorted({tidy(value) for value in values}, key=lambda value: float(number(value)))
    if not distinct:
        raise Underivable("no solution")
    return Result.of(*map(number, distinct)), ", ".join(map(sympy.latex, distinct))


def solve(s: Statement) -> tuple[Result, str]:
    differences = [build(equation.difference) for equation in s["equations"]]
    unknowns = sorted(set().union(*(d.free_symbols for d in differences)), key=str)
    if not unknowns:
        raise Underivable("no unknown")
    solutions = (
        [{unknowns[0]: root} for root in real_roots(differences[0], unknowns[0])]
        if len(unknowns) == len(differences) == 1
        else _system(differences, unknowns)
    )
    solutions = [solution for solution in solutions if _is_in_domain(solution.values(), s["domain"] or "real")]
    if s["find"] is None and len(unknowns) > 1:
        raise Underivable("several unknowns and nothing to find")
    target = unknowns[0] if s["find"] is None else build(s["find"])
    return numbers([sympy.sympify(target).subs(solution) for solution in solutions])


def _system(differences: list[Any], unknowns: list[Any]) -> list[dict[Any, Any]]:
    try:
        found = sympy.linsolve(differences, unknowns)
        solutions = [dict(zip(unknowns, values, strict=True)) for values in found]
    except NonlinearError:
        solutions = sympy.solve(differences, unknowns, dict=True)
    if any(value.free_symbols for solution in solutions for value in solution.values()):
        raise Underivable("not determined: a whole line of solutions")
    return [solution for solution in solutions if set(solution) == set(unknowns)]


def real_roots(difference: Any, x: Any) -> list[Any]:
    """All real solutions of difference = 0, each one substituted."""
    top, bottom = sympy.fraction(sympy.together(difference))
    if top.is_polynomial(x) and bottom.is_polynomial(x):
        polynomial = sympy.Poly(top, x)
        if polynomial.is_zero:
            raise Underivable("true for every number")
        roots = set(polynomial.real_roots()) if polynomial.degree() > 0 else set()
        if any(root.has(sympy.polys.rootoftools.ComplexRootOf) for root in roots):
            raise Underivable("roots without radicals")
        return [root for root in roots if bottom.subs(x, root) != 0]
    found = sympy.solve(difference, x)
    return [root for root in found if sympy.simplify(difference.subs(x, root)) == 0]


def _is_in_domain(values: Any, domain: str) -> bool:
    for value in values:
        if not value.is_real:
            return False
        if (domain == "positive" and not value.is_positive) or (domain == "integer" and not value.is_integer):
            return False
    return True


def roots(s: Statement) -> tuple[Result, str]:
    """An expression in r and s, the two roots of a quadratic polynomial; it must not depend on their order."""
    expression = build(s["of"])
    if len(expression.free_symbols) != 1:
        raise Underivable("want one unknown")
    polynomial = sympy.Poly(expression, *expression.free_symbols)
    if polynomial.degree() != 2:
        raise Underivable("want a quadratic polynomial")
    roots = sympy.roots(polynomial, multiple=True)
    wanted, names = build(s["ask"]), (symbol("r"), symbol("s"))
    values = [wanted.subs(dict(zip(names, order, strict=True)), simultaneous=True) for order in (roots, roots[::-1])]
    first, second = map(tidy, values)
    if tidy(first - second) != 0:
        raise Underivable("depends on the order of the roots")
    return numbers([first])


def inequality(s: Statement) -> tuple[Result, str]:
    relations: tuple[Relation, ...] = s["relations"]
    sides = [(build(r.left), r.op, build(r.right)) for r in relations]
    unknowns = set().union(*(left.free_symbols | right.free_symbols for left, _, right in sides))
    if len(unknowns) != 1 or any(op in ("=", "!=") for _, op, _ in sides):
        raise Underivable("want inequalities in one unknown")
    (x,) = unknowns
    found: Any = sympy.S.Reals
    for left, op, right in sides:
        found = found.intersect(_solution_set(left - right, op, x))
    pieces = found.args if isinstance(found, sympy.Union) else (found,)
    intervals = []
    for piece in pieces:
        if isinstance(piece, sympy.Interval):
            intervals.append((piece.start, piece.end, not piece.left_open, not piece.right_open))
        elif isinstance(piece, sympy.FiniteSet):
            intervals += [(point, point, True, True) for point in piece]
        elif piece is sympy.S.EmptySet:
            raise Underivable("no solution")
        else:
            raise Underivable(f"a {type(piece).__name__}")
    intervals.sort(key=lambda piece: float(piece[0]))
    if s["ask"] == "integers":
        return numbers([_integers_in(found, intervals)])
    numeric = tuple((_bound(low), _bound(high), has_low, has_high) for low, high, has_low, has_high in intervals)
    return Result(intervals=numeric), r" \cup ".join(map(_interval_text, intervals))


def _solution_set(difference: Any, op: str, x: Any) -> Any:
    top, bottom = sympy.fraction(sympy.together(difference))
    if top.is_polynomial(x) and bottom.is_polynomial(x) and top.has(x):
        return solve_rational_inequalities([[((sympy.Poly(top, x), sympy.Poly(bottom, x)), op)]])
    bars = list(difference.atoms(sympy.Abs))
    if len(bars) == 1 and bars[0].args[0].is_polynomial(x):  # where the inside is positive or 0, and where negative
        inside = bars[0].args[0]
        cases = ((">=", inside), ("<", -inside))
        return sympy.Union(
            *(
                _solution_set(inside, sign, x).intersect(_solution_set(difference.subs(bars[0], value), op, x))
                for sign, value in cases
            )
        )
    return sympy.solve_univariate_inequality(COMPARISONS[op](difference, 0), x, relational=False)


def _integers_in(found: Any, intervals: list[Any]) -> Any:
    if not all(low.is_finite and high.is_finite for low, high, *_ in intervals):
        raise Underivable("integers without bound")
    total = 0
    for low, high, has_low, has_high in intervals:
        first = sympy.ceiling(low) + (0 if has_low or not low.is_integer else 1)
        last = sympy.floor(high) - (0 if has_high or not high.is_integer else 1)
        total += max(0, int(last) - int(first) + 1)
    return sympy.Integer(total)


def _bound(value: Any) -> Number:
    return float(value) if value.is_infinite else number(value)


def _interval_text(piece: Any) -> str:
    low, high, has_low, has_high = piece
    if low == high:
        return rf"\{{{sympy.latex(low)}\}}"
    return f"{'[' if has_low else '('}{sympy.latex(low)}, {sympy.latex(high)}{']' if has_high else ')'}"

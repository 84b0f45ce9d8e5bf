"""The first derivation: SymPy, on trees built by our own parser, never on text."""

from __future__ import annotations

import functools
import itertools
import re
from fractions import Fraction
from typing import Any

import sympy
from sympy.ntheory.modular import crt
from sympy.solvers.inequalities import solve_rational_inequalities
from sympy.solvers.solveset import NonlinearError

from data_gen.synthesis.results import Number, Result
from data_gen.synthesis.statement import Relation, Statement, StatementError
from grading import symbolic
from grading.parse import Node

_COMPARISONS = {"=": sympy.Eq, "<": sympy.Lt, ">": sympy.Gt, "<=": sympy.Le, ">=": sympy.Ge, "!=": sympy.Ne}


class Underivable(ValueError):
    """A statement in the language without an answer: no solution, not determined, or beyond SymPy."""


def derive(statement: Statement) -> tuple[Result, str]:
    """Return result and answer in LaTeX.

    Raises:
        Underivable: no single answer. SymPy may raise others on odd input, and may take long: for statements of models
            call it in a process that can be killed (``data_gen.synthesis.pool``).
    """
    result, answer = _SOLVERS[statement.kind](statement)
    return result, re.sub(r"(^|[(\[]|, )- ", r"\1-", answer)


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


def _symbol(name: str) -> Any:
    return sympy.Symbol(name, real=True)


def _number(value: Any) -> Number:
    """A SymPy number as Fraction or float. Raises Underivable for what is none."""
    value = sympy.sympify(value)
    if value.free_symbols:
        raise Underivable(f"not determined: {sorted(map(str, value.free_symbols))} left")
    if value.is_Rational:
        return Fraction(int(value.p), int(value.q))
    if not value.is_real or not value.is_finite:
        raise Underivable("no real number")
    return float(value.evalf(30))


def _tidy(value: Any) -> Any:
    if value.is_Rational:
        return value
    value = sympy.radsimp(sympy.simplify(value))
    return sympy.expand(value) if value.is_algebraic else value


def _numbers(values: Any) -> tuple[Result, str]:
    """One number or a set of them, in rising order."""
    distinct = sorted({_tidy(value) for value in values}, key=lambda value: float(_number(value)))
    if not distinct:
        raise Underivable("no solution")
    return Result.of(*map(_number, distinct)), ", ".join(map(sympy.latex, distinct))


def _value(s: Statement) -> tuple[Result, str]:
    return _numbers([build(s["of"])])


def _solve(s: Statement) -> tuple[Result, str]:
    differences = [build(equation.difference) for equation in s["equations"]]
    unknowns = sorted(set().union(*(d.free_symbols for d in differences)), key=str)
    if not unknowns:
        raise Underivable("no unknown")
    solutions = (
        [{unknowns[0]: root} for root in _real_roots(differences[0], unknowns[0])]
        if len(unknowns) == len(differences) == 1
        else _system(differences, unknowns)
    )
    solutions = [solution for solution in solutions if _is_in_domain(solution.values(), s["domain"] or "real")]
    if s["find"] is None and len(unknowns) > 1:
        raise Underivable("several unknowns and nothing to find")
    target = unknowns[0] if s["find"] is None else build(s["find"])
    return _numbers([sympy.sympify(target).subs(solution) for solution in solutions])


def _system(differences: list[Any], unknowns: list[Any]) -> list[dict[Any, Any]]:
    try:
        found = sympy.linsolve(differences, unknowns)
        solutions = [dict(zip(unknowns, values, strict=True)) for values in found]
    except NonlinearError:
        solutions = sympy.solve(differences, unknowns, dict=True)
    if any(value.free_symbols for solution in solutions for value in solution.values()):
        raise Underivable("not determined: a whole line of solutions")
    return [solution for solution in solutions if set(solution) == set(unknowns)]


def _real_roots(difference: Any, x: Any) -> list[Any]:
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


def _roots(s: Statement) -> tuple[Result, str]:
    """An expression in r and s, the two roots of a quadratic polynomial; it must not depend on their order."""
    expression = build(s["of"])
    if len(expression.free_symbols) != 1:
        raise Underivable("want one unknown")
    polynomial = sympy.Poly(expression, *expression.free_symbols)
    if polynomial.degree() != 2:
        raise Underivable("want a quadratic polynomial")
    roots = sympy.roots(polynomial, multiple=True)
    wanted, names = build(s["ask"]), (_symbol("r"), _symbol("s"))
    values = [wanted.subs(dict(zip(names, order, strict=True)), simultaneous=True) for order in (roots, roots[::-1])]
    first, second = (sympy.simplify(value) for value in values)
    if sympy.simplify(first - second) != 0:
        raise Underivable("depends on the order of the roots")
    return _numbers([first])


def _inequality(s: Statement) -> tuple[Result, str]:
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
        return _numbers([_integers_in(found, intervals)])
    numeric = tuple((_bound(low), _bound(high), *closed) for low, high, *closed in intervals)
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
    return sympy.solve_univariate_inequality(_COMPARISONS[op](difference, 0), x, relational=False)


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
    return float(value) if value.is_infinite else _number(value)


def _interval_text(piece: Any) -> str:
    low, high, has_low, has_high = piece
    if low == high:
        return rf"\{{{sympy.latex(low)}\}}"
    return f"{'[' if has_low else '('}{sympy.latex(low)}, {sympy.latex(high)}{']' if has_high else ')'}"


def _polynomial(expression: Any) -> tuple[Result, str]:
    expanded = sympy.expand(expression)
    if expanded.is_Rational:
        return Result(polynomial={0: _number(expanded)} if expanded else {}), sympy.latex(expanded)  # type: ignore[dict-item]
    if len(expanded.free_symbols) != 1 or not expanded.is_polynomial():
        raise Underivable("want a polynomial in one unknown")
    terms = sympy.Poly(expanded, *expanded.free_symbols).terms()
    return Result(polynomial={power[0]: _number(c) for power, c in terms}), sympy.latex(expanded)  # type: ignore[misc]


def _expand(s: Statement) -> tuple[Result, str]:
    return _polynomial(build(s["of"]))


def _coefficient(s: Statement) -> tuple[Result, str]:
    return _numbers([sympy.Poly(build(s["of"]), _symbol(s["in"])).coeff_monomial(_symbol(s["in"]) ** s["power"])])


def _polynomial_remainder(s: Statement) -> tuple[Result, str]:
    return _polynomial(sympy.rem(build(s["of"]), build(s["by"]), _symbol(s["in"])))


def _derivative(s: Statement) -> tuple[Result, str]:
    found = sympy.diff(build(s["of"]), _symbol(s["in"]))
    return _polynomial(found) if s["at"] is None else _numbers([found.subs(_symbol(s["in"]), build(s["at"]))])


def _integral(s: Statement) -> tuple[Result, str]:
    return _numbers([sympy.integrate(build(s["of"]), (_symbol(s["in"]), build(s["from"]), build(s["to"])))])


def _extremum(s: Statement) -> tuple[Result, str]:
    """Largest or smallest value on a closed interval: ends and critical points."""
    f, x, low, high = build(s["of"]), _symbol(s["in"]), build(s["from"]), build(s["to"])
    if not f.is_polynomial(x) or not low < high:
        raise Underivable("want a polynomial on an interval")
    points = [low, high, *(root for root in _real_roots(sympy.diff(f, x), x) if low < root < high)]
    values = [_tidy(f.subs(x, point)) for point in points]
    return _numbers([(max if s["ask"] == "max" else min)(values, key=_number)])


def _remainder(s: Statement) -> tuple[Result, str]:
    value = build(s["of"])
    if not value.is_Integer or s["by"] < 2:
        raise Underivable("want integers and a divisor above 1")
    return _numbers([value % s["by"]])


def _divisors(s: Statement) -> tuple[Result, str]:
    if s["of"] < 1:
        raise Underivable("want a positive integer")
    if s["ask"] == "primes":
        return _numbers([sympy.Integer(len(sympy.primefactors(s["of"])))])
    return _numbers([sympy.divisor_count(s["of"]) if s["ask"] == "count" else sympy.divisor_sigma(s["of"])])


def _congruences(s: Statement) -> tuple[Result, str]:
    remainders, moduli = zip(*s["pairs"], strict=True)
    if min(moduli) < 2:
        raise Underivable("want divisors above 1")
    found = crt(list(moduli), list(remainders))
    if found is None:
        raise Underivable("no solution")
    base, period = (sympy.Integer(int(value)) for value in found)
    return _numbers([base + period * ((s["above"] - base) // period + 1)])


def _recurrence(s: Statement) -> tuple[Result, str]:
    """Linear recurrences by a power of the companion matrix; ``p`` is the term before, ``q`` the one before that."""
    rule, names = build(s["next"]), [_symbol("p"), _symbol("q")]
    start, term = [build(value) for value in s["start"]], s["term"]
    if not 1 <= term <= 200 or len(start) > 2 or not rule.free_symbols <= set(names[: len(start)]):
        raise Underivable("want one or two first terms and a rule in p (and q)")
    coefficients = [sympy.diff(rule, name) for name in names]
    if any(c.free_symbols for c in coefficients):
        raise Underivable("want a linear rule")
    a, b = coefficients
    step = sympy.Matrix([[a, b, rule.subs(dict.fromkeys(names, 0))], [1, 0, 0], [0, 0, 1]])
    state = sympy.Matrix([start[-1], start[0] if len(start) == 2 else 0, 1])
    if term <= len(start):
        return _numbers([start[term - 1]])
    return _numbers([(step ** (term - len(start)) * state)[0]])


def _cases(s: Statement) -> tuple[int, int]:
    """Numbers of cases that fit, and of all cases in the wanted order."""
    names = list(s["ranges"])
    order = s["order"] or "any"
    conditions = [_COMPARISONS[r.op](build(r.left), build(r.right)) for r in s["such_that"] or ()]
    symbols = [_symbol(name) for name in names]
    if not set().union(*(c.free_symbols for c in conditions)) <= set(symbols):
        raise Underivable("a letter without a range")
    fits = total = 0
    for values in itertools.product(*(range(low, high + 1) for low, high in s["ranges"].values())):
        pairs = list(itertools.pairwise(values))
        if (order == "increasing" and any(a >= b for a, b in pairs)) or (
            order == "nondecreasing" and any(a > b for a, b in pairs)
        ):
            continue
        total += 1
        point = {symbol: sympy.Integer(value) for symbol, value in zip(symbols, values, strict=True)}
        fits += all(condition.xreplace(point) == True for condition in conditions)  # noqa: E712
    return fits, total


def _count(s: Statement) -> tuple[Result, str]:
    return _numbers([sympy.Integer(_cases(s)[0])])


def _probability(s: Statement) -> tuple[Result, str]:
    fits, total = _cases(s)
    if not total:
        raise Underivable("no case")
    return _numbers([sympy.Rational(fits, total)])


def _polygon(s: Statement) -> tuple[Result, str]:
    figure = sympy.Polygon(*[(build(x), build(y)) for x, y in s["points"]])
    if not isinstance(figure, sympy.Polygon | sympy.Triangle):
        raise Underivable("no polygon")
    return _numbers([abs(figure.area)])


_SOLVERS: dict[str, Any] = {
    "value": _value, "solve": _solve, "roots": _roots, "inequality": _inequality, "expand": _expand,
    "coefficient": _coefficient, "polynomial_remainder": _polynomial_remainder, "derivative": _derivative,
    "integral": _integral, "extremum": _extremum, "remainder": _remainder, "divisors": _divisors,
    "congruences": _congruences, "recurrence": _recurrence, "count": _count, "probability": _probability,
    "polygon": _polygon,
}  # fmt: skip


def derive_safely(statement: Statement) -> tuple[Result, str]:
    """``derive``, with whatever SymPy raises on input it does not know as ``Underivable``."""
    try:
        return derive(statement)
    except (Underivable, MemoryError):
        raise
    except (ArithmeticError, AttributeError, KeyError, NotImplementedError, RecursionError, TypeError, ValueError) as error:
        raise Underivable(f"{type(error).__name__}: {str(error)[:80]}") from error


__all__ = ["StatementError", "Underivable", "derive", "derive_safely"]

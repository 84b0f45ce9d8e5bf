"""The first derivation: SymPy, on trees built by our own parser, never on text."""

from __future__ import annotations

import itertools
import re
from typing import Any

import sympy
from sympy.ntheory.modular import crt

from data_gen.synthesis.results import Result
from data_gen.synthesis.statement import Statement
from data_gen.synthesis.sympy_equations import (
    COMPARISONS,
    Underivable,
    build,
    inequality,
    number,
    numbers,
    real_roots,
    roots,
    solve,
    symbol,
    tidy,
)


def derive(statement: Statement) -> tuple[Result, str]:
    """Return result and answer in LaTeX.

    Raises:
        Underivable: no single answer. SymPy may raise others on odd input, and may take long: for statements of models
            call it in a process that can be killed (``data_gen.synthesis.pool``).
    """
    result, answer = _SOLVERS[statement.kind](statement)
    return result, re.sub(r"(^|[(\[]|, )- ", r"\1-", answer)


def _value(s: Statement) -> tuple[Result, str]:
    return numbers([build(s["of"])])


def _polynomial(expression: Any) -> tuple[Result, str]:
    expanded = sympy.expand(expression)
    if expanded.is_Rational:
        return Result(polynomial={0: number(expanded)} if expanded else {}), sympy.latex(expanded)  # type: ignore[dict-item]
    if len(expanded.free_symbols) != 1 or not expanded.is_polynomial():
        raise Underivable("want a polynomial in one unknown")
    terms = sympy.Poly(expanded, *expanded.free_symbols).terms()
    return Result(polynomial={power[0]: number(c) for power, c in terms}), sympy.latex(expanded)  # type: ignore[misc]


def _expand(s: Statement) -> tuple[Result, str]:
    return _polynomial(build(s["of"]))


def _coefficient(s: Statement) -> tuple[Result, str]:
    return numbers([sympy.Poly(build(s["of"]), symbol(s["in"])).coeff_monomial(symbol(s["in"]) ** s["power"])])


def _polynomial_remainder(s: Statement) -> tuple[Result, str]:
    return _polynomial(sympy.rem(build(s["of"]), build(s["by"]), symbol(s["in"])))


def _derivative(s: Statement) -> tuple[Result, str]:
    found = sympy.diff(build(s["of"]), symbol(s["in"]))
    return _polynomial(found) if s["at"] is None else numbers([found.subs(symbol(s["in"]), build(s["at"]))])


def _integral(s: Statement) -> tuple[Result, str]:
    return numbers([sympy.integrate(build(s["of"]), (symbol(s["in"]), build(s["from"]), build(s["to"])))])


def _extremum(s: Statement) -> tuple[Result, str]:
    """Largest or smallest value on a closed interval: ends and critical points."""
    f, x, low, high = build(s["of"]), symbol(s["in"]), build(s["from"]), build(s["to"])
    if not f.is_polynomial(x) or not low < high:
        raise Underivable("want a polynomial on an interval")
    points = [low, high, *(root for root in real_roots(sympy.diff(f, x), x) if low < root < high)]
    values = [tidy(f.subs(x, point)) for point in points]
    return numbers([(max if s["ask"] == "max" else min)(values, key=number)])


def _remainder(s: Statement) -> tuple[Result, str]:
    value = build(s["of"])
    if not value.is_Integer or s["by"] < 2:
        raise Underivable("want integers and a divisor above 1")
    return numbers([value % s["by"]])


def _divisors(s: Statement) -> tuple[Result, str]:
    if s["of"] < 1:
        raise Underivable("want a positive integer")
    if s["ask"] == "primes":
        return numbers([sympy.Integer(len(sympy.primefactors(s["of"])))])
    return numbers([sympy.divisor_count(s["of"]) if s["ask"] == "count" else sympy.divisor_sigma(s["of"])])


def _congruences(s: Statement) -> tuple[Result, str]:
    remainders, moduli = zip(*s["pairs"], strict=True)
    if min(moduli) < 2:
        raise Underivable("want divisors above 1")
    found = crt(list(moduli), list(remainders))
    if found is None:
        raise Underivable("no solution")
    base, period = (sympy.Integer(int(value)) for value in found)
    return numbers([base + period * ((s["above"] - base) // period + 1)])


def _recurrence(s: Statement) -> tuple[Result, str]:
    """Linear recurrences by a power of the companion matrix; ``p`` is the term before, ``q`` the one before that."""
    rule, names = build(s["next"]), [symbol("p"), symbol("q")]
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
        return numbers([start[term - 1]])
    return numbers([(step ** (term - len(start)) * state)[0]])


def _cases(s: Statement) -> tuple[int, int]:
    """Numbers of cases that fit, and of all cases in the wanted order."""
    names = list(s["ranges"])
    order = s["order"] or "any"
    conditions = [COMPARISONS[r.op](build(r.left), build(r.right)) for r in s["such_that"] or ()]
    symbols = [symbol(name) for name in names]
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
    return numbers([sympy.Integer(_cases(s)[0])])


def _probability(s: Statement) -> tuple[Result, str]:
    fits, total = _cases(s)
    if not total:
        raise Underivable("no case")
    return numbers([sympy.Rational(fits, total)])


def _polygon(s: Statement) -> tuple[Result, str]:
    figure = sympy.Polygon(*[(build(x), build(y)) for x, y in s["points"]])
    if not isinstance(figure, sympy.Polygon | sympy.Triangle):
        raise Underivable("no polygon")
    return numbers([abs(figure.area)])


_SOLVERS: dict[str, Any] = {
    "value": _value, "solve": solve, "roots": roots, "inequality": inequality, "expand": _expand,
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
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        NotImplementedError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise Underivable(f"{type(error).__name__}: {str(error)[:80]}") from error

"""Typed terms and formulas over exact rationals, their normal form and their truth. Trusted: the kernel rests on it.

Terms:      num q | var v | add a b | mul a b | pow a n | div a b                 (0 <= n <= MAX_POWER)
Formulas:   eq a b | ne a b | ge a b | gt a b | dvd m a | or f... | and f... | iff f g | false

Meaning. x, y, z, u range over the reals, n, m, k over the integers. An atom is true when every term in it is defined
(no divisor is 0) AND its relation holds, so `1/x = 1` and `1/x ≠ 1` both say that x ≠ 0. `dvd m a` says that the
integer polynomial a (integer coefficients, integer variables) is a multiple of m >= 1.

Limits are counted (monomials, degree, bits, nodes), never timed: `Refused` is raised alike on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

REAL_VARIABLES = ("x", "y", "z", "u")
INTEGER_VARIABLES = ("n", "m", "k")
VARIABLES = REAL_VARIABLES + INTEGER_VARIABLES
ATOMS = ("eq", "ne", "ge", "gt", "dvd")

MAX_POWER = 8
MAX_DEGREE = 16
MAX_MONOMIALS = 400
MAX_BITS = 256
"""Of a numerator or denominator in a normal form."""
MAX_NODES = 400
MAX_VALUE_BITS = 8192
"""Of a numerator or denominator while a term is evaluated."""

Monomial = tuple[tuple[str, int], ...]
Poly = tuple[tuple[Monomial, Fraction], ...]
"""Sorted (monomial, coefficient) pairs, no coefficient 0; () is the zero polynomial."""


class Refused(Exception):
    """A side condition does not hold, or a counted limit is exceeded."""


_TABLE: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


class Expr:
    """An immutable term or formula. Equal ones are one object while any is alive; equality stays structural.

    Numbers are Fractions in `num` and plain ints elsewhere, checked here: 1, 1.0, True and Fraction(1) are equal keys.
    """

    __slots__ = ("__weakref__", "_hash", "_normal", "args", "op")
    op: str
    args: tuple[Any, ...]
    _normal: Poly | None  # of what `term_of` made

    def __new__(cls, op: str, *args: Any) -> Expr:
        allowed = _NUMBER if op == "num" else _PARTS
        for arg in args:
            if type(arg) not in allowed:
                raise Refused("an argument of the wrong type")
        if type(op) is not str:
            raise Refused("an operator of the wrong type")
        found = _TABLE.get((op, args))
        if found is None:
            found = super().__new__(cls)
            object.__setattr__(found, "op", op)
            object.__setattr__(found, "args", args)
            object.__setattr__(found, "_hash", hash((op, args)))
            object.__setattr__(found, "_normal", None)
            _TABLE[(op, args)] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an Expr is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self.op, *self.args)

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and hash(self) == hash(other) and self.op == other.op and self.args == other.args

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"


_NUMBER, _PARTS = frozenset({Fraction}), frozenset({Expr, int, str})


def num(value: int | Fraction) -> Expr:
    return Expr("num", Fraction(value))


def var(name: str) -> Expr:
    return Expr("var", name)


ZERO, ONE = num(0), num(1)
FALSE = Expr("false")


@lru_cache(maxsize=100_000)
def check(expr: Expr, is_formula: bool = True) -> int:
    """Nodes of a well-formed formula (or term); Refused when it is ill-formed or too large."""
    op, args = expr.op, expr.args
    if is_formula:
        nodes = 1 + _check_formula(op, args)
    elif op == "num" and len(args) == 1 and type(args[0]) is Fraction:
        _within_bits(args[0])
        nodes = 1
    elif op == "var" and len(args) == 1 and args[0] in VARIABLES:
        nodes = 1
    elif op == "pow" and len(args) == 2 and type(args[1]) is int and 0 <= args[1] <= MAX_POWER:
        nodes = 1 + _check_all(args[:1], is_formula=False)
    elif op in ("add", "mul", "div") and len(args) == 2:
        nodes = 1 + _check_all(args, is_formula=False)
    else:
        raise Refused(f"ill-formed term {op}")
    if nodes > MAX_NODES:
        raise Refused(f"more than {MAX_NODES} nodes")
    return nodes


def _check_formula(op: str, args: tuple[Any, ...]) -> int:
    if op == "dvd" and len(args) == 2 and type(args[0]) is int and 1 <= args[0] < 2**MAX_BITS:
        nodes = _check_all(args[1:], is_formula=False)
        integer_poly(args[1])
        return nodes
    if op in ("eq", "ne", "ge", "gt") and len(args) == 2:
        return _check_all(args, is_formula=False)
    if (op in ("or", "and") and len(args) >= 2) or (op == "iff" and len(args) == 2):
        return _check_all(args, is_formula=True)
    if op == "false" and not args:
        return 0
    raise Refused(f"ill-formed formula {op}")


def _check_all(args: Iterable[Any], is_formula: bool) -> int:
    nodes = 0
    for arg in args:
        if type(arg) is not Expr:
            raise Refused("an argument is no expression")
        nodes += check(arg, is_formula)
    return nodes


def _within_bits(value: Fraction) -> None:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise Refused(f"a number of more than {MAX_BITS} bits")


# ---------------------------------------------------------------- polynomials


def pack(terms: Mapping[Monomial, Fraction]) -> Poly:
    """The normal form of a sum of monomials, within the limits."""
    kept = tuple(sorted([(mono, coef) for mono, coef in terms.items() if coef]))
    if len(kept) > MAX_MONOMIALS:
        raise Refused(f"more than {MAX_MONOMIALS} monomials")
    for mono, coef in kept:
        _within_bits(coef)
        if _degree(mono) > MAX_DEGREE:
            raise Refused(f"degree above {MAX_DEGREE}")
    return kept


@lru_cache(maxsize=20_000)
def _degree(mono: Monomial) -> int:
    return sum(power for _, power in mono)


def constant(value: int | Fraction) -> Poly:
    return pack({(): Fraction(value)})


UNIT = Fraction(1)
ONE_POLY: Poly = constant(1)


def combine(p: Poly, q: Poly, a: Fraction = UNIT, b: Fraction = UNIT) -> Poly:
    """a·p + b·q"""
    total = dict(p) if a is UNIT else {mono: a * coef for mono, coef in p}
    for mono, coef in q:
        part = coef if b is UNIT else b * coef
        total[mono] = total[mono] + part if mono in total else part
    return pack(total)


def times(p: Poly, q: Poly) -> Poly:
    if len(p) * len(q) > MAX_MONOMIALS * 4:
        raise Refused("a product of too many monomials")
    total: dict[Monomial, Fraction] = {}
    for mono, coef in p:
        for other, factor in q:
            key = _join(mono, other)
            total[key] = total[key] + coef * factor if key in total else coef * factor
    return pack(total)


@lru_cache(maxsize=20_000)
def _join(mono: Monomial, other: Monomial) -> Monomial:
    powers = dict(mono)
    for name, power in other:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


@lru_cache(maxsize=50_000)
def ratio(term: Expr) -> tuple[Poly, Poly, tuple[Poly, ...]]:
    """(P, Q, guards): where no guard is 0 the term is defined, Q ≠ 0 and the term is P/Q; elsewhere it is undefined."""
    op, args = term.op, term.args
    if term._normal is not None:
        return term._normal, ONE_POLY, ()
    if op == "num":
        return constant(args[0]), ONE_POLY, ()
    if op == "var":
        return (((((args[0], 1),), UNIT),), ONE_POLY, ())
    if op not in ("add", "mul", "div", "pow"):
        raise Refused(f"no term: {op}")
    top, bottom, guards = ratio(args[0])
    if op == "pow":
        power_top, power_bottom = constant(1), constant(1)
        for _ in range(args[1]):
            power_top, power_bottom = times(power_top, top), times(power_bottom, bottom)
        return power_top, power_bottom, guards
    top2, bottom2, guards2 = ratio(args[1])
    both = guards + tuple(guard for guard in guards2 if guard not in guards)
    if op == "add":
        if bottom == bottom2:
            return combine(top, top2), bottom, both
        return combine(times(top, bottom2), times(top2, bottom)), times(bottom, bottom2), both
    if op == "mul":
        return times(top, top2), bottom if bottom2 is ONE_POLY else times(bottom, bottom2), both
    return times(top, bottom2), times(bottom, top2), both if top2 in both else (*both, top2)


def poly(term: Expr) -> Poly:
    """Normal form of a term that divides by nonzero numbers only."""
    top, bottom, guards = ratio(term)
    if any(not is_constant(guard) or not guard for guard in guards):
        raise Refused("a division by something that may be 0")
    return top if bottom is ONE_POLY else combine(top, (), Fraction(1) / value(bottom))


def is_constant(p: Poly) -> bool:
    return not p or (len(p) == 1 and p[0][0] == ())


def value(p: Poly) -> Fraction:
    """Of a constant polynomial."""
    if not is_constant(p):
        raise Refused("not a number")
    return p[0][1] if p else Fraction(0)


def integer_poly(term: Expr) -> Poly:
    """Normal form with integer coefficients in integer variables, built without any division."""
    if _has_division(term):
        raise Refused("a division under a divisibility")
    p = poly(term)
    if any(coef.denominator != 1 for _, coef in p) or not variables(term) <= set(INTEGER_VARIABLES):
        raise Refused("no integer polynomial")
    return p


def _has_division(term: Expr) -> bool:
    return term.op == "div" or any(_has_division(arg) for arg in term.args if isinstance(arg, Expr))


def primitive(p: Poly, keep_sign: bool = False) -> Poly:
    """c·p with coprime integer coefficients; c > 0 with `keep_sign`, else the leading coefficient is positive."""
    if not p:
        return p
    scale = Fraction(math.lcm(*(c.denominator for _, c in p)), 1)
    scale /= math.gcd(*(int(c * scale) for _, c in p))
    if not keep_sign and lead(p)[1] < 0:
        scale = -scale
    return combine(p, (), scale)


@lru_cache(maxsize=20_000)
def _rank(mono: Monomial) -> tuple[int, list[int]]:
    powers = dict(mono)
    return sum(powers.values()), [powers.get(name, 0) for name in VARIABLES]


def lead(p: Poly) -> tuple[Monomial, Fraction]:
    """Leading (monomial, coefficient) in graded lexicographic order."""
    return max(p, key=lambda item: _rank(item[0]))


@lru_cache(maxsize=50_000)
def term_of(p: Poly) -> Expr:
    """The canonical term of a normal form: a sum with falling monomials. It remembers p: `ratio` of it is p / 1."""
    total: Expr | None = None
    for mono, coef in sorted(p, key=lambda item: _rank(item[0]), reverse=True):
        part: Expr | None = None if mono and coef == 1 else num(coef)
        for name, power in mono:
            factor = var(name) if power == 1 else Expr("pow", var(name), power)
            part = factor if part is None else Expr("mul", part, factor)
        assert part is not None
        total = part if total is None else Expr("add", total, part)
    if total is None:
        return ZERO
    if pack(dict(p)) == p:
        object.__setattr__(total, "_normal", p)
    return total


# ---------------------------------------------------------------- substitution and truth


@lru_cache(maxsize=50_000)
def variables(expr: Expr) -> frozenset[str]:
    if expr.op == "var":
        return frozenset(expr.args)
    return frozenset().union(*(variables(arg) for arg in expr.args if isinstance(arg, Expr)))


def substituted(expr: Expr, name: str, term: Expr) -> Expr:
    """expr[name := term]"""
    if name not in variables(expr):
        return expr
    if expr.op == "var":
        return term
    return Expr(expr.op, *(substituted(arg, name, term) if isinstance(arg, Expr) else arg for arg in expr.args))


def evaluate(term: Expr, point: Mapping[str, Fraction]) -> Fraction | None:
    """The value of a term at a point, None where it is undefined; Refused above MAX_VALUE_BITS."""
    op, args = term.op, term.args
    if op == "num":
        return args[0]  # type: ignore[no-any-return]
    if op == "var":
        return point[args[0]]
    left = evaluate(args[0], point)
    right = Fraction(args[1]) if op == "pow" else evaluate(args[1], point)
    if left is None or right is None or (op == "div" and right == 0):
        return None
    if op == "pow":
        result = left ** args[1]
    else:
        result = left + right if op == "add" else left * right if op == "mul" else left / right
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_VALUE_BITS:
        raise Refused(f"a value of more than {MAX_VALUE_BITS} bits")
    return result


def is_true(formula: Expr, point: Mapping[str, Fraction]) -> bool:
    """Truth of a well-formed formula at a point (integer variables must be given integers)."""
    op, args = formula.op, formula.args
    if op == "false":
        return False
    if op in ("or", "and", "iff"):
        truths = [is_true(arg, point) for arg in args]
        return any(truths) if op == "or" else all(truths) if op == "and" else truths[0] == truths[1]
    if op == "dvd":
        quotient = evaluate(args[1], point)
        return quotient is not None and (quotient / args[0]).denominator == 1
    left, right = evaluate(args[0], point), evaluate(args[1], point)
    if left is None or right is None:
        return False
    return {"eq": left == right, "ne": left != right, "ge": left >= right, "gt": left > right}[op]

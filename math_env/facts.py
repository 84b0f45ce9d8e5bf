"""What the rules make of a fact and of two facts, worked out once a formula (bounded LRU). Nothing here is trusted.

Common results are worked out on `sparse` polynomials without building the formula, rare ones by the kernel itself
after a quick look that rules most pairs out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from math_env import kernel, rules, sparse, terms
from math_env.rules import SCALES, SCHEMAS
from math_env.sparse import Sparse
from math_env.terms import ZERO, Expr, Refused
from math_env.tokens import LENGTH, row

CACHED_FACTS, CACHED_PAIRS = 10_000, 30_000
FIRST = dict(zip((schema.name for schema in SCHEMAS), rules.OFFSETS, strict=True))
MAKE = {schema.name: schema.make for schema in SCHEMAS if schema.make is not None}
ORDERS = ("eq", "ge", "gt")
Result = Hashable
"""What an action would add, equal for equal formulas: an Expr, or (relation, *key) of `P relation 0`, (name, *key) of
`name = t` and (modulus, *key) of `modulus | t` with canonical P and t."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Fact:
    """What the rules can see of a fact.

    Attributes:
        relation, p: its zero form, None where the kernel refuses one.
        primitive: of p, None beyond the kernel's limit; values: of that at two points.
        direction: key of p without its constant, up to a factor; () for a number.
        results: every Result that equals the fact.
        canonical: "atom" for `term_of(p) relation 0`, "definition" for `name = term_of(t)`, else "".
        defines: (name, t as a sparse polynomial) of a fact v = t that can be put in; t None when not canonical.
        residue: (modulus, name) of m | v − r.
        alone: (first index, step a slot, result) of every rule on this fact alone that applies and fits.
    """

    expr: Expr
    names: frozenset[str]
    relation: str | None
    p: Sparse
    primitive: dict[int, int] | None
    values: tuple[int, int]
    direction: sparse.Key
    results: tuple[Result, ...]
    canonical: str
    defines: tuple[str, Sparse | None] | None
    residue: tuple[int, str] | None
    is_absurd: bool
    alone: tuple[tuple[int, int, Result], ...]


def holds(rule: Any, *inputs: Any) -> bool:
    try:
        rule(*inputs)
    except Refused:
        return False
    return True


def by_kernel(name: str, *inputs: Any) -> Expr | None:
    """What a schema makes of formulas taken as facts, by the kernel; None where it is refused or does not fit."""
    try:
        made = MAKE[name](*(kernel.assume(item) if isinstance(item, Expr) else item for item in inputs)).concl
    except Refused:
        return None
    return made if row(made) is not None else None


def atom(relation: str, p: Sparse) -> Result | None:
    """`p relation 0` as a Result, None when it does not fit."""
    return (relation, *sparse.key(p)) if sparse.tokens(p) + 4 <= LENGTH else None


def _definition(name: str, term: Sparse) -> Result | None:
    """`name = term` as a Result; x = 0 is also an atom, and named as one."""
    if not term:
        return ("eq", *sparse.key({sparse.code(((name, 1),)): 1}))
    return (name, *sparse.key(term)) if sparse.tokens(term) + 2 <= LENGTH else None


def _divides(modulus: int, term: Sparse) -> Result | None:
    return (modulus, *sparse.key(term)) if sparse.tokens(term) + 2 <= LENGTH else None


@lru_cache(maxsize=CACHED_FACTS)
def fact_of(expr: Expr) -> Fact:
    """Everything about a fact that does not depend on the others."""
    relation, p, exact = zero_form(expr)
    primitive = sparse.primitive(p)
    is_within = all(c.bit_length() <= terms.MAX_BITS for c in primitive.values())
    canonical = ""
    results: list[Result] = [expr]
    if relation is not None and expr.args[1] == ZERO and terms.term_of(exact) == expr.args[0]:
        canonical = "atom"
        results.append(fitting(atom(relation, p)))
    defines: tuple[str, Sparse | None] | None = None
    if expr.op == "eq" and expr.args[0].op == "var" and holds(terms.poly, expr.args[1]):
        term = terms.poly(expr.args[1])
        is_canonical = terms.term_of(term) == expr.args[1]
        if is_canonical:
            canonical = "definition"
            results.append(fitting(_definition(expr.args[0].args[0], sparse.encode(term))))
        if expr.args[0].args[0] not in terms.variables(expr.args[1]):
            defines = (expr.args[0].args[0], sparse.encode(term) if is_canonical else None)
    if expr.op == "dvd" and terms.term_of(exact) == expr.args[1]:
        results.append(fitting(_divides(expr.args[0], p)))
    return Fact(
        expr,
        terms.variables(expr),
        relation,
        p,
        primitive if is_within else None,
        sparse.values(primitive) if is_within else (0, 0),
        direction(p),
        tuple(results),
        canonical,
        defines,
        _residue(expr, p),
        holds(kernel.absurd, kernel.assume(expr), kernel.FALSE),
        tuple(item for item in _alone(expr, relation, p, primitive) if item[2] is not None),
    )


def zero_form(expr: Expr) -> tuple[str | None, Sparse, terms.Poly]:
    """(relation, P) of an atom; (None, t) of m | t; (None, 0) of anything else."""
    try:
        relation, p = (None, terms.integer_poly(expr.args[1])) if expr.op == "dvd" else kernel._zero_form(expr)
    except Refused:
        return None, {}, ()
    return relation, sparse.encode(p), p


def fitting(result: Result | None) -> Result:
    assert result is not None, "a fact fits"
    return result


def direction(p: Sparse) -> sparse.Key:
    return sparse.key(sparse.primitive({mono: coef for mono, coef in p.items() if mono}))


def _residue(expr: Expr, p: Sparse) -> tuple[int, str] | None:
    """(m, v) of m | v − r."""
    linear = [mono for mono in p if mono]
    if expr.op != "dvd" or len(linear) != 1 or p[linear[0]] != 1 or linear[0] >> sparse.DEGREE != 1:
        return None
    return expr.args[0], next(iter(terms.variables(expr))) if len(terms.variables(expr)) == 1 else sparse.names(p).pop()


def _alone(
    expr: Expr, relation: str | None, p: Sparse, primitive: dict[int, int]
) -> Iterator[tuple[int, int, Result | None]]:
    if relation is not None:
        is_order = relation in ("ge", "gt")
        yield FIRST["to_zero"], 1, atom(relation, sparse.primitive(p, keep_sign=True) if is_order else primitive)
        for position, factor in enumerate(SCALES):
            if factor > 0 or not is_order:
                c = factor.numerator if factor.denominator == 1 else factor
                yield FIRST["scale"] + position, len(SCALES), atom(relation, sparse.scaled(p, c))
    if relation in ("eq", "ne") and p and set(p) != {0}:
        yield FIRST["factor"], 1, by_kernel("factor", expr)
    if relation == "eq":
        if expr.args[1] == ZERO and expr.args[0].op in ("mul", "pow"):
            yield FIRST["zero_product"], 1, by_kernel("zero_product", expr)
        for position, name in enumerate(terms.VARIABLES):
            mono = sparse.code(((name, 1),))
            if mono in p and sum(1 for other in p if other >> sparse.SHIFTS[name] & sparse.POWER) == 1:
                rest = {other: coef for other, coef in p.items() if other != mono}
                term = {other: _whole(-coef / Fraction(p[mono])) for other, coef in rest.items()}
                yield FIRST["solve_linear"] + position, len(terms.VARIABLES), _definition(name, term)
    if expr.op in terms.ATOMS and terms._has_division(expr):
        for position in range(3):
            yield FIRST["defined"] + position, 3, by_kernel("defined", expr, position)


def _whole(q: Fraction) -> sparse.Coefficient:
    return q.numerator if q.denominator == 1 else q


# ---------------------------------------------------------------- two facts


@lru_cache(maxsize=CACHED_PAIRS)
def pair(f: Fact, g: Fact) -> tuple[tuple[str, bool, Result], ...]:
    """(schema, whether g comes first, result) of every rule that makes a fact of these two."""
    found = [(name, False, result) for name, result in itertools.chain(_unordered(f, g), _ordered(f, g))]
    found += [(name, True, result) for name, result in _ordered(g, f)]
    return tuple(item for item in found if item[2] is not None)


def _unordered(f: Fact, g: Fact) -> Iterator[tuple[str, Result | None]]:
    if f.relation in ORDERS and g.relation in ORDERS:
        yield "add", atom(max(f.relation, g.relation, key=ORDERS.index), sparse.add(f.p, g.p))
    elif f.expr.op == g.expr.op == "dvd" and f.expr.args[0] == g.expr.args[0]:
        yield "add", _divides(f.expr.args[0], sparse.add(f.p, g.p))
    is_small = len(f.p) * len(g.p) <= 4 * terms.MAX_MONOMIALS
    if f.relation == g.relation and f.relation in ("ge", "gt", "ne") and is_small:
        yield "multiply", atom(f.relation, sparse.times(f.p, g.p))


def _ordered(f: Fact, g: Fact) -> Iterator[tuple[str, Result | None]]:
    if f.relation == "eq" and g.relation == "ne" and f.p and sparse.may_divide(g.values, f.values):
        yield "cancel", by_kernel("cancel", f.expr, g.expr)
    if f.residue is not None and g.expr.op == "dvd" and f.residue[0] == g.expr.args[0] and f.residue[1] in g.names:
        yield "reduce", by_kernel("reduce", f.expr, g.expr)
    if f.defines is not None and f.defines[0] in g.names and g.expr.op in terms.ATOMS:
        name, term = f.defines
        if term is not None and g.canonical and sparse.is_surely_within_limits(g.p, name, term):
            yield "substitute", _put_in(name, term, g)
        else:
            yield "substitute", by_kernel("substitute", f.expr, g.expr)


def _put_in(name: str, term: Sparse, g: Fact) -> Result | None:
    """As `kernel.substitute` on canonical formulas."""
    assert g.relation is not None
    p = sparse.substituted(g.p, name, term)
    if g.canonical == "definition":
        left: str | None = g.expr.args[0].args[0]
        if left == name:
            is_name = len(term) == 1 and next(iter(term.values())) == 1 and next(iter(term)) >> sparse.DEGREE == 1
            left = sparse.names(term).pop() if is_name else None
        if left is not None:
            right = sparse.scaled(sparse.add(p, {sparse.code(((left, 1),)): -1}), -1)
            if left != name and left not in sparse.names(right):
                return _definition(left, right)
    return atom(g.relation, sparse.primitive(p, keep_sign=g.relation in ("ge", "gt")))

"""Untrusted arithmetic behind the actions: rational roots and exact quotients. The kernel multiplies them back."""

from __future__ import annotations

from fractions import Fraction

from math_env import terms
from math_env.terms import Expr, Poly, Refused

MAX_ROOT_NUMERATOR, MAX_ROOT_DENOMINATOR = 60, 6


def factored(p: Poly) -> Expr:
    """Variables, linear factors with rational roots and a rest, multiplied: equal to c·p. Refused if none is found."""
    if not p or terms.is_constant(p):
        raise Refused("nothing to factor")
    content = _content(p)
    rest = terms.primitive(_over_monomial(p, content))
    factors = [terms.var(name) for name, power in content.items() for _ in range(power)]
    names = {name for mono, _ in rest for name, _ in mono}
    if len(names) == 1:
        linear, rest = _linear_factors(rest, names.pop())
        factors += linear
    if not terms.is_constant(rest):
        factors.append(terms.term_of(rest))
    if len(factors) < 2:
        raise Refused("no factor found")
    product = factors[0]
    for factor in factors[1:]:
        product = Expr("mul", product, factor)
    return product


def _content(p: Poly) -> dict[str, int]:
    shared = dict(p[0][0])
    for mono, _ in p:
        powers = dict(mono)
        shared = {name: min(power, powers[name]) for name, power in shared.items() if name in powers}
    return shared


def _over_monomial(p: Poly, content: dict[str, int]) -> Poly:
    return terms.pack(
        {tuple((name, e - content.get(name, 0)) for name, e in mono if e > content.get(name, 0)): c for mono, c in p}
    )


def _linear_factors(p: Poly, name: str) -> tuple[list[Expr], Poly]:
    """(linear factors q·v − r, what is left) of a univariate primitive polynomial with a nonzero constant term."""
    found: list[Expr] = []
    while not terms.is_constant(p):
        first, last = abs(int(terms.lead(p)[1])), abs(int(dict(p).get((), Fraction(0))))
        roots = (
            Fraction(sign * r, q)
            for q in range(1, MAX_ROOT_DENOMINATOR + 1)
            if first % q == 0
            for r in range(1, MAX_ROOT_NUMERATOR + 1)
            if last % r == 0
            for sign in (1, -1)
        )
        root = next((root for root in roots if _at(p, root) == 0), None)
        if root is None:
            break
        factor = terms.pack({((name, 1),): Fraction(root.denominator), (): Fraction(-root.numerator)})
        found.append(terms.term_of(factor))
        p = terms.primitive(quotient(p, factor))
    return found, p


def _at(p: Poly, x: Fraction) -> Fraction:
    return sum((c * x ** sum(power for _, power in mono) for mono, c in p), Fraction(0))


def quotient(p: Poly, q: Poly) -> Poly:
    """The t with p = q·t; Refused when q does not divide p."""
    if not q:
        raise Refused("a division by 0")
    top, factor = terms.lead(q)
    total: Poly = ()
    for _ in range(terms.MAX_MONOMIALS):
        if not p:
            return total
        mono, coef = terms.lead(p)
        powers = dict(mono)
        for name, power in top:
            powers[name] = powers.get(name, 0) - power
        if min(powers.values(), default=0) < 0:
            break
        part = terms.pack({tuple(sorted((n, e) for n, e in powers.items() if e)): coef / factor})
        total = terms.combine(total, part)
        p = terms.combine(p, terms.times(part, q), b=Fraction(-1))
    raise Refused("no exact quotient")

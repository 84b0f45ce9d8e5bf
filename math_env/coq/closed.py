"""Tactics that decide a formula without variables, and that refute m | a for an a with a nonzero residue."""

from __future__ import annotations

from fractions import Fraction

from math_env import terms
from math_env.coq.pieces import (
    alternatives,
    divisor_nonzero,
    integer_form,
    integers_text,
    place,
    text_of,
    with_divisors,
)
from math_env.formulas import divisors, written
from math_env.terms import Expr, Refused, num


def _value(term: Expr) -> Fraction:
    value = terms.evaluate(term, {})
    if value is None:
        raise Refused("not defined")
    return value


def proved(formula: Expr) -> str:
    """Proves a true closed formula."""
    op, args = formula.op, formula.args
    if op == "or":
        index = next((i for i, arg in enumerate(args) if terms.is_true(arg, {})), 0)
        return f"{place(index, len(args))}; {proved(args[index])}"
    if op == "and":
        return _each([proved(arg) for arg in args])
    if op == "iff":
        if terms.is_true(args[0], {}):
            return f"split; intros _; [ {proved(args[1])} | {proved(args[0])} ]"
        return f"split; intro B; exfalso; [ {refuted(args[0])} | {refuted(args[1])} ]"
    if op == "dvd":
        return f"exists ({int(_value(args[1])) // args[0]})%Z; lra"
    if op == "false":
        raise Refused("⊥")
    return f"{_values(formula)}; {with_divisors('relation', len(divisors(formula)))}"


def _each(tactics: list[str]) -> str:
    return tactics[0] if len(tactics) == 1 else f"split; [ {tactics[0]} | {_each(tactics[1:])} ]"


def _values(atom: Expr) -> str:
    """The divisors ≠ 0 and the values of both sides."""
    lines = [line for d in divisors(atom) for line in divisor_nonzero(d)]
    lines += [f"assert ({text_of(side)} = {text_of(num(_value(side)))}) by fields" for side in atom.args]
    return "; ".join(lines)


def refuted(formula: Expr) -> str:
    """False from B, a false closed formula."""
    op, args = formula.op, formula.args
    if op == "false":
        return "exact B"
    if op == "or":
        return f"destruct B as {alternatives(len(args), 'B')}; [ {' | '.join(refuted(arg) for arg in args)} ]"
    if op == "and":
        index = next((i for i, arg in enumerate(args) if not terms.is_true(arg, {})), 0)
        names = ["_"] * index + ["B"] + ["_"] * (len(args) - index - 1)
        return f"destruct B as ({' & '.join(names)}); {refuted(args[index])}"
    if op == "iff":
        holds, fails, way = (*args, "F") if terms.is_true(args[0], {}) else (args[1], args[0], "G")
        other = f"assert (B : {written(fails)}) by (apply {way}; {proved(holds)})"
        return f"destruct B as [F G]; {other}; {refuted(fails)}"
    if op == "dvd":
        return f"destruct B as [q0 Q0]; {'; '.join(no_multiple(formula))}"
    undefined = next((d for d in divisors(formula) if not terms.evaluate(d, {})), None)
    if undefined is not None:
        index = divisors(formula).index(undefined)
        names = ["_"] + ["B" if i == index else "_" for i in range(len(divisors(formula)))]
        return f"destruct B as ({' & '.join(names)}); apply B; fields"
    head = f"destruct B as ({' & '.join(['B', *['_'] * len(divisors(formula))])}); " if divisors(formula) else ""
    return f"{head}{_values(formula)}; solve [ lra | apply B; lra ]"


def no_multiple(known: Expr) -> list[str]:
    """False from Q0 : a = m * q0 where a is r modulo m for every value of the variables, r not 0."""
    modulus, p = known.args[0], integer_form(known.args[1])
    rest = int(dict(p).get((), Fraction(0))) % modulus
    p = terms.combine(p, terms.constant(-rest))
    quotient = integers_text(terms.pack({mono: Fraction(coef // modulus) for mono, coef in p}))
    witness = f"exists (q0 - ({quotient}))%Z; apply eq_IZR; cast; lra"
    return [f"assert (N : exists w : Z, ({rest} = {modulus} * w)%Z) by ({witness})", "destruct N as [w N]", "lia"]

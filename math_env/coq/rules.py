"""The Coq tactic that proves one kernel step from the sequents of its premises; one function a rule.

A tactic is written for the rule, not searched: it says which premise is used how, and leaves only the arithmetic to
`lra` (linear over monomials), `field` and `lia`. Where a step is wrong its tactic fails.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from math_env import terms
from math_env.coq.closed import no_multiple, proved
from math_env.coq.pieces import (
    Step,
    alternatives,
    conj_of,
    divisor_nonzero,
    integer_form,
    integers_text,
    place,
    poly_text,
    text_of,
    with_divisors,
)
from math_env.formulas import COQ, divisors, written
from math_env.kernel import Theorem
from math_env.terms import INTEGER_VARIABLES, Expr, Poly, Refused

WRITERS: dict[str, Callable[[Step], list[str]]] = {}
"""Kernel rule -> what its tactic does, in order."""


def tactic(step: Theorem, hypotheses: list[Expr]) -> str:
    """Proves the step's sequent; `hypotheses` in the order of H0, H1, …"""
    writer = WRITERS.get(step.rule)
    if writer is None:
        return "fail"
    try:
        return "; ".join(writer(Step(step, hypotheses)))
    except Refused as error:  # no tactic for a step that is not of the rule's shape: Coq has to reject it
        return f'fail "{step.rule}: {error}"'


# ---------------------------------------------------------------- rules


def _writes(function: Callable[[Step], list[str]]) -> Callable[[Step], list[str]]:
    WRITERS[function.__name__] = function
    return function


@_writes
def assume(step: Step) -> list[str]:
    return ["assumption"]


@_writes
def conj_elim(step: Step) -> list[str]:
    parts = step.premises[0].concl.args
    names = [f"C{i}" for i in range(len(parts))]
    return [step.premise(0), f"destruct A0 as ({' & '.join(names)})", f"exact C{step.inputs[1]}"]


@_writes
def conj_intro(step: Step) -> list[str]:
    return [*step.all_premises(), f"exact {conj_of([f'A{i}' for i in range(len(step.premises))])}"]


@_writes
def disj_intro(step: Step) -> list[str]:
    part = step.premises[0].concl
    parts = step.concl.args
    if part not in parts:
        raise Refused("no such disjunct")
    return [step.premise(0), place(parts.index(part), len(parts)), "exact A0"]


@_writes
def cases(step: Step) -> list[str]:
    parts = step.premises[0].concl.args
    branches = [step.use(i + 1, {part: "B"}) for i, part in enumerate(parts)]
    return [step.premise(0), f"destruct A0 as {alternatives(len(parts), 'B')}", f"[ {' | '.join(branches)} ]"]


@_writes
def iff_intro(step: Step) -> list[str]:
    left, right = step.concl.args
    return ["split", "intro B", f"[ {step.use(0, {left: 'B'})} | {step.use(1, {right: 'B'})} ]"]


@_writes
def absurd(step: Step) -> list[str]:
    known, lines = step.premises[0].concl, [step.premise(0), "exfalso"]
    if known.op == "false":
        return [*lines, "exact A0"]
    if known.op == "dvd":
        return [*lines, "destruct A0 as [q0 Q0]", *no_multiple(known)]
    return [*lines, *step.zero(0)[0], "solve [ lra | apply Z0; lra ]"]


@_writes
def clash(step: Step) -> list[str]:
    return [*step.all_premises(), *step.zero(0)[0], *step.zero(1)[0], "apply Z1", "lra"]


@_writes
def square_nonneg(step: Step) -> list[str]:
    term = step.inputs[0]
    lines = [line for d in divisors(term) for line in divisor_nonzero(d)]
    square = f"({text_of(term)}) * ({text_of(term)})"
    return [*lines, f"assert (E : {text_of(step.concl.args[0])} = {square}) by fields", "rewrite E", "apply Rle_ge",
            f"exact (Rle_0_sqr ({text_of(term)}))"]  # fmt: skip


@_writes
def decide(step: Step) -> list[str]:
    return [proved(step.concl)]


@_writes
def residues(step: Step) -> list[str]:
    name, modulus = step.inputs
    count = len(step.concl.args)
    either = r" \/ ".join(f"{name} mod {modulus} = {r}" for r in range(count))
    places = [f"{place(r, count)}; apply (residue {modulus} {name} {r}); [ lia | exact C | lra ]" for r in range(count)]
    return [
        f"pose proof (Z.mod_pos_bound {name} {modulus} ltac:(lia)) as M",
        f"assert (C : ({either})%Z) by lia",
        f"destruct C as {alternatives(count, 'C')}",
        f"[ {' | '.join(places)} ]",
    ]


@_writes
def ring(step: Step) -> list[str]:
    lines = step.all_premises()
    for index, premise in enumerate(step.premises):
        if premise.concl.op == "ne":
            lines += step.zero(index)[0]
    found = divisors(step.concl)
    return [*lines, *(line for d in found for line in divisor_nonzero(d)), with_divisors("fields", len(found))]


@_writes
def to_zero(step: Step) -> list[str]:
    return [step.premise(0), *step.zero(0)[0], "relation"]


@_writes
def restate(step: Step) -> list[str]:
    return [step.premise(0), *step.zero(0)[0], *step.finish()]


WRITERS["factor_as"] = restate


@_writes
def zero_product(step: Step) -> list[str]:
    product = step.premises[0].concl.args[0]
    parts = list(step.concl.args) if step.concl.op == "or" else [step.concl]
    places = {part.args[0]: (place(i, len(parts)), len(divisors(part))) for i, part in enumerate(parts)}
    return [step.premise(0), *step.atom(0), _split_product(product, "A0", places)]


def _split_product(term: Expr, name: str, places: dict[Expr, tuple[str, int]]) -> str:
    """Closes the goal from `name` : term = 0 by going through the factors."""
    if term.op == "mul":
        left, right = (_split_product(arg, name, places) for arg in term.args)
        return f"apply Rmult_integral in {name}; destruct {name} as [{name}|{name}]; [ {left} | {right} ]"
    if term.op == "pow" and term.args[1] >= 1:
        return f"apply zero_power in {name}; {_split_product(term.args[0], name, places)}"
    if term not in places:
        raise Refused("a factor is lost")
    place, count = places[term]
    return f"{place}; {with_divisors('assumption', count)}"


@_writes
def solve_linear(step: Step) -> list[str]:
    return [step.premise(0), *step.zero(0)[0], "relation"]


@_writes
def defined(step: Step) -> list[str]:
    return [step.premise(0), *step.atom(0), "nonzero"]


@_writes
def cancel(step: Step) -> list[str]:
    (first, _), (second, q) = step.zero(0), step.zero(1)
    quotient = text_of(step.inputs[2])
    lines = [line for d in divisors(step.concl) for line in divisor_nonzero(d)]
    is_zero = "solve [ lra | transitivity 0; [ fields | lra ] ]"
    main = (
        f"destruct (Rmult_integral ({poly_text(q)}) ({quotient})) as [B|B]; [ {is_zero} | destruct (Z1 B) | exact B ]"
    )
    return [*step.all_premises(), *first, *second, *lines, with_divisors(f"({main})", len(divisors(step.concl)))]


@_writes
def add(step: Step) -> list[str]:
    if step.premises[0].concl.op == "dvd":
        return [*step.all_premises(), "destruct A0 as [q0 Q0]", "destruct A1 as [q1 Q1]", "exists (q0 + q1)%Z", "cast",
                "lra"]  # fmt: skip
    return [*step.all_premises(), *step.zero(0)[0], *step.zero(1)[0], "relation"]


@_writes
def scale(step: Step) -> list[str]:
    return to_zero(step)


@_writes
def multiply(step: Step) -> list[str]:
    (first, p), (second, q) = step.zero(0), step.zero(1)
    rule = {
        "ge": "apply Rle_ge; apply Rmult_le_pos; lra",
        "gt": "apply Rmult_gt_0_compat; assumption",
        "ne": "apply Rmult_integral_contrapositive_currified; assumption",
    }.get(step.premises[0].concl.op, "fail")
    sign = COQ.signs[step.concl.op]
    product = f"assert (M : ({poly_text(p)}) * ({poly_text(q)}) {sign} 0) by ({rule})"
    return [*step.all_premises(), *first, *second, product, "relation"]


# ---------------------------------------------------------------- substitution


def _definition(step: Step) -> tuple[list[str], str, Expr]:
    """A0 : v = t from premise 0, v and t."""
    equation = step.premises[0].concl
    if equation.op != "eq" or equation.args[0].op != "var":
        raise Refused("no equation v = t")
    return [step.premise(0), *step.atom(0)], equation.args[0].args[0], equation.args[1]


@_writes
def substitute(step: Step) -> list[str]:
    lines, name, value = _definition(step)
    lines.append(step.premise(1))
    if step.concl.op == "dvd":
        return [*lines, "rewrite A0 in A1", "destruct A1 as [q1 Q1]", "exists q1", "lra"]
    return [*lines, *step.zero(1, name, value)[0], "relation"]


@_writes
def rewrite(step: Step) -> list[str]:
    lines, _, _ = _definition(step)
    # a divisor that became a literal is written in the goal alone
    return [*lines, step.premise(1), "try rewrite A0", "solve [ exact A1 | intuition lra ]"]


@_writes
def undeclare(step: Step) -> list[str]:
    name, term = step.inputs[1:]
    found = divisors(term)
    lines = [line for d in found for line in divisor_nonzero(d)]
    itself = Expr("eq", term, term)
    definition = f"assert (B : {written(itself)}) by ({with_divisors('reflexivity', len(found))})"
    return [*lines, definition, step.use(0, {Expr("eq", terms.var(name), term): "B"}, f"({text_of(term)})")]


# ---------------------------------------------------------------- residues


def _residue_class(known: Expr) -> tuple[int, str, int]:
    """(m, v, r) of m | v − r."""
    p = dict(integer_form(known.args[1])) if known.op == "dvd" else {}
    rest = -int(p.pop((), Fraction(0)))
    if len(p) != 1 or list(p.values()) != [1]:
        raise Refused("not m | v − r")
    ((name, power),) = next(iter(p))
    if power != 1 or name not in INTEGER_VARIABLES:
        raise Refused("not m | v − r")
    return known.args[0], name, rest


def _at_class(step: Step, whole: Expr, reduced: Expr) -> tuple[list[str], str]:
    """V : v = r + m·q0, and h in Z with  whole at v = r + m·q0  =  reduced + m·h."""
    modulus, name, rest = _residue_class(step.premises[0].concl)
    q0: Poly = (((("q0", 1),), Fraction(1)),)
    v = terms.combine(q0, terms.constant(rest), a=Fraction(modulus))
    gap = terms.combine(_composed(integer_form(whole.args[1]), name, v), integer_form(reduced.args[1]), b=Fraction(-1))
    h = integers_text(terms.pack({mono: Fraction(coef // modulus) for mono, coef in gap}))
    at = f"assert (V : IZR {name} = {rest} + {modulus} * IZR q0) by lra"
    return [*step.all_premises(), "destruct A0 as [q0 Q0]", at, "destruct A1 as [q1 Q1]"], h


def _composed(p: Poly, name: str, value: Poly) -> Poly:
    total: Poly = ()
    for mono, coef in p:
        part: Poly = ((tuple(item for item in mono if item[0] != name), coef),)
        for _ in range(dict(mono).get(name, 0)):
            part = terms.times(part, value)
        total = terms.combine(total, part)
    return total


@_writes
def reduce(step: Step) -> list[str]:
    lines, h = _at_class(step, step.premises[1].concl, step.concl)
    return [*lines, "rewrite V in Q1", f"exists (q1 - ({h}))%Z", "cast", "lra"]


@_writes
def unreduce(step: Step) -> list[str]:
    lines, h = _at_class(step, step.concl, step.premises[1].concl)
    return [*lines, "rewrite V", f"exists (q1 + ({h}))%Z", "cast", "lra"]

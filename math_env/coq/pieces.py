"""What the tactics are made of: lemmas and tactics of Coq, the arithmetic of their witnesses, one step's context.

The arithmetic (quotients, cleared denominators, the place of a divisor) is not trusted: Coq checks what it is used for.

Names in a step's context: Pi the sequent of the i-th premise, Hj the step's j-th hypothesis, Ai the i-th premise's
conclusion, Di_k its divisors ≠ 0, Zi its zero form P R 0.
"""

from __future__ import annotations

from math_env import terms
from math_env.formulas import COQ, divisors, written, written_term
from math_env.kernel import Theorem
from math_env.terms import Expr, Poly, Refused, num

LEMMAS = r"""
Definition divides (m : Z) (a : R) : Prop := exists q : Z, a = IZR m * IZR q.

Lemma divides_is_divisibility : forall m a : Z, divides m (IZR a) <-> (m | a)%Z.
Proof.
  intros m a; split; intros [q Q]; exists q.
  - apply eq_IZR; rewrite mult_IZR, Q; ring.
  - rewrite Q, mult_IZR; ring.
Qed.

Lemma residue : forall (m v r : Z) (a : R), (m > 0)%Z -> (v mod m = r)%Z -> a = IZR v - IZR r -> divides m a.
Proof.
  intros m v r a M C E; exists (v / m)%Z; rewrite E, <- mult_IZR, <- minus_IZR; apply f_equal.
  rewrite (Z.div_mod v m) at 1 by lia; rewrite C; ring.
Qed.

Lemma zero_power : forall (a : R) (n : nat), a ^ n = 0 -> a = 0.
Proof. intros a n H; destruct (Req_dec a 0) as [E|E]; [exact E | destruct (pow_nonzero a n E H)]. Qed.

Ltac cast := repeat (rewrite plus_IZR || rewrite mult_IZR || rewrite minus_IZR).
Ltac nonzero := let Z := fresh in intro Z; solve
  [ lra | match goal with F : _ <> 0 |- _ => apply F; solve [ lra | rewrite Z; ring | nra ] end ].
Ltac fields := field; repeat split; nonzero.
Ltac relation := solve [ lra | intro; lra | intro; match goal with F : _ <> 0 |- _ => apply F; lra end ].
"""
"""What the tactics use; proved once a batch."""


# ---------------------------------------------------------------- arithmetic, nothing trusted


def ordered(hypotheses: frozenset[Expr]) -> list[Expr]:
    """The order in which the hypotheses of a sequent are written."""
    return sorted(hypotheses, key=repr)


def cleared(term: Expr) -> tuple[Poly, list[Poly]]:
    """(top, factors): the term is top over the product of the factors where it is defined."""
    op, args = term.op, term.args
    if op in ("num", "var"):
        return terms.poly(term), []
    top, factors = cleared(args[0])
    if op == "pow":
        power = terms.constant(1)
        for _ in range(args[1]):
            power = terms.times(power, top)
        return power, factors * args[1]
    top2, factors2 = cleared(args[1])
    if op == "mul":
        return terms.times(top, top2), factors + factors2
    if op == "div":
        return terms.times(top, product(factors2)), [*factors, top2]
    if product(factors) == product(factors2):
        return terms.combine(top, top2), factors
    return (
        terms.combine(terms.times(top, product(factors2)), terms.times(top2, product(factors))),
        factors + factors2,
    )


def product(factors: list[Poly]) -> Poly:
    total = terms.constant(1)
    for factor in factors:
        total = terms.times(total, factor)
    return total


def difference(atom: Expr) -> Expr:
    return Expr("add", atom.args[0], Expr("mul", num(-1), atom.args[1]))


def zero_form(atom: Expr) -> Poly:
    """P of the atom's zero form P R 0."""
    if atom.op not in ("eq", "ne", "ge", "gt"):
        raise Refused("no relation")
    top, factors = cleared(difference(atom))
    bottom = product(factors)
    if terms.is_constant(bottom) and bottom:
        return terms.combine(top, (), 1 / terms.value(bottom))
    if atom.op not in ("eq", "ne"):
        raise Refused("a divisor of unknown sign")
    return top


def text_of(term: Expr) -> str:
    return written_term(term)


def poly_text(p: Poly) -> str:
    return written_term(terms.term_of(p))


def relation_text(op: str, p: Poly) -> str:
    return f"{poly_text(p)} {COQ.signs[op]} 0"


def numerator_nonzero(divisor: Expr, name: str) -> str:
    """The numerator of a divisor is ≠ 0, since the divisor, `name`, is."""
    top, factors = cleared(divisor)
    if not factors:
        return f"assert ({poly_text(top)} <> 0) by nonzero"
    bottom = " * ".join(f"({poly_text(f)})" for f in factors)
    return (
        f"assert ({poly_text(top)} <> 0) by (let Z := fresh in intro Z; apply {name}; "
        f"transitivity (({poly_text(top)}) / ({bottom})); [ fields | rewrite Z; unfold Rdiv; ring ])"
    )


def divisor_nonzero(divisor: Expr) -> list[str]:
    """A divisor is ≠ 0, since its numerator is c·Q with Q ≠ 0 known or is a number."""
    top, factors = cleared(divisor)
    lines = [f"assert ({poly_text(top)} <> 0) by nonzero"]
    if not factors:
        return [*lines, f"assert ({text_of(divisor)} <> 0) by nonzero"]
    bottom, text = " * ".join(f"({poly_text(f)})" for f in factors), text_of(divisor)
    by = f"transitivity (({bottom}) * ({text})); [ fields | rewrite Z; ring ]"
    return [
        *lines,
        f"assert ({text} <> 0) by (let Z := fresh in intro Z; assert ({poly_text(top)} = 0) by ({by}); "
        "match goal with F : _ <> 0 |- _ => apply F; assumption end)",
    ]


def with_divisors(main: str, count: int) -> str:
    """Closes `relation /\\ d0 <> 0 /\\ …` when the divisors are in the context."""
    return (
        f"refine (conj _ {conj_of(['_'] * count)}); [ {main} | {' | '.join(['assumption'] * count)} ]"
        if (count)
        else main
    )


def conj_of(names: list[str]) -> str:
    """conj a (conj b c)"""
    return names[0] if len(names) == 1 else f"(conj {names[0]} {conj_of(names[1:])})"


def place(index: int, count: int) -> str:
    """Tactics that choose the i-th of `count` disjuncts."""
    return "; ".join(["right"] * index + (["left"] if index < count - 1 else [])) or "idtac"


def alternatives(count: int, name: str) -> str:
    """The pattern [B|[B|B]]."""
    return name if count == 1 else f"[{name}|{alternatives(count - 1, name)}]"


def integer_form(term: Expr) -> Poly:
    p = terms.poly(term)
    if any(coef.denominator != 1 for _, coef in p):
        raise Refused("no integer polynomial")
    return p


def integers_text(p: Poly) -> str:
    """A polynomial with integer coefficients in Z, its powers as products."""
    parts = [" * ".join([f"({int(coef)})", *(name for name, power in mono for _ in range(power))]) for mono, coef in p]
    return " + ".join(parts) or "0"


# ---------------------------------------------------------------- one step


class Step:
    """One kernel step with the names that its tactic uses."""

    def __init__(self, step: Theorem, hypotheses: list[Expr]) -> None:
        self.concl, self.inputs = step.concl, step.inputs
        self.premises = [item for item in step.inputs if isinstance(item, Theorem)]
        self.hypotheses = hypotheses

    def use(self, index: int, extra: dict[Expr, str] | None = None, first: str = "") -> str:
        """Closes a goal by the i-th premise; a hypothesis that is neither the step's nor extra makes it fail."""
        names = {h: f"H{j}" for j, h in enumerate(self.hypotheses)} | (extra or {})
        wanted = ordered(self.premises[index].hyps)
        if any(h not in names for h in wanted):
            return 'fail "a hypothesis was lost"'
        return f"exact ({' '.join([f'P{index}', first, *(names[h] for h in wanted)])})"

    def premise(self, index: int) -> str:
        """Ai : the premise's conclusion."""
        return f"assert (A{index} : {written(self.premises[index].concl)}) by ({self.use(index)})"

    def all_premises(self) -> list[str]:
        return [self.premise(index) for index in range(len(self.premises))]

    def atom(self, index: int, name: str = "", value: Expr | None = None) -> list[str]:
        """Takes Ai apart: the relation Ai and its divisors Di_k ≠ 0, and adds their numerators ≠ 0.

        With a value both are rewritten by A0 : name = value.
        """
        found = divisors(self.premises[index].concl)
        names = [f"D{index}_{k}" for k in range(len(found))]
        lines = [f"destruct A{index} as ({' & '.join([f'A{index}', *names])})"] if found else []
        if value is not None:
            lines += [f"rewrite A0 in A{index}", *(f"try rewrite A0 in {d}" for d in names)]
            found = [terms.substituted(divisor, name, value) for divisor in found]
        return [*lines, *map(numerator_nonzero, found, names)]

    def zero(self, index: int, name: str = "", value: Expr | None = None) -> tuple[list[str], Poly]:
        """Zi : P R 0 from Ai, and P; with a value Ai is rewritten by A0 : name = value first."""
        atom = self.premises[index].concl
        if value is not None:
            atom = terms.substituted(atom, name, value)
        p, lines = zero_form(atom), self.atom(index, name, value)
        goal = f"assert (Z{index} : {relation_text(atom.op, p)})"
        top, factors = cleared(difference(atom))
        if all(terms.is_constant(f) for f in factors):
            if divisors(atom):
                lines.append(f"assert (Y{index} : {text_of(difference(atom))} = {poly_text(p)}) by fields")
            return [*lines, f"{goal} by relation"], p
        bottom = " * ".join(f"({poly_text(f)})" for f in factors)
        gap, whole = text_of(difference(atom)), f"({bottom})"
        if atom.op == "eq":
            by = f"transitivity ({whole} * ({gap})); [ fields | replace ({gap}) with 0 by lra; ring ]"
        else:
            by = (
                f"let Z := fresh in intro Z; apply A{index}; assert ({gap} = 0) by "
                f"(transitivity (({poly_text(top)}) / {whole}); [ fields | rewrite Z; unfold Rdiv; ring ]); lra"
            )
        return [*lines, f"{goal} by ({by})"], p

    def finish(self) -> list[str]:
        """The step's conclusion, an atom whose divisors have numerators known to be ≠ 0, from the Zi."""
        found = divisors(self.concl)
        lines = [line for d in found for line in divisor_nonzero(d)]
        if found:
            p = zero_form(self.concl)
            lines.append(f"assert (Y : {text_of(difference(self.concl))} = {poly_text(p)}) by fields")
        return [*lines, with_divisors("relation", len(found))]

"""A proof as a Coq script: every kernel step as a lemma of its own, the steps put together, the statement.

For each step i of proof k:
    Lemma k_s_i   forall variables, (sequents of its premises at this point) -> its hypotheses -> its conclusion
    Lemma k_t_i   forall variables, its hypotheses -> its conclusion          (k_s_i of the premises' k_t)
    Theorem k     the problem's statement, from the last k_t
Premises are taken at the same point, so a step that is wrong by itself is no lemma even where its conclusion happens
to be true. `undeclare` alone takes its premise for every value of the variable that it drops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from math_env import terms
from math_env.certify import steps_of
from math_env.coq.pieces import LEMMAS, ordered
from math_env.coq.rules import tactic
from math_env.formulas import bound, implied
from math_env.kernel import Theorem
from math_env.terms import Expr

HEADER = "Require Import ZArith Lia Reals Lra Field.\nOpen Scope R_scope.\n" + LEMMAS


@dataclasses.dataclass(frozen=True)
class Claim:
    """A proof to certify: `theorem` is said to state `hypotheses` ⊢ `goal`."""

    name: str
    hypotheses: tuple[Expr, ...]
    goal: Expr
    theorem: Theorem


@dataclasses.dataclass(frozen=True)
class Lemma:
    name: str
    statement: str
    tactic: str

    @property
    def strict(self) -> str:
        """Coq stops here unless its kernel takes the proof."""
        return f"Lemma {self.name} : {self.statement}.\nProof. {self.tactic}. Qed.\n"

    @property
    def probe(self) -> str:
        """Coq writes `yes NAME` or `no NAME` and goes on."""
        answers = f'then idtac "yes {self.name}" else idtac "no {self.name}"'
        return f"Goal {self.statement}.\ntryif (solve [ {self.tactic} ]) {answers}. Abort.\n"


def step_lemmas(claim: Claim) -> list[Lemma]:
    """k_s_i for every step, in the order of steps_of, then the statement from the last step's sequent."""
    names = names_of(claim)
    steps = steps_of(claim.theorem)
    lemmas = [_step_lemma(f"{claim.name}_s_{i}", step, names) for i, step in enumerate(steps)]
    last = f"({implied(ordered(claim.theorem.hyps), claim.theorem.concl)})"
    statement = f"{bound(names)}{last} -> {implied(claim.hypotheses, claim.goal)}"
    given = {formula: f"G{i}" for i, formula in enumerate(claim.hypotheses)}
    wanted = ordered(claim.theorem.hyps)
    intro = f"intros {' '.join([*names, 'P', *given.values()])}"
    by = f"exact (P {' '.join(given[h] for h in wanted)})" if set(wanted) <= set(given) else "fail"
    return [*lemmas, Lemma(f"{claim.name}_whole", statement, f"{intro}; {by}")]


def names_of(claim: Claim) -> list[str]:
    """The variables of the whole proof: every lemma of a claim is about all of them."""
    formulas = [claim.goal, *claim.hypotheses]
    for step in steps_of(claim.theorem):
        formulas += [step.concl, *step.hyps, *(item for item in step.inputs if isinstance(item, Expr))]
    found = frozenset().union(*map(terms.variables, formulas))
    return [name for name in terms.VARIABLES if name in found]


def _step_lemma(name: str, step: Theorem, names: list[str]) -> Lemma:
    premises = [item for item in step.inputs if isinstance(item, Theorem)]
    hypotheses = ordered(step.hyps)
    parts = []
    for premise in premises:
        fresh = bound([step.inputs[1]]) if step.rule == "undeclare" else ""
        parts.append(f"({fresh}{implied(ordered(premise.hyps), premise.concl)})")
    statement = bound(names) + " -> ".join([*parts, implied(hypotheses, step.concl)])
    context = [*names, *(f"P{i}" for i in range(len(premises))), *(f"H{j}" for j in range(len(hypotheses)))]
    intro = f"intros {' '.join(context)}; " if context else ""
    return Lemma(name, statement, intro + tactic(step, hypotheses))


def _composed(claim: Claim) -> Iterable[str]:
    """k_t_i of every step and the theorem k."""
    names = names_of(claim)
    steps = steps_of(claim.theorem)
    number = {id(step): i for i, step in enumerate(steps)}
    at = " ".join(names)
    function = f"fun {at} => " if names else ""
    for i, step in enumerate(steps):
        used = []
        for premise in (item for item in step.inputs if isinstance(item, Theorem)):
            whole = f"{claim.name}_t_{number[id(premise)]} {at}"
            used.append(f"(fun {step.inputs[1]} => {whole})" if step.rule == "undeclare" else f"({whole})")
        proof = f"{function}{claim.name}_s_{i} {at} {' '.join(used)}"
        statement = bound(names) + implied(ordered(step.hyps), step.concl)
        yield Lemma(f"{claim.name}_t_{i}", statement, f"exact ({proof})").strict
    proof = f"{function}{claim.name}_whole {at} ({claim.name}_t_{len(steps) - 1} {at})"
    statement = bound(names) + implied(claim.hypotheses, claim.goal)
    yield f"Theorem {claim.name} : {statement}.\nProof. exact ({proof}). Qed.\n"


def script(claims: Sequence[Claim]) -> str:
    """A file that compiles when Coq takes every step and every statement; it prints the axioms all of them rest on."""
    parts = [HEADER]
    for claim in claims:
        parts += [lemma.strict for lemma in step_lemmas(claim)]
        parts += _composed(claim)
    names = ["divides_is_divisibility", *(claim.name for claim in claims)]
    parts.append(f"Definition all_of_them := ({', '.join(names)}, I).\nPrint Assumptions all_of_them.\n")
    return "\n".join(parts)


def probe_script(claims: Sequence[Claim]) -> str:
    """A file that says of every step by itself, and of every statement, whether Coq proves it."""
    return "\n".join([HEADER, *(lemma.probe for claim in claims for lemma in step_lemmas(claim))])

"""A proof as text for Lean 4 with Mathlib. UNVERIFIED: no Lean reads it here; the certificate is Coq's (`coq`).

The statement and the sequents of the steps are exact; the tactics are the ones that should close them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from math_env import terms
from math_env.certify import steps_of
from math_env.coq.pieces import ordered
from math_env.coq.script import Claim, names_of
from math_env.formulas import LEAN, bound, implied, written_term
from math_env.kernel import Theorem

HEADER = """-- UNVERIFIED export: this text was not run through Lean. The proof was checked by the project's own kernel;
-- its machine-checked certificate is the Coq script.
import Mathlib

"""
TACTICS = {
    "assume": "intros; assumption",
    "ring": "intros; field_simp; ring",
    "decide": "norm_num",
    "square_nonneg": "nlinarith [sq_nonneg ({term})]",
    "residues": "intros; omega",
    "zero_product": "intros; simp_all [mul_eq_zero]",
    "defined": "intros; tauto",
    "multiply": "intros; nlinarith",
    "cancel": "intros; simp_all",
    "substitute": "intros; subst_vars; linarith",
    "rewrite": "intros; simp_all",
    "cases": "tauto",
    "iff_intro": "tauto",
    "conj_intro": "tauto",
    "conj_elim": "tauto",
    "disj_intro": "tauto",
}
"""Rule -> tactic; `intros; linarith` for the others."""


def lean_text(claim: Claim) -> str:
    """One theorem a step and one for the statement; every `have` of a step is a theorem above it."""
    names = names_of(claim)
    steps = steps_of(claim.theorem)
    number = {id(step): index for index, step in enumerate(steps)}
    parts = [HEADER]
    for index, step in enumerate(steps):
        used = [f"{claim.name}_{number[id(item)]}" for item in step.inputs if isinstance(item, Theorem)]
        parts.append(
            _theorem(f"{claim.name}_{index}", names, ordered(step.hyps), step.concl, _proof(step, used, names))
        )
    whole = f"  intros; apply {claim.name}_{len(steps) - 1} <;> assumption"
    return "\n".join([*parts, _theorem(claim.name, names, claim.hypotheses, claim.goal, whole)])


def _theorem(name: str, names: Sequence[str], hypotheses: Iterable[terms.Expr], goal: terms.Expr, proof: str) -> str:
    binders = bound(names, LEAN).removeprefix("∀ ").removesuffix(", ")
    return f"theorem {name} {binders} : {implied(hypotheses, goal, LEAN)} := by\n{proof}\n"


def _proof(step: Theorem, used: Sequence[str], names: Sequence[str]) -> str:
    lines = [f"  have P{i} := {' '.join([name, *names])}" for i, name in enumerate(used)]
    tactic = TACTICS.get(step.rule, "intros; linarith")
    if step.rule == "square_nonneg":
        tactic = tactic.format(term=written_term(step.inputs[0], LEAN))
    return "\n".join([*lines, f"  {tactic}"])

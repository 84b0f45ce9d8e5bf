"""Seeded problems built backward from a witness, each with a scripted proof that the kernel has accepted.

A problem is (hypotheses, goal); "solve" goals are equivalences, so a lost root and an extraneous root are both
unprovable. The script is written by playing actions in the action space: it gives the length, the curriculum
prefixes, and shows that the problem can be solved. The split is a hash of the statement's normal form, so splits are
disjoint for every seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from fractions import Fraction

import numpy as np

from math_env import rules, terms
from math_env.drafts import Dice, Draft, Point, Script
from math_env.families import FAMILIES
from math_env.kernel import Theorem
from math_env.rules import State
from math_env.terms import Expr, Refused
from math_env.tokens import row, show

SPLITS = ("train", "validation", "test")
LEVELS = (1, 2, 3)
ATTEMPTS = 500


@dataclasses.dataclass(frozen=True)
class Problem:
    """A statement, where it holds, and one proof.

    Attributes:
        question_id: hash of the statement.
        topic: family of the generator.
        difficulty: level in LEVELS; within a topic a higher level has a longer proof or a larger statement.
        hypotheses, goal: formulas; the task is hypotheses ⊢ goal.
        witness: a point where the hypotheses (and, of an equivalence, both sides) are true.
        script: action names of a proof.
        story: the same in words; empty for most topics.
    """

    question_id: str
    topic: str
    difficulty: int
    hypotheses: tuple[Expr, ...]
    goal: Expr
    witness: Point
    script: tuple[str, ...]
    story: str = ""

    def start(self) -> State:
        return rules.start(self.hypotheses, self.goal)

    def is_proved_by(self, theorem: Theorem | None) -> bool:
        """Whether a kernel theorem states this problem, with no hypothesis of its own."""
        return type(theorem) is Theorem and theorem.concl == self.goal and theorem.hyps <= frozenset(self.hypotheses)

    @property
    def text(self) -> str:
        given = ", ".join(show(hypothesis) for hypothesis in self.hypotheses)
        return f"{given} |- {show(self.goal)}" if given else f"|- {show(self.goal)}"


# ---------------------------------------------------------------- generation


def generate(rng: np.random.Generator, topic: str, level: int, split: str = "train") -> Problem:
    """A problem of a topic, level and split, drawn from `rng` alone; raises ValueError on an unknown one."""
    for name, value, known in (("topic", topic, FAMILIES), ("level", level, LEVELS), ("split", split, SPLITS)):
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; one of {', '.join(map(str, known))} is wanted")
    dice = Dice(rng)
    for _ in range(ATTEMPTS):
        try:
            draft = FAMILIES[topic](dice, level)
            if split_of(draft.hypotheses, draft.goal) == split:
                return _accepted(draft, topic, level)
        except Refused:
            continue
    raise RuntimeError(f"no {topic} problem of level {level} in {ATTEMPTS} attempts")


def _accepted(draft: Draft, topic: str, level: int) -> Problem:
    """Refused when a statement does not fit, the witness fails, or the script does not prove it."""
    if any(row(formula) is None for formula in (*draft.hypotheses, draft.goal)):
        raise Refused("too large to observe")
    sides = draft.goal.args if draft.goal.op == "iff" else (draft.goal,)
    if not all(terms.is_true(formula, draft.witness) for formula in (*draft.hypotheses, *sides)):
        raise Refused("the witness does not satisfy the statement")
    script = Script(rules.start(draft.hypotheses, draft.goal))
    draft.prove(script)
    if script.state.theorem is None:
        raise Refused("the script does not finish")
    text = " ; ".join(map(show, (*draft.hypotheses, draft.goal)))
    question_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    stated = (draft.hypotheses, draft.goal, draft.witness)
    return Problem(question_id, topic, level, *stated, tuple(script.names), draft.story)


def split_of(hypotheses: tuple[Expr, ...], goal: Expr) -> str:
    """Split of a statement by its normal form: 80 % train, 10 % validation, 10 % test."""
    key = repr([_normal(formula) for formula in (*hypotheses, goal)])
    bucket = int(hashlib.sha256(key.encode()).hexdigest(), 16) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def _normal(formula: Expr) -> str:
    if formula.op in ("or", "and", "iff"):
        return f"{formula.op}{[_normal(part) for part in formula.args]}"
    if formula.op in ("eq", "ge"):
        left, right = (terms.ratio(term) for term in formula.args)
        if left[1] == right[1]:
            p = terms.combine(left[0], right[0], b=Fraction(-1))
            if p:
                return f"{formula.op} {show(terms.term_of(terms.primitive(p, keep_sign=formula.op == 'ge')))} {left[2]}"
    return show(formula)

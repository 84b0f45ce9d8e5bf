"""z3's opinion of every kernel step. `sat` is a point where a step is false, so a bug of the kernel; no reward depends
on it: z3 has had bugs of its own, and answers "unknown" to much about integers. Needs the extra `z3`.

Work is bounded by z3's own count (`rlimit`), the same on every machine. z3's division is total, so every divisor is
said to be ≠ 0 where the atom holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from math_env.certify import steps_of
from math_env.formulas import divisors
from math_env.kernel import Theorem
from math_env.terms import INTEGER_VARIABLES, Expr

RLIMIT = 2_000_000


@dataclasses.dataclass(frozen=True)
class Opinion:
    """Answers in the order of steps_of, then of the statement: "unsat" = cannot be false, "sat" = false somewhere."""

    answers: tuple[str, ...]

    @property
    def is_refuted(self) -> bool:
        return "sat" in self.answers


def opinion(theorem: Theorem, hypotheses: Iterable[Expr], goal: Expr, rlimit: int = RLIMIT) -> Opinion:
    """Of each step from its premises alone, and of `hypotheses` ⊢ `goal` from the theorem."""
    import z3

    questions = [(_premises(step, z3), _sequent(step.hyps, step.concl, z3)) for step in steps_of(theorem)]
    questions.append(([_sequent(theorem.hyps, theorem.concl, z3)], _sequent(hypotheses, goal, z3)))
    answers = []
    for premises, conclusion in questions:
        solver = z3.Solver()
        solver.set("rlimit", rlimit)
        solver.add(*premises, z3.Not(conclusion))
        answers.append(str(solver.check()))
    return Opinion(tuple(answers))


def _premises(step: Theorem, z3: Any) -> list[Any]:
    """At the point of the conclusion; `undeclare` takes its premise where the dropped variable has its value."""
    found = [_sequent(item.hyps, item.concl, z3) for item in step.inputs if isinstance(item, Theorem)]
    if step.rule != "undeclare":
        return found
    name, value = step.inputs[1:]
    return [z3.substitute(found[0], (z3.Real(name), _term(value, z3)))]


def _sequent(hypotheses: Iterable[Expr], conclusion: Expr, z3: Any) -> Any:
    return z3.Implies(z3.And(*(_formula(h, z3) for h in hypotheses)), _formula(conclusion, z3))


def _formula(formula: Expr, z3: Any) -> Any:
    op, args = formula.op, formula.args
    if op == "false":
        return z3.BoolVal(False)
    if op in ("or", "and"):
        return {"or": z3.Or, "and": z3.And}[op](*(_formula(arg, z3) for arg in args))
    if op == "iff":
        return _formula(args[0], z3) == _formula(args[1], z3)
    if op == "dvd":
        if _is_integral(args[1]):
            return _term(args[1], z3, is_real=False) % args[0] == 0
        return z3.IsInt(_term(args[1], z3) / args[0])
    left, right = (_term(arg, z3) for arg in args)
    relation = {"eq": left == right, "ne": left != right, "ge": left >= right, "gt": left > right}[op]
    return z3.And(relation, *(_term(divisor, z3) != 0 for divisor in divisors(formula)))


def _is_integral(term: Expr) -> bool:
    if term.op == "num":
        return bool(term.args[0].denominator == 1)
    return all(_is_integral(arg) for arg in term.args if isinstance(arg, Expr))


def _term(term: Expr, z3: Any, is_real: bool = True) -> Any:
    op, args = term.op, term.args
    if op == "num":
        return z3.RealVal(str(args[0])) if is_real else z3.IntVal(int(args[0]))
    if op == "var":
        if args[0] not in INTEGER_VARIABLES:
            return z3.Real(args[0])
        return z3.ToReal(z3.Int(args[0])) if is_real else z3.Int(args[0])
    if op == "pow":
        product = z3.RealVal(1) if is_real else z3.IntVal(1)
        for _ in range(args[1]):
            product = product * _term(args[0], z3, is_real)
        return product
    left, right = (_term(arg, z3, is_real) for arg in args)
    return left + right if op == "add" else left * right if op == "mul" else left / right

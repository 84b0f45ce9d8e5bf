"""What a family of problems is written with: a statement with its witness and scripted proof, draws, terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from math_env import rules, terms
from math_env.rules import INDEX, State
from math_env.terms import Expr, Refused, num, var

X, Y, N = var("x"), var("y"), var("n")
Point = dict[str, Fraction]


@dataclasses.dataclass(frozen=True)
class Draft:
    hypotheses: tuple[Expr, ...]
    goal: Expr
    witness: Point
    prove: Callable[[Script], None]
    story: str = ""


class Script:
    """Plays actions by name and remembers them; `last` in a name stands for the newest fact."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.names: list[str] = []

    def do(self, *names: str) -> None:
        for name in names:
            goal = self.state.goal
            if goal is None:
                raise Refused("nothing is open")
            name = name.replace("last", f"f{len(goal.facts) - 1}")
            self.state = rules.apply(self.state, INDEX[name])
            self.names.append(name)


class Dice:
    """Draws of a generator as Python integers."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integer(self, low: int, high: int, without: tuple[int, ...] = (0,)) -> int:
        """Uniform on low..high, both included, less `without`."""
        return self.pick([v for v in range(low, high + 1) if v not in without])

    def pick(self, items: list[int]) -> int:
        return items[int(self.rng.integers(len(items)))]

    def coin(self) -> bool:
        return bool(self.rng.integers(2))


def plus(*parts: Expr) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = Expr("add", total, part)
    return total


def mul(left: int | Expr, right: Expr) -> Expr:
    return Expr("mul", num(left) if isinstance(left, int) else left, right)


def eq(left: Expr, right: Expr | int | Fraction) -> Expr:
    return Expr("eq", left, right if isinstance(right, Expr) else num(right))


def expanded(term: Expr) -> Expr:
    return terms.term_of(terms.poly(term))


def moved(relation: str, left: Expr, shift: Expr) -> Expr:
    """left R 0 with `shift` added to both sides, both expanded."""
    return Expr(relation, expanded(plus(left, shift)), expanded(shift))


def finish_backward(script: Script, cases: int) -> None:
    """Prove the equation from x = r₁ ∨ x = r₂ …, the only fact."""
    if cases > 1:
        script.do("split_case(f0)")
    for _ in range(cases):
        script.do("rewrite_goal(f0)", "decide()")


def point(values: dict[str, int]) -> Point:
    return {name: Fraction(v) for name, v in values.items()}

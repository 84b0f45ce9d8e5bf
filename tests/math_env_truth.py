"""An evaluator of formulas that shares no code with the kernel, and points at which to try theorems."""

import itertools
import random
from fractions import Fraction


def value(term, point):
    """Value of a term, None where a divisor is 0."""
    if term.op == "num":
        return Fraction(term.args[0])
    if term.op == "var":
        return point[term.args[0]]
    parts = [value(arg, point) if hasattr(arg, "op") else arg for arg in term.args]
    if None in parts or (term.op == "div" and parts[1] == 0):
        return None
    first, second = parts
    if term.op == "pow":
        product = Fraction(1)
        for _ in range(second):
            product *= first
        return product
    return {"add": lambda: first + second, "mul": lambda: first * second, "div": lambda: first / second}[term.op]()


def holds(formula, point):
    if formula.op == "false":
        return False
    if formula.op in ("or", "and", "iff"):
        parts = [holds(arg, point) for arg in formula.args]
        return {"or": any(parts), "and": all(parts), "iff": len(set(parts)) == 1}[formula.op]
    if formula.op == "dvd":
        return value(formula.args[1], point) % formula.args[0] == 0
    left, right = (value(arg, point) for arg in formula.args)
    if left is None or right is None:
        return False
    difference = left - right
    return {"eq": difference == 0, "ne": difference != 0, "ge": difference >= 0, "gt": difference > 0}[formula.op]


def numbers(formula):
    if formula.op == "num":
        return {formula.args[0]}
    return set().union(*(numbers(arg) for arg in formula.args if hasattr(arg, "op")))


def points(formulas, witness, count=12, seed=0):
    """Points with values from the statement (where equations can hold), random rationals, and the witness."""
    rng = random.Random(seed)
    pool = sorted({sign * q for formula in formulas for q in numbers(formula) for sign in (1, -1)} | {Fraction(0)})
    drawn = []
    for kind, _ in itertools.product(("pool", "random"), range(count)):
        reals = {
            name: rng.choice(pool) if kind == "pool" else Fraction(rng.randint(-30, 30), rng.randint(1, 7))
            for name in ("x", "y", "z", "u")
        }
        drawn.append(reals | {name: Fraction(rng.randint(-12, 12)) for name in ("n", "m", "k")})
    return [*drawn, drawn[0] | witness]


def is_sound_at(theorem, point):
    """None where a hypothesis is false (nothing is claimed), else whether the conclusion holds."""
    if not all(holds(hypothesis, point) for hypothesis in theorem.hyps):
        return None
    return holds(theorem.concl, point)

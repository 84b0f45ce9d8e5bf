"""Seeded problems built backward from a witness, each with a scripted proof that the kernel has accepted.

A problem is (hypotheses, goal); "solve" goals are equivalences, so a lost root and an extraneous root are both
unprovable. The script is written by playing actions in the action space: it gives the length, the curriculum
prefixes, and shows that the problem can be solved. The split is a hash of the statement's normal form, so splits are
disjoint for every seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from math_env import rules, terms
from math_env.kernel import Theorem
from math_env.rules import INDEX, State
from math_env.terms import Expr, Refused, num, var
from math_env.tokens import row, show

SPLITS = ("train", "validation", "test")
LEVELS = (1, 2, 3)
ATTEMPTS = 500
X, Y, Z, N, K = var("x"), var("y"), var("z"), var("n"), var("k")
Point = dict[str, Fraction]


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
    """

    question_id: str
    topic: str
    difficulty: int
    hypotheses: tuple[Expr, ...]
    goal: Expr
    witness: Point
    script: tuple[str, ...]

    def start(self) -> State:
        return rules.start(self.hypotheses, self.goal)

    def is_proved_by(self, theorem: Theorem | None) -> bool:
        """Whether a kernel theorem states this problem, with no hypothesis of its own."""
        return type(theorem) is Theorem and theorem.concl == self.goal and theorem.hyps <= frozenset(self.hypotheses)

    @property
    def text(self) -> str:
        given = ", ".join(show(hypothesis) for hypothesis in self.hypotheses)
        return f"{given} |- {show(self.goal)}" if given else f"|- {show(self.goal)}"


@dataclasses.dataclass(frozen=True)
class Draft:
    hypotheses: tuple[Expr, ...]
    goal: Expr
    witness: Point
    prove: Callable[[Script], None]


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


def _sum(*parts: Expr) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = Expr("add", total, part)
    return total


def _mul(left: int | Expr, right: Expr) -> Expr:
    return Expr("mul", num(left) if isinstance(left, int) else left, right)


def _eq(left: Expr, right: Expr | int | Fraction) -> Expr:
    return Expr("eq", left, right if isinstance(right, Expr) else num(right))


def _expanded(term: Expr) -> Expr:
    return terms.term_of(terms.poly(term))


def _moved(relation: str, left: Expr, shift: Expr) -> Expr:
    """left R 0 with `shift` added to both sides, both expanded."""
    return Expr(relation, _expanded(_sum(left, shift)), _expanded(shift))


def _finish_backward(script: Script, cases: int) -> None:
    """Prove the equation from x = r₁ ∨ x = r₂ …, the only fact."""
    if cases > 1:
        script.do("split_case(f0)")
    for _ in range(cases):
        script.do("rewrite_goal(f0)", "decide()")


# ---------------------------------------------------------------- families


def linear(dice: Dice, level: int) -> Draft:
    root = Fraction(dice.integer(-9, 9, ()))
    a, b = dice.integer(-9, 9), dice.integer(-20, 20)
    left = _sum(_mul(a, X), num(b))
    right: Expr = num(a * root + b)
    if level >= 2:
        c = dice.integer(-9, 9, (0, a))
        right = _sum(_mul(c, X), num(a * root + b - c * root))
    if level == 3:
        c, k = dice.integer(2, 5), dice.integer(-6, 6)
        root = Fraction(dice.integer(-9, 9, ()), dice.integer(1, 3))
        left = _sum(_mul(c, _sum(X, num(k))), _mul(a, X))
        right = Expr("div", _sum(X, num((c + a) * 6 * root + c * k * 6 - root)), num(6))
        if a + c == 0 or 6 * (a + c) == 1:
            raise Refused("no single root")

    def prove(script: Script) -> None:
        script.do("split_goal()", "solve_linear(f0,x)", "conclude(f1)")
        _finish_backward(script, 1)

    return Draft((), Expr("iff", _eq(left, right), _eq(X, root)), {"x": root}, prove)


def system(dice: Dice, level: int) -> Draft:
    names = ("x", "y", "z")[: 3 if level == 3 else 2]
    values = {name: dice.integer(-6, 6, ()) for name in names}
    size = 1 if level == 1 else 4
    equations = []
    for _ in names:
        coefs = {name: dice.integer(-size, size) for name in names}
        if level == 1:
            coefs["y"] = dice.integer(-5, 5)
        left = _expanded(_sum(*(_mul(c, var(name)) for name, c in coefs.items())))
        equations.append(_eq(left, sum(c * values[name] for name, c in coefs.items())))
    answer = Expr("and", *(_eq(var(name), v) for name, v in values.items()))

    def prove(script: Script) -> None:
        script.do("split_goal()", "solve_linear(f0,x)")
        if len(names) == 2:
            script.do("substitute(f2,f1)", "solve_linear(f3,y)", "substitute(f4,f2)", "split_goal()")
            script.do("conclude(f5)", "conclude(f4)")
        else:
            script.do("substitute(f3,f1)", "substitute(f3,f2)", "solve_linear(f4,y)", "substitute(f6,f5)")
            script.do("solve_linear(f7,z)", "substitute(f8,f6)", "substitute(f8,f3)", "substitute(f9,f10)")
            script.do("split_goal()", "conclude(f11)", "conclude(f9)", "conclude(f8)")
        script.do("split_goal()")
        for _ in names:
            script.do(*(f"rewrite_goal(f{i})" for i in range(len(names))), "decide()")

    return Draft((), Expr("iff", Expr("and", *equations), answer), _point(values), prove)


def quadratic(dice: Dice, level: int) -> Draft:
    roots = [Fraction(dice.integer(-9, 9, ())) for _ in range(2)]
    if level == 3 and dice.coin():
        roots.append(Fraction(dice.integer(-4, 4, ())))
    elif level == 3:
        roots[0] = Fraction(dice.integer(-7, 7), dice.integer(2, 3))
    product: Expr = num(1)
    for root in roots:
        product = _mul(product, _sum(_mul(root.denominator, X), num(-root.numerator)))
    shift = num(0) if level == 1 else _sum(_mul(dice.integer(-9, 9), X), num(dice.integer(-9, 9)))
    distinct = sorted(set(roots))
    parts = [_eq(X, root) for root in distinct]
    answer = parts[0] if len(parts) == 1 else Expr("or", *parts)

    def prove(script: Script) -> None:
        script.do("split_goal()", "factor(f0)", "zero_product(f1)")
        if len(parts) > 1:
            script.do("split_case(f2)")
        for _ in parts:
            script.do("solve_linear(last,x)", "conclude(last)")
        _finish_backward(script, len(parts))

    return Draft((), Expr("iff", _moved("eq", product, shift), answer), {"x": roots[0]}, prove)


def rational(dice: Dice, level: int) -> Draft:
    root = dice.integer(-9, 9, ())
    hole = dice.integer(-9, 9, (root,))
    gap = _sum(X, num(-hole))
    if level == 2:
        a, b, t = dice.integer(-5, 5), dice.integer(-5, 5), dice.integer(-3, 3)
        if a == b:
            raise Refused("no single root")
        left = Expr("div", num(a), _expanded(_sum(X, num(a * t - root))))
        equation = _eq(left, Expr("div", num(b), _expanded(_sum(X, num(b * t - root)))))
    else:
        k = dice.integer(-6, 6) if level == 3 else 0
        lead = dice.integer(1, 3)
        top = _sum(_mul(_mul(lead, gap), _sum(X, num(-root))), _mul(k, gap))
        equation = _eq(Expr("div", _expanded(top), _expanded(gap)), k)

    def prove(script: Script) -> None:
        script.do("split_goal()")
        if level == 2:
            script.do("solve_linear(f0,x)")
        else:
            script.do("defined(f0,0)", "factor(f0)", "cancel(f2,f1)", "solve_linear(f3,x)")
        script.do("conclude(last)")
        _finish_backward(script, 1)

    return Draft((), Expr("iff", equation, _eq(X, root)), _point({"x": root}), prove)


def inequality(dice: Dice, level: int) -> Draft:
    names = list(rules.SQUARES)
    bases = [names[dice.pick(list(range(len(names))))] for _ in range(1 if level == 1 else 2)]
    if len(set(bases)) < len(bases):
        raise Refused("one square twice")
    scales = [dice.pick([2, 3, 5]) if level == 3 else 1 for _ in bases]
    slack = dice.integer(0, 5, ())
    total = _sum(num(slack), *(_mul(c, Expr("pow", rules.SQUARES[b], 2)) for c, b in zip(scales, bases, strict=True)))
    shift = _sum(_mul(dice.integer(-6, 6), _mul(X, Y)), _mul(dice.integer(-6, 6), X), num(dice.integer(-9, 9, ())))
    goal = _moved("ge", total, shift)

    def prove(script: Script) -> None:
        for base in bases:
            script.do(f"square({base})")
        if level == 3:
            script.do(*(f"scale(f{i},{c})" for i, c in enumerate(scales)), "add(f2,f3)")
        elif level == 2:
            script.do("add(f0,f1)")
        script.do("conclude(last)")

    return Draft((), goal, _point({"x": 1, "y": 2, "z": 3}), prove)


def parity(dice: Dice, level: int) -> Draft:
    modulus = {1: 2, 2: 3, 3: dice.pick([2, 3, 5])}[level]
    noise = _mul(modulus, _sum(_mul(dice.integer(-9, 9), Expr("pow", N, 2)), _mul(dice.integer(-9, 9), N)))
    if level < 3:
        product: Expr = N
        for i in range(1, modulus):
            product = _mul(product, _sum(N, num(i)))
        c = dice.integer(1, 4)
        goal = Expr("dvd", modulus, _expanded(_sum(_mul(c, product), noise, num(modulus * dice.integer(-9, 9, ())))))

        def prove(script: Script) -> None:
            script.do(f"residues(n,{modulus})", "split_case(f0)")
            script.do(*["reduce_goal(f0)", "decide()"] * modulus)

        return Draft((), goal, _point({"n": 0}), prove)
    power = dice.pick([2, 3])
    c = dice.integer(1, 9, tuple(range(0, 10, modulus)))
    given = Expr("dvd", modulus, _expanded(_sum(_mul(c, Expr("pow", N, power)), noise)))

    def prove_converse(script: Script) -> None:
        script.do(f"residues(n,{modulus})", "split_case(f1)", "conclude(f1)")
        script.do(*["reduce(f1,f0)", "conclude(f2)"] * (modulus - 1))

    return Draft((given,), Expr("dvd", modulus, N), _point({"n": 0}), prove_converse)


def identity(dice: Dice, level: int) -> Draft:
    a, b, c = dice.integer(-5, 5), dice.integer(-5, 5), dice.integer(-5, 5)
    if level == 1:
        left = _mul(_sum(_mul(a, X), _mul(b, Y)), _sum(X, _mul(c, Y), num(dice.integer(-5, 5))))
        return Draft((), _eq(left, _expanded(left)), _point({"x": 1, "y": 2}), lambda script: script.do("ring()"))
    if level == 2:
        given = _eq(_sum(_mul(a, X), _mul(b, Y)), c)
        left = _expanded(Expr("pow", _sum(_mul(a, X), _mul(b, Y)), 2))
        d = dice.integer(-5, 5)
        goal = _eq(_expanded(_sum(left, _mul(d, _sum(_mul(a, X), _mul(b, Y))))), c * c + d * c)
        point = {"x": Fraction(c - b, a), "y": Fraction(1)}
        return Draft(
            (given,), goal, point, lambda script: script.do("solve_linear(f0,x)", "rewrite_goal(f1)", "ring()")
        )
    gap = _expanded(_sum(X, num(-a)))
    top = _expanded(_mul(_sum(X, num(-a)), _sum(_mul(b, X), num(c))))
    given = _eq(Expr("div", num(dice.integer(1, 9)), gap), Y)
    goal = _eq(Expr("div", top, gap), _expanded(_sum(_mul(b, X), num(c))))
    point = {"x": Fraction(a + 1), "y": given.args[0].args[0].args[0]}
    return Draft((given,), goal, point, lambda script: script.do("defined(f0,0)", "ring()"))


FAMILIES: dict[str, Callable[[Dice, int], Draft]] = {
    family.__name__: family for family in (linear, system, quadratic, rational, inequality, parity, identity)
}


def _point(values: dict[str, int]) -> Point:
    return {name: Fraction(v) for name, v in values.items()}


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
    return Problem(question_id, topic, level, draft.hypotheses, draft.goal, draft.witness, tuple(script.names))


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

"""Problems in words, in the manner of contest questions: templates of our own, a story beside the statement.

The answer is an equivalence, so it has to be all there is; `x > 0` (a length, a time) is a hypothesis where a root has
to go.
"""

from __future__ import annotations

from fractions import Fraction

from math_env.drafts import Dice, Draft, Script, X, Y, eq, finish_backward, mul, plus, point
from math_env.terms import ZERO, Expr, Refused, num

POSITIVE = Expr("gt", X, ZERO)


def contest(dice: Dice, level: int) -> Draft:
    first, second = {1: (price, two_numbers), 2: (ages, product_of_two), 3: (rectangle, taps)}[level]
    return (first if dice.coin() else second)(dice)


def price(dice: Dice) -> Draft:
    before, up, down = 400 * dice.integer(1, 24), 5 * dice.integer(1, 12), 5 * dice.integer(1, 12)
    factors = num(Fraction(100 + up, 100)), num(Fraction(100 - down, 100))
    after = factors[0].args[0] * factors[1].args[0] * before
    return Draft(
        (),
        Expr("iff", eq(mul(factors[1], mul(factors[0], X)), after), eq(X, before)),
        point({"x": before}),
        _prove_linear,
        f"A price is raised by {up} %, then lowered by {down} %, and is {after} now. What was it?",
    )


def two_numbers(dice: Dice) -> Draft:
    x, y = dice.integer(-30, 30, ()), dice.integer(-30, 30, ())
    story = f"Two numbers have the sum {x + y}, and their difference is {x - y}. Which numbers are they?"
    return _pair(eq(plus(X, Y), x + y), eq(plus(X, mul(-1, Y)), x - y), x, y, story)


def ages(dice: Dice) -> Draft:
    times, y, years = dice.integer(2, 6), dice.integer(2, 20), dice.integer(1, 20)
    x, total = times * y, (times + 1) * y + 2 * years
    story = f"Ada is {times} times as old as Ben. In {years} years they are {total} together. How old are they?"
    later = plus(plus(X, num(years)), plus(Y, num(years)))
    return _pair(eq(X, mul(times, Y)), eq(later, total), x, y, story)


def product_of_two(dice: Dice) -> Draft:
    gap, x = dice.integer(1, 20), dice.integer(1, 40)
    story = f"A number times the number that is {gap} larger makes {x * (x + gap)}. Which numbers can it be?"
    equation = eq(mul(X, plus(X, num(gap))), x * (x + gap))

    def prove(script: Script) -> None:
        script.do("split_goal()", "factor(f0)", "zero_product(f1)", "split_case(f2)")
        script.do(*["solve_linear(last,x)", "conclude(last)"] * 2)
        finish_backward(script, 2)

    answer = Expr("or", eq(X, -x - gap), eq(X, x))
    return Draft((), Expr("iff", equation, answer), point({"x": x}), prove, story)


def rectangle(dice: Dice) -> Draft:
    gap, x = dice.integer(1, 20), dice.integer(1, 40)
    story = f"One side of a rectangle is {gap} longer than the other, and its area is {x * (x + gap)}. How long is it?"
    return _positive(eq(mul(X, plus(X, num(gap))), x * (x + gap)), x, story)


def taps(dice: Dice) -> Draft:
    x, gap = dice.integer(1, 30), dice.integer(1, 30)
    both = Fraction(x * (x + gap), 2 * x + gap)
    story = f"One tap fills a tub in x hours, another takes {gap} hours longer, both together {both} hours. What is x?"
    rates = plus(Expr("div", num(1), X), Expr("div", num(1), plus(X, num(gap))))
    return _positive(eq(rates, 1 / both), x, story)


def _prove_linear(script: Script) -> None:
    script.do("split_goal()", "solve_linear(f0,x)", "conclude(f1)")
    finish_backward(script, 1)


def _pair(first: Expr, second: Expr, x: int, y: int, story: str) -> Draft:
    """The two equations hold exactly at (x, y)."""

    def prove(script: Script) -> None:
        script.do("split_goal()", "solve_linear(f0,x)", "substitute(f2,f1)", "solve_linear(f3,y)", "substitute(f4,f2)")
        script.do("split_goal()", "conclude(f5)", "conclude(f4)", "split_goal()")
        for _ in range(2):
            script.do("rewrite_goal(f0)", "rewrite_goal(f1)", "decide()")

    answer = Expr("and", eq(X, x), eq(Y, y))
    return Draft((), Expr("iff", Expr("and", first, second), answer), point({"x": x, "y": y}), prove, story)


def _positive(equation: Expr, x: int, story: str) -> Draft:
    """x > 0 ⊢ equation ⟺ x = its positive root; the other root, a negative one, contradicts the hypothesis."""

    def prove(script: Script) -> None:
        script.do("split_goal()", "factor(f1)", "zero_product(f2)", "split_case(f3)")
        for _ in range(2):
            script.do("solve_linear(last,x)")
            goal = script.state.goal
            assert goal is not None
            if goal.facts[-1].concl != goal.target:
                script.do(f"substitute(f{len(goal.facts) - 1},f0)")
            script.do("conclude(last)")
        script.do("rewrite_goal(f1)", "decide()")

    if x <= 0:
        raise Refused("no positive root")
    return Draft((POSITIVE,), Expr("iff", equation, eq(X, x)), point({"x": x}), prove, story)

"""The families of problems: (draws, level) -> a statement built around its witness, and how it is proved."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from math_env import rules
from math_env.contest import contest
from math_env.drafts import Dice, Draft, N, Script, X, Y, eq, expanded, finish_backward, moved, mul, plus, point
from math_env.terms import Expr, Refused, num, var


def linear(dice: Dice, level: int) -> Draft:
    root = Fraction(dice.integer(-9, 9, ()))
    a, b = dice.integer(-9, 9), dice.integer(-20, 20)
    left = plus(mul(a, X), num(b))
    right: Expr = num(a * root + b)
    if level >= 2:
        c = dice.integer(-9, 9, (0, a))
        right = plus(mul(c, X), num(a * root + b - c * root))
    if level == 3:
        c, k = dice.integer(2, 5), dice.integer(-6, 6)
        root = Fraction(dice.integer(-9, 9, ()), dice.integer(1, 3))
        left = plus(mul(c, plus(X, num(k))), mul(a, X))
        right = Expr("div", plus(X, num((c + a) * 6 * root + c * k * 6 - root)), num(6))
        if a + c == 0 or 6 * (a + c) == 1:
            raise Refused("no single root")

    def prove(script: Script) -> None:
        script.do("split_goal()", "solve_linear(f0,x)", "conclude(f1)")
        finish_backward(script, 1)

    return Draft((), Expr("iff", eq(left, right), eq(X, root)), {"x": root}, prove)


def system(dice: Dice, level: int) -> Draft:
    names = ("x", "y", "z")[: 3 if level == 3 else 2]
    values = {name: dice.integer(-6, 6, ()) for name in names}
    size = 1 if level == 1 else 4
    equations = []
    for _ in names:
        coefs = {name: dice.integer(-size, size) for name in names}
        if level == 1:
            coefs["y"] = dice.integer(-5, 5)
        left = expanded(plus(*(mul(c, var(name)) for name, c in coefs.items())))
        equations.append(eq(left, sum(c * values[name] for name, c in coefs.items())))
    answer = Expr("and", *(eq(var(name), v) for name, v in values.items()))

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

    return Draft((), Expr("iff", Expr("and", *equations), answer), point(values), prove)


def quadratic(dice: Dice, level: int) -> Draft:
    roots = [Fraction(dice.integer(-9, 9, ())) for _ in range(2)]
    if level == 3 and dice.coin():
        roots.append(Fraction(dice.integer(-4, 4, ())))
    elif level == 3:
        roots[0] = Fraction(dice.integer(-7, 7), dice.integer(2, 3))
    product: Expr = num(1)
    for root in roots:
        product = mul(product, plus(mul(root.denominator, X), num(-root.numerator)))
    shift = num(0) if level == 1 else plus(mul(dice.integer(-9, 9), X), num(dice.integer(-9, 9)))
    distinct = sorted(set(roots))
    parts = [eq(X, root) for root in distinct]
    answer = parts[0] if len(parts) == 1 else Expr("or", *parts)

    def prove(script: Script) -> None:
        script.do("split_goal()", "factor(f0)", "zero_product(f1)")
        if len(parts) > 1:
            script.do("split_case(f2)")
        for _ in parts:
            script.do("solve_linear(last,x)", "conclude(last)")
        finish_backward(script, len(parts))

    return Draft((), Expr("iff", moved("eq", product, shift), answer), {"x": roots[0]}, prove)


def rational(dice: Dice, level: int) -> Draft:
    root = dice.integer(-9, 9, ())
    hole = dice.integer(-9, 9, (root,))
    gap = plus(X, num(-hole))
    if level == 2:
        a, b, t = dice.integer(-5, 5), dice.integer(-5, 5), dice.integer(-3, 3)
        if a == b:
            raise Refused("no single root")
        left = Expr("div", num(a), expanded(plus(X, num(a * t - root))))
        equation = eq(left, Expr("div", num(b), expanded(plus(X, num(b * t - root)))))
    else:
        k = dice.integer(-6, 6) if level == 3 else 0
        lead = dice.integer(1, 3)
        top = plus(mul(mul(lead, gap), plus(X, num(-root))), mul(k, gap))
        equation = eq(Expr("div", expanded(top), expanded(gap)), k)

    def prove(script: Script) -> None:
        script.do("split_goal()")
        if level == 2:
            script.do("solve_linear(f0,x)")
        else:
            script.do("defined(f0,0)", "factor(f0)", "cancel(f2,f1)", "solve_linear(f3,x)")
        script.do("conclude(last)")
        finish_backward(script, 1)

    return Draft((), Expr("iff", equation, eq(X, root)), point({"x": root}), prove)


def inequality(dice: Dice, level: int) -> Draft:
    names = list(rules.SQUARES)
    bases = [names[dice.pick(list(range(len(names))))] for _ in range(1 if level == 1 else 2)]
    if len(set(bases)) < len(bases):
        raise Refused("one square twice")
    scales = [dice.pick([2, 3, 5]) if level == 3 else 1 for _ in bases]
    slack = dice.integer(0, 5, ())
    total = plus(num(slack), *(mul(c, Expr("pow", rules.SQUARES[b], 2)) for c, b in zip(scales, bases, strict=True)))
    shift = plus(mul(dice.integer(-6, 6), mul(X, Y)), mul(dice.integer(-6, 6), X), num(dice.integer(-9, 9, ())))
    goal = moved("ge", total, shift)

    def prove(script: Script) -> None:
        for base in bases:
            script.do(f"square({base})")
        if level == 3:
            script.do(*(f"scale(f{i},{c})" for i, c in enumerate(scales)), "add(f2,f3)")
        elif level == 2:
            script.do("add(f0,f1)")
        script.do("conclude(last)")

    return Draft((), goal, point({"x": 1, "y": 2, "z": 3}), prove)


def parity(dice: Dice, level: int) -> Draft:
    modulus = {1: 2, 2: 3, 3: dice.pick([2, 3, 5])}[level]
    noise = mul(modulus, plus(mul(dice.integer(-9, 9), Expr("pow", N, 2)), mul(dice.integer(-9, 9), N)))
    if level < 3:
        product: Expr = N
        for i in range(1, modulus):
            product = mul(product, plus(N, num(i)))
        c = dice.integer(1, 4)
        goal = Expr("dvd", modulus, expanded(plus(mul(c, product), noise, num(modulus * dice.integer(-9, 9, ())))))

        def prove(script: Script) -> None:
            script.do(f"residues(n,{modulus})", "split_case(f0)")
            script.do(*["reduce_goal(f0)", "decide()"] * modulus)

        return Draft((), goal, point({"n": 0}), prove)
    power = dice.pick([2, 3])
    c = dice.integer(1, 9, tuple(range(0, 10, modulus)))
    given = Expr("dvd", modulus, expanded(plus(mul(c, Expr("pow", N, power)), noise)))

    def prove_converse(script: Script) -> None:
        script.do(f"residues(n,{modulus})", "split_case(f1)", "conclude(f1)")
        script.do(*["reduce(f1,f0)", "conclude(f2)"] * (modulus - 1))

    return Draft((given,), Expr("dvd", modulus, N), point({"n": 0}), prove_converse)


def identity(dice: Dice, level: int) -> Draft:
    a, b, c = dice.integer(-5, 5), dice.integer(-5, 5), dice.integer(-5, 5)
    if level == 1:
        left = mul(plus(mul(a, X), mul(b, Y)), plus(X, mul(c, Y), num(dice.integer(-5, 5))))
        return Draft((), eq(left, expanded(left)), point({"x": 1, "y": 2}), lambda script: script.do("ring()"))
    if level == 2:
        given = eq(plus(mul(a, X), mul(b, Y)), c)
        left = expanded(Expr("pow", plus(mul(a, X), mul(b, Y)), 2))
        d = dice.integer(-5, 5)
        goal = eq(expanded(plus(left, mul(d, plus(mul(a, X), mul(b, Y))))), c * c + d * c)
        at = {"x": Fraction(c - b, a), "y": Fraction(1)}
        return Draft((given,), goal, at, lambda script: script.do("solve_linear(f0,x)", "rewrite_goal(f1)", "ring()"))
    gap = expanded(plus(X, num(-a)))
    top = expanded(mul(plus(X, num(-a)), plus(mul(b, X), num(c))))
    given = eq(Expr("div", num(dice.integer(1, 9)), gap), Y)
    goal = eq(Expr("div", top, gap), expanded(plus(mul(b, X), num(c))))
    at = {"x": Fraction(a + 1), "y": given.args[0].args[0].args[0]}
    return Draft((given,), goal, at, lambda script: script.do("defined(f0,0)", "ring()"))


FAMILIES: dict[str, Callable[[Dice, int], Draft]] = {
    family.__name__: family for family in (linear, system, quadratic, rational, inequality, parity, identity, contest)
}

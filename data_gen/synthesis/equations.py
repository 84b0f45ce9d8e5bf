"""Templates: linear equations, quadratic equations, systems of equations."""

from __future__ import annotations

import random
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import (
    LETTERS,
    nonzero,
    pick_names,
    polynomial_text,
    signed,
)

ASK_FOR_VALUE = (
    "Solve for ${x}$: ${equation}$.",
    "Find the value of ${x}$ if ${equation}$.",
    "If ${equation}$, what is the value of ${x}$?",
    "What number ${x}$ satisfies the equation ${equation}$?",
    "The number ${x}$ satisfies ${equation}$. Find ${x}$.",
)
ASK_FOR_ALL = (
    "Find all real solutions of ${equation}$. If there are several, separate them with commas.",
    "Solve ${equation}$ over the real numbers. Give every solution, separated by commas.",
    "For which real numbers ${x}$ is ${equation}$? List all of them, separated by commas.",
    "What are all real values of ${x}$ with ${equation}$? Separate several values with commas.",
)


def ask(rng: random.Random, patterns: tuple[str, ...], x: str, equation: str) -> str:
    return rng.choice(patterns).replace("{x}", x).replace("{equation}", equation)


@template("linear_equations", "easy")
def one_step_or_two(rng: random.Random, difficulty: str) -> Draft:
    x, a, solution = rng.choice(LETTERS), nonzero(rng, -12, 15), nonzero(rng, -20, 20)
    b = nonzero(rng, -30, 30)
    if a == 1:
        raise Redraw
    c = a * solution + b
    form = rng.randrange(3)
    if form == 0:
        equation = f"{polynomial_text([a, b], x)} = {c}"
    elif form == 1:
        equation = f"{c} = {polynomial_text([a, b], x)}"
    else:
        a = abs(a)
        if a == 1:
            raise Redraw
        equation = f"\\frac{{{x}}}{{{a}}} {signed(b)} = {solution + b}"
    return Draft(ask(rng, ASK_FOR_VALUE, x, equation), {"kind": "solve", "equations": [equation]}, 2)


@template("linear_equations", "easy")
def number_riddle(rng: random.Random, difficulty: str) -> Draft:
    a, b, n = rng.randint(2, 12), rng.randint(1, 40), rng.randint(2, 40)
    more = rng.random() < 0.5
    result = a * n + b if more else a * n - b
    if result <= 0:
        raise Redraw
    change = f"add {b}" if more else f"subtract {b}"
    text = rng.choice(
        (
            f"I think of a number, multiply it by {a}, and then {change}. The result is {result}. What is my number?",
            (
                f"When a number is multiplied by {a} and {b} is then {'added to' if more else 'subtracted from'} the"
                f" product, the result is {result}. Find the number."
            ),
        )
    )
    return Draft(text, {"kind": "solve", "equations": [f"{a}*n {'+' if more else '-'} {b} = {result}"]}, 2)


@template("linear_equations", "medium")
def unknown_on_both_sides(rng: random.Random, difficulty: str) -> Draft:
    x, solution = rng.choice(LETTERS), nonzero(rng, -15, 15)
    a, c, b = nonzero(rng, -12, 12), nonzero(rng, -12, 12), nonzero(rng, -40, 40)
    if rng.random() < 0.5:
        if a == c:
            raise Redraw
        d = a * solution + b - c * solution
        equation = f"{polynomial_text([a, b], x)} = {polynomial_text([c, d], x)}"
    else:
        a, b = rng.randint(2, 12), nonzero(rng, -15, 15)
        d = a * (solution + b) + c
        equation = f"{a}({x} {signed(b)}) {signed(c)} = {d}"
    return Draft(ask(rng, ASK_FOR_VALUE, x, equation), {"kind": "solve", "equations": [equation]}, 3)


@template("linear_equations", "medium")
def consecutive_integers(rng: random.Random, difficulty: str) -> Draft:
    start, count = rng.randint(3, 120), rng.randint(3, 4)
    kind, step = rng.choice((("integers", 1), ("even integers", 2), ("odd integers", 2)))
    if kind == "even integers":
        start += start % 2
    if kind == "odd integers":
        start += 1 - start % 2
    total = sum(start + step * k for k in range(count))
    word = {3: "three", 4: "four"}[count]
    which, find = rng.choice((("smallest", "n"), ("largest", f"n + {step * (count - 1)}")))
    text = rng.choice(
        (
            f"The sum of {word} consecutive {kind} is {total}. What is the {which} of them?",
            f"{word.capitalize()} consecutive {kind} add up to {total}. Find the {which} one.",
        )
    )
    terms = " + ".join(f"(n + {step * k})" for k in range(count))
    return Draft(text, {"kind": "solve", "equations": [f"{terms} = {total}"], "find": find}, 3)


@template("linear_equations", "hard")
def brackets_and_fractions(rng: random.Random, difficulty: str) -> Draft:
    x, solution = rng.choice(LETTERS), Fraction(nonzero(rng, -12, 12), rng.choice((1, 1, 2, 3)))
    if rng.random() < 0.5:
        a, c = rng.randint(2, 9), rng.randint(2, 9)
        b, d, e = nonzero(rng, -9, 9), nonzero(rng, -9, 9), nonzero(rng, -6, 6)
        f = a * (solution + b) - c * (solution + d) - e * solution
        if f.denominator != 1 or a - c - e == 0 or a == c:
            raise Redraw
        equation = f"{a}({x} {signed(b)}) - {c}({x} {signed(d)}) = {polynomial_text([e, int(f)], x)}"
    else:
        p, q = rng.sample((2, 3, 4, 5, 6), 2)
        b, d = nonzero(rng, -9, 9), nonzero(rng, -9, 9)
        total = (solution + b) / p + (solution + d) / q
        right = str(total) if total.denominator == 1 else f"\\frac{{{total.numerator}}}{{{total.denominator}}}"
        if total < 0:
            raise Redraw
        equation = f"\\frac{{{x} {signed(b)}}}{{{p}}} + \\frac{{{x} {signed(d)}}}{{{q}}} = {right}"
    return Draft(ask(rng, ASK_FOR_VALUE, x, equation), {"kind": "solve", "equations": [equation]}, 5)


@template("linear_equations", "hard")
def ages(rng: random.Random, difficulty: str) -> Draft:
    older, younger = pick_names(rng, 2)
    now, later = rng.sample(range(2, 8), 2)
    if later > now:
        now, later = later, now
    years = rng.randint(2, 20)
    age = Fraction(years * (later - 1), now - later)
    if age.denominator != 1 or not 2 <= age <= 30 or age * now > 90:
        raise Redraw
    who, find = rng.choice(((younger, "y"), (older, f"{now}*y")))
    text = rng.choice(
        (
            (
                f"{older} is {times(now)} as old as {younger}. In {years} years {older} will be {times(later)} as old"
                f" as {younger}. How old is {who} now?"
            ),
            (
                f"Today {older} is {times(now)} as old as {younger}, and in {years} years {older} will be"
                f" {times(later)} as old as {younger}. What is the present age of {who}, in years?"
            ),
        )
    )
    return Draft(text, {"kind": "solve", "equations": [f"{now}*y + {years} = {later}*(y + {years})"], "find": find}, 5)


def times(n: int) -> str:
    return "twice" if n == 2 else f"{n} times"


@template("quadratic_equations", "easy")
def pure_square(rng: random.Random, difficulty: str) -> Draft:
    x, a, root = rng.choice(LETTERS), rng.choice((1, 1, 2, 3, 4, 5, 7)), rng.randint(1, 15)
    square = root**2 if rng.random() < 0.7 else rng.choice((2, 3, 5, 6, 7, 10, 11, 13))
    lead = polynomial_text([a, 0, 0], x)
    equation = rng.choice((f"{lead} = {a * square}", f"{lead} - {a * square} = 0"))
    return Draft(ask(rng, ASK_FOR_ALL, x, equation), {"kind": "solve", "equations": [equation]}, 2 if a > 1 else 1)


@template("quadratic_equations", "medium")
def whole_roots(rng: random.Random, difficulty: str) -> Draft:
    x, p, q = rng.choice(LETTERS), nonzero(rng, -14, 14), nonzero(rng, -14, 14)
    b, c = -(p + q), p * q
    if b == 0:
        raise Redraw
    equation = f"{polynomial_text([1, b, c], x)} = 0"
    if rng.random() < 0.4:
        equation = f"{x}^2 = {polynomial_text([-b, -c], x)}"
    return Draft(ask(rng, ASK_FOR_ALL, x, equation), {"kind": "solve", "equations": [equation]}, 3)


@template("quadratic_equations", "medium")
def rectangle_sides(rng: random.Random, difficulty: str) -> Draft:
    width, more = rng.randint(2, 40), rng.randint(1, 20)
    unit = rng.choice(("m", "cm"))
    area = width * (width + more)
    shape = rng.choice(("rectangle", "rectangular garden" if unit == "m" else "rectangular card"))
    side, find = rng.choice((("width", "w"), ("length", f"w + {more}")))
    text = rng.choice(
        (
            (
                f"A {shape} is {more} {unit} longer than it is wide, and its area is {area} {unit}$^2$. What is its"
                f" {side} in {unit}?"
            ),
            (
                f"The length of a {shape} is {more} {unit} more than its width. Its area is {area} {unit}$^2$. Find the"
                f" {side} in {unit}."
            ),
        )
    )
    return Draft(
        text, {"kind": "solve", "equations": [f"w*(w + {more}) = {area}"], "find": find, "domain": "positive"}, 4
    )


@template("quadratic_equations", "hard")
def any_roots(rng: random.Random, difficulty: str) -> Draft:
    x = rng.choice(LETTERS)
    if rng.random() < 0.5:
        a, d = rng.randint(1, 4), rng.randint(2, 5)
        p, q = nonzero(rng, -7, 7), nonzero(rng, -9, 9)
        coefficients = [a * d, a * q + d * p, p * q]
        if coefficients[1] == 0:
            raise Redraw
    else:
        a, b, c = rng.randint(1, 3), 2 * nonzero(rng, -5, 5), nonzero(rng, -8, 8)
        if b * b - 4 * a * c <= 0:
            raise Redraw
        coefficients = [a, b, c]
    equation = f"{polynomial_text(coefficients, x)} = 0"
    return Draft(ask(rng, ASK_FOR_ALL, x, equation), {"kind": "solve", "equations": [equation]}, 5)


@template("quadratic_equations", "hard")
def functions_of_roots(rng: random.Random, difficulty: str) -> Draft:
    a, b, c = rng.randint(1, 4), nonzero(rng, -12, 12), nonzero(rng, -9, 9)
    if b * b - 4 * a * c <= 0:
        raise Redraw
    polynomial = polynomial_text([a, b, c], "x")
    ask_for, tex = rng.choice(
        (
            ("r^2 + s^2", "r^2 + s^2"),
            ("1/r + 1/s", "\\frac{1}{r} + \\frac{1}{s}"),
            ("(r - s)^2", "(r - s)^2"),
            ("r^3 + s^3", "r^3 + s^3"),
            ("r/s + s/r", "\\frac{r}{s} + \\frac{s}{r}"),
        )
    )
    text = rng.choice(
        (
            f"Let $r$ and $s$ be the two solutions of ${polynomial} = 0$. Find ${tex}$.",
            f"The equation ${polynomial} = 0$ has the solutions $r$ and $s$. What is the value of ${tex}$?",
        )
    )
    return Draft(text, {"kind": "roots", "of": polynomial, "ask": ask_for}, 5)


@template("quadratic_equations", "hard")
def radical_equation(rng: random.Random, difficulty: str) -> Draft:
    x, solution, root = rng.choice("xyz"), rng.randint(-6, 20), rng.randint(1, 9)
    b = root - solution
    a = root**2 - solution
    if not b or not a:
        raise Redraw
    equation = f"\\sqrt{{{x} {signed(a)}}} = {x} {signed(b)}"
    return Draft(ask(rng, ASK_FOR_ALL, x, equation), {"kind": "solve", "equations": [equation]}, 6)

"""Templates: polynomials and inequalities."""

from __future__ import annotations

import random

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import LETTERS, nonzero, polynomial_text, signed


def coefficients(rng: random.Random, degree: int, size: int) -> list[int]:
    return [nonzero(rng, -size, size), *(rng.randint(-size, size) for _ in range(degree))]


@template("polynomials", "easy")
def value_at(rng: random.Random, difficulty: str) -> Draft:
    x, k = rng.choice(LETTERS), nonzero(rng, -9, 12)
    a, b = nonzero(rng, -9, 12), nonzero(rng, -20, 20)
    polynomial = polynomial_text([a, b], x) if abs(a) > 1 else polynomial_text([1, 0, b], x)
    text = rng.choice(
        (
            f"Find the value of ${polynomial}$ when ${x} = {k}$.",
            f"What is ${polynomial}$ for ${x} = {k}$?",
            f"Evaluate ${polynomial}$ at ${x} = {k}$.",
        )
    )
    return Draft(text, {"kind": "value", "of": polynomial.replace(x, f"({k})")}, 2)


@template("polynomials", "medium")
def product(rng: random.Random, difficulty: str) -> Draft:
    x = rng.choice(LETTERS)
    a, c = rng.randint(1, 7), rng.randint(1, 7)
    b, d = nonzero(rng, -12, 12), nonzero(rng, -12, 12)
    formula = f"({polynomial_text([a, b], x)})({polynomial_text([c, d], x)})"
    if rng.random() < 0.3:
        formula = f"({polynomial_text([a, b], x)})^2"
    text = rng.choice(
        (
            f"Expand ${formula}$ and collect like terms.",
            f"Write ${formula}$ as a polynomial in ${x}$ in standard form.",
            f"Multiply out and simplify: ${formula}$.",
        )
    )
    return Draft(text, {"kind": "expand", "of": formula}, 4)


@template("polynomials", "medium")
def difference(rng: random.Random, difficulty: str) -> Draft:
    x = rng.choice(LETTERS)
    p, q = coefficients(rng, 2, 12), coefficients(rng, 2, 12)
    if [a - b for a, b in zip(p, q, strict=True)][:2] == [0, 0]:
        raise Redraw
    formula = f"({polynomial_text(p, x)}) - ({polynomial_text(q, x)})"
    text = rng.choice((f"Simplify ${formula}$.", f"Write ${formula}$ as a polynomial in ${x}$ in standard form."))
    return Draft(text, {"kind": "expand", "of": formula}, 3)


@template("polynomials", "hard")
def remainder_of_division(rng: random.Random, difficulty: str) -> Draft:
    dividend = coefficients(rng, rng.randint(3, 4), 7)
    divisor = [1, rng.randint(-4, 4), nonzero(rng, -5, 5)]
    top, bottom = polynomial_text(dividend, "x"), polynomial_text(divisor, "x")
    text = rng.choice(
        (
            f"Find the remainder when ${top}$ is divided by ${bottom}$.",
            f"What is the remainder of the polynomial division of ${top}$ by ${bottom}$?",
        )
    )
    return Draft(text, {"kind": "polynomial_remainder", "of": top, "by": bottom, "in": "x"}, 6)


@template("polynomials", "hard")
def binomial_coefficient(rng: random.Random, difficulty: str) -> Draft:
    a, b, n = rng.randint(1, 4), nonzero(rng, -4, 4), rng.randint(4, 8)
    k = rng.randint(1, n - 1)
    formula = f"({polynomial_text([a, b], 'x')})^{n}"
    power = "x" if k == 1 else f"x^{k}"
    text = rng.choice(
        (
            f"Find the coefficient of ${power}$ in the expansion of ${formula}$.",
            f"What is the coefficient of ${power}$ when ${formula}$ is multiplied out?",
        )
    )
    return Draft(text, {"kind": "coefficient", "of": formula, "in": "x", "power": k}, 5)


@template("polynomials", "hard")
def unknown_coefficient(rng: random.Random, difficulty: str) -> Draft:
    root, k = nonzero(rng, -4, 4), nonzero(rng, -9, 9)
    b = nonzero(rng, -9, 9)
    c = -(root**3 + k * root**2 + b * root)
    if c == 0:
        raise Redraw
    factor = f"x {signed(-root)}"
    polynomial = f"x^3 + kx^2 {signed(b) if abs(b) > 1 else signed(b)[:2]}x {signed(c)}"
    text = rng.choice(
        (
            f"The polynomial ${polynomial}$ is divisible by ${factor}$. Find the constant $k$.",
            f"For which value of the constant $k$ is ${factor}$ a factor of ${polynomial}$?",
        )
    )
    formal = f"({root})^3 + k*({root})^2 + ({b})*({root}) + ({c}) = 0"
    return Draft(text, {"kind": "solve", "equations": [formal]}, 5)


ASK_FOR_INTERVAL = (
    "Solve the inequality ${relation}$ over the real numbers. Give the answer in interval notation.",
    "Find all real numbers ${x}$ with ${relation}$. Write the answer in interval notation.",
    "For which real ${x}$ does ${relation}$ hold? Answer in interval notation.",
)
ASK_FOR_INTEGERS = (
    "How many integers ${x}$ satisfy ${relation}$?",
    "Find the number of integers ${x}$ for which ${relation}$.",
)
SIGNS = {"<": "<", ">": ">", "<=": "\\leq", ">=": "\\geq"}


def asked(rng: random.Random, x: str, relations: list[str], text: str, steps: int, *, integers: bool) -> Draft:
    pattern = rng.choice(ASK_FOR_INTEGERS if integers else ASK_FOR_INTERVAL)
    formal: dict[str, object] = {"kind": "inequality", "relations": relations}
    if integers:
        formal["ask"] = "integers"
    return Draft(pattern.replace("{x}", x).replace("{relation}", text), formal, steps)


def related(left: str, sign: str, right: str) -> tuple[str, str]:
    """A relation for the statement and for the text."""
    return f"{left} {sign} {right}", f"{left} {SIGNS[sign]} {right}"


@template("inequalities", "easy")
def linear(rng: random.Random, difficulty: str) -> Draft:
    x, a, b, c = rng.choice("xyt"), nonzero(rng, -9, 9), nonzero(rng, -20, 20), rng.randint(-40, 40)
    if a == 1:
        raise Redraw
    formal, text = related(polynomial_text([a, b], x), rng.choice(list(SIGNS)), str(c))
    return asked(rng, x, [formal], text, 2, integers=False)


@template("inequalities", "medium")
def double(rng: random.Random, difficulty: str) -> Draft:
    x, a, b = rng.choice("xyn"), rng.randint(2, 7), nonzero(rng, -15, 15)
    low = rng.randint(-30, 10)
    high = low + rng.randint(2 * a, 12 * a)
    first, second = rng.choice(("<", "<=")), rng.choice(("<", "<="))
    middle = polynomial_text([a, b], x)
    text = f"{low} {SIGNS[first]} {middle} {SIGNS[second]} {high}"
    return asked(rng, x, [f"{low} {first} {middle}", f"{middle} {second} {high}"], text, 4, integers=rng.random() < 0.6)


@template("inequalities", "medium")
def absolute_value(rng: random.Random, difficulty: str) -> Draft:
    x, a, b, c = rng.choice("xyt"), rng.randint(1, 4), nonzero(rng, -12, 12), rng.randint(1, 20)
    integers = rng.random() < 0.4
    sign = rng.choice(("<", "<=")) if integers else rng.choice(list(SIGNS))
    formal, text = related(f"|{polynomial_text([a, b], x)}|", sign, str(c))
    return asked(rng, x, [formal], text, 3 if a == 1 else 4, integers=integers)


@template("inequalities", "hard")
def quadratic(rng: random.Random, difficulty: str) -> Draft:
    x, a, p, q = rng.choice("xyt"), rng.choice((1, 1, 2, 3, -1)), rng.randint(-9, 9), rng.randint(-9, 9)
    if p == q:
        raise Redraw
    c = rng.randint(-5, 5)  # moved to the right side
    integers = rng.random() < 0.4
    sign = rng.choice(list(SIGNS)) if not integers else rng.choice(("<", "<=") if a > 0 else (">", ">="))
    left = polynomial_text([a, -a * (p + q), a * p * q + c], x)
    formal, text = related(left, sign, str(c))
    return asked(rng, x, [formal], text, 5, integers=integers)


@template("inequalities", "hard")
def rational(rng: random.Random, difficulty: str) -> Draft:
    x, a, p, q = rng.choice("xyt"), rng.randint(1, 4), nonzero(rng, -9, 9), nonzero(rng, -9, 9)
    c = rng.randint(0, 4)
    if -a * q + p == 0 or a == c:
        raise Redraw
    formal, text = related(
        f"\\frac{{{polynomial_text([a, p], x)}}}{{{x} {signed(q)}}}", rng.choice(list(SIGNS)), str(c)
    )
    return asked(rng, x, [formal], text, 6, integers=False)

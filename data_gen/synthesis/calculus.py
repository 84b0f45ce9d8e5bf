"""Templates: derivatives, integrals and extrema of polynomials."""

from __future__ import annotations

import random

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import nonzero, polynomial_text


@template("calculus", "easy")
def derivative(rng: random.Random, difficulty: str) -> Draft:
    x, f = rng.choice((("x", "f"), ("x", "g"), ("t", "h")))
    degree = rng.randint(2, 5)
    coefficients = [nonzero(rng, -9, 9), *[0] * (degree - 1), rng.randint(-9, 9)]
    coefficients[rng.randint(1, degree - 1)] = nonzero(rng, -12, 12)
    polynomial = polynomial_text(coefficients, x)
    text = rng.choice(
        (
            f"Find the derivative of ${f}({x}) = {polynomial}$.",
            f"Let ${f}({x}) = {polynomial}$. What is ${f}'({x})$?",
            f"Differentiate ${polynomial}$ with respect to ${x}$.",
        )
    )
    return Draft(text, {"kind": "derivative", "of": polynomial, "in": x}, 2)


@template("calculus", "medium")
def slope_at(rng: random.Random, difficulty: str) -> Draft:
    k, c = nonzero(rng, -4, 5), [nonzero(rng, -5, 5), rng.randint(-8, 8), rng.randint(-9, 9), rng.randint(-9, 9)]
    polynomial = polynomial_text(c, "x")
    text = rng.choice(
        (
            f"Let $f(x) = {polynomial}$. Find $f'({k})$.",
            f"What is the slope of the tangent line to the graph of $y = {polynomial}$ at $x = {k}$?",
        )
    )
    return Draft(text, {"kind": "derivative", "of": polynomial, "in": "x", "at": str(k)}, 4)


@template("calculus", "medium")
def definite_integral(rng: random.Random, difficulty: str) -> Draft:
    low = rng.randint(-3, 3)
    high = low + rng.randint(1, 5)
    polynomial = polynomial_text([nonzero(rng, -6, 9), nonzero(rng, -9, 9)], "x")
    if rng.random() < 0.5:
        polynomial = polynomial_text([nonzero(rng, -6, 9), 0, nonzero(rng, -9, 9)], "x")
    text = rng.choice(
        (
            f"Evaluate the definite integral $\\int_{{{low}}}^{{{high}}} ({polynomial}) \\, dx$.",
            f"Compute $\\int_{{{low}}}^{{{high}}} ({polynomial}) \\, dx$.",
            f"What is the integral of ${polynomial}$ from $x = {low}$ to $x = {high}$?",
        )
    )
    return Draft(text, {"kind": "integral", "of": polynomial, "in": "x", "from": str(low), "to": str(high)}, 4)


@template("calculus", "hard")
def extremum(rng: random.Random, difficulty: str) -> Draft:
    p, q = rng.randint(-5, 4), rng.randint(-4, 5)
    scale, constant = rng.choice((1, 1, 2, -1)), rng.randint(-9, 9)
    if p >= q or (p + q) % 2:
        raise Redraw
    # f' = 6 scale (x - p)(x - q)
    f = [2 * scale, -3 * scale * (p + q), 6 * scale * p * q, constant]
    low, high = p - rng.randint(1, 3), q + rng.randint(1, 3)
    ask, word = rng.choice((("max", "maximum"), ("min", "minimum")))
    polynomial = polynomial_text(f, "x")
    text = rng.choice(
        (
            f"Find the {word} value of $f(x) = {polynomial}$ on the closed interval $[{low}, {high}]$.",
            f"What is the {word} value of ${polynomial}$ for ${low} \\leq x \\leq {high}$?",
        )
    )
    formal = {"kind": "extremum", "of": polynomial, "in": "x", "ask": ask, "from": str(low), "to": str(high)}
    return Draft(text, formal, 7)


@template("calculus", "hard")
def area_between(rng: random.Random, difficulty: str) -> Draft:
    p, q = rng.randint(-6, 5), rng.randint(-5, 6)
    if p >= q:
        raise Redraw
    slope, offset = nonzero(rng, -5, 5), rng.randint(-8, 8)
    line = polynomial_text([slope, offset], "x")
    parabola = polynomial_text([1, slope - p - q, offset + p * q], "x")
    text = rng.choice(
        (
            f"Find the area of the region enclosed by the curves $y = {parabola}$ and $y = {line}$.",
            f"The graphs of $y = {parabola}$ and $y = {line}$ enclose a region. What is its area?",
        )
    )
    formal = {"kind": "integral", "of": f"({line}) - ({parabola})", "in": "x", "from": str(p), "to": str(q)}
    # the area under a parabola between its roots is (q - p)^3 / 6 for the leading coefficient 1
    discriminant = f"(({slope - p - q} - ({slope}))^2 - 4*({p * q}))"
    return Draft(text, formal, 6, also={"kind": "value", "of": f"\\sqrt{{{discriminant}}}^3 / 6"})


@template("calculus", "hard")
def upper_limit(rng: random.Random, difficulty: str) -> Draft:
    a, b, k = rng.randint(1, 4), rng.randint(1, 12), rng.randint(2, 9)
    value = a * k * k + b * k
    text = rng.choice(
        (
            (
                f"The positive number $k$ satisfies $\\int_{{0}}^{{k}} ({polynomial_text([2 * a, b], 'x')}) \\, dx ="
                f" {value}$. Find $k$."
            ),
            (
                f"For which positive number $k$ is $\\int_{{0}}^{{k}} ({polynomial_text([2 * a, b], 'x')}) \\, dx ="
                f" {value}$?"
            ),
        )
    )
    return Draft(text, {"kind": "solve", "equations": [f"{a}*k^2 + {b}*k = {value}"], "domain": "positive"}, 5)

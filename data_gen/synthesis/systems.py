"""Templates: systems of equations."""

from __future__ import annotations

import random

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import linear_text, nonzero

ASK_FOR_SYSTEM = (
    "Solve the system ${equations}$. What is ${target}$?",
    "The real numbers {unknowns} satisfy ${equations}$. Find ${target}$.",
    "If ${equations}$, what is the value of ${target}$?",
)


def system(rng: random.Random, equations: list[str], unknowns: list[str], target: str, steps: int) -> Draft:
    joined = "$ and $".join([", ".join(f"{e}" for e in equations[:-1]).replace(", ", "$, $"), equations[-1]])
    names = "$" + "$, $".join(unknowns[:-1]) + f"$ and ${unknowns[-1]}$"
    text = (
        rng.choice(ASK_FOR_SYSTEM)
        .replace("{equations}", joined)
        .replace("{target}", target)
        .replace("{unknowns}", names)
    )
    return Draft(text, {"kind": "solve", "equations": equations, "find": target}, steps)


@template("systems", "easy")
def sum_and_multiple(rng: random.Random, difficulty: str) -> Draft:
    x, y = rng.choice((("x", "y"), ("a", "b"), ("m", "n"), ("u", "v")))
    k, small = rng.randint(2, 9), nonzero(rng, -15, 25)
    equations = [f"{y} = {k}{x}", f"{x} + {y} = {small * (k + 1)}"]
    return system(rng, equations, [x, y], rng.choice((x, y)), 2)


@template("systems", "medium")
def two_unknowns(rng: random.Random, difficulty: str) -> Draft:
    letters = list(rng.choice((("x", "y"), ("a", "b"), ("m", "n"), ("u", "v"))))
    solution = [nonzero(rng, -12, 12) for _ in letters]
    rows = [[nonzero(rng, -9, 9) for _ in letters] for _ in letters]
    if rows[0][0] * rows[1][1] == rows[0][1] * rows[1][0]:
        raise Redraw
    equations = [f"{linear_text(r, letters)} = {sum(c * v for c, v in zip(r, solution, strict=True))}" for r in rows]
    target = rng.choice((*letters, f"{letters[0]} + {letters[1]}", f"{letters[0]}{letters[1]}"))
    return system(rng, equations, letters, target, 4)


@template("systems", "medium")
def tickets(rng: random.Random, difficulty: str) -> Draft:
    adult, child = rng.randint(8, 25), rng.randint(3, 12)
    adults, children = rng.randint(5, 200), rng.randint(5, 200)
    if adult <= child:
        raise Redraw
    place = rng.choice(("museum", "zoo", "theater", "concert hall", "science fair"))
    who, find = rng.choice((("adult", "a"), ("child", "c")))
    people, money = adults + children, adults * adult + children * child
    text = rng.choice(
        (
            (
                f"A {place} charges \\${adult} for an adult ticket and \\${child} for a child ticket. One day it sold"
                f" {people} tickets for a total of \\${money}. How many {who} tickets were sold?"
            ),
            (
                f"Adult tickets to a {place} cost \\${adult} each and child tickets cost \\${child} each. {people}"
                f" tickets were sold for \\${money} in all. Find the number of {who} tickets."
            ),
        )
    )
    equations = [f"a + c = {people}", f"{adult}*a + {child}*c = {money}"]
    return Draft(text, {"kind": "solve", "equations": equations, "find": find}, 4)


@template("systems", "hard")
def three_unknowns(rng: random.Random, difficulty: str) -> Draft:
    letters = list(rng.choice(("xyz", "abc")))
    solution = [nonzero(rng, -8, 8) for _ in letters]
    rows = [[rng.randint(-4, 4) for _ in letters] for _ in letters]
    (a, b, c), (d, f, g), (h, k, m) = rows
    if a * (f * m - g * k) - b * (d * m - g * h) + c * (d * k - f * h) == 0:
        raise Redraw
    if any(sum(map(bool, row)) < 2 for row in rows):
        raise Redraw
    equations = [f"{linear_text(r, letters)} = {sum(c * v for c, v in zip(r, solution, strict=True))}" for r in rows]
    target = rng.choice((*letters, f"{letters[0]} + {letters[1]} + {letters[2]}"))
    return system(rng, equations, letters, target, 8)


@template("systems", "hard")
def line_and_curve(rng: random.Random, difficulty: str) -> Draft:
    p, q = nonzero(rng, -12, 12), nonzero(rng, -12, 12)
    if p == q:
        raise Redraw
    form = rng.randrange(3)
    if form == 0:
        equations, target = [f"x + y = {p + q}", f"xy = {p * q}"], rng.choice(("x^2 + y^2", "(x - y)^2", "x^3 + y^3"))
    elif form == 1:
        equations, target = [f"x + y = {p + q}", f"x^2 + y^2 = {p * p + q * q}"], rng.choice(("xy", "x^3 + y^3"))
    else:
        if p * p == q * q:
            raise Redraw
        equations, target = [f"x - y = {p - q}", f"x^2 - y^2 = {p * p - q * q}"], rng.choice(("x", "y", "xy"))
    return system(rng, equations, ["x", "y"], target, 5)

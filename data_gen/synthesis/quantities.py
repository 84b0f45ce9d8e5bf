"""Templates: arithmetic and fractions."""

from __future__ import annotations

import random
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import GOODS, fraction_text, pick_names, pick_noun, plain

CALCULATE = (
    "Calculate ${formula}$.",
    "What is ${formula}$?",
    "Evaluate ${formula}$.",
    "Find the value of ${formula}$.",
)


def calculate(rng: random.Random, formula: str, steps: int, formal: str | None = None) -> Draft:
    return Draft(rng.choice(CALCULATE).replace("{formula}", formula), {"kind": "value", "of": formal or formula}, steps)


@template("arithmetic", "easy")
def two_operations(rng: random.Random, difficulty: str) -> Draft:
    a, b, c = rng.randint(12, 99), rng.randint(2, 12), rng.randint(3, 30)
    sign = rng.choice("+-")
    formula = rng.choice((f"{a} {sign} {b} \\cdot {c}", f"{b} \\cdot {c} {sign} {a}", f"({a} {sign} {c}) \\cdot {b}"))
    return calculate(rng, formula, 2)


@template("arithmetic", "easy")
def gain_and_loss(rng: random.Random, difficulty: str) -> Draft:
    (name, other), thing = pick_names(rng, 2), pick_noun(rng)
    a, b, c = rng.randint(12, 90), rng.randint(2, 40), rng.randint(2, 40)
    if c >= a + b:
        raise Redraw
    text = rng.choice(
        (
            (
                f"{name} has {thing.count(a)}, gets {b} more from {other}, and then gives {c} away. How many"
                f" {thing.many} does {name} have now?"
            ),
            (
                f"There are {thing.count(a)} in a box. {name} puts in {b} more, and {other} takes {c} out. How many"
                f" {thing.many} are in the box now?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{a} + {b} - {c}"}, 2)


@template("arithmetic", "medium")
def shopping(rng: random.Random, difficulty: str) -> Draft:
    (name,) = pick_names(rng, 1)
    first, second = rng.sample(GOODS.split("|"), 2)
    one, two = pick_noun(rng, first), pick_noun(rng, second)
    n, m = rng.randint(2, 9), rng.randint(2, 9)
    p, q = rng.randint(3, 40), rng.randint(3, 40)
    paid = n * p + m * q + rng.randint(1, 60)
    text = rng.choice(
        (
            (
                f"{name} buys {one.count(n)} at \\${p} each and {two.count(m)} at \\${q} each, and pays with \\${paid}."
                " How much change, in dollars, is due?"
            ),
            (
                f"{name} has \\${paid} after a week of work. {name} then spends it on {one.count(n)} at \\${p} each and"
                f" {two.count(m)} at \\${q} each. How many dollars does {name} have left?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{paid} - {n}*{p} - {m}*{q}"}, 4)


@template("arithmetic", "medium")
def four_operations(rng: random.Random, difficulty: str) -> Draft:
    a, b, c, d = (rng.randint(2, 20) for _ in range(4))
    e = rng.randint(2, 9)
    formula = rng.choice(
        (
            f"{a} \\cdot {b} - {c} \\cdot ({d} - {e})",
            f"({a} + {b}) \\cdot ({c} - {d}) + {e}",
            f"{a} - {e} \\cdot ({b} + {c} - {d})",
            f"{b * e} \\div {e} + {a} \\cdot {c} - {d}",
        )
    )
    return calculate(rng, formula, 4)


@template("arithmetic", "hard")
def nested(rng: random.Random, difficulty: str) -> Draft:
    a, b, c, d = (rng.randint(2, 15) for _ in range(4))
    e, f, k = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 4)
    formula = rng.choice(
        (
            f"{a} - {b} \\cdot [({c} - {d})^2 - {e} \\cdot {f}]",
            f"({a} - {b})^{k} + {c} \\cdot {d} - {e * f} \\div {f}",
            f"\\frac{{{a} \\cdot {b} + {c}}}{{{d}^2 + {e}}} - {f}",
            f"({e}^{k} - {a} \\cdot {b}) \\cdot ({c} - {d}) + {f}",
        )
    )
    return calculate(rng, formula, 6, formula.replace("[", "(").replace("]", ")"))


@template("arithmetic", "hard")
def savings(rng: random.Random, difficulty: str) -> Draft:
    (name,) = pick_names(rng, 1)
    hours, days, wage = rng.randint(2, 8), rng.randint(2, 6), rng.randint(8, 25)
    rent, weeks = rng.randint(10, 60), rng.randint(3, 12)
    start = rng.randint(20, 300)
    if hours * days * wage <= rent:
        raise Redraw
    text = rng.choice(
        (
            (
                f"{name} works {hours} hours a day, {days} days a week, for \\${wage} an hour, and spends \\${rent} a"
                f" week. At the start {name} has \\${start}. How many dollars does {name} have after {weeks} weeks?"
            ),
            (
                f"Working {hours} hours a day on {days} days of each week, {name} earns \\${wage} an hour and spends"
                f" \\${rent} every week. {name} begins with \\${start} in savings. How large are the savings, in"
                f" dollars, after {weeks} weeks?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{start} + {weeks}*({hours}*{days}*{wage} - {rent})"}, 5)


def proper(rng: random.Random, largest: int) -> Fraction:
    bottom = rng.randint(2, largest)
    return Fraction(rng.randint(1, bottom - 1), bottom)


LOWEST = " Give the answer in lowest terms."


@template("fractions", "easy")
def two_fractions(rng: random.Random, difficulty: str) -> Draft:
    a, b = proper(rng, 12), proper(rng, 12)
    sign = rng.choice(("+", "-", "\\cdot", "\\div"))
    if a == b:
        raise Redraw
    formula = f"{fraction_text(a)} {sign} {fraction_text(b)}"
    draft = calculate(rng, formula, 2, f"{plain(a)} {sign} {plain(b)}")
    return Draft(draft.text + LOWEST, draft.formal, draft.steps)


@template("fractions", "medium")
def rest_of_a_fraction(rng: random.Random, difficulty: str) -> Draft:
    (name, other), thing = pick_names(rng, 2), pick_noun(rng)
    a, b = proper(rng, 8), proper(rng, 8)
    total = a.denominator * b.denominator * rng.randint(1, 6)
    left = total * (1 - a - b)
    if left <= 0 or total < 12:
        raise Redraw
    text = rng.choice(
        (
            (
                f"{name} has {thing.count(total)}. {name} gives ${fraction_text(a)}$ of them to {other} and keeps"
                f" ${fraction_text(b)}$ of the {total} in a drawer. The rest are on a table. How many {thing.many} are"
                " on the table?"
            ),
            (
                f"Of {thing.count(total)}, ${fraction_text(a)}$ are red, ${fraction_text(b)}$ are blue, and the rest"
                f" are green. How many {thing.many} are green?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{total} - {total}*{plain(a)} - {total}*{plain(b)}"}, 4)


@template("fractions", "medium")
def three_fractions(rng: random.Random, difficulty: str) -> Draft:
    a, b, c = (proper(rng, 10) for _ in range(3))
    first, second = rng.choice("+-"), rng.choice(("+", "-", "\\cdot"))
    formula = f"{fraction_text(a)} {first} {fraction_text(b)} {second} {fraction_text(c)}"
    draft = calculate(rng, formula, 4, f"{plain(a)} {first} {plain(b)} {second} {plain(c)}")
    return Draft(draft.text + LOWEST, draft.formal, draft.steps)


@template("fractions", "hard")
def complex_fraction(rng: random.Random, difficulty: str) -> Draft:
    a, b, c, d = (proper(rng, 9) for _ in range(4))
    if c == d:
        raise Redraw
    first = rng.choice("+-")
    formula = f"\\frac{{{fraction_text(a)} {first} {fraction_text(b)}}}{{{fraction_text(c)} - {fraction_text(d)}}}"
    draft = calculate(rng, formula, 7, f"({plain(a)} {first} {plain(b)}) / ({plain(c)} - {plain(d)})")
    return Draft(draft.text + LOWEST, draft.formal, draft.steps)


@template("fractions", "hard")
def what_was_there_at_first(rng: random.Random, difficulty: str) -> Draft:
    (name,), thing = pick_names(rng, 1), pick_noun(rng)
    a, b = proper(rng, 6), proper(rng, 6)
    left = rng.randint(4, 60)
    start = left / ((1 - a) * (1 - b))
    if start.denominator != 1 or (start * (1 - a)).denominator != 1 or start > 2000:
        raise Redraw
    text = rng.choice(
        (
            (
                f"{name} gives away ${fraction_text(a)}$ of a collection of {thing.many}, and then ${fraction_text(b)}$"
                f" of what remains. Now {name} has {thing.count(left)}. How many {thing.many} were in the collection at"
                " first?"
            ),
            (
                f"A shop sells ${fraction_text(a)}$ of its {thing.many} on Monday and ${fraction_text(b)}$ of the"
                f" remaining ones on Tuesday. {left} {thing.many} are left. How many {thing.many} did the shop have"
                " before Monday?"
            ),
        )
    )
    return Draft(text, {"kind": "solve", "equations": [f"n*(1 - {plain(a)})*(1 - {plain(b)}) = {left}"]}, 5)

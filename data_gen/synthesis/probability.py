"""Templates: probability."""

from __future__ import annotations

import random
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import fraction_text, pick_names

FRACTION = " Give the answer as a fraction in lowest terms."


@template("probability", "easy")
def one_draw(rng: random.Random, difficulty: str) -> Draft:
    a, b, c = (rng.randint(2, 15) for _ in range(3))
    colors = rng.sample(("red", "blue", "green", "white", "black", "yellow"), 3)
    k = rng.randrange(3)
    text = rng.choice(
        (
            (
                f"A bag holds {a} {colors[0]}, {b} {colors[1]} and {c} {colors[2]} balls. One ball is drawn at random."
                f" What is the probability that it is {colors[k]}?"
            ),
            (
                f"One ball is taken at random from a box with {a} {colors[0]}, {b} {colors[1]} and {c} {colors[2]}"
                f" balls. Find the probability of a {colors[k]} ball."
            ),
        )
    )
    return Draft(text + FRACTION, {"kind": "value", "of": f"{(a, b, c)[k]}/({a} + {b} + {c})"}, 2)


@template("probability", "medium")
def two_dice(rng: random.Random, difficulty: str) -> Draft:
    total, sides = rng.randint(3, 15), rng.choice((6, 6, 8))
    if total > 2 * sides - 1:
        raise Redraw
    sign, words = rng.choice(
        (("=", "equal to"), (">", "greater than"), ("<", "less than"), (">=", "at least"), ("<=", "at most"))
    )
    if (sign == "<" and total <= 3) or (sign == ">" and total >= 2 * sides - 1):
        raise Redraw
    of = "of " if words.startswith("at") else ""
    dice = "six-sided dice" if sides == 6 else "8-sided dice (faces 1 to 8)"
    text = rng.choice(
        (
            f"Two fair {dice} are rolled. What is the probability that the sum of the two numbers is {words} {total}?",
            f"Find the probability that two fair {dice}, rolled once, show numbers with a sum {of}{words} {total}.",
        )
    )
    formal = {
        "kind": "probability",
        "ranges": {"a": [1, sides], "b": [1, sides]},
        "such_that": [f"a + b {sign} {total}"],
    }
    return Draft(text + FRACTION, formal, 3)


@template("probability", "medium")
def two_draws(rng: random.Random, difficulty: str) -> Draft:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    one, two = rng.sample(("red", "blue", "green", "white", "black", "yellow"), 2)
    which = rng.randrange(3)
    event = (f"both are {one}", f"both are {two}", f"one is {one} and one is {two}")[which]
    text = rng.choice(
        (
            (
                f"A bag holds {a} {one} and {b} {two} balls. Two balls are drawn at random without replacement. What is"
                f" the probability that {event}?"
            ),
            (
                f"Two balls are drawn at random, without replacement, from a box of {a} {one} and {b} {two} balls. Find"
                f" the probability that {event}."
            ),
        )
    )
    n = f"({a} + {b})*({a} + {b} - 1)"
    formula = (f"{a}*({a} - 1)/({n})", f"{b}*({b} - 1)/({n})", f"2*{a}*{b}/({n})")[which]
    condition = ([f"d <= {a}"], [f"c > {a}"], [f"c <= {a}", f"d > {a}"])[which]
    also = {
        "kind": "probability",
        "ranges": {"c": [1, a + b], "d": [1, a + b]},
        "such_that": condition,
        "order": "increasing",
    }
    return Draft(text + FRACTION, {"kind": "value", "of": formula}, 4, also=also)


@template("probability", "hard")
def three_dice(rng: random.Random, difficulty: str) -> Draft:
    total = rng.randint(4, 17)
    sign, words = rng.choice((("=", "exactly"), (">=", "at least"), ("<=", "at most")))
    if (sign == ">=" and total < 5) or (sign == "<=" and total > 16):
        raise Redraw
    text = rng.choice(
        (
            (
                "Three fair six-sided dice are rolled. What is the probability that the sum of the three numbers is"
                f" {words} {total}?"
            ),
            f"Find the probability that the three numbers on three fair six-sided dice add up to {words} {total}.",
        )
    )
    formal = {"kind": "probability", "ranges": {d: [1, 6] for d in "abc"}, "such_that": [f"a + b + c {sign} {total}"]}
    return Draft(text + FRACTION, formal, 5)


@template("probability", "hard")
def successes(rng: random.Random, difficulty: str) -> Draft:
    n, p = (
        rng.randint(3, 6),
        rng.choice((Fraction(1, 2), Fraction(1, 3), Fraction(1, 4), Fraction(2, 3), Fraction(3, 4), Fraction(2, 5))),
    )
    k, exactly = rng.randint(1, n - 1), rng.random() < 0.5
    (name,) = pick_names(rng, 1)
    word = "exactly" if exactly else "at least"
    hits = "once" if k == 1 else "twice" if k == 2 else f"{k} times"
    text = rng.choice(
        (
            (
                f"{name} hits a target with probability ${fraction_text(p)}$ in each shot, independently of the other"
                f" shots. What is the probability of hitting it {word} {hits} in {n} shots?"
            ),
            (
                f"A biased coin shows heads with probability ${fraction_text(p)}$. It is tossed {n} times. Find the"
                f" probability that it shows heads {word} {hits}."
            ),
        )
    )
    if p == Fraction(1, 2):
        text = text.replace("A biased coin shows heads", "A coin shows heads")
    wins = [k] if exactly else list(range(k, n + 1))
    terms = [f"\\binom{{{n}}}{{{j}}}*({p})^{{{j}}}*(1 - {p})^{{{n - j}}}" for j in wins]
    also = None
    sides = p.denominator
    if sides**n <= 256:
        # equally likely faces, a success up to face p.numerator; a miss counts 1, a success 0
        misses_of_faces = " + ".join(f"min(1, \\lfloor {letter}/{p.numerator + 1} \\rfloor)" for letter in "abcdgh"[:n])
        also = {
            "kind": "probability",
            "ranges": {letter: [1, sides] for letter in "abcdgh"[:n]},
            "such_that": [f"{n} - ({misses_of_faces}) {'=' if exactly else '>='} {k}"],
        }
    else:
        misses = [j for j in range(n + 1) if j not in wins]
        rest = " - ".join(f"\\binom{{{n}}}{{{j}}}*({p})^{{{j}}}*(1 - {p})^{{{n - j}}}" for j in misses)
        also = {"kind": "value", "of": f"1 - {rest}"}
    return Draft(text + FRACTION, {"kind": "value", "of": " + ".join(terms)}, 5, also=also)


@template("probability", "hard")
def same_color(rng: random.Random, difficulty: str) -> Draft:
    counts = [rng.randint(2, 7) for _ in range(3)]
    colors = rng.sample(("red", "blue", "green", "white", "black", "yellow"), 3)
    n = sum(counts)
    if n > 18:
        raise Redraw
    same = rng.random() < 0.5
    holds = (
        ", ".join(f"{c} {color}" for c, color in zip(counts[:2], colors[:2], strict=True))
        + f" and {counts[2]} {colors[2]} balls"
    )
    event = "have the same color" if same else "have different colors"
    text = rng.choice(
        (
            (
                f"A bag holds {holds}. Two balls are drawn at random without replacement. What is the probability that"
                f" they {event}?"
            ),
            (
                f"From a box with {holds}, two are taken at random, without replacement. Find the probability that they"
                f" {event}."
            ),
        )
    )
    equal = " + ".join(f"{c}*({c} - 1)" for c in counts)
    formula = f"({equal})/({n}*({n} - 1))"
    a, b, c = counts
    different = f"({a}*{b} + {a}*{c} + {b}*{c})/\\binom{{{n}}}{{2}}"
    ways = (formula, f"1 - {different}") if same else (different, f"1 - {formula}")
    return Draft(text + FRACTION, {"kind": "value", "of": ways[0]}, 6, also={"kind": "value", "of": ways[1]})

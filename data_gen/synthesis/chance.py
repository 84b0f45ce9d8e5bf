"""Templates: counting and probability."""

from __future__ import annotations

import random
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import pick_names

FRACTION = " Give the answer as a fraction in lowest terms."


@template("counting", "easy")
def outfits(rng: random.Random, difficulty: str) -> Draft:
    (name,) = pick_names(rng, 1)
    a, b, c = rng.randint(2, 12), rng.randint(2, 12), rng.randint(2, 9)
    if rng.random() < 0.9:
        text = rng.choice(
            (
                f"{name} has {a} different shirts, {b} different pairs of trousers and {c} different hats. How many outfits of one shirt, one pair of trousers and one hat are possible?",
                f"A menu lists {a} starters, {b} main courses and {c} desserts. How many different meals of one starter, one main course and one dessert are there?",
            )
        )
        return Draft(text, {"kind": "value", "of": f"{a}*{b}*{c}"}, 2)
    n = rng.randint(4, 10)
    text = rng.choice(
        (
            f"In how many ways can {n} different books be arranged in a row on a shelf?",
            f"In how many different orders can {n} runners finish a race, if no two finish at the same time?",
        )
    )
    return Draft(text, {"kind": "value", "of": f"{n}!"}, 2)


@template("counting", "easy")
def medals(rng: random.Random, difficulty: str) -> Draft:
    n, k = rng.randint(5, 30), rng.choice((2, 3))
    what = {2: "a president and a secretary", 3: "a president, a secretary and a treasurer"}[k]
    text = rng.choice(
        (
            f"A club has {n} members. In how many ways can it choose {what}, if nobody may hold two offices?",
            f"From the {n} members of a club, {what} are to be elected, all different people. In how many ways is this possible?",
        )
    )
    return Draft(text, {"kind": "value", "of": "*".join(str(n - i) for i in range(k))}, 2)


@template("counting", "medium")
def committee(rng: random.Random, difficulty: str) -> Draft:
    n, k, m, j = rng.randint(4, 11), rng.randint(1, 4), rng.randint(4, 11), rng.randint(1, 4)
    if k > n or j > m:
        raise Redraw
    one, two = rng.choice((("teachers", "students"), ("women", "men"), ("juniors", "seniors")))
    text = rng.choice(
        (
            f"A committee of {k} {single(one, k)} and {j} {single(two, j)} is to be formed from {n} {one} and {m} {two}. How many different committees are possible?",
            f"In how many ways can {k} {single(one, k)} and {j} {single(two, j)} be selected from a group of {n} {one} and {m} {two}?",
        )
    )
    return Draft(text, {"kind": "value", "of": f"\\binom{{{n}}}{{{k}}} * \\binom{{{m}}}{{{j}}}"}, 4)


def single(word: str, n: int) -> str:
    return word if n != 1 else {"women": "woman", "men": "man"}.get(word, word[:-1])


@template("counting", "medium")
def letters_of_a_word(rng: random.Random, difficulty: str) -> Draft:
    word = rng.choice(
        ["BANANA", "LEVEL", "PEPPER", "COFFEE", "BALLOON", "COMMITTEE", "LETTER", "SUCCESS", "ADDRESS", "BUBBLE", "CANNON", "COOKIE", "EFFECT", "HAMMER", "KITTEN", "LESSON", "MIRROR", "NARROW", "OTTER", "PUZZLE", "RABBIT", "SADDLE", "TOFFEE", "YELLOW", "BOTTLE", "CARROT", "DADDY", "FOLLOW", "GIGGLE", "HAPPEN", "INDEED", "MUMMY", "NEEDED", "PAPAYA", "REFEREE", "SEVENTEEN", "TATTOO", "ASSESS", "COCOA", "ERROR"]
    )
    counts = [word.count(letter) for letter in dict.fromkeys(word)]
    text = rng.choice(
        (
            f"How many different arrangements of all the letters of the word {word} are there?",
            f"In how many distinguishable ways can all the letters of {word} be arranged in a row?",
        )
    )
    bottom = "*".join(f"{c}!" for c in counts if c > 1)
    left, factors = len(word), []
    for c in counts:
        factors.append(f"\\binom{{{left}}}{{{c}}}")
        left -= c
    also = {"kind": "value", "of": " * ".join(factors)}
    return Draft(text, {"kind": "value", "of": f"{len(word)}! / ({bottom})"}, 4, also=also)


@template("counting", "hard")
def at_least(rng: random.Random, difficulty: str) -> Draft:
    n, m, size = rng.randint(3, 10), rng.randint(3, 10), rng.randint(3, 4)
    least = rng.randint(1, size - 1)
    if size > n or (n + m) ** size > 15_000:
        raise Redraw
    one, two = rng.choice((("women", "men"), ("teachers", "students"), ("girls", "boys")))
    text = rng.choice(
        (
            f"A team of {size} people is chosen from {n} {one} and {m} {two}. In how many ways can this be done if the team must include at least {least} {single(one, least)}?",
            f"There are {n} {one} and {m} {two}. How many different teams of {size} people with at least {least} {single(one, least)} can be formed?",
        )
    )
    terms = [f"\\binom{{{n}}}{{{k}}} * \\binom{{{m}}}{{{size - k}}}" for k in range(least, size + 1) if size - k <= m]
    letters = "abcd"[:size]
    # the people in a row, the first n of the wanted kind: a team in rising order has at least `least` of them
    also = {
        "kind": "count",
        "ranges": {letter: [1, n + m] for letter in letters},
        "such_that": [f"{letters[least - 1]} <= {n}"],
        "order": "increasing",
    }
    return Draft(text, {"kind": "value", "of": " + ".join(terms)}, 6, also=also)


@template("counting", "hard")
def apart_in_a_row(rng: random.Random, difficulty: str) -> Draft:
    names, n = pick_names(rng, 2), rng.randint(5, 12)
    together = rng.random() < 0.4
    condition = "stand next to each other" if together else "do not stand next to each other"
    text = rng.choice(
        (
            f"In how many ways can {n} people, among them {names[0]} and {names[1]}, line up so that {names[0]} and {names[1]} {condition}?",
            f"{names[0]}, {names[1]} and {n - 2} other people line up in a row. In how many orders do {names[0]} and {names[1]} {'end up side by side' if together else 'not end up side by side'}?",
        )
    )
    formula = f"2*({n} - 1)!" if together else f"{n}! - 2*({n} - 1)!"
    pairs = f"2*({n} - 1)" if together else f"({n}*({n} - 1) - 2*({n} - 1))"  # ordered places of the two
    return Draft(text, {"kind": "value", "of": formula}, 5, also={"kind": "value", "of": f"{pairs}*({n} - 2)!"})


@template("counting", "hard")
def whole_solutions(rng: random.Random, difficulty: str) -> Draft:
    total, positive = rng.randint(6, 60), rng.random() < 0.5
    kind, low = ("positive", 1) if positive else ("non-negative", 0)
    text = rng.choice(
        (
            f"How many ordered triples $(x, y, z)$ of {kind} integers satisfy $x + y + z = {total}$?",
            f"Find the number of solutions of $x + y + z = {total}$ in {kind} integers $x$, $y$, $z$.",
        )
    )
    formula = f"\\binom{{{total - 1}}}{{2}}" if positive else f"\\binom{{{total + 2}}}{{2}}"
    also = {"kind": "value", "of": f"\\sum_{{k={low}}}^{{{total - 2 * low}}} ({total} - k + {1 - 2 * low})"}
    return Draft(text, {"kind": "value", "of": formula}, 5, also=also)


@template("probability", "easy")
def one_draw(rng: random.Random, difficulty: str) -> Draft:
    a, b, c = (rng.randint(2, 15) for _ in range(3))
    colors = rng.sample(("red", "blue", "green", "white", "black", "yellow"), 3)
    k = rng.randrange(3)
    text = rng.choice(
        (
            f"A bag holds {a} {colors[0]}, {b} {colors[1]} and {c} {colors[2]} balls. One ball is drawn at random. What is the probability that it is {colors[k]}?",
            f"One ball is taken at random from a box with {a} {colors[0]}, {b} {colors[1]} and {c} {colors[2]} balls. Find the probability of a {colors[k]} ball.",
        )
    )
    return Draft(text + FRACTION, {"kind": "value", "of": f"{(a, b, c)[k]}/({a} + {b} + {c})"}, 2)


@template("probability", "medium")
def two_dice(rng: random.Random, difficulty: str) -> Draft:
    total, sides = rng.randint(3, 15), rng.choice((6, 6, 8))
    if total > 2 * sides - 1:
        raise Redraw
    sign, words = rng.choice((("=", "equal to"), (">", "greater than"), ("<", "less than"), (">=", "at least"), ("<=", "at most")))
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
    formal = {"kind": "probability", "ranges": {"a": [1, sides], "b": [1, sides]}, "such_that": [f"a + b {sign} {total}"]}
    return Draft(text + FRACTION, formal, 3)


@template("probability", "medium")
def two_draws(rng: random.Random, difficulty: str) -> Draft:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    one, two = rng.sample(("red", "blue", "green", "white", "black", "yellow"), 2)
    which = rng.randrange(3)
    event = (f"both are {one}", f"both are {two}", f"one is {one} and one is {two}")[which]
    text = rng.choice(
        (
            f"A bag holds {a} {one} and {b} {two} balls. Two balls are drawn at random without replacement. What is the probability that {event}?",
            f"Two balls are drawn at random, without replacement, from a box of {a} {one} and {b} {two} balls. Find the probability that {event}.",
        )
    )
    n = f"({a} + {b})*({a} + {b} - 1)"
    formula = (f"{a}*({a} - 1)/({n})", f"{b}*({b} - 1)/({n})", f"2*{a}*{b}/({n})")[which]
    condition = ([f"d <= {a}"], [f"c > {a}"], [f"c <= {a}", f"d > {a}"])[which]
    also = {"kind": "probability", "ranges": {"c": [1, a + b], "d": [1, a + b]}, "such_that": condition, "order": "increasing"}
    return Draft(text + FRACTION, {"kind": "value", "of": formula}, 4, also=also)


@template("probability", "hard")
def three_dice(rng: random.Random, difficulty: str) -> Draft:
    total = rng.randint(4, 17)
    sign, words = rng.choice((("=", "exactly"), (">=", "at least"), ("<=", "at most")))
    if (sign == ">=" and total < 5) or (sign == "<=" and total > 16):
        raise Redraw
    text = rng.choice(
        (
            f"Three fair six-sided dice are rolled. What is the probability that the sum of the three numbers is {words} {total}?",
            f"Find the probability that the three numbers on three fair six-sided dice add up to {words} {total}.",
        )
    )
    formal = {"kind": "probability", "ranges": {d: [1, 6] for d in "abc"}, "such_that": [f"a + b + c {sign} {total}"]}
    return Draft(text + FRACTION, formal, 5)


@template("probability", "hard")
def successes(rng: random.Random, difficulty: str) -> Draft:
    n, p = rng.randint(3, 6), rng.choice((Fraction(1, 2), Fraction(1, 3), Fraction(1, 4), Fraction(2, 3), Fraction(3, 4), Fraction(2, 5)))
    k, exactly = rng.randint(1, n - 1), rng.random() < 0.5
    (name,) = pick_names(rng, 1)
    word = "exactly" if exactly else "at least"
    hits = "once" if k == 1 else "twice" if k == 2 else f"{k} times"
    text = rng.choice(
        (
            f"{name} hits a target with probability ${frac(p)}$ in each shot, independently of the other shots. What is the probability of hitting it {word} {hits} in {n} shots?",
            f"A biased coin shows heads with probability ${frac(p)}$. It is tossed {n} times. Find the probability that it shows heads {word} {hits}.",
        )
    )
    if p == Fraction(1, 2):
        text = text.replace("A biased coin shows heads", "A coin shows heads")
    wins = [k] if exactly else list(range(k, n + 1))
    terms = [f"\\binom{{{n}}}{{{j}}}*({p})^{{{j}}}*(1 - {p})^{{{n - j}}}" for j in wins]
    also = None
    sides = p.denominator
    if sides**n <= 256:
        # equally likely faces, the first p.numerator of them a success; how many of them: by 1 - floor((face - 1)/numerator), kept in 0..1
        ones = " + ".join(f"min(1, \\lfloor {letter}/{p.numerator + 1} \\rfloor)" for letter in "abcdgh"[:n])
        also = {
            "kind": "probability",
            "ranges": {letter: [1, sides] for letter in "abcdgh"[:n]},
            "such_that": [f"{n} - ({ones}) {'=' if exactly else '>='} {k}"],
        }
    else:
        misses = [j for j in range(n + 1) if j not in wins]
        rest = " - ".join(f"\\binom{{{n}}}{{{j}}}*({p})^{{{j}}}*(1 - {p})^{{{n - j}}}" for j in misses)
        also = {"kind": "value", "of": f"1 - {rest}"}
    return Draft(text + FRACTION, {"kind": "value", "of": " + ".join(terms)}, 5, also=also)


def frac(value: Fraction) -> str:
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


@template("probability", "hard")
def same_color(rng: random.Random, difficulty: str) -> Draft:
    counts = [rng.randint(2, 7) for _ in range(3)]
    colors = rng.sample(("red", "blue", "green", "white", "black", "yellow"), 3)
    n = sum(counts)
    if n > 18:
        raise Redraw
    same = rng.random() < 0.5
    holds = ", ".join(f"{c} {color}" for c, color in zip(counts[:2], colors[:2], strict=True)) + f" and {counts[2]} {colors[2]} balls"
    event = "have the same color" if same else "have different colors"
    text = rng.choice(
        (
            f"A bag holds {holds}. Two balls are drawn at random without replacement. What is the probability that they {event}?",
            f"From a box with {holds}, two are taken at random, without replacement. Find the probability that they {event}.",
        )
    )
    equal = " + ".join(f"{c}*({c} - 1)" for c in counts)
    formula = f"({equal})/({n}*({n} - 1))"
    a, b, c = counts
    different = f"({a}*{b} + {a}*{c} + {b}*{c})/\\binom{{{n}}}{{2}}"
    ways = (formula, f"1 - {different}") if same else (different, f"1 - {formula}")
    return Draft(text + FRACTION, {"kind": "value", "of": ways[0]}, 6, also={"kind": "value", "of": ways[1]})


"""Templates: counting."""

from __future__ import annotations

import random

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import pick_names


@template("counting", "easy")
def outfits(rng: random.Random, difficulty: str) -> Draft:
    (name,) = pick_names(rng, 1)
    a, b, c = rng.randint(2, 12), rng.randint(2, 12), rng.randint(2, 9)
    if rng.random() < 0.9:
        text = rng.choice(
            (
                (
                    f"{name} has {a} different shirts, {b} different pairs of trousers and {c} different hats. How many"
                    " outfits of one shirt, one pair of trousers and one hat are possible?"
                ),
                (
                    f"A menu lists {a} starters, {b} main courses and {c} desserts. How many different meals of one"
                    " starter, one main course and one dessert are there?"
                ),
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
            (
                f"From the {n} members of a club, {what} are to be elected, all different people. In how many ways is"
                " this possible?"
            ),
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
            (
                f"A committee of {k} {single(one, k)} and {j} {single(two, j)} is to be formed from {n} {one} and {m}"
                f" {two}. How many different committees are possible?"
            ),
            (
                f"In how many ways can {k} {single(one, k)} and {j} {single(two, j)} be selected from a group of {n}"
                f" {one} and {m} {two}?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"\\binom{{{n}}}{{{k}}} * \\binom{{{m}}}{{{j}}}"}, 4)


def single(word: str, n: int) -> str:
    return word if n != 1 else {"women": "woman", "men": "man"}.get(word, word[:-1])


@template("counting", "medium")
def letters_of_a_word(rng: random.Random, difficulty: str) -> Draft:
    word = rng.choice(
        [
            "BANANA",
            "LEVEL",
            "PEPPER",
            "COFFEE",
            "BALLOON",
            "COMMITTEE",
            "LETTER",
            "SUCCESS",
            "ADDRESS",
            "BUBBLE",
            "CANNON",
            "COOKIE",
            "EFFECT",
            "HAMMER",
            "KITTEN",
            "LESSON",
            "MIRROR",
            "NARROW",
            "OTTER",
            "PUZZLE",
            "RABBIT",
            "SADDLE",
            "TOFFEE",
            "YELLOW",
            "BOTTLE",
            "CARROT",
            "DADDY",
            "FOLLOW",
            "GIGGLE",
            "HAPPEN",
            "INDEED",
            "MUMMY",
            "NEEDED",
            "PAPAYA",
            "REFEREE",
            "SEVENTEEN",
            "TATTOO",
            "ASSESS",
            "COCOA",
            "ERROR",
        ]
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
            (
                f"A team of {size} people is chosen from {n} {one} and {m} {two}. In how many ways can this be done if"
                f" the team must include at least {least} {single(one, least)}?"
            ),
            (
                f"There are {n} {one} and {m} {two}. How many different teams of {size} people with at least {least}"
                f" {single(one, least)} can be formed?"
            ),
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
            (
                f"In how many ways can {n} people, among them {names[0]} and {names[1]}, line up so that {names[0]} and"
                f" {names[1]} {condition}?"
            ),
            (
                f"{names[0]}, {names[1]} and {n - 2} other people line up in a row. In how many orders do {names[0]}"
                f" and {names[1]} {'end up side by side' if together else 'not end up side by side'}?"
            ),
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

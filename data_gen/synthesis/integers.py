"""Templates: number theory."""

from __future__ import annotations

import math
import random

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import listed, pick_noun


@template("number_theory", "easy")
def divisor_or_multiple(rng: random.Random, difficulty: str) -> Draft:
    common = rng.randint(2, 18)
    a, b = common * rng.randint(2, 12), common * rng.randint(2, 12)
    if a == b:
        raise Redraw
    if rng.random() < 0.5:
        text = rng.choice(
            (
                f"What is the greatest common divisor of {a} and {b}?",
                f"Find the largest positive integer that divides both {a} and {b}.",
            )
        )
        return Draft(text, {"kind": "value", "of": f"gcd({a}, {b})"}, 2)
    text = rng.choice(
        (
            f"What is the least common multiple of {a} and {b}?",
            f"Find the smallest positive integer that is divisible by both {a} and {b}.",
        )
    )
    return Draft(text, {"kind": "value", "of": f"lcm({a}, {b})"}, 2)


@template("number_theory", "easy")
def division_with_rest(rng: random.Random, difficulty: str) -> Draft:
    divisor, number = rng.randint(3, 29), rng.randint(50, 999)
    thing = pick_noun(rng)
    text = rng.choice(
        (
            f"What is the remainder when {number} is divided by {divisor}?",
            (
                f"{number} {thing.many} are packed into bags of {divisor}, as many full bags as possible. How many"
                f" {thing.many} are left over?"
            ),
        )
    )
    return Draft(text, {"kind": "remainder", "of": str(number), "by": divisor}, 1)


@template("number_theory", "medium")
def divisors(rng: random.Random, difficulty: str) -> Draft:
    n = math.prod(p ** rng.randint(0, k) for p, k in ((2, 5), (3, 3), (5, 2), (7, 1), (11, 1), (13, 1)))
    if not 12 <= n <= 6000:
        raise Redraw
    ask, text = rng.choice(
        (
            ("count", f"How many positive divisors does {n} have?"),
            ("count", f"Find the number of positive integers that divide {n}."),
            ("sum", f"What is the sum of all positive divisors of {n}?"),
            ("primes", f"How many different prime numbers divide {n}?"),
        )
    )
    return Draft(text, {"kind": "divisors", "of": str(n), "ask": ask}, 4)


@template("number_theory", "medium")
def bells(rng: random.Random, difficulty: str) -> Draft:
    periods = sorted(rng.sample(range(4, 31), 3))
    if math.lcm(*periods) > 2000 or math.lcm(*periods) == periods[-1]:
        raise Redraw
    what = rng.choice(("bells ring", "lights flash", "buses leave the station"))
    text = rng.choice(
        (
            (
                f"Three {what} every {listed(periods)} minutes, respectively, and now all three do so at the same"
                " moment. After how many minutes does this happen next?"
            ),
            (
                f"At noon three {what} together. From then on they do so every {listed(periods)} minutes, respectively."
                " How many minutes after noon is the next time for all three together?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"lcm({periods[0]}, {periods[1]}, {periods[2]})"}, 4)


@template("number_theory", "medium")
def remainder_of_product(rng: random.Random, difficulty: str) -> Draft:
    a, b, c, m = rng.randint(20, 200), rng.randint(20, 200), rng.randint(10, 99), rng.randint(6, 29)
    form = rng.choice((f"{a} \\cdot {b} + {c}", f"{a} \\cdot {b} \\cdot {c}"))
    text = rng.choice(
        (
            f"What is the remainder when ${form}$ is divided by {m}?",
            f"Find the remainder of ${form}$ on division by {m}.",
        )
    )
    return Draft(text, {"kind": "remainder", "of": form, "by": m}, 4)


@template("number_theory", "hard")
def remainder_of_power(rng: random.Random, difficulty: str) -> Draft:
    a, n, m = rng.randint(2, 30), rng.randint(20, 999), rng.randint(5, 40)
    b, k = rng.randint(2, 30), rng.randint(20, 400)
    if a % m in (0, 1) or b % m in (0, 1):
        raise Redraw
    power = f"{a}^{{{n}}}"
    form = rng.randrange(3)
    if form == 0:
        text = f"What is the units digit of ${power}$?"
        return Draft(text, {"kind": "remainder", "of": power, "by": 10}, 5)
    formula = power if form == 1 else f"{power} + {b}^{{{k}}}"
    text = rng.choice(
        (
            f"What is the remainder when ${formula}$ is divided by {m}?",
            f"Find the remainder of ${formula}$ on division by {m}.",
        )
    )
    return Draft(text, {"kind": "remainder", "of": formula, "by": m}, 6)


@template("number_theory", "hard")
def remainders_known(rng: random.Random, difficulty: str) -> Draft:
    moduli = sorted(rng.sample((3, 4, 5, 7, 9, 11, 13, 8), rng.choice((2, 3))))
    if math.lcm(*moduli) != math.prod(moduli):
        raise Redraw
    remainders = [rng.randint(1, m - 1) for m in moduli]
    above = rng.choice((0, 0, 100))
    conditions = listed([f"a remainder of {r} when divided by {m}" for r, m in zip(remainders, moduli, strict=True)])
    what = "positive integer" if above == 0 else f"integer greater than {above}"
    text = rng.choice(
        (f"Find the smallest {what} that leaves {conditions}.", f"What is the least {what} that leaves {conditions}?")
    )
    pairs = [[r, m] for r, m in zip(remainders, moduli, strict=True)]
    return Draft(text, {"kind": "congruences", "pairs": pairs, "above": above}, 6)


@template("number_theory", "hard")
def divisible_by_one_or_other(rng: random.Random, difficulty: str) -> Draft:
    (a, b), n = rng.sample(range(3, 16), 2), rng.randint(6, 50) * 10
    if a % b == 0 or b % a == 0:
        raise Redraw
    common = math.lcm(a, b)
    if rng.random() < 0.5:
        text = f"How many integers from 1 to {n}, inclusive, are divisible by {a} or by {b} (or by both)?"
        formula = f"{floor(n, a)} + {floor(n, b)} - {floor(n, common)}"
    else:
        text = f"How many integers from 1 to {n}, inclusive, are divisible by {a} but not by {b}?"
        formula = f"{floor(n, a)} - {floor(n, common)}"
    # the multiples of a one by one: ceil(aj/b) - floor(aj/b) is 0 where b divides it, else 1
    only_a = f"\\sum_{{j=1}}^{{{n // a}}} (\\lceil {a}j/{b} \\rceil - \\lfloor {a}j/{b} \\rfloor)"
    second = f"{n // b} + {only_a}" if "+" in formula else only_a
    return Draft(text, {"kind": "value", "of": formula}, 5, also={"kind": "value", "of": second})


def floor(n: int, d: int) -> str:
    return f"\\lfloor {n}/{d} \\rfloor"

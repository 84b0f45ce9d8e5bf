"""Templates: percentages, ratios and rates."""

from __future__ import annotations

import random
import re
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import GOODS, pick_names, pick_noun


@template("percentages", "easy")
def part_of_a_number(rng: random.Random, difficulty: str) -> Draft:
    p, n = rng.choice((*range(5, 100, 5), 12, 24, 36, 48, 125, 150)), rng.randint(4, 120) * 5
    if rng.random() < 0.6:
        if p * n % 100:
            raise Redraw
        text = rng.choice((f"What is {p}\\% of {n}?", f"Find {p}\\% of {n}.", f"Calculate {p}\\% of {n}."))
        return Draft(text, {"kind": "value", "of": f"{p}/100*{n}"}, 1)
    part = Fraction(p * n, 100)
    if part.denominator != 1 or p > 100:
        raise Redraw
    text = rng.choice((f"What percent of {n} is {part}?", f"{part} is what percent of {n}?"))
    return Draft(text, {"kind": "value", "of": f"{part}/{n}*100"}, 2)


@template("percentages", "medium")
def sale(rng: random.Random, difficulty: str) -> Draft:
    thing, price = pick_noun(rng, GOODS), rng.randint(4, 90) * 5
    off, tax = rng.choice((10, 15, 20, 25, 30, 40, 50)), rng.choice((4, 5, 6, 8, 10))
    paid = Fraction(price * (100 - off) * (100 + tax), 10000)
    if (paid * 100).denominator != 1:
        raise Redraw
    text = rng.choice(
        (
            (
                f"The regular price of a {thing.one} is \\${price}. In a sale it is reduced by {off}\\%, and then a"
                f" sales tax of {tax}\\% of the reduced price is added. What is the final price in dollars?"
            ),
            (
                f"A {thing.one} with a list price of \\${price} is sold at a discount of {off}\\%. A tax of {tax}\\% is"
                " charged on the discounted price. How many dollars does a buyer pay in all?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{price}*(1 - {off}/100)*(1 + {tax}/100)"}, 4, form="money")


@template("percentages", "medium")
def before_the_change(rng: random.Random, difficulty: str) -> Draft:
    p, up = rng.choice((5, 10, 15, 20, 25, 30, 40, 60)), rng.random() < 0.5
    first = rng.randint(2, 60) * 20
    now = Fraction(first * (100 + p if up else 100 - p), 100)
    place = rng.choice(("town", "school", "club", "village"))
    members = {"town": "people", "school": "students", "club": "members", "village": "people"}[place]
    where = {"club": "of a", "school": "at a"}.get(place, "in a")
    text = rng.choice(
        (
            (
                f"After {'an increase' if up else 'a decrease'} of {p}\\%, a {place} has {now} {members}. How many"
                f" {members} did it have before?"
            ),
            (
                f"The number of {members} {where} {place} {'rose' if up else 'fell'} by {p}\\% to {now}. What was the"
                " number before the change?"
            ),
        )
    )
    return Draft(text, {"kind": "solve", "equations": [f"n*(1 {'+' if up else '-'} {p}/100) = {now}"]}, 3)


@template("percentages", "hard")
def changes_in_a_row(rng: random.Random, difficulty: str) -> Draft:
    changes = [rng.choice((-50, -40, -30, -25, -20, -10, 10, 20, 25, 30, 40, 50)) for _ in range(3)]
    start = rng.randint(2, 50) * 40
    factor = Fraction(1)
    for c in changes:
        factor *= 1 + Fraction(c, 100)
    if factor == 1 or (start * factor * 100).denominator != 1:
        raise Redraw
    words = [f"{'rises' if c > 0 else 'falls'} by {abs(c)}\\%" for c in changes]
    product = "*".join(f"(1 {'+' if c > 0 else '-'} {abs(c)}/100)" for c in changes)
    history = (
        f"{words[0]} in the first year, {words[1]} in the second and {words[2]} in the third, each time from its value"
        " a year before"
    )
    if rng.random() < 0.5:
        text = f"The value of a share is \\${start}. It {history}. What is its value in dollars after the three years?"
        return Draft(text, {"kind": "value", "of": f"{start}*{product}"}, 6, form="money")
    word = "increase" if factor > 1 else "decrease"
    text = f"The price of a painting {history}. By what percent does the price {word} over the three years in total?"
    sign = "" if factor > 1 else "-"
    return Draft(text, {"kind": "value", "of": f"{sign}100*({product} - 1)"}, 5)


@template("percentages", "hard")
def mixture(rng: random.Random, difficulty: str) -> Draft:
    low, high = rng.choice((5, 10, 12, 15, 20, 25)), rng.choice((30, 35, 40, 45, 50, 60, 70))
    a, b = rng.randint(1, 12), rng.randint(1, 12)
    mixed = Fraction(a * low + b * high, a + b)
    total = rng.randint(1, 4) * (a + b)
    if mixed.denominator != 1:
        raise Redraw
    liquid = rng.choice(("salt solution", "acid solution", "sugar syrup", "alcohol solution"))
    which, find = rng.choice(((low, "x"), (high, "y")))
    text = rng.choice(
        (
            (
                f"How many liters of a {which}\\% {liquid} have to be mixed with a {low + high - which}\\% {liquid} to"
                f" get {total} liters of a {mixed}\\% {liquid}?"
            ),
            (
                f"A {which}\\% {liquid} and a {low + high - which}\\% {liquid} are mixed, which gives {total} liters of"
                f" a {mixed}\\% {liquid}. How many liters of the {which}\\% {liquid} are used?"
            ),
        )
    )
    text = re.sub(r"\b([Aa]) (?=(?:8|11|18|8\d)\\%)", r"\1n ", text)
    equations = [f"x + y = {total}", f"{low}*x + {high}*y = {mixed}*{total}"]
    return Draft(text, {"kind": "solve", "equations": equations, "find": find}, 5)


@template("ratios_rates", "easy")
def share_in_ratio(rng: random.Random, difficulty: str) -> Draft:
    names, a, b, k = pick_names(rng, 2), rng.randint(1, 9), rng.randint(1, 9), rng.randint(3, 40)
    if a == b or Fraction(a, b).numerator != a:
        raise Redraw
    who = rng.randrange(2)
    text = rng.choice(
        (
            (
                f"{names[0]} and {names[1]} share \\${(a + b) * k} in the ratio ${a}:{b}$, in this order. How many"
                f" dollars does {names[who]} get?"
            ),
            (
                f"An amount of \\${(a + b) * k} is divided between {names[0]} and {names[1]} in the ratio ${a}:{b}$, in"
                f" this order. What is {names[who]}'s share in dollars?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{(a + b) * k}*{(a, b)[who]}/({a} + {b})"}, 2)


@template("ratios_rates", "easy")
def steady_speed(rng: random.Random, difficulty: str) -> Draft:
    speed, hours = rng.randint(4, 110), rng.randint(2, 9)
    (name,) = pick_names(rng, 1)
    vehicle = "bicycle" if speed < 30 else "car"
    form = rng.randrange(3)
    if form == 0:
        text = (
            f"{name} travels by {vehicle} at a steady {speed} km per hour for {hours} hours. How many kilometers is"
            " that?"
        )
        return Draft(text, {"kind": "value", "of": f"{speed}*{hours}"}, 1)
    if form == 1:
        text = (
            f"{name} travels {speed * hours} km by {vehicle} in {hours} hours, at a constant speed. What is the speed"
            " in km per hour?"
        )
        return Draft(text, {"kind": "value", "of": f"{speed * hours}/{hours}"}, 1)
    text = f"At a constant {speed} km per hour, how many hours does a trip of {speed * hours} km take?"
    return Draft(text, {"kind": "value", "of": f"{speed * hours}/{speed}"}, 1)


@template("ratios_rates", "medium")
def proportion(rng: random.Random, difficulty: str) -> Draft:
    people, days, others = rng.randint(2, 12), rng.randint(2, 30), rng.randint(2, 24)
    result = Fraction(people * days, others)
    if others == people or result.denominator != 1 or result == 1:
        raise Redraw
    job = rng.choice(("paint a bridge", "build a wall", "pick all the fruit of an orchard", "dig a canal"))
    text = rng.choice(
        (
            (
                f"{people} workers {job} in {days} days. How many days would {others} workers need for the same job at"
                " the same rate?"
            ),
            (
                f"It takes {people} workers {days} days to {job}. All work at the same rate. How many days does it take"
                f" {others} workers?"
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{people}*{days}/{others}"}, 3)


@template("ratios_rates", "medium")
def average_speed(rng: random.Random, difficulty: str) -> Draft:
    a, b = rng.randint(2, 11) * 10, rng.randint(2, 11) * 10
    s, t = rng.randint(1, 5), rng.randint(1, 5)
    if a == b:
        raise Redraw
    hours = ["1 hour" if n == 1 else f"{n} hours" for n in (s, t)]
    text = rng.choice(
        (
            (
                f"A train runs at {a} km per hour for {hours[0]} and then at {b} km per hour for {hours[1]}. What is"
                " its average speed over the whole trip in km per hour? Give an exact value."
            ),
            (
                f"For {hours[0]} a car goes {a} km per hour, for the next {hours[1]} it goes {b} km per hour. Find the"
                " average speed of the whole trip in km per hour, as an exact value."
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"({a}*{s} + {b}*{t})/({s} + {t})"}, 4)


@template("ratios_rates", "hard")
def working_together(rng: random.Random, difficulty: str) -> Draft:
    names, (a, b) = pick_names(rng, 2), rng.sample(range(2, 31), 2)
    thing = rng.choice(("a fence", "a room", "a boat", "a shed"))
    if rng.random() < 0.5:
        text = (
            f"Alone, {names[0]} paints {thing} in {a} hours and {names[1]} paints it in {b} hours. How many hours do"
            " they need when they work together, each at the same rate as alone? Give an exact value."
        )
        return Draft(text, {"kind": "solve", "equations": [f"t/{a} + t/{b} = 1"]}, 5)
    head = rng.randint(1, max(1, min(a, b) - 1))
    if head >= a:
        raise Redraw
    text = (
        f"{names[0]} needs {a} hours to paint {thing} alone, {names[1]} needs {b} hours. {names[0]} starts alone, and"
        f" after {'1 hour' if head == 1 else f'{head} hours'} {names[1]} joins in. How many hours do they then work"
        " together until it is done? Give an exact value."
    )
    return Draft(text, {"kind": "solve", "equations": [f"{head}/{a} + t/{a} + t/{b} = 1"]}, 6)


@template("ratios_rates", "hard")
def boat(rng: random.Random, difficulty: str) -> Draft:
    still, stream, hours = rng.randint(6, 30), rng.randint(1, 8), rng.randint(2, 6)
    if stream >= still - 1:
        raise Redraw
    down = hours * (still + stream)
    back = Fraction(down, still - stream)
    if back.denominator != 1:
        raise Redraw
    asked, find = rng.choice((("the boat in still water", "b"), ("the current", "c")))
    text = rng.choice(
        (
            (
                f"A boat covers {down} km downstream in {hours} hours and needs {back} hours for the same way back"
                f" upstream. Boat and current have constant speeds. What is the speed of {asked} in km per hour?"
            ),
            (
                f"Going downstream, a boat takes {hours} hours for {down} km; going back upstream it takes {back}"
                f" hours. Find the speed of {asked} in km per hour, if boat and current have constant speeds."
            ),
        )
    )
    equations = [f"{hours}*(b + c) = {down}", f"{back}*(b - c) = {down}"]
    return Draft(text, {"kind": "solve", "equations": equations, "find": find}, 5)

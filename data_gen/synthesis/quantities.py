"""Templates: arithmetic, fractions, percentages, ratios and rates."""

from __future__ import annotations

import random
import re
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import GOODS, fraction_text, pick_names, pick_noun, plain

CALCULATE = ("Calculate ${formula}$.", "What is ${formula}$?", "Evaluate ${formula}$.", "Find the value of ${formula}$.")


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
            f"{name} has {thing.count(a)}, gets {b} more from {other}, and then gives {c} away. How many {thing.many} does {name} have now?",
            f"There are {thing.count(a)} in a box. {name} puts in {b} more, and {other} takes {c} out. How many {thing.many} are in the box now?",
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
            f"{name} buys {one.count(n)} at \\${p} each and {two.count(m)} at \\${q} each, and pays with \\${paid}. "
            "How much change, in dollars, is due?",
            f"{name} has \\${paid} after a week of work. {name} then spends it on {one.count(n)} at \\${p} each and {two.count(m)} at \\${q} each. "
            f"How many dollars does {name} have left?",
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
            f"{name} works {hours} hours a day, {days} days a week, for \\${wage} an hour, and spends \\${rent} a week. At the start "
            f"{name} has \\${start}. How many dollars does {name} have after {weeks} weeks?",
            f"Working {hours} hours a day on {days} days of each week, {name} earns \\${wage} an hour and spends \\${rent} every week. "
            f"{name} begins with \\${start} in savings. How large are the savings, in dollars, after {weeks} weeks?",
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
            f"{name} has {thing.count(total)}. {name} gives ${fraction_text(a)}$ of them to {other} and keeps ${fraction_text(b)}$ of the "
            f"{total} in a drawer. The rest are on a table. How many {thing.many} are on the table?",
            f"Of {thing.count(total)}, ${fraction_text(a)}$ are red, ${fraction_text(b)}$ are blue, and the rest are green. "
            f"How many {thing.many} are green?",
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
            f"{name} gives away ${fraction_text(a)}$ of a collection of {thing.many}, and then ${fraction_text(b)}$ of what remains. "
            f"Now {name} has {thing.count(left)}. How many {thing.many} were in the collection at first?",
            f"A shop sells ${fraction_text(a)}$ of its {thing.many} on Monday and ${fraction_text(b)}$ of the remaining ones on Tuesday. "
            f"{left} {thing.many} are left. How many {thing.many} did the shop have before Monday?",
        )
    )
    return Draft(text, {"kind": "solve", "equations": [f"n*(1 - {plain(a)})*(1 - {plain(b)}) = {left}"]}, 5)


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
            f"The regular price of a {thing.one} is \\${price}. In a sale it is reduced by {off}\\%, and then a sales tax of {tax}\\% of the "
            "reduced price is added. What is the final price in dollars?",
            f"A {thing.one} with a list price of \\${price} is sold at a discount of {off}\\%. A tax of {tax}\\% is charged on the discounted price. "
            "How many dollars does a buyer pay in all?",
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
            f"After {'an increase' if up else 'a decrease'} of {p}\\%, a {place} has {now} {members}. How many {members} did it have before?",
            f"The number of {members} {where} {place} {'rose' if up else 'fell'} by {p}\\% to {now}. What was the number before the change?",
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
    history = f"{words[0]} in the first year, {words[1]} in the second and {words[2]} in the third, each time from its value a year before"
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
            f"How many liters of a {which}\\% {liquid} have to be mixed with a {low + high - which}\\% {liquid} to get {total} liters of a {mixed}\\% {liquid}?",
            f"A {which}\\% {liquid} and a {low + high - which}\\% {liquid} are mixed, which gives {total} liters of a {mixed}\\% {liquid}. "
            f"How many liters of the {which}\\% {liquid} are used?",
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
            f"{names[0]} and {names[1]} share \\${(a + b) * k} in the ratio ${a}:{b}$, in this order. How many dollars does {names[who]} get?",
            f"An amount of \\${(a + b) * k} is divided between {names[0]} and {names[1]} in the ratio ${a}:{b}$, in this order. "
            f"What is {names[who]}'s share in dollars?",
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
        text = f"{name} travels by {vehicle} at a steady {speed} km per hour for {hours} hours. How many kilometers is that?"
        return Draft(text, {"kind": "value", "of": f"{speed}*{hours}"}, 1)
    if form == 1:
        text = f"{name} travels {speed * hours} km by {vehicle} in {hours} hours, at a constant speed. What is the speed in km per hour?"
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
            f"{people} workers {job} in {days} days. How many days would {others} workers need for the same job at the same rate?",
            f"It takes {people} workers {days} days to {job}. All work at the same rate. How many days does it take {others} workers?",
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
            f"A train runs at {a} km per hour for {hours[0]} and then at {b} km per hour for {hours[1]}. What is its average speed over the whole "
            "trip in km per hour? Give an exact value.",
            f"For {hours[0]} a car goes {a} km per hour, for the next {hours[1]} it goes {b} km per hour. Find the average speed of the whole trip in "
            "km per hour, as an exact value.",
        )
    )
    return Draft(text, {"kind": "value", "of": f"({a}*{s} + {b}*{t})/({s} + {t})"}, 4)


@template("ratios_rates", "hard")
def working_together(rng: random.Random, difficulty: str) -> Draft:
    names, (a, b) = pick_names(rng, 2), rng.sample(range(2, 31), 2)
    thing = rng.choice(("a fence", "a room", "a boat", "a shed"))
    if rng.random() < 0.5:
        text = (
            f"Alone, {names[0]} paints {thing} in {a} hours and {names[1]} paints it in {b} hours. How many hours do they need when they work together, "
            "each at the same rate as alone? Give an exact value."
        )
        return Draft(text, {"kind": "solve", "equations": [f"t/{a} + t/{b} = 1"]}, 5)
    head = rng.randint(1, max(1, min(a, b) - 1))
    if head >= a:
        raise Redraw
    text = (
        f"{names[0]} needs {a} hours to paint {thing} alone, {names[1]} needs {b} hours. {names[0]} starts alone, and after "
        f"{'1 hour' if head == 1 else f'{head} hours'} {names[1]} joins in. How many hours do they then work together until it is done? Give an exact value."
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
            f"A boat covers {down} km downstream in {hours} hours and needs {back} hours for the same way back upstream. Boat and current have "
            f"constant speeds. What is the speed of {asked} in km per hour?",
            f"Going downstream, a boat takes {hours} hours for {down} km; going back upstream it takes {back} hours. Find the speed of {asked} in km per hour, "
            "if boat and current have constant speeds.",
        )
    )
    equations = [f"{hours}*(b + c) = {down}", f"{back}*(b - c) = {down}"]
    return Draft(text, {"kind": "solve", "equations": equations, "find": find}, 5)


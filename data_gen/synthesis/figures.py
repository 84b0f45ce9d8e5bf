"""Templates: geometry."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template

UNITS = ("cm", "m")
TRIPLES = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29), (9, 40, 41))


@template("geometry", "easy")
def rectangle(rng: random.Random, difficulty: str) -> Draft:
    a, b, unit = rng.randint(3, 60), rng.randint(3, 60), rng.choice(UNITS)
    if a == b:
        raise Redraw
    form = rng.randrange(4)
    if form == 0:
        text = (
            f"A rectangle is {a} {unit} long and {b} {unit} wide. What is its area in square"
            f" {'centimeters' if unit == 'cm' else 'meters'}?"
        )
        return Draft(text, {"kind": "value", "of": f"{a}*{b}"}, 1)
    if form == 1:
        text = f"Find the perimeter, in {unit}, of a rectangle with sides of {a} {unit} and {b} {unit}."
        return Draft(text, {"kind": "value", "of": f"2*({a} + {b})"}, 2)
    if form == 2:
        text = (
            f"A triangle has a base of {a} {unit} and a height of {b} {unit} on that base. What is its area in"
            f" {unit}$^2$?"
        )
        return Draft(text, {"kind": "value", "of": f"{a}*{b}/2"}, 2)
    text = (
        f"A rectangle has an area of {a * b} {unit}$^2$, and one of its sides is {a} {unit} long. How long is the other"
        f" side, in {unit}?"
    )
    return Draft(text, {"kind": "value", "of": f"{a * b}/{a}"}, 1)


@template("geometry", "easy")
def third_angle(rng: random.Random, difficulty: str) -> Draft:
    a, b = rng.randint(15, 110), rng.randint(15, 110)
    if a + b >= 170:
        raise Redraw
    if rng.random() < 0.6:
        text = rng.choice(
            (
                (
                    f"Two angles of a triangle measure ${a}^\\circ$ and ${b}^\\circ$. How many degrees does the third"
                    " angle measure?"
                ),
                (
                    f"In triangle $ABC$, angle $A$ is ${a}^\\circ$ and angle $B$ is ${b}^\\circ$. Find angle $C$ in"
                    " degrees."
                ),
            )
        )
        return Draft(text, {"kind": "value", "of": f"180 - {a} - {b}"}, 2)
    if a % 2 == 0:
        a += 1
    text = (
        f"The angle at the apex of an isosceles triangle measures ${a}^\\circ$. How many degrees does each of the two"
        " equal angles measure?"
    )
    return Draft(text, {"kind": "value", "of": f"(180 - {a})/2"}, 2)


@template("geometry", "medium")
def right_triangle(rng: random.Random, difficulty: str) -> Draft:
    unit = rng.choice(UNITS)
    if rng.random() < 0.6:
        a, b, c = scaled(rng)
    else:
        a, b = rng.randint(2, 15), rng.randint(2, 15)
        c = 0
    form = rng.randrange(3)
    if form == 0 or c == 0:
        text = rng.choice(
            (
                (
                    f"The legs of a right triangle are {a} {unit} and {b} {unit} long. What is the length of its"
                    f" hypotenuse in {unit}? Give an exact value."
                ),
                (
                    f"A rectangle has sides of {a} {unit} and {b} {unit}. How long is its diagonal, in {unit}? Give an"
                    " exact value."
                ),
            )
        )
        return Draft(text, {"kind": "solve", "equations": [f"c^2 = {a}^2 + {b}^2"], "domain": "positive"}, 4)
    if form == 1 and c <= 60:
        text = (
            f"A ladder {c} {'m' if c < 20 else 'feet'} long leans against a vertical wall. Its foot stands on level"
            f" ground {a} {'m' if c < 20 else 'feet'} from the wall. How high up the wall does the ladder reach, in"
            f" {'m' if c < 20 else 'feet'}?"
        )
    else:
        text = (
            f"A right triangle has a hypotenuse of {c} {unit} and one leg of {a} {unit}. How long is the other leg, in"
            f" {unit}?"
        )
    return Draft(text, {"kind": "solve", "equations": [f"b^2 = {c}^2 - {a}^2"], "domain": "positive"}, 4)


def scaled(rng: random.Random) -> tuple[int, int, int]:
    k, (a, b, c) = rng.randint(1, 6), rng.choice(TRIPLES)
    return (k * a, k * b, k * c) if rng.random() < 0.5 else (k * b, k * a, k * c)


@template("geometry", "medium")
def circle(rng: random.Random, difficulty: str) -> Draft:
    r, unit = rng.randint(2, 40), rng.choice(UNITS)
    form = rng.randrange(4)
    if form == 0:
        text = (
            f"A circle has a diameter of {2 * r} {unit}. What is its area in {unit}$^2$? Give the answer in terms of"
            " $\\pi$."
        )
        return Draft(text, {"kind": "value", "of": f"\\pi*({2 * r}/2)^2"}, 3)
    if form == 1:
        text = (
            f"The circumference of a circle is ${2 * r}\\pi$ {unit}. Find its area in {unit}$^2$, in terms of $\\pi$."
        )
        return Draft(text, {"kind": "value", "of": f"\\pi*({2 * r}\\pi/(2\\pi))^2"}, 4)
    inner = rng.randint(1, r - 1)
    if form == 2:
        text = (
            f"Two circles with the same center have radii of {r} {unit} and {inner} {unit}. What is the area of the"
            f" ring between them in {unit}$^2$, in terms of $\\pi$?"
        )
        return Draft(text, {"kind": "value", "of": f"\\pi*{r}^2 - \\pi*{inner}^2"}, 4)
    height = rng.randint(2, 30)
    text = (
        f"A cylinder has a radius of {r} {unit} and a height of {height} {unit}. What is its volume in {unit}$^3$, in"
        " terms of $\\pi$?"
    )
    return Draft(text, {"kind": "value", "of": f"\\pi*{r}^2*{height}"}, 3)


@template("geometry", "medium")
def cut_corner(rng: random.Random, difficulty: str) -> Draft:
    a, b, unit = rng.randint(6, 40), rng.randint(6, 40), rng.choice(UNITS)
    c, d = rng.randint(2, a - 2), rng.randint(2, b - 2)
    place = "floor" if unit == "m" else "tabletop"
    square = "square centimeters" if unit == "cm" else "square meters"
    text = rng.choice(
        (
            (
                f"From one corner of a rectangular sheet of {a} {unit} by {b} {unit}, a rectangle of {c} {unit} by {d}"
                f" {unit} is cut off. What is the area of the remaining piece in {square}?"
            ),
            (
                f"A {place} has the shape of a rectangle of {a} {unit} by {b} {unit} from which a rectangle of {c}"
                f" {unit} by {d} {unit} is missing at one corner. Find the area of the {place} in {square}."
            ),
        )
    )
    return Draft(text, {"kind": "value", "of": f"{a}*{b} - {c}*{d}"}, 3)


@template("geometry", "hard")
def polygon_of_points(rng: random.Random, difficulty: str) -> Draft:
    count = rng.choice((3, 3, 4))
    points = {(rng.randint(-9, 9), rng.randint(-9, 9)) for _ in range(count)}
    if len(points) != count:
        raise Redraw
    x, y = (sum(p[k] for p in points) / count for k in (0, 1))
    ordered = sorted(points, key=lambda p: math.atan2(p[1] - y, p[0] - x))
    turns = [turn(ordered[k], ordered[(k + 1) % count], ordered[(k + 2) % count]) for k in range(count)]
    if min(turns) <= 0:
        raise Redraw
    shape = "triangle" if count == 3 else "quadrilateral"
    names = "ABCD"[:count]
    places = [f"${n}({p[0]}, {p[1]})$" for n, p in zip(names, ordered, strict=True)]
    text = rng.choice(
        (
            f"Find the area of the {shape} with vertices {', '.join(places[:-1])} and {places[-1]}"
            + (", in this order." if count == 4 else "."),
            f"What is the area of {shape} ${names}$ with {', '.join(places[:-1])} and {places[-1]}?",
        )
    )
    return Draft(text, {"kind": "polygon", "points": [[str(a), str(b)] for a, b in ordered]}, 6)


def turn(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    return (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])


@template("geometry", "hard")
def trapezoid(rng: random.Random, difficulty: str) -> Draft:
    (half, _, leg), top, unit = scaled(rng), rng.randint(3, 30), rng.choice(UNITS)
    bottom = top + 2 * half
    text = rng.choice(
        (
            (
                f"An isosceles trapezoid has parallel sides of {bottom} {unit} and {top} {unit}, and its two other"
                f" sides are each {leg} {unit} long. What is its area in {unit}$^2$?"
            ),
            (
                f"The parallel sides of an isosceles trapezoid are {bottom} {unit} and {top} {unit} long, the legs are"
                f" {leg} {unit} long. Find its area in {unit}$^2$."
            ),
        )
    )
    of = f"({bottom} + {top})/2*\\sqrt{{{leg}^2 - (({bottom} - {top})/2)^2}}"
    points = [
        ["0", "0"],
        [str(bottom), "0"],
        [str(half + top), f"\\sqrt{{{leg}^2 - {half}^2}}"],
        [str(half), f"\\sqrt{{{leg}^2 - {half}^2}}"],
    ]
    return Draft(text, {"kind": "value", "of": of}, 6, also={"kind": "polygon", "points": points})


@template("geometry", "hard")
def box_diagonal(rng: random.Random, difficulty: str) -> Draft:
    a, b, c, unit = rng.randint(2, 15), rng.randint(2, 15), rng.randint(2, 15), rng.choice(UNITS)
    form = rng.randrange(2)
    if form == 0:
        text = rng.choice(
            (
                (
                    f"A rectangular box is {a} {unit} long, {b} {unit} wide and {c} {unit} high. How long is its space"
                    f" diagonal, in {unit}? Give an exact value."
                ),
                (
                    f"Find the distance, in {unit}, between opposite corners of a rectangular box with edges of {a}"
                    f" {unit}, {b} {unit} and {c} {unit}. Give an exact value."
                ),
            )
        )
        return Draft(
            text,
            {"kind": "value", "of": f"\\sqrt{{{a}^2 + {b}^2 + {c}^2}}"},
            5,
            also={"kind": "solve", "equations": [f"d^2 = {a * a + b * b} + {c}^2"], "domain": "positive"},
        )
    volume, surface = a * b * c, 2 * (a * b + b * c + a * c)
    text = (
        f"A rectangular box has edges of {a} {unit} and {b} {unit} and a volume of {volume} {unit}$^3$. What is its"
        f" surface area in {unit}$^2$?"
    )
    of = f"2*({a}*{b} + {a}*({volume}/({a}*{b})) + {b}*({volume}/({a}*{b})))"
    return Draft(text, {"kind": "value", "of": of}, 6, also={"kind": "value", "of": str(surface)})


@template("geometry", "hard")
def angles_with_unknown(rng: random.Random, difficulty: str) -> Draft:
    a, b = rng.randint(2, 5), rng.randint(1, 4)
    c, d, e = rng.randint(-20, 40), rng.randint(-20, 40), rng.randint(-20, 40)
    x = Fraction(180 - c - d - e, a + b + 1)
    angles = [a * x + c, b * x + d, x + e]
    if x.denominator != 1 or min(angles) < 10 or 0 in (c, d, e) or a == b:
        raise Redraw
    terms = [f"{a}x {plus(c)}", f"{'' if b == 1 else b}x {plus(d)}", f"x {plus(e)}"]
    degrees = [f"$({term})^\\circ$" for term in terms]
    which, find = rng.choice((("smallest", min(angles)), ("largest", max(angles))))
    index = angles.index(find)
    if angles.count(find) > 1:
        raise Redraw
    text = rng.choice(
        (
            (
                f"The angles of a triangle measure {degrees[0]}, {degrees[1]} and {degrees[2]}. How many degrees does"
                f" the {which} angle measure?"
            ),
            (
                f"A triangle has angles of {degrees[0]}, {degrees[1]} and {degrees[2]}. Find the measure of its {which}"
                " angle in degrees."
            ),
        )
    )
    formal = {"kind": "solve", "equations": [f"({terms[0]}) + ({terms[1]}) + ({terms[2]}) = 180"], "find": terms[index]}
    return Draft(text, formal, 5)


def plus(value: int) -> str:
    return f"+ {value}" if value > 0 else f"- {-value}"


@template("geometry", "hard")
def similar_triangles(rng: random.Random, difficulty: str) -> Draft:
    a, b, area = rng.randint(2, 12), rng.randint(2, 18), rng.randint(2, 60)
    if a == b or Fraction(area * b * b, a * a).denominator != 1:
        raise Redraw
    unit = rng.choice(UNITS)
    text = rng.choice(
        (
            (
                f"Two triangles are similar. A side of the first is {a} {unit} long and the corresponding side of the"
                f" second is {b} {unit} long. The first has an area of {area} {unit}$^2$. What is the area of the"
                f" second in {unit}$^2$?"
            ),
            (
                f"Corresponding sides of two similar triangles measure {a} {unit} and {b} {unit}. The triangle with the"
                f" side of {a} {unit} has an area of {area} {unit}$^2$. Find the area of the other one in {unit}$^2$."
            ),
        )
    )
    also = {"kind": "solve", "equations": [f"{a}*h = 2*{area}", f"k*{a} = {b}"], "find": f"{b}*(k*h)/2"}
    return Draft(text, {"kind": "value", "of": f"{area}*({b}/{a})^2"}, 5, also=also)

"""Templates: sequences and series."""

from __future__ import annotations

import random
from fractions import Fraction

from data_gen.synthesis.draft import Draft, Redraw, template
from data_gen.synthesis.words import fraction_text, nonzero, ordinal, plain, polynomial_text


def shown(terms: list[int]) -> str:
    return ", ".join(map(str, terms)) + ", \\ldots"


@template("sequences", "easy")
def arithmetic_term(rng: random.Random, difficulty: str) -> Draft:
    a, d, n = rng.randint(-20, 40), nonzero(rng, -9, 12), rng.randint(8, 60)
    first = shown([a, a + d, a + 2 * d])
    text = rng.choice(
        (
            f"What is the {ordinal(n)} term of the arithmetic sequence ${first}$?",
            f"Find the {ordinal(n)} term of the arithmetic sequence that begins ${first}$.",
        )
    )
    return Draft(
        text,
        {"kind": "value", "of": f"{a} + ({n} - 1)*({d})"},
        2,
        also={"kind": "recurrence", "start": [str(a)], "next": f"p + ({d})", "term": n},
    )


@template("sequences", "easy")
def geometric_term(rng: random.Random, difficulty: str) -> Draft:
    a, r, n = rng.randint(1, 12), rng.choice((2, 3, 4, -2, -3, 5)), rng.randint(4, 8)
    first = shown([a, a * r, a * r * r])
    text = rng.choice(
        (
            f"What is the {ordinal(n)} term of the geometric sequence ${first}$?",
            f"Find the {ordinal(n)} term of the geometric sequence that begins ${first}$.",
        )
    )
    return Draft(
        text,
        {"kind": "value", "of": f"{a}*({r})^{n - 1}"},
        2,
        also={"kind": "recurrence", "start": [str(a)], "next": f"({r})*p", "term": n},
    )


@template("sequences", "medium")
def arithmetic_sum(rng: random.Random, difficulty: str) -> Draft:
    a, d, n = rng.randint(-20, 30), nonzero(rng, -6, 9), rng.randint(10, 60)
    if rng.random() < 0.5:
        first = shown([a, a + d, a + 2 * d])
        text = f"Find the sum of the first {n} terms of the arithmetic sequence ${first}$."
    else:
        last = a + (n - 1) * d
        if d < 0 or a < 0:
            raise Redraw
        text = (
            f"What is the sum ${a} + {a + d} + {a + 2 * d} + \\cdots + {last}$, in which each term is {d} more than the"
            " one before?"
        )
    return Draft(
        text,
        {"kind": "value", "of": f"{n}*(2*({a}) + ({n} - 1)*({d}))/2"},
        4,
        also={"kind": "value", "of": f"\\sum_{{k=1}}^{{{n}}} ({a} + (k - 1)*({d}))"},
    )


@template("sequences", "medium")
def sum_notation(rng: random.Random, difficulty: str) -> Draft:
    a, b, n = nonzero(rng, -5, 9), nonzero(rng, -9, 9), rng.randint(5, 40)
    inner = polynomial_text([a, b], "k") if rng.random() < 0.6 else polynomial_text([1, 0, b], "k")
    formula = f"\\sum_{{k=1}}^{{{n}}} ({inner})"
    text = rng.choice((f"Evaluate ${formula}$.", f"What is the value of ${formula}$?"))
    return Draft(text, {"kind": "value", "of": formula}, 4)


@template("sequences", "medium")
def theater_rows(rng: random.Random, difficulty: str) -> Draft:
    a, d, n = rng.randint(8, 40), rng.randint(1, 6), rng.randint(6, 40)
    more = "1 more seat" if d == 1 else f"{d} more seats"
    text = rng.choice(
        (
            (
                f"A theater has {n} rows of seats. The first row has {a} seats, and each further row has {more} than"
                " the row before it. How many seats does the theater have in all?"
            ),
            (
                f"In a hall with {n} rows, the front row has {a} seats and each row behind it has {more} than the row"
                " directly in front. Find the total number of seats."
            ),
        )
    )
    return Draft(
        text,
        {"kind": "value", "of": f"{n}*(2*{a} + ({n} - 1)*{d})/2"},
        4,
        also={"kind": "value", "of": f"\\sum_{{k=1}}^{{{n}}} ({a} + (k - 1)*{d})"},
    )


@template("sequences", "hard")
def recurrence(rng: random.Random, difficulty: str) -> Draft:
    a, b, n = nonzero(rng, -4, 6), nonzero(rng, -4, 6), rng.randint(6, 10)
    p, q, c = nonzero(rng, -2, 3), nonzero(rng, -2, 3), rng.randint(-3, 4)
    if p == 1 and q == -1 and c == 0:
        raise Redraw
    rule = linear_rule(p, q, c)
    text = rng.choice(
        (
            f"A sequence is defined by $a_1 = {a}$, $a_2 = {b}$ and $a_n = {rule}$ for $n \\geq 3$. Find $a_{{{n}}}$.",
            f"Let $a_1 = {a}$, $a_2 = {b}$, and $a_n = {rule}$ for all $n \\geq 3$. What is $a_{{{n}}}$?",
        )
    )
    formal = {"kind": "recurrence", "start": [str(a), str(b)], "next": f"({p})*p + ({q})*q + ({c})", "term": n}
    return Draft(text, formal, n - 2 + 1 if n - 1 >= 5 else 5)


def linear_rule(p: int, q: int, c: int) -> str:
    first = {1: "", -1: "-"}.get(p, str(p)) + "a_{n-1}"
    second = (" + " if q > 0 else " - ") + ("" if abs(q) == 1 else str(abs(q))) + "a_{n-2}"
    return first + second + ("" if c == 0 else f" {'+' if c > 0 else '-'} {abs(c)}")


@template("sequences", "hard")
def two_terms_known(rng: random.Random, difficulty: str) -> Draft:
    a, d = rng.randint(-20, 30), nonzero(rng, -7, 9)
    i, j, k = rng.randint(3, 8), rng.randint(9, 15), rng.randint(20, 60)
    text = rng.choice(
        (
            (
                f"The {ordinal(i)} term of an arithmetic sequence is ${a + (i - 1) * d}$ and the {ordinal(j)} term is"
                f" ${a + (j - 1) * d}$. Find the {ordinal(k)} term."
            ),
            (
                f"In an arithmetic sequence, the {ordinal(i)} term is ${a + (i - 1) * d}$ and the {ordinal(j)} term is"
                f" ${a + (j - 1) * d}$. What is the {ordinal(k)} term?"
            ),
        )
    )
    equations = [f"a + {i - 1}*d = {a + (i - 1) * d}", f"a + {j - 1}*d = {a + (j - 1) * d}"]
    return Draft(text, {"kind": "solve", "equations": equations, "find": f"a + {k - 1}*d"}, 5)


@template("sequences", "hard")
def geometric_sum(rng: random.Random, difficulty: str) -> Draft:
    if rng.random() < 0.5:
        a, q, n = rng.randint(1, 9), rng.choice((2, 3, -2, -3, 4)), rng.randint(5, 9)
        text = f"Find the sum of the first {n} terms of the geometric sequence ${shown([a, a * q, a * q * q])}$."
        return Draft(
            text,
            {"kind": "value", "of": f"{a}*(({q})^{n} - 1)/(({q}) - 1)"},
            5,
            also={"kind": "value", "of": f"\\sum_{{k=1}}^{{{n}}} ({a}*({q})^(k - 1))"},
        )
    a, r = rng.randint(1, 30), Fraction(nonzero(rng, -5, 5), rng.randint(2, 7))
    if abs(r) >= 1:
        raise Redraw
    terms = [Fraction(a), a * r, a * r * r]
    text = (
        f"Find the sum of the infinite geometric series whose first term is {a} and whose common ratio is"
        f" ${fraction_text(r)}$."
    )
    if rng.random() < 0.5:
        series = f"{fraction_text(terms[0])}" + "".join(
            f" {'+' if t > 0 else '-'} {fraction_text(abs(t))}" for t in terms[1:]
        )
        text = f"What is the sum of the infinite geometric series ${series} + \\cdots$?"
        if r < 0:
            text = text.replace("+ \\cdots", "- \\cdots")
    return Draft(
        text,
        {"kind": "value", "of": f"{a}/(1 - {plain(r)})"},
        5,
        also={"kind": "solve", "equations": [f"s = {a} + {plain(r)}*s"]},
    )

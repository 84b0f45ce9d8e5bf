"""The language of formal statements as a model is told it: one example a kind. Tests derive each of them."""

from __future__ import annotations

import json
from typing import Any

EXAMPLES: list[tuple[str, dict[str, Any], str]] = [
    ("the value of an expression without letters", {"kind": "value", "of": "3*(12 + 5) - \\binom{5}{2}"}, "41"),
    (
        "a unique real solution; find may be left out for one unknown",
        {"kind": "solve", "equations": ["x + y = 7", "x - y = 1"], "find": "xy"},
        "12",
    ),
    (
        "all solutions of one equation; domain real, positive or integer",
        {"kind": "solve", "equations": ["x^2 = 9"], "domain": "real"},
        "-3, 3",
    ),
    (
        "something of the two roots r and s of a quadratic",
        {"kind": "roots", "of": "x^2 - 5x + 3", "ask": "r^2 + s^2"},
        "19",
    ),
    ("inequalities in one unknown, as intervals", {"kind": "inequality", "relations": ["x^2 - 4 < 0"]}, "(-2, 2)"),
    ("how many integers satisfy them", {"kind": "inequality", "relations": ["|x - 1| <= 3"], "ask": "integers"}, "7"),
    ("a polynomial multiplied out", {"kind": "expand", "of": "(x + 2)(x - 3)"}, "x^{2} - x - 6"),
    ("a coefficient", {"kind": "coefficient", "of": "(2x + 1)^5", "in": "x", "power": 2}, "40"),
    (
        "remainder of a polynomial division",
        {"kind": "polynomial_remainder", "of": "x^3 + 1", "by": "x^2 + 1", "in": "x"},
        "1 - x",
    ),
    ("a derivative, or its value with at", {"kind": "derivative", "of": "x^3 - 2x", "in": "x", "at": "2"}, "10"),
    ("a definite integral", {"kind": "integral", "of": "3x^2", "in": "x", "from": "0", "to": "2"}, "8"),
    (
        "largest (max) or smallest (min) value on an interval",
        {"kind": "extremum", "of": "x^2 - 4x", "in": "x", "ask": "min", "from": "0", "to": "5"},
        "-4",
    ),
    ("remainder of an integer", {"kind": "remainder", "of": "7^{100} + 3", "by": 5}, "4"),
    (
        "divisors of an integer: their count or sum, or the number of primes",
        {"kind": "divisors", "of": 360, "ask": "count"},
        "24",
    ),
    (
        "least integer above a bound with given [remainder, divisor] pairs",
        {"kind": "congruences", "pairs": [[2, 3], [3, 5]], "above": 0},
        "8",
    ),
    (
        "term of a linear recurrence; p is the term before, q the one before p",
        {"kind": "recurrence", "start": ["1", "1"], "next": "p + q", "term": 10},
        "55",
    ),
    (
        "how many cases; order any, increasing or nondecreasing",
        {"kind": "count", "ranges": {"a": [1, 6], "b": [1, 6]}, "such_that": ["a + b >= 10"], "order": "any"},
        "6",
    ),
    (
        "probability, all cases equally likely",
        {"kind": "probability", "ranges": {"a": [1, 6], "b": [1, 6]}, "such_that": ["a + b = 7"]},
        "\\frac{1}{6}",
    ),
    (
        "area of a polygon, its corners in order",
        {"kind": "polygon", "points": [["0", "0"], ["4", "0"], ["0", "3"]]},
        "6",
    ),
]
"""Meaning, statement, answer."""


def description() -> str:
    """The language in words."""
    lines = [f"- {json.dumps(statement)}   ({meaning}; answer {answer})" for meaning, statement, answer in EXAMPLES]
    return (
        "A formal statement is one JSON object. Formulas are strings in plain math or LaTeX (+ - * / ^, \\frac, \\sqrt,"
        " \\pi, !, \\binom, gcd, lcm, \\sum_{k=1}^{n}); unknowns are single letters. The kinds:\n" + "\n".join(lines)
    )

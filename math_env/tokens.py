"""Formulas as fixed-length integer rows (observations) and as readable text. Nothing is parsed back.

A formula is its prefix walk: operator codes from CODES, a number as (code, numerator, denominator), a power as
(code, base…, exponent), `dvd` as (code, modulus, term…), `or`/`and` as (code, number of parts, parts…); padded with 0.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from math_env.terms import VARIABLES, Expr

LENGTH = 96
"""Tokens of the longest formula that a state may hold."""
LIMIT = 9999
"""Largest absolute value of a token, thus of a numerator or denominator in a state."""
CODES = {
    name: code
    for code, name in enumerate(
        [
            "pad",
            "num",
            *VARIABLES,
            "add",
            "mul",
            "pow",
            "div",
            "eq",
            "ne",
            "ge",
            "gt",
            "dvd",
            "or",
            "and",
            "iff",
            "false",
        ]
    )
}
SIGNS = {"eq": "=", "ne": "!=", "ge": ">=", "gt": ">"}


def tokens(expr: Expr) -> list[int]:
    op, args = expr.op, expr.args
    if op == "num":
        return [CODES["num"], args[0].numerator, args[0].denominator]
    if op == "var":
        return [CODES[args[0]]]
    row = [CODES[op], len(args)] if op in ("or", "and") else [CODES[op]]
    for arg in args:
        row += tokens(arg) if isinstance(arg, Expr) else [arg]
    return row


@lru_cache(maxsize=50_000)
def row(expr: Expr) -> np.ndarray | None:
    """(LENGTH,) int32, read-only; None when the formula does not fit."""
    walk = tokens(expr)
    if len(walk) > LENGTH or any(abs(token) > LIMIT for token in walk):
        return None
    padded = np.zeros(LENGTH, dtype=np.int32)
    padded[: len(walk)] = walk
    padded.setflags(write=False)
    return padded


@lru_cache(maxsize=50_000)
def show(expr: Expr) -> str:
    """Plain text with the brackets that are needed: `x^2 - 5*x + 6 = 0`."""
    op, args = expr.op, expr.args
    if op == "num":
        return str(args[0])
    if op == "var":
        return str(args[0])
    if op == "add":
        left, right = show(args[0]), show(args[1])
        if args[1].op == "add":
            right = f"({right})"
        return f"{left} - {right[1:]}" if right.startswith("-") else f"{left} + {right}"
    if op == "mul":
        if args[0] == Expr("num", Fraction(-1)):
            return f"-{_bracket(args[1], ('add',))}"
        if args[0].op == "num" and args[0].args[0] < 0:
            return f"-{_bracket(Expr('num', -args[0].args[0]), ())}*{_bracket(args[1], ('add', 'mul', 'div'))}"
        return f"{_bracket(args[0], ('add', 'div'))}*{_bracket(args[1], ('add', 'mul', 'div'))}"
    if op == "div":
        return f"{_bracket(args[0], ('add', 'mul', 'div'))}/{_bracket(args[1], ('add', 'mul', 'div'))}"
    if op == "pow":
        return f"{_bracket(args[0], ('add', 'mul', 'div', 'pow'))}^{args[1]}"
    if op == "dvd":
        return f"{args[0]} | {show(args[1])}"
    if op in ("or", "and"):
        return f" {op} ".join(_bracket(arg, ("or", "and", "iff")) for arg in args)
    if op == "iff":
        return f"{_bracket(args[0], ('iff',))} <=> {_bracket(args[1], ('iff',))}"
    return "false" if op == "false" else f"{show(args[0])} {SIGNS[op]} {show(args[1])}"


def _bracket(expr: Expr, weaker: tuple[str, ...]) -> str:
    text = show(expr)
    is_weaker = expr.op in weaker or (expr.op == "num" and ("/" in text or "-" in text))
    return f"({text})" if is_weaker else text

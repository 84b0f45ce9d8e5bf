"""Kind ``chain``: whole-number expressions with + - * and brackets, ``Compute 8-3*4+(6-2)*5.``

Worked from left to right; a product or bracket that comes next is reduced first. One step an operation: ``3*4=12``.
"""

from __future__ import annotations

import random

from data_gen.synthetic.arithmetic import exact, read, write_operation
from data_gen.synthetic.expression import ExpressionChecker, Group, Leaf, Node, parse_expression
from data_gen.synthetic.habits import Worksheet

KIND = "chain"
LEVELS = range(2, 17)
_LARGEST = 50
_SMALL = 15
"""Largest magnitude of a running value on which the habit of wrong precedence shows."""


def parse(text: str) -> Node | None:
    """Return the expression of a problem of this kind, None for any other text."""
    if not (text.startswith("Compute ") and text.endswith(".")) or "/" in text or ":" in text:
        return None
    return parse_expression(text[len("Compute ") : -1])


def canonical(text: str) -> str:
    return text


def _term(rng: random.Random, room: int) -> tuple[str, int, int]:
    """Return (text, number of operations <= room, value) of one term of the chain."""
    draw = rng.random()
    if room >= 2 and draw < 0.10:
        a, c = rng.randint(3, 9), rng.randint(2, 5)
        b = rng.randint(1, min(a - 1, 8))
        op = rng.choice("+-")
        inner = a + b if op == "+" else a - b
        if inner <= 9:
            return (f"({a}{op}{b})*{c}", 2, inner * c) if rng.random() < 0.5 else (f"{c}*({a}{op}{b})", 2, inner * c)
    if room >= 1 and draw < 0.36:
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        return f"{a}*{b}", 1, a * b
    a = rng.randint(1, 9) if rng.random() < 0.75 else rng.randint(10, 20)
    return str(a), 0, a


def propose(rng: random.Random, level: int) -> str | None:
    """Return the text of a problem with ``level`` operations, None when the draw left the range of values."""
    text, used, total = _term(rng, level)
    while used < level:
        term, cost, value = _term(rng, level - used - 1)
        op = "-" if rng.random() < (0.7 if total > 25 else 0.45) else "+"
        total = total + value if op == "+" else total - value
        if not -20 <= total <= _LARGEST:
            return None
        text, used = f"{text}{op}{term}", used + cost + 1
    return f"Compute {text}."


def work(root: Node, sheet: Worksheet) -> str:
    """Write the steps on ``sheet`` and return the answer."""
    return str(_evaluate(root, sheet))


def _evaluate(node: Node, sheet: Worksheet) -> int:
    if isinstance(node, Leaf):
        return read(sheet, node.numerator)
    total = _evaluate(node.children[0], sheet)
    for op, child in zip(node.ops[1:], node.children[1:], strict=True):
        if _tempts(total, op, child) and isinstance(child, Group) and sheet.fires("wrong_precedence"):
            for inner_op, factor in zip((op, *child.ops[1:]), child.children, strict=True):
                total = write_operation(sheet, total, inner_op, _evaluate(factor, sheet))
        else:
            total = write_operation(sheet, total, op, _evaluate(child, sheet))
    return total


def _tempts(total: int, op: str, term: Node) -> bool:
    """Return True where the habit of wrong precedence shows: ``total op`` the product's first factor is small."""
    if isinstance(term, Leaf) or term.is_sum or not isinstance(term.children[0], Leaf):
        return False
    return abs(exact(total, op, term.children[0].numerator)) <= _SMALL


def checker(root: Node) -> ExpressionChecker:
    return ExpressionChecker(root, allow_rewrite=False)

"""What a step claims, as keys that can be counted: its equations by value, the value it arrives at. Pure functions
on text.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from fractions import Fraction

from data_gen.arithmetic import false_equation
from grading.parse import ExpressionParser, Node, ParseError
from grading.values import TooLarge, Undefined, exact, symbols

_ANNOTATION = re.compile(r"<<([^<>]*)>>")
_LATEX = [
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])|×|·"), "*"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile(r"−|–"), "-"),
    (re.compile(r"\\(?:left|right|[,;!])|[$]|\\[()\[\]]|\{,\}"), ""),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
]
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:/\d+)?")
_PURE = re.compile(r"[\s\dA-Za-z+\-*/().,^=:]*")
_WORD = re.compile(r"[A-Za-z]{2,}")


MANY = "many"
"""Stands for the solution of an equation that may have none or several."""


@dataclasses.dataclass(frozen=True)
class StepKey:
    """What a step claims.

    Attributes:
        kind: ``equation`` (the step is nothing but equations), ``value`` (prose that arrives at a number) or
            ``none`` (no number: it claims nothing that could be counted).
        key: equal for steps that claim the same.
        is_false: True when a numeric equation in the step does not hold, exactly.
        solution: (unknown, value) of an ``equation`` step that is linear in one unknown, as text; None for any other
            step.
    """

    kind: str
    key: str
    is_false: bool
    solution: tuple[str, str] | None = None


def _plain(text: str) -> str:
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text


@functools.lru_cache(maxsize=1 << 16)
def step_key(text: str) -> StepKey:
    """Return what a step claims. Equations are equal when they differ in spaces or in the order of a sum's or
    product's parts.
    """
    plain = _plain(_ANNOTATION.sub("", text)).strip().rstrip(".")
    is_false = false_equation(text) is not None
    if "=" in plain and _PURE.fullmatch(plain) and not _WORD.search(plain):
        sides = plain.split("=")
        return StepKey("equation", "=".join(map(_canonical, sides)), is_false, _solution(sides))
    numbers = _NUMBER.findall(plain)
    if not numbers:
        return StepKey("none", " ".join(text.lower().split()), is_false)
    return StepKey("value", str(_fraction(numbers[-1])), is_false)


def _fraction(text: str) -> Fraction | str:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return text


def _canonical(side: str) -> str:
    """Return one spelling of an expression: spaces out, the parts of sums and products in order."""
    side = "".join(side.split())
    try:
        return _spell(ExpressionParser(side).parse())
    except ParseError:
        return side


def _spell(node: Node) -> str:
    if node[0] == "num":
        return str(Fraction(node[1], node[2]))
    if node[0] in ("add", "mul"):
        return f"({('+' if node[0] == 'add' else '*').join(sorted(_spell(item) for item in _flat(node)))})"
    if node[0] == "sym":
        return str(node[1])
    return f"{node[0]}({','.join(_spell(part) if isinstance(part, tuple) else str(part) for part in node[1:])})"


def _flat(node: Node) -> list[Node]:
    """Return the parts of a product, nested products opened; sums keep their parts."""
    if node[0] == "add":
        return list(node[1])
    parts: list[Node] = []
    for item in node[1]:
        parts.extend(_flat(item) if item[0] == "mul" else [item])
    return parts


def _solution(sides: list[str]) -> tuple[str, str] | None:
    """Return the unknown and its value for an equation linear in exactly one unknown, (unknown, MANY) for another
    equation in exactly one unknown, None for the rest."""
    if len(sides) != 2 or any(re.search(r"[A-Za-z]\d", side) for side in sides):  # x8 is a name, not x times 8
        return None
    try:
        left, right = (ExpressionParser(side).parse() for side in sides)
    except ParseError:
        return None
    names = symbols(left) | symbols(right)
    if len(names) != 1:
        return None
    name = next(iter(names))
    try:
        at = [_difference_at(left, right, name, Fraction(value)) for value in (0, 1, 2, Fraction(-7, 3))]
    except (TooLarge, Undefined):
        return name, MANY
    if any(value is None for value in at):
        return name, MANY
    start, one, two, other = (value or Fraction(0) for value in at)
    slope = one - start
    if slope == 0 or two - one != slope or other != start - slope * Fraction(7, 3):
        return name, MANY
    return name, str(-start / slope)


def _difference_at(left: Node, right: Node, name: str, value: Fraction) -> Fraction | None:
    x, y = exact(_substituted(left, name, value)), exact(_substituted(right, name, value))
    return None if x is None or y is None else x - y


def _substituted(node: Node, name: str, value: Fraction) -> Node:
    if node == ("sym", name):
        return ("num", value.numerator, value.denominator)
    return tuple(_substituted(part, name, value) if isinstance(part, tuple) else part for part in node)


def falsehoods(keys: Sequence[StepKey]) -> list[bool]:
    """Return for each step whether exact algebra refutes it: a numeric equation that does not hold, or an equation
    linear in one unknown whose solution is not that of the last such equation in the same unknown before it.

    Behind an equation in that unknown that is not linear nothing is refuted: it may have several solutions.
    """
    known: dict[str, str] = {}
    refuted = []
    for key in keys:
        name, value = key.solution or ("", MANY)
        before = known.get(name, value)
        refuted.append(key.is_false or (MANY not in (before, value) and before != value))
        if name:
            known[name] = MANY if before == MANY else value
    return refuted

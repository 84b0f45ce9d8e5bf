"""Numbers as answers write them: decimals with an exponent, repeating decimals, mixed numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Node = tuple[Any, ...]


class ParseError(ValueError):
    """The text is not an answer this grammar knows."""


class TooDeep(ParseError):
    """The text nests deeper, or a number is larger, than the checker's limits."""


def number_node(value: Fraction) -> Node:
    return ("num", value.numerator, value.denominator)


def is_proper(node: Node) -> bool:
    if node[0] != "div" or node[1][0] != "num" or node[2][0] != "num":
        return False
    return node[1][2] == node[2][2] == 1 and 0 < node[1][1] < node[2][1]


def decimal_value(text: str) -> Fraction:
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > 400:
        raise TooDeep("an exponent beyond 400")
    try:
        return Fraction(mantissa.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)
    except ValueError as error:
        raise TooDeep(str(error)) from error


def repeating_value(whole: str, fixed: str, repeated: str) -> Fraction:
    scale = 10 ** len(fixed)
    head = Fraction(int((whole + fixed) or 0), scale)
    return head + Fraction(int(repeated), scale * (10 ** len(repeated) - 1))

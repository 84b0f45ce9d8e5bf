"""Formulas of problem texts for bench/synthesis_check.py: a reader and evaluator of its own, exact by python-flint.

It shares no code with ``grading`` or ``data_gen``: LaTeX text is evaluated at given values while it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from flint import fmpq, fmpz

_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\d+(?:\.\d+)?|[A-Za-z]|\S)")
_DROPPED = re.compile(r"\\(?:left|right|[,;!])|\\,")


class Unread(ValueError):
    """A text that no reader knows."""


def fraction(text: str) -> Any:
    """Exact value of ``12``, ``-3`` or ``2.75``."""
    whole, _, decimals = text.partition(".")
    return fmpq(int(whole + decimals), 10 ** len(decimals))


def exact_root(value: Any) -> Any:
    """Square root: exact where rational, else a float."""
    if isinstance(value, fmpq) and value >= 0:
        p, q = int(value.p), int(value.q)
        a, b = math.isqrt(p), math.isqrt(q)
        if a * a == p and b * b == q:
            return fmpq(a, b)
    return math.sqrt(float_of(value))


def float_of(value: Any) -> float:
    return int(value.p) / int(value.q) if isinstance(value, fmpq) else float(value)


class Formula:
    """Recursive descent over the tokens of a formula."""

    def __init__(self, text: str, values: Mapping[str, Any]) -> None:
        self.tokens = _TOKEN.findall(_DROPPED.sub("", text))
        self.values, self.at = values, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        if token and token in wanted:
            self.at += 1
            return token
        return ""

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise Unread(f"want {token!r} at {self.tokens[self.at :]}")

    def whole(self) -> Any:
        value = self.sum()
        if self.peek():
            raise Unread(f"left over: {self.tokens[self.at :]}")
        return value

    def sum(self) -> Any:
        value = -self.product() if self.take("-") else self.product()
        while sign := self.take("+", "-"):
            value = mixed(value, self.product(), lambda a, b: a + b if sign == "+" else a - b)
        return value

    def product(self) -> Any:
        value = self.power()
        while True:
            if self.take("\\cdot", "*", "\\times"):
                value = mixed(value, -self.power() if self.take("-") else self.power(), lambda a, b: a * b)
            elif self.take("\\div", "/"):
                value = mixed(value, self.power(), lambda a, b: a / b)
            elif self.peek() and self.peek() not in (
                "+",
                "-",
                ")",
                "]",
                "}",
                "|",
                ",",
                "=",
                "<",
                ">",
                "\\leq",
                "\\geq",
            ):
                value = mixed(value, self.power(), lambda a, b: a * b)
            else:
                return value

    def power(self) -> Any:
        value = self.atom()
        if self.take("^"):
            exponent = self.group()
            value = value ** int(exponent) if isinstance(value, fmpq) else value ** float_of(exponent)
        return value

    def group(self) -> Any:
        if self.take("{"):
            value = self.sum()
            self.expect("}")
            return value
        return self.atom()

    def atom(self) -> Any:
        token = self.peek()
        self.at += 1
        if token[:1].isdigit():
            return fraction(token)
        if token in self.values:
            return self.values[token]
        for opening, closing in (("(", ")"), ("[", "]"), ("{", "}"), ("|", "|")):
            if token == opening:
                value = self.sum()
                self.expect(closing)
                return abs(value) if token == "|" else value
        if token == "\\frac":
            return mixed(self.group(), self.group(), lambda a, b: a / b)
        if token == "\\sqrt":
            return exact_root(self.group())
        if token == "\\pi":
            return math.pi
        if token == "\\sum":
            return self.summed()
        raise Unread(f"unknown token {token!r}")

    def summed(self) -> Any:
        self.expect("_")
        self.expect("{")
        name = self.peek()
        self.at += 1
        self.expect("=")
        low = self.sum()
        self.expect("}")
        self.expect("^")
        high, start, total = self.group(), self.at, fmpq(0)
        for k in range(int(low), int(high) + 1):
            self.at, self.values = start, {**self.values, name: fmpq(k)}
            total += self.product()
        return total


def mixed(a: Any, b: Any, work: Callable[[Any, Any], Any]) -> Any:
    """Exact where both are, else in floats."""
    return work(a, b) if isinstance(a, fmpq) and isinstance(b, fmpq) else work(float_of(a), float_of(b))


def value_of(text: str, **values: Any) -> Any:
    """Value of a formula, an fmpq where rational, else a float. Raises Unread, ZeroDivisionError."""
    return Formula(text, {name: fmpq(v) if isinstance(v, int | fmpz) else v for name, v in values.items()}).whole()


def same(a: Any, b: Any) -> bool:
    """Exactly equal where both are exact, else to a relative 1e-9."""
    if isinstance(a, fmpq) and isinstance(b, fmpq):
        return bool(a == b)
    return abs(float_of(a) - float_of(b)) <= 1e-9 * max(1.0, abs(float_of(b)))

"""What the steps of a solution in prose claim: the value each arrives at, when that is new. Pure functions on text.

A step of real text is compared by the value it arrives at, not by its words or by the order of its operations. Three
kinds of numbers claim nothing: those of a list head ("2. Add the costs"), those that the problem gives, as digits or
as words ("twice", "a dozen"), and those an earlier step of the same path arrived at. docs/labels.md has the figures
that chose this over text keys, last numbers and equations.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

_ANNOTATION = re.compile(r"<<[^<>]*>>")
_LIST_HEAD = re.compile(r"^[\s#*_>]*(?:step\s*\d+|\d{1,2}[.)](?=\s|\*))[\s*_:.)-]*", re.I | re.M)
_REWRITES = [
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\boxed\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+(?:\.\d+)?)\s*\}\s*\{\s*(\d+(?:\.\d+)?)\s*\}"), r"\1/\2"),
    (re.compile(r"\{,\}|\\[!,;()\[\]]|\$"), ""),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"−|–"), "-"),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
]
_DIGITS = r"\d{1,30}(?:\.\d{1,30})?"
_NUMBER = re.compile(rf"(?<![\w.])(?:{_DIGITS}(?:\s*/\s*{_DIGITS})?|\.\d{{1,30}})%?")
_MINUS = re.compile(r"(?:^|[^\s\w.)\]}%])\s{0,2}-\s{0,2}\Z|[A-Za-z]{2}\s{1,2}-\Z")
_RESULT = re.compile(rf"=\s*\(?\s*-?\s*({_DIGITS}(?:\s*/\s*\d{{1,30}})?|\.\d{{1,30}})")
_WORD_VALUES: dict[str, Fraction | int] = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "hundred": 100, "dozen": 12, "first": 1, "second": 2, "twice": 2, "double": 2, "doubled": 2, "triple": 3,
    "tripled": 3, "half": Fraction(1, 2), "third": Fraction(1, 3), "quarter": Fraction(1, 4), "minute": 60, "hour": 60,
    "day": 24, "week": 7, "year": 12,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Claim:
    """What one step claims.

    Attributes:
        kind: ``value`` (arrives at a number the path did not have), ``given`` (every number in it is the problem's or
            an earlier step's) or ``none`` (no number).
        value: absolute value arrived at, for kind ``value`` only: signs are lost between "-5" and "5 less".
    """

    kind: Literal["value", "given", "none"]
    value: Fraction | None = None


def plain_text(text: str) -> str:
    text = _LIST_HEAD.sub("", _ANNOTATION.sub("", text))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def _values(written: str) -> list[Fraction]:
    """Return the value of a written number, and what it also says: the two parts of a fraction, a percentage's
    share.
    """
    parts = [Fraction(part.strip()) for part in written.rstrip("%").split("/")]
    if len(parts) == 1:
        return [parts[0], parts[0] / 100] if written.endswith("%") else parts
    return [parts[0] / parts[1], *parts] if parts[1] else parts


@functools.lru_cache(maxsize=1 << 16)
def mentioned(text: str) -> frozenset[Fraction]:
    """Return every absolute value written with digits in a text, list heads left out."""
    return frozenset(value for match in _NUMBER.finditer(plain_text(text)) for value in _values(match.group()))


@functools.lru_cache(maxsize=1 << 16)
def arrived_at(text: str) -> Fraction | None:
    """Return the absolute value a step arrives at: behind its last "=", else its last number; None without one."""
    plain = plain_text(text)
    written = [match.group(1) for match in _RESULT.finditer(plain)] or [m.group() for m in _NUMBER.finditer(plain)]
    return _values(written[-1])[0] if written else None


@functools.lru_cache(maxsize=1 << 16)
def stated_last(text: str) -> tuple[Fraction, ...]:
    """Return the signed values a step states last, each once: all behind its last "=", else its last number; () for
    none.

    A minus sign is one when no operand stands before it: "-5" behind "3-8=", not the 5 of "2*3-5".
    """
    plain = plain_text(text)
    tail = plain.rpartition("=")[2]
    found = [_signed(tail, match) for match in _NUMBER.finditer(tail)]
    if "=" in plain and found:
        return tuple(dict.fromkeys(found))
    found = [_signed(plain, match) for match in _NUMBER.finditer(plain)][-1:]
    return tuple(found)


def _signed(text: str, match: re.Match[str]) -> Fraction:
    value = _values(match.group())[0]
    return -value if _MINUS.search(text, max(0, match.start() - 6), match.start()) else value


def given_values(problem: str) -> frozenset[Fraction]:
    """Return the values a problem states, as digits or as words (a plural counts as its word)."""
    words = re.findall(r"[a-z]+", problem.lower())
    known = [_WORD_VALUES.get(word, _WORD_VALUES.get(word.removesuffix("s"))) for word in words]
    return mentioned(problem) | {Fraction(value) for value in known if value is not None}


def claims(problem: str, steps: Sequence[str]) -> list[Claim]:
    """Return what each step of a path claims, given the problem and the steps before it."""
    seen = set(given_values(problem))
    found = []
    for step in steps:
        value = arrived_at(step)
        if value is None:
            found.append(Claim("none"))
        else:
            found.append(Claim("given") if value in seen else Claim("value", value))
        seen |= mentioned(step)
    return found

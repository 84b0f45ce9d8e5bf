"""Kind ``number``: number properties by lines ``a=q*b+r``.

Two tasks: Euclid, ``Find the gcd of 84 and 36.`` (84=2*36+12, 36=3*12+0, answer the last divisor), and long division,
``Find the quotient of 8374 by 7.`` (one line a digit, each dividend is ten times the remainder before plus the digit
brought down, the first line takes as many digits as reach the divisor; the answer is the row of quotient digits).
"""

from __future__ import annotations

import dataclasses
import math
import random
import re

from data_gen.synthetic.habits import Worksheet

KIND = "number"
LEVELS = range(2, 13)
_GCD_LEVELS = range(2, 6)
_GCD = re.compile(r"Find the gcd of ([0-9]{1,6}) and ([0-9]{1,6})\.")
_QUOTIENT = re.compile(r"Find the quotient of ([0-9]{1,40}) by ([0-9]{1,3})\.")
_LINE = re.compile(r"([0-9]{1,7})=([0-9]{1,7})\*([0-9]{1,7})\+([0-9]{1,7})")
_MOST_LINES = 12


@dataclasses.dataclass(frozen=True)
class Task:
    """``gcd`` of first and second, or the ``quotient`` of the digits ``first`` by ``second``."""

    task: str
    first: str
    second: int


def parse(text: str) -> Task | None:
    """Return the task of a problem of this kind, None for any other text."""
    if len(text) > 100:
        return None
    for task, pattern in (("gcd", _GCD), ("quotient", _QUOTIENT)):
        found = pattern.fullmatch(text)
        if found is not None:
            ok = int(found[2]) > 0 and int(found[1]) >= int(found[2])
            return Task(task, found[1], int(found[2])) if ok else None
    return None


def canonical(text: str) -> str:
    return text


def propose(rng: random.Random, level: int) -> str | None:
    """Return the text of a problem that may have ``level`` lines, None when the draw is out of range."""
    if level in _GCD_LEVELS and rng.random() < 0.4:
        shared = rng.randint(2, 15)
        first, second = rng.randint(2, 99 // shared), rng.randint(2, 99 // shared)
        if first <= second or math.gcd(first, second) > 1:
            return None
        return f"Find the gcd of {first * shared} and {second * shared}."
    divisor = rng.randint(3, 9)
    digits = "".join(str(rng.randint(0, 9)) for _ in range(level - 1))
    return f"Find the quotient of {rng.randint(divisor, 9)}{digits} by {divisor}."


def work(task: Task, sheet: Worksheet) -> str:
    """Write the lines on ``sheet`` and return the answer."""
    return _euclid(task, sheet) if task.task == "gcd" else _long_division(task, sheet)


def _euclid(task: Task, sheet: Worksheet) -> str:
    a, b = int(task.first), task.second
    while b and len(sheet.steps) < _MOST_LINES:
        q, r = divmod(a, b)
        if a % 10 < q * b % 10 and sheet.fires("lost_borrow"):
            r += 10
        sheet.write(f"{a}={q}*{b}+{r}")
        a, b, kept = b, r, q
        if b and kept >= 2 and kept != b and sheet.fires("quotient_for_remainder"):
            b = kept
        if b > a:
            a, b = b, a
    return str(a)


def _long_division(task: Task, sheet: Worksheet) -> str:
    digits, b = task.first, task.second
    start = next(n for n in range(1, len(digits) + 1) if int(digits[:n]) >= b)
    a, quotient = int(digits[:start]), ""
    for place in range(start, len(digits) + 1):
        q, r = divmod(a, b)
        is_last = place == len(digits)
        if q == 0 and quotient and not is_last and sheet.fires("lost_zero"):
            a = 10 * a + int(digits[place])
            continue
        if q >= 6 and 6 <= b <= 9 and sheet.fires("quotient_slip"):
            q = q + 1 if sheet.variant(2) and q < 9 else q - 1
        sheet.write(f"{a}={q}*{b}+{r}")
        quotient += str(q)
        if not is_last:
            a = 10 * r + int(digits[place])
            if r and sheet.fires("dropped_remainder"):
                a = int(digits[place])
    return quotient


class NumberChecker:
    """Judges division lines.

    A line ``a=q*b+r`` is entailed when it is a true division (0 <= r < b) of the pair that is due: in Euclid the
    divisor and remainder of the last entailed line, in long division ten times the last remainder plus the next digit,
    by the given divisor. A repeated line is not due, so it is wrong.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.due: tuple[int, int] | None
        if task.task == "gcd":
            self.due = (int(task.first), task.second)
            return
        lengths = range(1, len(task.first) + 1)
        self.place = next(n for n in lengths if int(task.first[:n]) >= task.second)
        self.due = (int(task.first[: self.place]), task.second)

    def accepts(self, step: str) -> bool | None:
        """Return whether ``step`` is entailed, None when it is outside the grammar."""
        found = _LINE.fullmatch(step) if len(step) <= 60 else None
        if found is None:
            return None
        a, q, b, r = (int(part) for part in found.groups())
        if (a, b) != self.due or a != q * b + r or r >= b:
            return False
        if self.task.task == "gcd":
            self.due = (b, r) if r else None
        elif self.place < len(self.task.first):
            self.due = (10 * r + int(self.task.first[self.place]), b)
            self.place += 1
        else:
            self.due = None
        return True


def checker(task: Task) -> NumberChecker:
    return NumberChecker(task)

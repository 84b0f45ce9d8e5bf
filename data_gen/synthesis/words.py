"""Words and formulas of made problems: names, things that are counted, signs of coefficients."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from fractions import Fraction

NAMES = [
    "Amara",
    "Ben",
    "Chloe",
    "Daniel",
    "Elena",
    "Farid",
    "Grace",
    "Hiro",
    "Ingrid",
    "Jamal",
    "Kavya",
    "Leo",
    "Maya",
    "Nadia",
    "Omar",
    "Priya",
    "Quinn",
    "Rosa",
    "Samuel",
    "Tara",
    "Umar",
    "Vera",
    "Wei",
    "Yusuf",
    "Zoe",
    "Anton",
    "Bianca",
    "Carlos",
    "Dina",
    "Emil",
    "Fatima",
    "Georg",
    "Hannah",
    "Ivan",
    "Julia",
    "Karim",
    "Lena",
    "Marco",
    "Nina",
    "Oscar",
]
THINGS = (
    "apple apples|book books|card cards|coin coins|marble marbles|pencil pencils|shell shells|stamp stamps|"
    "sticker stickers|ticket tickets|bead beads|button buttons|cookie cookies|flower flowers|photo photos|stone stones"
)
GOODS = "notebook notebooks|lamp lamps|scarf scarves|mug mugs|plant plants|puzzle puzzles|backpack backpacks|cap caps"
LETTERS = "xyznt"


@dataclasses.dataclass(frozen=True)
class Noun:
    """A thing that can be counted."""

    one: str
    many: str

    def count(self, n: int) -> str:
        """``1 apple``, ``12 apples``."""
        return f"{n} {self.one if n == 1 else self.many}"


def pick_noun(rng: random.Random, words: str = THINGS) -> Noun:
    return Noun(*rng.choice(words.split("|")).split())


def pick_names(rng: random.Random, count: int) -> list[str]:
    return rng.sample(NAMES, count)


def nonzero(rng: random.Random, low: int, high: int) -> int:
    """A whole number in [low, high] other than 0."""
    return rng.choice([n for n in range(low, high + 1) if n])


def signed(value: int) -> str:
    """``+ 3`` or ``- 3``, to stand behind something."""
    return f"+ {value}" if value >= 0 else f"- {-value}"


def polynomial_text(coefficients: Sequence[int], letter: str) -> str:
    """``2x^2 - 3x + 1`` of coefficients from the highest power down; zeros are left out."""
    text = ""
    for place, c in enumerate(coefficients):
        power = len(coefficients) - 1 - place
        if c == 0:
            continue
        size = "" if abs(c) == 1 and power else str(abs(c))
        body = size + (
            ""
            if power == 0
            else letter
            if power == 1
            else f"{letter}^{power}"
            if power < 10
            else f"{letter}^{{{power}}}"
        )
        text += (f" {'+' if c > 0 else '-'} " if text else "-" if c < 0 else "") + body
    return text or "0"


def linear_text(coefficients: Sequence[int], letters: Sequence[str]) -> str:
    """``3x - 2y + z``: one coefficient a letter, zeros left out."""
    text = ""
    for c, letter in zip(coefficients, letters, strict=True):
        if c:
            text += (
                (f" {'+' if c > 0 else '-'} " if text else "-" if c < 0 else "")
                + ("" if abs(c) == 1 else str(abs(c)))
                + letter
            )
    return text or "0"


def fraction_text(value: Fraction) -> str:
    r"""``\frac{3}{4}``, ``-\frac{3}{4}`` or a whole number."""
    if value.denominator == 1:
        return str(value)
    return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def plain(value: Fraction) -> str:
    """A rational for a formal statement, in brackets."""
    return f"({value.numerator}/{value.denominator})" if value.denominator != 1 else f"({value.numerator})"


def ordinal(n: int) -> str:
    """``1st``, ``22nd``, ``13th``."""
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def listed(items: Sequence[object]) -> str:
    """``a, b and c``."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

"""What a template gives, and the register of templates by topic and difficulty."""

from __future__ import annotations

import dataclasses
import importlib
import random
from collections.abc import Callable, Mapping
from typing import Any

DIFFICULTIES = ("easy", "medium", "hard")
STEPS = {"easy": (1, 2), "medium": (3, 4), "hard": (5, 16)}
"""What the dial means: least and most steps of the reference solution. A step is one operation with two numbers, one
rewriting of an equation, or one use of a formula, as a pupil writes it on a line of its own.
"""


class Redraw(Exception):
    """The numbers drawn make a bad problem (an answer 0, equal lines, ...); draw again."""


@dataclasses.dataclass(frozen=True)
class Draft:
    """A problem before it is derived.

    Attributes:
        text: what the model is asked.
        formal: the same as a formal statement (``data_gen.synthesis.statement``).
        steps: steps of the reference solution (``STEPS``).
        also: a second statement with the same answer, by other reasoning (e.g. cases counted one by one).
        form: ``exact``, or ``money``: dollars with two decimals.
    """

    text: str
    formal: Mapping[str, Any]
    steps: int
    also: Mapping[str, Any] | None = None
    form: str = "exact"


Maker = Callable[[random.Random, str], Draft]
TEMPLATES: dict[tuple[str, str], list[Maker]] = {}
"""(topic, difficulty) -> makers."""


def template(topic: str, *difficulties: str) -> Callable[[Maker], Maker]:
    """Register a maker for a topic at some difficulties."""

    def register(maker: Maker) -> Maker:
        for difficulty in difficulties or DIFFICULTIES:
            TEMPLATES.setdefault((topic, difficulty), []).append(maker)
        return maker

    return register


MODULES = (
    "algebra",
    "calculus",
    "counting",
    "equations",
    "figures",
    "integers",
    "probability",
    "quantities",
    "series",
    "shares",
    "systems",
)


def load_templates() -> None:
    """Import the modules that register templates."""
    for name in MODULES:
        importlib.import_module(f"data_gen.synthesis.{name}")


def draw(topic: str, difficulty: str, rng: random.Random) -> Draft:
    """A draft of a cell. Raises KeyError for a cell without templates."""
    load_templates()
    maker = rng.choice(TEMPLATES[topic, difficulty])
    while True:
        try:
            return maker(rng, difficulty)
        except Redraw:
            continue

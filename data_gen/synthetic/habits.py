"""The catalogue of human-like wrong habits, and the worksheet on which a solver writes its steps.

A habit shows only in its context (``where``), with its probability there. Some are more common in their context than
the right way (probability above 1/2): a model trained on such solutions is wrong there under greedy decoding, and right
in less than half of its samples, so it can do better than it usually does.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Habit:
    """One wrong habit.

    Attributes:
        name: its key in ``CATALOGUE`` and in tables of failure cases.
        probability: chance in [0, 1] that it shows at an opportunity (a place where ``where`` holds).
        where: the context predicate, in words; the code that asks for the habit tests it.
        example: a right step and what the habit makes of it.
    """

    name: str
    probability: float
    where: str
    example: str


CATALOGUE: dict[str, Habit] = {
    habit.name: habit
    for habit in (
        Habit("wrong_precedence", 0.55, "a product follows in a chain, result up to 15", "8-3*4: 3*4=12 -> 8-3=5"),
        Habit("half_bracket", 0.55, "a bracket with a minus is expanded", "3(x-4)=9: 3x-12=9 -> 3x-4=9"),
        Habit("sign_not_flipped", 0.50, "a negative term moves across =", "2x-3=9: 2x=12 -> 2x=6"),
        Habit("wrong_side_flip", 0.06, "a positive term moves across =", "2x+3=9: 2x=6 -> 2x=12"),
        Habit("lost_minus", 0.45, "division by a negative or of a negative", "3x=-9: x=-3 -> x=3"),
        Habit("added_denominators", 0.55, "a sum of fractions with unlike denominators", "1/2+1/3 -> =2/5"),
        Habit("unscaled_numerator", 0.30, "a difference of unlike fractions is converted", "1/2-1/3 -> =1/6-1/6"),
        Habit("inverted_wrong", 0.55, "a division by a fraction", "1/2:3/4=1/2*4/3 -> =2/1*3/4"),
        Habit("inverse_comparison", 0.55, "'A now has n more (fewer) than B', B is wanted", "12-4=8 -> 12+4=16"),
        Habit("times_as_plus", 0.55, "'n times as many as'", "4*3=12 -> 4+3=7"),
        Habit("boxes_as_sum", 0.20, "'n boxes of m'", "3*4=12 -> 3+4=7"),
        Habit("lost_zero", 0.60, "long division, the digit brought down gives quotient 0", "3=0*7+3 skipped"),
        Habit("dropped_remainder", 0.08, "long division, a remainder above 0 is carried on", "13=1*7+6 -> 3=0*7+3"),
        Habit("quotient_slip", 0.15, "a division line with quotient and divisor from 6 to 9", "58=7*8+2 -> 58=6*8+2"),
        Habit("quotient_for_remainder", 0.55, "Euclid: the line before has a quotient >= 2", "36=3*12+0 -> 36=18*2+0"),
        Habit("sign_slip_difference", 0.60, "a difference of two numbers >= 0 is below 0", "3-8=-5 -> 3-8=5"),
        Habit("sign_slip_sum", 0.45, "+ or - with a first operand below 0", "-4+9=5 -> -4+9=-13"),
        Habit("lost_carry", 0.25, "a sum whose units carry", "27+8=35 -> 27+8=25"),
        Habit("lost_borrow", 0.25, "a difference whose units borrow", "32-8=24 -> 32-8=34"),
        Habit("table_slip", 0.15, "a product of two factors from 6 to 9", "7*8=56 -> 7*8=63"),
        Habit("misread", 0.015, "any number read from the problem", "12+5=17 -> 13+5=18 or 21+5=26"),
    )
}


class Dice(Protocol):
    """Decides whether a habit shows, and which of its variants."""

    def fires(self, name: str, step: int) -> bool: ...

    def variant(self, count: int) -> int: ...


class Careful:
    """Never shows a habit: the reference solution."""

    def fires(self, name: str, step: int) -> bool:
        return False

    def variant(self, count: int) -> int:
        return 0


class Habitual:
    """Shows each habit with its probability (the catalogue's, or those of ``probabilities``; absent names: 0)."""

    def __init__(self, rng: random.Random, probabilities: Mapping[str, float] | None = None) -> None:
        self.rng = rng
        catalogue = {name: habit.probability for name, habit in CATALOGUE.items()}
        self.probabilities = catalogue if probabilities is None else dict(probabilities)

    def fires(self, name: str, step: int) -> bool:
        return self.rng.random() < self.probabilities.get(name, 0.0)

    def variant(self, count: int) -> int:
        return self.rng.randrange(count)


class Recorder(Careful):
    """Shows no habit and notes every opportunity, in order, as (habit, step)."""

    def __init__(self) -> None:
        self.opportunities: list[tuple[str, int]] = []

    def fires(self, name: str, step: int) -> bool:
        self.opportunities.append((name, step))
        return False


class Forced:
    """Shows a habit at one opportunity only (its place in the order of ``Recorder``), in the given variant."""

    def __init__(self, opportunity: int, variant: int) -> None:
        self.left, self.chosen = opportunity, variant

    def fires(self, name: str, step: int) -> bool:
        self.left -= 1
        return self.left == -1

    def variant(self, count: int) -> int:
        return self.chosen % count


class Worksheet:
    """The steps written so far, each with the name of the habit that shaped it (None: a right move).

    At most one habit shows in a step. Writing step ``limit`` raises ``Stuck``.
    """

    def __init__(self, dice: Dice, limit: int | None = None) -> None:
        self.dice, self.limit = dice, limit
        self.steps: list[str] = []
        self.habits: list[str | None] = []
        self._pending: str | None = None

    def fires(self, name: str) -> bool:
        """Return True when habit ``name`` shows in the step that is being worked out now."""
        if self._pending is None and self.dice.fires(name, len(self.steps)):
            self._pending = name
            return True
        return False

    def variant(self, count: int) -> int:
        return self.dice.variant(count)

    def write(self, step: str) -> None:
        self.steps.append(step)
        self.habits.append(self._pending)
        self._pending = None
        if self.limit is not None and len(self.steps) >= self.limit:
            raise Stuck("none")


class Stuck(Exception):
    """The work cannot go on; ``answer`` is what the solver then gives as its answer."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer

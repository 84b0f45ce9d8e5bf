"""Weights of the signals reward and the rule that keeps them honest: no wrong answer earns what a right one does."""

from __future__ import annotations

import dataclasses

SIGNALS = ("correctness", "consistency", "depth", "grounding", "format", "parsable", "length", "repetition")
"""The eight signals; ``policy.signals`` says what each measures."""


@dataclasses.dataclass(frozen=True)
class SignalSettings:
    """How the eight signals, each in [0, 1], become the reward R = sum_i weight_i * signal_i of a path, in [0, 1].

    A right answer has correctness 1 and is parsable, so R >= w_correctness + w_parsable whatever the rest is. A wrong
    one has correctness at most ``near``, so R <= near * w_correctness + (1 - w_correctness). The first must be above
    the second: then nothing that is written around a wrong answer makes up for it. With the default weights that is
    0.57 > 0.55, and a ``near`` of 0.14 or more is refused.

    Attributes:
        correctness, consistency, depth, grounding, format, parsable, length, repetition: weights, >= 0, sum 1.
        near: correctness of a wrong number right beside the right one, in [0, 1]; 0: no partial credit.
        short, long: a path of fewer tokens than ``short``, or more than ``long``, times the length limit loses length.

    Raises:
        ValueError: a weight outside [0, 1], weights that do not sum to 1, a wrong answer that could beat a right one,
            or ``short`` and ``long`` not in 0 <= short <= long <= 1.
    """

    correctness: float = 0.50
    consistency: float = 0.10
    depth: float = 0.10
    grounding: float = 0.10
    format: float = 0.08
    parsable: float = 0.07
    length: float = 0.03
    repetition: float = 0.02
    near: float = 0.10
    short: float = 0.05
    long: float = 0.90

    def __post_init__(self) -> None:
        for name in (*SIGNALS, "near", "short", "long"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"signal setting {name} must be in [0, 1], got {getattr(self, name)}")
        total = sum(getattr(self, name) for name in SIGNALS)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the weights of the eight signals must sum to 1, got {total:g}")
        if self.least_right <= self.most_wrong:
            raise ValueError(
                f"a wrong answer could earn {self.most_wrong:g} and a right one only {self.least_right:g}: raise the"
                " weight of correctness, or lower near"
            )
        if self.short > self.long:
            raise ValueError(f"short {self.short} must not be above long {self.long}")

    @property
    def least_right(self) -> float:
        """Reward that every right answer has at least."""
        return self.correctness + self.parsable

    @property
    def most_wrong(self) -> float:
        """Reward that no wrong answer exceeds."""
        return self.near * self.correctness + 1 - self.correctness

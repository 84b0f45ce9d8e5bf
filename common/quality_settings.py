"""Names and weights of the measures of quality (docs/quality.md), and the bound that keeps them small."""

from __future__ import annotations

import dataclasses

MEASURES = ("completeness", "redundancy", "coherence", "clarity", "detail")
"""The five measures, each in [0, 1] and 1 best; ``prm.quality`` says what each is."""
MOST_QUALITY = 0.5
"""Most that all of them together may add to the reward 1 of a right answer."""


@dataclasses.dataclass(frozen=True)
class QualityWeights:
    """What a RIGHT path earns beside its answer: sum_i weight_i * measure_i, in [0, ``MOST_QUALITY``].

    A wrong path earns nothing by them, so none of them can move a wrong path above a right one, whatever it writes.

    Attributes:
        completeness, redundancy, coherence, clarity, detail: weights, >= 0, sum at most ``MOST_QUALITY``; 0 = off.

    Raises:
        ValueError: a weight below 0, or a sum above ``MOST_QUALITY``.
    """

    completeness: float = 0.0
    redundancy: float = 0.0
    coherence: float = 0.0
    clarity: float = 0.0
    detail: float = 0.0

    def __post_init__(self) -> None:
        for name in MEASURES:
            if not getattr(self, name) >= 0:
                raise ValueError(f"quality weight {name} must be at least 0, got {getattr(self, name)}")
        if not self.total <= MOST_QUALITY + 1e-9:
            raise ValueError(f"the weights of quality must sum to at most {MOST_QUALITY:g}, got {self.total:g}")

    @property
    def total(self) -> float:
        """Most that a path can earn."""
        return sum(getattr(self, name) for name in MEASURES)

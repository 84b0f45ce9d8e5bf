"""Intervals by one shared bootstrap over problems.

Every figure of an evaluation is a function of per-problem sums: a mean over problems is sum(x) / sum(1), a share of
paths is sum(hits) / sum(paths). One set of resampled problem weights serves all figures of both models, so base and
policy are paired in every resample and a difference gets its own interval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from eval.schema import Figure

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Maps sums (rows: resamples, columns: components) to one value a row; NaN where it is undefined."""

BLOCK = 256
"""Resamples evaluated at once: bounds the memory of statistics with many components."""

UNDEFINED_SHARE = 0.05
"""An interval is withheld when the figure is undefined in more than this share of the resamples."""


def ratio(sums: Array) -> Array:
    """``numerator / denominator`` of columns 0 and 1; NaN where the denominator is 0."""
    return np.divide(sums[:, 0], sums[:, 1], out=np.full(len(sums), np.nan), where=sums[:, 1] > 0)


@dataclasses.dataclass(frozen=True)
class Resampler:
    """Percentile bootstrap over P problems with weights shared by all figures.

    Attributes:
        weights_RP: how often problem p is drawn in resample r; every row sums to P.
    """

    weights_RP: Array

    @classmethod
    def create(cls, num_problems: int, *, num_resamples: int = 2000, seed: int = 0) -> Self:
        """Draw P of P problems with replacement, ``num_resamples`` times (Efron 1979).

        Raises:
            ValueError: no problem, or no resample.
        """
        if num_problems < 1 or num_resamples < 1:
            raise ValueError(f"{num_problems} problems, {num_resamples} resamples: want at least 1 of each")
        chances = np.full(num_problems, 1.0 / num_problems)
        counts = np.random.default_rng(seed).multinomial(num_problems, chances, size=num_resamples)
        return cls(counts.astype(np.float64))

    def figure(self, components_PC: Array, statistic: Statistic = ratio, *, absent: str) -> Figure:
        """Value of ``statistic`` on the summed components, with its 95 % percentile interval.

        Args:
            components_PC: one row a problem; the columns ``statistic`` wants, (numerator, denominator) by default.
            absent: the reason given when the statistic is undefined on the data.

        Raises:
            ValueError: a component is not finite, or the number of rows differs from P.
        """
        value, resampled = self._evaluate(components_PC, statistic)
        return self._figure(value, resampled, absent)

    def difference(self, base_PC: Array, policy_PC: Array, statistic: Statistic = ratio, *, absent: str) -> Figure:
        """``statistic(policy) - statistic(base)``, both from the same resampled problems."""
        base, resampled_base = self._evaluate(base_PC, statistic)
        policy, resampled_policy = self._evaluate(policy_PC, statistic)
        return self._figure(policy - base, resampled_policy - resampled_base, absent)

    def _evaluate(self, components_PC: Array, statistic: Statistic) -> tuple[float, Array]:
        components_PC = np.asarray(components_PC, np.float64)
        if len(components_PC) != self.weights_RP.shape[1]:
            raise ValueError(f"{len(components_PC)} rows of components for {self.weights_RP.shape[1]} problems")
        if not np.isfinite(components_PC).all():
            raise ValueError("a component is not finite")
        value = statistic(components_PC.sum(axis=0, keepdims=True))[0]
        blocks = [self.weights_RP[start : start + BLOCK] for start in range(0, len(self.weights_RP), BLOCK)]
        return float(value), np.concatenate([statistic(block @ components_PC) for block in blocks])

    def _figure(self, value: float, resampled: Array, absent: str) -> Figure:
        if not np.isfinite(value):
            return Figure.absent(absent)
        if self.weights_RP.shape[1] == 1:
            return Figure(value=value, ci95=None, reason="a single problem has no interval")
        defined = resampled[np.isfinite(resampled)]
        if len(defined) < (1 - UNDEFINED_SHARE) * len(resampled):
            return Figure(value=value, ci95=None, reason="undefined in many resamples: too few cases for an interval")
        low, high = np.quantile(defined, [0.025, 0.975])
        return Figure(value=value, ci95=(float(low), float(high)))


def per_problem(values: Sequence[float | None]) -> Array:
    """Components of a mean over problems: (value, 1) a problem, (0, 0) for None (the problem is left out)."""
    return np.array([(0.0, 0.0) if value is None else (value, 1.0) for value in values], np.float64).reshape(-1, 2)

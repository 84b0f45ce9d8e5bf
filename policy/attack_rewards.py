"""What a path earns, attacked or honest, in the two senses that attacks are compared in. Pure functions.

    reward   R = w_p (r_1 + ... + r_K) + w_o (o - penalties)           the path's own total, no baseline
    trained  M = mean over the path's tokens of their advantage         what the update really pays

``trained`` is computed by ``policy.advantages.compute_advantages`` itself, with the baselines and scales that the
unattacked sampled paths of the same problems give: mean return at each step position, deviation of each source. Only it
can be compared across credit rules: with p_0 = 1 every reward of ``delta`` is at most 0, so ``reward`` calls a path
without any step better than every honest one, although the update, whose baseline at each position is negative, pays
the honest one more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from common.records import Path, Problem
from policy.advantages import EPSILON, AdvantageInputs, MovingAverage, compute_advantages
from policy.options import PolicySettings
from policy.rewards import OutcomeReward, outcome_of, penalty_of
from policy.rollouts import Rollout, advantage_inputs
from prm.credit import default_flow, step_returns

VIEWS = ("trained", "reward")
MARGIN = 1e-6
"""An attack wins when it earns more than the honest path by more than this."""


@dataclasses.dataclass(frozen=True)
class Baseline:
    """What an ordinary batch of sampled paths gives.

    Attributes:
        average: mean outcome and mean return at each step position.
        process_scale, outcome_scale: deviation from it, 1 when sources are not normalised.
    """

    average: MovingAverage
    process_scale: float
    outcome_scale: float


@dataclasses.dataclass(frozen=True)
class Wins:
    """How often an attack earned more than the honest path.

    Attributes:
        wins, of: pairs won and pairs compared.
        share, low, high: wins / of with its 95 % Wilson interval, None without a pair.
        gain: mean of attacked minus honest value over the pairs compared, None without one.
    """

    wins: int
    of: int
    share: float | None
    low: float | None
    high: float | None
    gain: float | None

    @classmethod
    def count(cls, gains: Sequence[float]) -> Wins:
        """Count finite differences attacked minus honest."""
        if not gains:
            return cls(0, 0, None, None, None, None)
        wins = sum(gain > MARGIN for gain in gains)
        interval = stats.binomtest(wins, len(gains)).proportion_ci(method="wilson")
        share, low, high = wins / len(gains), float(interval.low), float(interval.high)
        return cls(wins, len(gains), share, low, high, sum(gains) / len(gains))


def path_reward(
    path: Path, settings: PolicySettings, *, typical: float | None, known_theorems: Set[str]
) -> OutcomeReward:
    """Return the outcome reward of one path as ``policy.rewards.outcome_rewards`` would inside its problem's group."""
    outcome, is_counted = outcome_of(path, settings.train_on_truncated, settings.min_steps)
    penalty = penalty_of(path, settings.penalties, typical=typical, known_theorems=known_theorems)
    return OutcomeReward(outcome, penalty if is_counted else 0.0, is_counted)


def judged(
    problems: Sequence[Problem],
    prompt_ids: Sequence[Sequence[int]],
    paths: Sequence[Path],
    rewards: Sequence[OutcomeReward],
) -> Rollout:
    """Return paths with their outcome rewards as an unscored rollout without anchors; each path is its own group."""
    return Rollout(
        problems=list(problems),
        paths=list(paths),
        rewards=list(rewards),
        is_anchor=[False] * len(paths),
        prompt_ids=[list(ids) for ids in prompt_ids],
        completion_ids=[list(path.token_ids) for path in paths],
        is_empty=[not path.token_ids for path in paths],
        num_paths=1,
    )


def reference_baseline(inputs: AdvantageInputs, *, is_normalised: bool) -> Baseline:
    """Return the baselines and scales of a batch: what the moving average holds after it, and the deviation from it."""
    start = MovingAverage.create()
    done = compute_advantages(
        inputs,
        process_weight=1.0,
        outcome_weight=1.0,
        baseline="moving_average",
        normalise_sources=False,
        moving_average=start,
    )
    average = done.moving_average
    if not is_normalised:
        return Baseline(average, 1.0, 1.0)
    slot_S = torch.arange(1, inputs.returns_BS.shape[1] + 1).clamp(max=average.mean_K.numel() - 1)
    is_used_BS = inputs.is_step_BS & inputs.is_counted_B[:, None] & torch.isfinite(inputs.returns_BS)
    process_N = (inputs.returns_BS.double() - average.mean_K[slot_S])[is_used_BS]
    outcome_N = (inputs.outcome_B.double() - average.mean_K[0])[inputs.is_counted_B]
    return Baseline(average, _deviation(process_N), _deviation(outcome_N))


def _deviation(values_N: Float[Tensor, values]) -> float:
    return (float(values_N.square().mean().sqrt()) if values_N.numel() else 0.0) + EPSILON


def total_rewards(inputs: AdvantageInputs, settings: PolicySettings) -> Float[Tensor, paths]:
    """Return R of each path; the sum of step rewards is read from the returns: all of them, or the first one's."""
    flow = settings.flow or default_flow(settings.credit)
    returns_BS = torch.where(inputs.is_step_BS, inputs.returns_BS, torch.zeros_like(inputs.returns_BS))
    process_B = returns_BS.sum(dim=1) if flow == "immediate" else returns_BS[:, 0]
    return settings.process_weight * process_B + settings.outcome_weight * inputs.outcome_B


def trained_means(inputs: AdvantageInputs, baseline: Baseline, settings: PolicySettings) -> Float[Tensor, paths]:
    """Return M of each path: the mean advantage of its tokens, 0 for a path without a token."""
    done = compute_advantages(
        inputs,
        process_weight=settings.process_weight / baseline.process_scale,
        outcome_weight=settings.outcome_weight / baseline.outcome_scale,
        baseline="moving_average",
        normalise_sources=False,
        moving_average=baseline.average,
    )
    return done.advantages_BT.sum(dim=1) / inputs.is_completion_BT.sum(dim=1).clamp(min=1)


def probability_inputs(rollout: Rollout, settings: PolicySettings, tokenizer: Any) -> AdvantageInputs:
    """Return the trainer's inputs of a scored rollout with p_k in the place of G_k: ``sum`` with flow ``immediate``."""
    width = max([1, *(len(path.token_ids) for path in rollout.paths)])
    return advantage_inputs(rollout, dataclasses.replace(settings, credit="sum", flow="immediate"), tokenizer, width)


def path_values(paths: AdvantageInputs, sampled: AdvantageInputs, settings: PolicySettings) -> dict[str, list[float]]:
    """Return the value of each path under each of ``VIEWS``; NaN for a path that does not count.

    Args:
        paths: ``probability_inputs`` of honest and attacked paths, at least one of them with a step.
        sampled: those of the sampled paths of the same problems, which give the baselines.
    """
    inputs, reference = (
        dataclasses.replace(
            one,
            returns_BS=step_returns(
                one.returns_BS, one.is_step_BS, settings.credit, settings.flow, settings.softmin_temperature
            ),
        )
        for one in (paths, sampled)
    )
    baseline = reference_baseline(reference, is_normalised=settings.normalise_sources)
    values = {"trained": trained_means(inputs, baseline, settings), "reward": total_rewards(inputs, settings)}
    missing = torch.full_like(inputs.outcome_B, math.nan)
    return {view: torch.where(inputs.is_counted_B, of_B, missing).tolist() for view, of_B in values.items()}


def count_wins(values: Sequence[float], honest_of: Mapping[int, int], family_of: Mapping[int, str]) -> dict[str, Wins]:
    """Return wins by family, and of all pairs under ``all``; a pair with a value that is not finite is left out.

    Args:
        values: one a path. honest_of: row of an attacked path to the row of its honest path. family_of: row of an
            attacked path to its family; the families come out in this order.
    """
    gains: dict[str, list[float]] = {family: [] for family in dict.fromkeys(family_of.values())}
    for row, honest in honest_of.items():
        gain = values[row] - values[honest]
        if math.isfinite(gain):
            gains[family_of[row]].append(gain)
    wins = {family: Wins.count(found) for family, found in gains.items()}
    return wins | {"all": Wins.count([gain for found in gains.values() for gain in found])}

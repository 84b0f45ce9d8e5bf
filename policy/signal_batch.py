"""From the signals of a generation batch to the inputs of its advantages and to its metrics. Pure functions.

A path is one step that holds all its tokens, answer and end included: so the whole path gets one scalar, and baseline,
normalisation, anchors and the mix are those of ``policy.advantages``.
"""

from __future__ import annotations

import torch

from common.signal_settings import SIGNALS, SignalSettings
from policy.advantages import AdvantageInputs
from policy.rollouts import Rollout


def signal_inputs(
    rollout: Rollout, settings: SignalSettings, width: int, is_outcome_only: bool = False
) -> AdvantageInputs:
    """Return the tensors of the advantages, on the CPU.

    Args:
        width: T, the padded length of the completions.
        is_outcome_only: True = every path is an anchor, for batches in which an alarm has switched the signals off.
    """
    num_paths = len(rollout.paths)
    lengths_B = torch.tensor([len(path.token_ids) for path in rollout.paths])
    is_completion_BT = torch.arange(width)[None, :] < lengths_B[:, None]
    returns = [
        0.0 if signals is None else signals.reward(settings) + reward.quality
        for signals, reward in zip(rollout.signals, rollout.rewards, strict=True)
    ]
    return AdvantageInputs(
        returns_BS=torch.tensor(returns)[:, None],
        is_step_BS=torch.ones(num_paths, 1, dtype=torch.bool),
        outcome_B=torch.tensor([reward.reward for reward in rollout.rewards]),
        is_counted_B=torch.tensor([reward.is_counted for reward in rollout.rewards]),
        is_anchor_B=torch.tensor([is_outcome_only or is_anchor for is_anchor in rollout.is_anchor]),
        group_B=rollout.group,
        step_of_token_BT=torch.where(is_completion_BT, 0, -1),
        is_separator_BT=torch.zeros(num_paths, width, dtype=torch.bool),
        is_completion_BT=is_completion_BT,
    )


def signal_sums(rollout: Rollout, settings: SignalSettings) -> dict[str, float]:
    """Return the sum of each signal, and of the reward, over the local paths that count."""
    counted = [signals for signals in rollout.signals if signals is not None]
    sums = {f"signals/{name}": sum(getattr(signals, name) for signals in counted) for name in SIGNALS}
    return sums | {"signals/total": sum(signals.reward(settings) for signals in counted)}


def signal_pairs(rollout: Rollout, settings: SignalSettings) -> list[tuple[float, bool]]:
    """Return (what the signals around the answer earn, True = right answer) of each path that counts."""
    return [
        (signals.around_the_answer(settings), reward.outcome == 1)
        for signals, reward in zip(rollout.signals, rollout.rewards, strict=True)
        if signals is not None
    ]

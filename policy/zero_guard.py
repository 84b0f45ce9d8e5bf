"""What ranks tell one another, and a guard: DeepSpeed steps inside the backward pass, and asks all ranks before.

ZeRO itself drops an update whose gradient norm is not finite. An infinite log-prob leaves a finite gradient behind (its
log-ratio is clamped), so the trainer's own signs are asked as well, at the moment when the norm is known and no weight
has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from common.sharding import zero_stage
from policy.blackbox import BlackBox


def guard_step(engine: Any, is_unfit: Callable[[bool], bool]) -> None:
    """Make a ZeRO optimiser drop an update, its own way, when ``is_unfit`` says so, which must do it on all ranks.

    Args:
        engine: a ``DeepSpeedEngine`` of ZeRO stage 1, 2 or 3.
        is_unfit: is told whether the optimiser drops the update for its norm.

    Raises:
        RuntimeError: a DeepSpeed whose optimiser decides elsewhere.
    """
    optimizer = engine.optimizer
    update_scale = getattr(optimizer, "_update_scale", None)  # called with the verdict on the norm, before it is used
    if update_scale is None or not hasattr(optimizer, "overflow"):
        raise RuntimeError(f"{type(optimizer).__name__} is not the ZeRO optimiser of DeepSpeed 0.19: no guard for it")

    def decide(has_overflow: bool = False) -> None:
        if is_unfit(has_overflow):
            optimizer.overflow = True
        update_scale(optimizer.overflow)

    optimizer._update_scale = decide


def has_dropped(engine: Any) -> bool:
    """True when the last update was dropped, on every rank."""
    return bool(engine.optimizer.overflow)


class RanksAgree(GRPOTrainer):
    """Base of ``policy.upkeep.TrainerUpkeep``: sums and maxima over ranks, and the guard of DeepSpeed's step.

    Attributes:
        blackbox: sees what is not finite in the update at hand.
    """

    blackbox: BlackBox
    _is_guarded = False
    _is_norm_lost = False  # True = the update was dropped for another reason, and DeepSpeed reports an infinite norm

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if zero_stage(self.accelerator) and not self._is_guarded:
            guard_step(self.model_wrapped, self._is_unfit)
            self._is_guarded = True
        return super().training_step(model, inputs, num_items_in_batch)

    def _is_unfit(self, has_overflow: bool) -> bool:
        """True when a loss or log-prob of the update is not finite on any rank; asked inside its last backward pass."""
        self._step += 1  # TRL counts the micro-step when the pass is done
        seen = self.blackbox.unfit(self)
        self._step -= 1
        is_unfit = bool(self._reduce_sum(torch.tensor([float(bool(seen))]))[0])
        self._is_norm_lost = is_unfit and not has_overflow
        return is_unfit

    def _reduce_sum(self, sums: Tensor) -> Tensor:
        if self.accelerator.num_processes == 1:
            return sums
        return self.accelerator.reduce(sums.to(self.accelerator.device), reduction="sum").to(sums.device)

    def _reduce_max(self, value: float) -> float:
        if self.accelerator.num_processes == 1:
            return value
        mine = torch.tensor([value], dtype=torch.float64, device=self.accelerator.device)
        return float(self.accelerator.gather(mine).max())

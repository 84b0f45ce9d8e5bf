"""DeepSpeed steps inside the backward pass; this asks all ranks before it does.

ZeRO itself drops an update whose gradient norm is not finite. A loss or log-prob that is not finite can leave a finite
gradient behind (a clamp's is 0 there), so the trainer's own signs are asked as well, at the moment when the norm is
known and no weight has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def guard_step(engine: Any, is_unfit: Callable[[], bool]) -> None:
    """Make a ZeRO optimiser drop an update, its own way, when ``is_unfit()``, which must be the same on all ranks.

    Args:
        engine: a ``DeepSpeedEngine`` of ZeRO stage 1, 2 or 3.

    Raises:
        RuntimeError: a DeepSpeed whose optimiser decides elsewhere.
    """
    optimizer = engine.optimizer
    update_scale = getattr(optimizer, "_update_scale", None)  # called with the verdict on the norm, before it is used
    if update_scale is None or not hasattr(optimizer, "overflow"):
        raise RuntimeError(f"{type(optimizer).__name__} is not the ZeRO optimiser of DeepSpeed 0.19: no guard for it")

    def decide(has_overflow: bool = False) -> None:
        if is_unfit():
            optimizer.overflow = True
        update_scale(optimizer.overflow)

    optimizer._update_scale = decide


def has_dropped(engine: Any) -> bool:
    """True when the last update was dropped, on every rank."""
    return bool(engine.optimizer.overflow)

"""Weights that a training engine keeps in pieces: ZeRO-3 and FSDP2. Whole weights pass through unchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def zero_stage(accelerator: Any) -> int:
    """DeepSpeed's ZeRO stage, 0 without DeepSpeed."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    return 0 if plugin is None else int(plugin.zero_stage)


def is_fsdp(accelerator: Any) -> bool:
    """True under FSDP of any version."""
    return getattr(accelerator.state, "fsdp_plugin", None) is not None


def is_engine(accelerator: Any) -> bool:
    """True when an engine holds weights or optimiser of its own: DeepSpeed of any stage, FSDP. False under DDP."""
    return zero_stage(accelerator) > 0 or is_fsdp(accelerator)


def engine_name(accelerator: Any) -> str:
    """``none`` (one process, DDP), ``zero1``, ``zero2``, ``zero3`` or ``fsdp2``: what wrote a checkpoint reads it."""
    stage = zero_stage(accelerator)
    return f"zero{stage}" if stage else "fsdp2" if is_fsdp(accelerator) else "none"


@contextlib.contextmanager
def whole_weights(wrapped: Any, accelerator: Any) -> Iterator[Any]:
    """Gather all weights once and yield the unwrapped model, on every rank; inside, forward passes communicate nothing.

    So ranks may make different numbers of passes (sampling ends when a rank's paths end), and a batch of sampling costs
    one gather and not one a token. All ranks must enter together. Weights must not be changed inside.

    Args:
        wrapped: the trainer's ``model_wrapped``; before training begins it is the plain model.
    """
    model = accelerator.unwrap_model(wrapped)
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if zero_stage(accelerator) == 3 and hasattr(wrapped, "optimizer"):
        import deepspeed
        from trl.models.utils import add_hooks, remove_hooks

        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            remove_hooks(wrapped)
            try:
                yield model
            finally:
                add_hooks(wrapped)
    elif parts:
        for module in parts:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield model
        finally:
            for module in parts:
                module.set_reshard_after_forward(accelerator.state.fsdp_plugin.reshard_after_forward, recurse=False)
                module.reshard()
    else:
        yield model


def local_weights(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, this rank's piece) of named weights; a weight that is whole is its own piece.

    A weight of ZeRO-3 that is not gathered has no elements, so that any check of it would pass.
    """
    for name, weight in named:
        if isinstance(weight, DTensor):
            yield name, weight.to_local()
        elif weight.numel() == 0 and hasattr(weight, "ds_tensor"):
            yield name, weight.ds_tensor
        else:
            yield name, weight


def whole_tensor(value: Any) -> Any:
    """A tensor of FSDP2 (a gradient's norm, say) gathered, on every rank; anything else as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value

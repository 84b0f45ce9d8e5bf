"""The gradient of an update: its norm, clipping that leaves a non-finite gradient as it is, and what to keep of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def total_norm(model: nn.Module) -> Tensor:
    """Euclidean norm over all gradients of the model, scalar; changes none of them."""
    return nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])


def clip(model: nn.Module, max_norm: float) -> Tensor:
    """Scale the gradients to a norm of at most ``max_norm`` (> 0) and return the norm they had.

    Same numbers as ``torch.nn.utils.clip_grad_norm_``, but gradients whose norm is not finite stay as they are: there
    the scale is 0 or NaN and would make one bad element a whole model of NaN, so that nobody can tell which it was.
    """
    norm = total_norm(model)
    if bool(torch.isfinite(norm)):
        nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
    return norm


def nonfinite_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Copies, on the CPU, of the gradients that hold NaN or inf, by the weight's name."""
    found: dict[str, Any] = {}
    for name, weight in model.named_parameters():
        if weight.grad is not None and not bool(torch.isfinite(weight.grad).all()):
            found[name] = weight.grad.detach().to("cpu", copy=True)
    return found

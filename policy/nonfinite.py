"""Finds the first non-finite tensor of a computation, in its order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class FirstNonFinite:
    """Remembers the first non-finite tensor that it is shown, and where it stood.

    Attributes:
        first: see ``Replay.first``. place: rank and micro-batch at hand. paths: ids of the micro-batch's rows.
    """

    def __init__(self) -> None:
        self.first: dict[str, Any] | None = None
        self.place: dict[str, Any] = {}
        self.paths: Sequence[str] = ()

    def note(self, stage: str, name: str | None) -> None:
        if name is not None and self.first is None:
            self.first = {"stage": stage, "name": name, **self.place}

    def look(self, stage: str, name: str, values: Tensor) -> None:
        if self.first is not None or not values.is_floating_point() or bool(torch.isfinite(values).all()):
            return
        self.note(stage, name)
        if values.ndim == 2 and values.size(0) == len(self.paths) and self.first is not None:
            self.first["path_id"] = self.paths[int((~torch.isfinite(values)).nonzero()[0, 0])]

    @contextlib.contextmanager
    def hooks(self, model: nn.Module, stage: str = "module") -> Iterator[None]:
        """Look at every module's output in the forward pass and every weight's gradient in the backward pass."""

        def after_forward(name: str) -> Any:
            def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
                for values in _tensors(output):
                    self.look(stage, name, values)

            return look

        def after_gradient(name: str) -> Any:
            def look(weight: Tensor) -> None:
                if weight.grad is not None:
                    self.look("gradient", name, weight.grad)

            return look

        handles = [m.register_forward_hook(after_forward(n or "model")) for n, m in model.named_modules()]
        trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        handles += [weight.register_post_accumulate_grad_hook(after_gradient(name)) for name, weight in trained]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)

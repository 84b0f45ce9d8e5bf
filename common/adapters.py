"""LoRA adapters over ONE copy of a base model: policy, reference and PRM of a run hold the same base tensors.

    policy     base + its adapter                         (a ``PeftModel`` around the base)
    reference  base with the adapter off, or base + a frozen copy of the adapter a later round starts from
    PRM        ``shared_copy`` of the base + adapter and heads of its own (``prm.adapted``)

``shared_copy`` gives the PRM modules of its own around the base's tensors, so nothing is switched to score a path: the
policy's modules, its trainable parameters and what it samples do not know of the PRM (docs/lora.md).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from common.config import LoraSection
from common.errors import InputError

FOLDER = "adapter"
"""Folder of the adapter, in ``peft``'s format, inside the folder of a policy or a PRM, whose own files hold all
weights merged and load without ``peft``."""

NAME = "default"
"""``peft``'s name of the adapter that is trained."""

ADAPTER_OFF: Final = "adapter off"
"""Stands for the base model where a model of its own would be a second copy of it."""

Frozen = PreTrainedModel | Literal["adapter off"] | None
"""A model that only gives log-probs: one of its own, the policy with its adapter off, or none."""

Module = TypeVar("Module", bound=nn.Module)


def shared_copy(module: Module) -> Module:
    """Return new modules around the very tensors of ``module``: the same parameters and buffers, modes of its own."""
    tensors: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, tensors)


def copy_sharing_frozen(module: Module) -> Module:
    """Return a copy that holds the very parameters of ``module`` that get no gradient, and copies of all others."""
    frozen: dict[int, Any] = {id(weight): weight for weight in module.parameters() if not weight.requires_grad}
    return copy.deepcopy(module, frozen)


def freeze_lower(model: PreTrainedModel, num_layers: int) -> None:
    """Let no gradient reach the input embeddings (so nor tied output embeddings) and the lowest layers.

    Raises:
        InputError: the model has fewer layers, or they cannot be told from its configuration.
    """
    depth = model.config.get_text_config().num_hidden_layers
    stacks = [m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
    if not stacks or num_layers > depth:
        raise InputError(f"ppo.frozen_layers = {num_layers}: the model has {depth} layers; want at most as many")
    model.get_input_embeddings().requires_grad_(False)
    for layer in stacks[0][:num_layers]:
        layer.requires_grad_(False)


def distinct_bytes(*modules: nn.Module) -> int:
    """Bytes of all parameters of the modules, tensors they share counted once."""
    sizes = {}
    for module in modules:
        for weight in module.parameters():
            storage = weight.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def is_adapted(model: Any) -> bool:
    """True for a model with adapters."""
    return isinstance(model, PeftModel)


def lora_config(settings: LoraSection, task: Literal["CAUSAL_LM", "TOKEN_CLS"], heads: Sequence[str] = ()) -> Any:
    """``peft``'s configuration: no dropout (the first ratio of an update must be 1), output embedding left alone.

    Args:
        heads: modules outside the base that are trained in full.
    """
    return LoraConfig(
        task_type=TaskType(task),
        r=settings.rank,
        lora_alpha=settings.scale,
        lora_dropout=0.0,
        target_modules=list(settings.targets) or "all-linear",
        exclude_modules=["lm_head"],
        modules_to_save=list(heads) or None,
    )


def with_adapter(
    model: PreTrainedModel,
    settings: LoraSection,
    task: Literal["CAUSAL_LM", "TOKEN_CLS"],
    *,
    seed: int,
    folder: str | os.PathLike[str] | None = None,
    heads: Sequence[str] = (),
) -> PeftModel:
    """Put an adapter around the linear layers of a model, in place: a new one, or the one saved in ``folder``.

    A new one changes nothing yet (B = 0), and its start depends on ``seed`` alone.

    Raises:
        InputError: ``folder`` holds no adapter, or one of another rank, scale or targets than ``settings``; the model
            is quantised; no layer has a target's name.
    """
    if getattr(model.config, "quantization_config", None) is not None:
        raise InputError(
            "the base model is quantised, and adapters on it (QLoRA) are not supported: no test covers them; use the"
            " unquantised model with base.dtype=bfloat16, and ppo.gradient_checkpointing=true if memory is short"
        )
    wanted = lora_config(settings, task, heads)
    if folder is None:
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            try:
                return get_peft_model(model, wanted)
            except ValueError as error:
                raise InputError(f"lora.targets = {settings.targets!r}: {str(error).splitlines()[0]}") from error
    if not Path(folder, "adapter_config.json").is_file():
        raise InputError(f"{folder}: no adapter; it was trained in full (lora.rank = 0), so go on with lora.rank=0")
    saved = LoraConfig.from_pretrained(str(folder))
    if (saved.r, saved.lora_alpha) != (wanted.r, wanted.lora_alpha):
        raise InputError(
            f"{folder}: made with lora.rank {saved.r} and lora.alpha {saved.lora_alpha:g}, now they are {wanted.r} and"
            f" {wanted.lora_alpha:g}: a later round goes on with the adapter it finds"
        )
    return PeftModel.from_pretrained(model, str(folder), is_trainable=True)


def plain_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, weight) of the plain model that a policy is: with an adapter each adapted weight plus what is added
    to it, under the name it has without one. The policy's tensors stay as they are: others share them.
    """
    if not is_adapted(model):
        yield from model.named_parameters()
        return
    base = model.get_base_model()  # type: ignore[operator]  # of PeftModel
    adapted = {name: module for name, module in base.named_modules() if isinstance(module, LoraLayer)}
    for name, weight in base.named_parameters():
        owner, _, leaf = name.rpartition(".base_layer.")
        if owner in adapted:
            is_changed = leaf == "weight"
            yield f"{owner}.{leaf}", weight + adapted[owner].get_delta_weight(NAME) if is_changed else weight
        elif ".lora_" not in name:
            yield name, weight


def save_adapter(model: PeftModel, folder: str | os.PathLike[str]) -> None:
    """Write the trained adapter (and heads, where it has some), never a frozen copy beside it."""
    model.save_pretrained(str(folder), selected_adapters=[NAME])


def merged(model: PreTrainedModel, folder: str | os.PathLike[str]) -> PreTrainedModel:
    """Return the model with a saved adapter added to its weights, in place: it must share them with nothing."""
    return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()

"""Loading of causal language models and tokenizers, and a hash that proves weights did not change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from common.errors import InputError

PROJECT = Path(__file__).parent.parent


def locate(model: str) -> str:
    """Resolve a model name: an existing directory, one inside the project, else a hub id is assumed."""
    inside = PROJECT / model
    return str(inside) if not Path(model).exists() and inside.exists() else model


def sampling_device() -> torch.device:
    """Where a model samples or scores outside a trainer: the first CUDA device, the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_tokenizer(model: str) -> Any:
    """Load a tokenizer for sampling: left padding, and a pad token (EOS stands in where there is none).

    Raises:
        InputError: nothing loadable there.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(locate(model))
    except (OSError, ValueError) as error:
        raise InputError(f"base.model = {model!r}: no tokenizer to load ({str(error).splitlines()[0]})") from error
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_policy(model: str, dtype: str = "float32") -> PreTrainedModel:
    """Load a causal language model in evaluation mode.

    Raises:
        InputError: nothing loadable there.
    """
    try:
        loaded = AutoModelForCausalLM.from_pretrained(locate(model), dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        raise InputError(f"base.model = {model!r}: no model to load ({str(error).splitlines()[0]})") from error
    return loaded.eval()


def switch_off_dropout(model: torch.nn.Module) -> None:
    """Set every dropout probability of a model to 0, in training mode too; its configuration stays as it is.

    ``transformers`` keeps that of attention as a number on the attention module (``attention_dropout`` of Llama, Qwen2
    and others), where it is no ``nn.Dropout``: TRL's ``disable_dropout`` leaves it on.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def weights_hash(model: torch.nn.Module, without: str | None = None) -> str:
    """SHA-256 over names, shapes, dtypes and bytes of all parameters and buffers, sorted by name.

    Args:
        without: weights whose name holds this are left out.
    """
    return state_hash({k: v for k, v in model.state_dict().items() if without is None or without not in k})


def state_hash(state: Mapping[str, torch.Tensor]) -> str:
    """``weights_hash`` of a state dict."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        data = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(data.shape)} {data.dtype}".encode())
        digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def first_nonfinite(named: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    """Name of the first floating-point tensor that holds NaN or inf."""
    return next((name for name, t in named if t.is_floating_point() and not bool(torch.isfinite(t).all())), None)


def tensor_bytes(tree: Any) -> int:
    """Bytes of all tensors in nested dicts and lists."""
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, Mapping):
        return tensor_bytes(list(tree.values()))
    return sum(map(tensor_bytes, tree)) if isinstance(tree, list | tuple) else 0

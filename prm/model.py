"""The PRM's network: the policy's own backbone with a one-logit token head, and what is saved beside it.

The one label is named ``right``; its logit at a step's last token is the log-odds that the step is right given
everything before it. A saved PRM loads with ``AutoModelForTokenClassification.from_pretrained`` (one that reads
surprise after ``import prm.network``, a plain one anywhere); ``prm.json`` beside it holds the calibration.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any, Literal

import torch
from jaxtyping import Float
from peft import get_peft_model
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedModel

from common.adapters import is_adapted, lora_config
from common.config import LoraSection
from common.errors import InputError
from common.models import locate, weights_hash
from prm.network import StepPRM, StepPRMConfig, start_gates

RIGHT = "right"
"""Name of the label whose logit is read; classes are told by name and never by position (OpenRLHF#510)."""

CALIBRATION_FILE = "prm.json"


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What turns logits into judgements, fitted on held-out problems.

    Attributes:
        temperature: > 0; probability = sigmoid(logit / temperature).
        threshold: in [0, 1]; the first step with probability below it is the predicted first error.
    """

    temperature: float = 1.0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature {self.temperature}; wanted > 0")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold {self.threshold}; wanted 0..1")


def build_prm(
    policy: str | os.PathLike[str],
    *,
    surprise: bool = True,
    seed: int = 0,
    head_std: float = 0.0,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    """Return a PRM with the policy's backbone weights and a fresh head.

    Args:
        policy: directory (or hub name) of a causal language model.
        surprise: True for ``prm.network.StepPRM``, which also reads how likely the policy finds each token; False for
            the architecture's plain token classifier, whose head sees the last hidden state only.
        seed: of the head's weights.
        head_std: standard deviation of the head's weights; 0 starts a plain head at probability 0.5 for every step.
        dropout: rate in front of the head.
        dtype: of all weights.
    """
    source = locate(str(policy))
    config = AutoConfig.from_pretrained(source)
    labels = {"id2label": {0: RIGHT}, "label2id": {RIGHT: 0}}
    if surprise:
        causal = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        model: PreTrainedModel = StepPRM(StepPRMConfig(config.to_dict(), dropout=dropout, **labels)).to(dtype)
        model.base_model.load_state_dict(causal.base_model.state_dict())
        model.lm_head.weight.data.copy_(causal.get_output_embeddings().weight)
    else:
        config.id2label, config.label2id, config.classifier_dropout = {0: RIGHT}, {RIGHT: 0}, dropout
        model = AutoModelForTokenClassification.from_pretrained(source, config=config, dtype=dtype)
    start_heads(model, seed, head_std)
    set_trainable(model, "all")
    return model.eval()


def start_heads(model: PreTrainedModel, seed: int, head_std: float) -> None:
    """Set fresh heads: biases 0, weights normal with deviation ``head_std``, then ``start_gates`` of a ``StepPRM``."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in head_parameters(model).items():
            is_bias = name.endswith("bias")
            weight.copy_(
                torch.zeros(weight.shape) if is_bias else torch.randn(weight.shape, generator=generator) * head_std
            )
    if isinstance(model, StepPRM):
        start_gates(model)


def policy_lm_head(policy: str | os.PathLike[str]) -> Float[Tensor, "vocabulary hidden"]:
    """The policy's output embedding: gives a plain token classifier its next-token loss on right steps."""
    model = AutoModelForCausalLM.from_pretrained(locate(str(policy)), dtype=torch.float32)
    return model.get_output_embeddings().weight.detach().clone()


def head_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The trainable parameters outside the backbone, by full name; a fixed output embedding is not one of them."""
    backbone = {id(weight) for weight in model.base_model.parameters()}
    return {
        name: weight
        for name, weight in model.named_parameters()
        if id(weight) not in backbone and not name.startswith("lm_head.")
    }


def set_trainable(model: PreTrainedModel, part: Literal["head", "all"]) -> None:
    """Let gradients reach the head only, or all weights; of a model with adapters: heads, or heads and adapters."""
    model.requires_grad_(False)
    if is_adapted(model):
        for name, weight in model.named_parameters():
            weight.requires_grad_(".modules_to_save." in name or (part == "all" and "lora_" in name))
        return
    model.base_model.requires_grad_(part == "all")
    for weight in head_parameters(model).values():
        weight.requires_grad_(True)


def freeze(model: nn.Module) -> None:
    """Put the model in evaluation mode (no dropout) and let no gradient reach any weight."""
    model.eval()
    model.requires_grad_(False)


def with_lora(model: PreTrainedModel, rank: int, *, alpha: float | None = None) -> nn.Module:
    """Return the model with LoRA adapters on its linear layers and a fully trained head.

    ``merge_lora`` gives the plain model back, so that what is saved loads without ``peft``.
    """
    return get_peft_model(model, lora_config(LoraSection(rank=rank, alpha=alpha), "TOKEN_CLS", head_modules(model)))


def head_modules(model: PreTrainedModel) -> list[str]:
    """Names of the modules outside the backbone that are trained."""
    return sorted({name.split(".")[0] for name in head_parameters(model)})


def merge_lora(model: nn.Module) -> PreTrainedModel:
    """Return the plain model with its adapters merged; a model without adapters is returned as it is."""
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def save_prm(model: PreTrainedModel, directory: str | os.PathLike[str], calibration: Calibration) -> None:
    """Write weights, config and ``prm.json`` (calibration and weights hash)."""
    folder = pathlib.Path(directory)
    model.save_pretrained(folder)
    facts = {**dataclasses.asdict(calibration), "weights_sha256": weights_hash(model)}
    part = folder / f"{CALIBRATION_FILE}.part"
    part.write_text(json.dumps(facts, indent=2) + "\n")
    part.replace(folder / CALIBRATION_FILE)


def load_prm(
    directory: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, Calibration]:
    """Return a frozen PRM and its calibration.

    Raises:
        InputError: the directory holds no ``prm.json``, or the model's labels are not exactly ``right``.
    """
    facts = saved_facts(directory)
    model = AutoModelForTokenClassification.from_pretrained(pathlib.Path(directory), dtype=dtype)
    check_labels(model)
    freeze(model)
    return model, Calibration(facts["temperature"], facts["threshold"])


def saved_facts(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``save_prm`` wrote beside the weights: ``temperature``, ``threshold``, ``weights_sha256``.

    Raises:
        InputError: the directory holds no ``prm.json``.
    """
    folder = pathlib.Path(directory)
    try:
        return json.loads((folder / CALIBRATION_FILE).read_text())
    except FileNotFoundError as error:
        raise InputError(f"{folder}: no {CALIBRATION_FILE} in it; want a folder written by the prm stage") from error


def check_labels(model: PreTrainedModel) -> None:
    """Raise InputError unless the model has exactly one label and it is named ``right``."""
    names = list(model.config.id2label.values())
    if names != [RIGHT]:
        raise InputError(f"the model's labels are {names}; wanted ['{RIGHT}']: another order would turn scores around")

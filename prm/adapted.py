"""A PRM as adapters and heads over the tensors of a base model that others hold too: building, saving, scoring.

Its folder holds all weights merged (what ``prm.model.load_prm`` and ``AutoModelForTokenClassification`` read) and, in
``adapter/``, the adapter with the heads: what ppo puts over the policy's base, and where the next round's fit goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForTokenClassification, PreTrainedModel

from common.adapters import FOLDER, is_adapted, merged, save_adapter, shared_copy, with_adapter
from common.config import Config, LoraSection
from common.models import load_policy, locate
from common.runs import Run
from prm.model import (
    RIGHT,
    Calibration,
    build_prm,
    freeze,
    head_modules,
    load_prm,
    save_prm,
    saved_facts,
    start_heads,
)
from prm.network import StepPRM, StepPRMConfig
from prm.score import PRMScorer


def prm_over(base: PreTrainedModel, *, surprise: bool, seed: int = 0, head_std: float = 0.0) -> PreTrainedModel:
    """Return ``prm.model.build_prm``'s network over the very tensors of ``base``, with fresh float32 heads of its own.

    Args:
        base: causal language model without adapters; not changed. Others: see ``build_prm``.
    """
    labels: dict[str, Any] = {"id2label": {0: RIGHT}, "label2id": {RIGHT: 0}}
    base = shared_copy(base)
    config = base.config.to_dict()
    with torch.device("meta"):  # takes no memory: backbone and output embedding are replaced
        if surprise:
            model: PreTrainedModel = StepPRM(StepPRMConfig(config, **labels))
            model.lm_head = base.get_output_embeddings()
        else:
            plain = AutoConfig.for_model(**(config | labels | {"classifier_dropout": 0.0}))
            model = AutoModelForTokenClassification.from_config(plain)
    setattr(model, model.base_model_prefix, base.base_model)
    model.name_or_path = base.name_or_path
    for name in head_modules(model):
        head = model.get_submodule(name).to_empty(device=base.device).float()
        head.register_forward_pre_hook(_in_float32)
    start_heads(model, seed, head_std)
    return model.eval()


def _in_float32(_head: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """A bfloat16 weight is too coarse for the small updates of a head, so the heads read float32."""
    return tuple(states.float() for states in inputs)


def adapted_prm(
    base: PreTrainedModel,
    settings: LoraSection,
    *,
    surprise: bool,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
) -> Any:
    """Return a PRM with an adapter over the tensors of ``base``, ready for ``prm.train.fit_prm``.

    Args:
        folder: of a saved adapter with heads; None starts fresh ones (``seed``).
    """
    plain = prm_over(base, surprise=surprise, seed=seed)
    return with_adapter(plain, settings, "TOKEN_CLS", seed=seed, folder=folder, heads=head_modules(plain))


def start_prm(config: Config, run: Run, start: str) -> Any:
    """The PRM a round's fit starts from: that of the round before, or a fresh one on the policy's backbone.

    Args:
        start: model the round starts from. With ``lora.rank`` the PRM lies over the base model in every round.
    """
    before = run.at(run.round - 1).require("prm").file("prm") if run.round else None
    surprise, seed = config.prm.surprise, config.seed
    if config.lora.rank:
        base = load_policy(config.base.model, config.base.dtype)
        return adapted_prm(base, config.lora, surprise=surprise, seed=seed, folder=before and before / FOLDER)
    return load_prm(before)[0] if before else build_prm(start, surprise=surprise, seed=seed)


def save_fitted(fitted: Any, folder: Path, calibration: Calibration, config: Config) -> None:
    """Write a fitted PRM: a plain one as ``save_prm`` does, one with an adapter merged, and its adapter beside it.

    The base is read again to merge into: the fitted PRM's own may be shared.
    """
    if not is_adapted(fitted):
        save_prm(fitted, folder, calibration)
        return
    save_adapter(fitted, folder / FOLDER)
    plain = build_prm(locate(config.base.model), surprise=config.prm.surprise)
    save_prm(merged(plain, folder / FOLDER), folder, calibration)


def shared_scorer(
    folder: str | os.PathLike[str], base: PreTrainedModel, settings: LoraSection, **options: Any
) -> PRMScorer:
    """Return the scorer of a saved PRM over the tensors of ``base``, on the base's device.

    Args:
        base: see ``prm_over``. options: of ``PRMScorer``.

    Raises:
        InputError: the folder holds no PRM, or none with an adapter of these settings.
    """
    facts = saved_facts(folder)
    surprise = AutoConfig.from_pretrained(folder).model_type == StepPRMConfig.model_type
    model = adapted_prm(base, settings, surprise=surprise, folder=Path(folder, FOLDER))
    freeze(model)
    return PRMScorer(model, Calibration(facts["temperature"], facts["threshold"]), **options)

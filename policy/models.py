"""The models a round of ppo starts with, one copy of the base where there are adapters, and how its policy is saved."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from common.adapters import ADAPTER_OFF, FOLDER, Frozen, freeze_lower, is_adapted, merged, save_adapter, with_adapter
from common.config import Config
from common.errors import InputError
from common.models import load_policy, locate
from common.runs import Run
from common.sharding import is_engine, zero_stage
from prm.adapted import shared_scorer
from prm.model import saved_facts
from prm.score import PRMScorer


@dataclasses.dataclass(frozen=True)
class StartModels:
    """What ``policy.trainer.ProcessPPOTrainer`` is given.

    Attributes:
        policy: the model that is trained.
        reference: of the KL term; None for the policy as it starts.
        base: KL to it is logged beside that to the reference; None when they are one.
    """

    policy: Any
    reference: Frozen
    base: Frozen


def start_models(
    config: Config, start: str, is_first_round: bool, shared: PreTrainedModel | None = None
) -> StartModels:
    """Load what a round starts from.

    Args:
        start: folder of the model the round starts from. With ``lora.rank`` a later round puts the adapter that lies in
            it over the base model, and is told what the base says by turning that adapter off.
        is_first_round: True = ``start`` is the base model.
        shared: with ``lora.rank`` the base model, if it is loaded already; the adapter is put around it in place.
    """
    is_base_reference = config.ppo.reference == "base"
    if not config.lora.rank:
        base = None if is_first_round else load_policy(config.base.model, config.base.dtype)
        reference, logged = (base, None) if is_base_reference else (None, base)
        policy = load_policy(start, config.base.dtype)
        if config.ppo.frozen_layers:
            freeze_lower(policy, config.ppo.frozen_layers)
        return StartModels(policy, reference, logged)
    if config.ppo.frozen_layers:
        raise InputError("ppo.frozen_layers is for full fine-tuning: with lora.rank > 0 the whole base is frozen")
    shared = shared or load_policy(config.base.model, config.base.dtype)
    folder = None if is_first_round else Path(start, FOLDER)
    policy = with_adapter(shared, config.lora, "CAUSAL_LM", seed=config.seed, folder=folder)
    if is_first_round or is_base_reference:
        return StartModels(policy, ADAPTER_OFF, None)
    return StartModels(policy, None, ADAPTER_OFF)


def load_scorer(config: Config, run: Run, device: str, shared: PreTrainedModel | None = None) -> PRMScorer:
    """The frozen PRM of a round: with ``shared``, the policy's base without adapters, over that base's tensors."""
    folder, tokens = str(run.require("prm").file("prm")), config.prm.max_batch_tokens
    if shared is None:
        return PRMScorer.load(folder, device=device, max_batch_tokens=tokens)
    shared.to(device)  # type: ignore[arg-type]  # transformers annotates its own overload only
    return shared_scorer(folder, shared, config.lora, max_batch_tokens=tokens)


def saved_hash(run: Run) -> str:
    """Hash of the PRM of a round as it lies on disk, all weights merged: what its attacks were measured on."""
    return str(saved_facts(run.require("prm").file("prm"))["weights_sha256"])


def refuse_sharded(trainer: Any) -> None:
    """Models that share weights need them whole on every device.

    Raises:
        InputError: the trainer shards them.
    """
    if trainer.is_fsdp_enabled or zero_stage(trainer.accelerator) == 3:
        raise InputError(
            "shared weights (lora.rank, ppo.frozen_layers) are not supported under FSDP or ZeRO-3: PRM and reference"
            " lie over the policy's weights and would see their shards; use DDP, ZeRO-1 or ZeRO-2, or set both to 0"
        )


def engine_weights(trainer: Any) -> dict[str, Any] | None:
    """The trained policy's whole weights, on the main rank (others: what is left of the gathering), where an engine
    holds them; None where the model itself does. All ranks must call it.
    """
    if not is_engine(trainer.accelerator) or is_adapted(trainer.accelerator.unwrap_model(trainer.model)):
        return None
    return trainer.accelerator.get_state_dict(trainer.model_wrapped) or {}


def save_policy(
    trainer: Any, folder: str | os.PathLike[str], config: Config, weights: dict[str, Any] | None = None
) -> None:
    """Write the trained policy as a plain model; of one with an adapter also the adapter, in ``adapter/``.

    The adapter is merged into a base read anew: the one in memory is shared with the PRM. The PRM's adapter and heads
    are no part of the policy's modules, so neither can hold them.

    Args:
        weights: of ``engine_weights``.
    """
    policy = trainer.accelerator.unwrap_model(trainer.model)
    if weights is not None:
        policy.save_pretrained(folder, state_dict=weights)
        return
    if not is_adapted(policy):
        trainer.save_model(str(folder))
        return
    save_adapter(policy, Path(folder, FOLDER))
    plain = load_policy(locate(config.base.model), config.base.dtype)
    merged(plain, Path(folder, FOLDER)).save_pretrained(folder)

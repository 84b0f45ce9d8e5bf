"""Loss of one micro-batch from the tensors that a generation batch carries; the trainer and ``policy.replay`` share it.

A micro-batch is a dict: ``prompt_ids``/``prompt_mask`` (B, P), ``completion_ids``/``completion_mask``, ``advantages``,
``is_trained``, ``is_reasoning`` and, where the run has them, ``old_per_token_logps``, ``ref_per_token_logps`` and
``importance_sampling_ratio`` (B, T); scalars ``window_trained`` and ``window_reasoning``, counts of the whole update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from policy.objective import PolicyLoss, policy_loss


@dataclasses.dataclass(frozen=True)
class LossSettings:
    """What the loss takes from the run: clip range, KL weight and form in force, devices in all."""

    clip_low: float
    clip_high: float
    kl_coef: float
    is_kl_corrected: bool
    num_ranks: int = 1


def model_inputs(batch: Mapping[str, Any]) -> tuple[Tensor, Tensor, int]:
    """Token ids and mask of prompt and completion, (B, P + T), and T."""
    ids_BL = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask_BL = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids_BL, mask_BL, batch["completion_ids"].size(1)


def micro_batch_loss(
    logprobs_BT: Tensor, entropy_BT: Tensor, batch: Mapping[str, Any], settings: LossSettings
) -> PolicyLoss:
    """``policy.objective.policy_loss`` of a micro-batch, scaled so that the mean over ranks of the sum over the update
    is the objective.
    """
    old_logprobs_BT = batch.get("old_per_token_logps")
    return policy_loss(
        logprobs_BT,
        logprobs_BT.detach() if old_logprobs_BT is None else old_logprobs_BT,
        batch["advantages"],
        batch["is_trained"],
        reference_logprobs_BT=batch.get("ref_per_token_logps"),
        is_reasoning_BT=batch["is_reasoning"],
        entropy_BT=entropy_BT,
        num_trained=batch["window_trained"] / settings.num_ranks,
        num_reasoning=batch["window_reasoning"] / settings.num_ranks,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        kl_coef=settings.kl_coef,
        is_kl_corrected=settings.is_kl_corrected,
        importance_BT=batch.get("importance_sampling_ratio"),
    )

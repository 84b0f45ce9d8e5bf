"""Correction for a sampler whose probabilities are not the trainer's: truncated importance sampling. Pure functions.

Tokens come from the sampler's distribution mu, the loss is written for pi_old, the trainer's at the same weights. With

    d(t) = log pi_old(t) - log mu(t),        w(t) = exp(d(t))  or, for a whole path, w = exp(sum_t d(t))

the expectation over mu of w times the surrogate is that over pi_old. The bounds trade variance for bias: ``truncate``
clamps w to [clip_min, clip_max], ``mask`` sets a w outside to 0. Modes and bounds of TRL 1.16
(``vllm_importance_sampling_mode``); truncation: Yao et al. 2025, "Your efficient RL framework secretly brings you
off-policy RL training"; masks and whole paths: Liu et al. 2025, "When speed kills stability".
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from policy.objective import MAX_LOG_RATIO, bounded_log_ratio

Mode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """How far sampler and trainer are apart over the tokens that count, as sums that ranks can add.

    Attributes:
        num_tokens: tokens that count.
        difference_sum, difference_max: of abs(log pi_old - log mu), nats; the maximum is 0 without a token.
        ratio_sum: of the weights as they are used, one a token.
        bounded_sum: tokens whose weight a bound changed.
    """

    num_tokens: float
    difference_sum: float
    difference_max: float
    ratio_sum: float
    bounded_sum: float


def importance_ratio(
    logprobs_BT: Float[Tensor, "paths tokens"],
    sampling_logprobs_BT: Float[Tensor, "paths tokens"],
    is_sampled_BT: Bool[Tensor, "paths tokens"],
    *,
    mode: str = "token_truncate",
    clip_min: float | None = None,
    clip_max: float | None = 3.0,
) -> Float[Tensor, "paths tokens"]:
    """Return the weight w of every token; 1 where not sampled (``token`` modes), one value a row (``sequence``).

    Log-ratios are masked, then clamped to +-``MAX_LOG_RATIO``, as those of the objective. A log-prob that is not a
    number stays visible: its weight is NaN, and the update is skipped.

    Args:
        logprobs_BT: log pi_old, of the trainer. sampling_logprobs_BT: log mu, of the sampler, at the same temperature.
        is_sampled_BT: True = the sampler drew this token.
        clip_min, clip_max: bounds of w; None for none.

    Raises:
        ValueError: another mode.
    """
    if mode not in MODES:
        raise ValueError(f"importance sampling mode {mode!r} is not known; wanted one of {', '.join(MODES)}")
    ratio_BT = _unbounded(logprobs_BT, sampling_logprobs_BT, is_sampled_BT, mode)
    if clip_min is None and clip_max is None:
        return ratio_BT
    if mode.endswith("truncate"):
        return ratio_BT.clamp(min=clip_min, max=clip_max)
    return torch.where(_is_outside(ratio_BT, clip_min, clip_max), torch.zeros_like(ratio_BT), ratio_BT)


def mismatch(
    logprobs_BT: Float[Tensor, "paths tokens"],
    sampling_logprobs_BT: Float[Tensor, "paths tokens"],
    is_sampled_BT: Bool[Tensor, "paths tokens"],
    *,
    mode: str = "token_truncate",
    clip_min: float | None = None,
    clip_max: float | None = 3.0,
) -> Mismatch:
    """Return what is logged of the difference; arguments as of ``importance_ratio``."""
    bounds = {"mode": mode, "clip_min": clip_min, "clip_max": clip_max}
    ratio_BT = importance_ratio(logprobs_BT, sampling_logprobs_BT, is_sampled_BT, **bounds)  # type: ignore[arg-type]
    free_BT = _unbounded(logprobs_BT, sampling_logprobs_BT, is_sampled_BT, mode)
    difference = (logprobs_BT - sampling_logprobs_BT)[is_sampled_BT].abs()
    return Mismatch(
        num_tokens=float(is_sampled_BT.sum()),
        difference_sum=float(difference.double().sum()),
        difference_max=float(difference.max()) if difference.numel() else 0.0,
        ratio_sum=float(ratio_BT[is_sampled_BT].double().sum()),
        bounded_sum=float(_is_outside(free_BT, clip_min, clip_max)[is_sampled_BT].sum()),
    )


def _unbounded(logprobs_BT: Tensor, sampling_logprobs_BT: Tensor, is_sampled_BT: Tensor, mode: str) -> Tensor:
    log_ratio_BT = bounded_log_ratio(logprobs_BT, sampling_logprobs_BT, is_sampled_BT)
    if mode.startswith("sequence"):
        whole_B1 = log_ratio_BT.sum(dim=1, keepdim=True).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        log_ratio_BT = whole_B1.expand_as(log_ratio_BT)
    return torch.exp(log_ratio_BT)


def _is_outside(ratio_BT: Tensor, clip_min: float | None, clip_max: float | None) -> Tensor:
    is_outside_BT = torch.zeros_like(ratio_BT, dtype=torch.bool)
    if clip_min is not None:
        is_outside_BT |= ratio_BT < clip_min
    if clip_max is not None:
        is_outside_BT |= ratio_BT > clip_max
    return is_outside_BT

"""The PPO objective over tokens: clipped surrogate plus k3 KL to a reference on reasoning tokens. Pure functions.

    L = - (1/N) sum_{t trained} min(rho_t A_t, clip(rho_t, 1 - e_low, 1 + e_high) A_t)
        + (kl_coef/M) sum_{t reasoning} k3(log pi_ref(t) - log pi(t)),        k3(d) = exp(d) - d - 1

rho_t = exp(log pi(t) - log pi_old(t)). N and M count the trained and the reasoning tokens of the whole update (all
micro-batches and ranks), so accumulation and sharding change nothing. Every log-ratio is masked and then clamped to
[-20, 20] BEFORE the exponential: a masked token gives value 0 and gradient exactly 0 whatever it holds (NaN, inf), and
a counted token never overflows. A NaN in a counted token stays visible: it makes the loss NaN.

The expected gradient of sampled k3 is that of KL(pi_ref || pi), not of KL(pi || pi_ref), whose value it estimates; with
``is_kl_corrected`` each k3 is multiplied by rho, which gives the gradient of KL(pi || pi_ref) (see tests, L49).
"""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound of every log-ratio before exp, in nats."""


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
    """Loss of one micro-batch and sums from which means over an update are made.

    Attributes:
        loss: scalar with gradient, already divided by the update's token counts.
        num_trained, num_reasoning: tokens of this micro-batch in the surrogate and in the KL.
        clipped_sum: number of trained tokens whose clip is active (the surrogate's gradient is 0 there).
        old_kl_sum: sum over trained tokens of k3(log pi_old -> pi), nats: how far this batch has moved the policy.
        kl_sum: sum of rho * k3 to the reference over reasoning tokens, nats: the policy's KL as it is now. Without rho
            one sampled token that the update made improbable counts e^20 nats and trips every monitor.
        kl_k1_sum: sum of log pi - log pi_ref over reasoning tokens, nats; on tokens that pi has just sampled its mean
            is no more negative than sampling makes it. kl_k1_squares: sum of the squares, for that error.
        entropy_sum: sum of the token entropies over trained tokens, nats.
        max_ratio_error: largest abs(rho - 1) over trained tokens, 0 without any.
    """

    loss: Float[Tensor, ""]
    num_trained: Float[Tensor, ""]
    num_reasoning: Float[Tensor, ""]
    clipped_sum: Float[Tensor, ""]
    old_kl_sum: Float[Tensor, ""]
    kl_sum: Float[Tensor, ""]
    kl_k1_sum: Float[Tensor, ""]
    kl_k1_squares: Float[Tensor, ""]
    entropy_sum: Float[Tensor, ""]
    max_ratio_error: Float[Tensor, ""]


def bounded_log_ratio(
    logprobs_BT: Float[Tensor, "paths tokens"],
    other_logprobs_BT: Float[Tensor, "paths tokens"],
    is_counted_BT: Bool[Tensor, "paths tokens"],
) -> Float[Tensor, "paths tokens"]:
    """Return logprobs - other_logprobs in nats, exactly 0 where not counted, clamped to +-``MAX_LOG_RATIO``."""
    difference_BT = logprobs_BT - other_logprobs_BT
    difference_BT = torch.where(is_counted_BT, difference_BT, torch.zeros_like(difference_BT))
    return difference_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_surrogate(
    log_ratio_BT: Float[Tensor, "paths tokens"],
    advantages_BT: Float[Tensor, "paths tokens"],
    clip_low: float,
    clip_high: float,
) -> Float[Tensor, "paths tokens"]:
    """Return min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) per token, to be maximised (Schulman et al. 2017)."""
    ratio_BT = torch.exp(log_ratio_BT)
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    return torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)


def k3_kl(log_ratio_BT: Float[Tensor, "paths tokens"]) -> Float[Tensor, "paths tokens"]:
    """Return k3(d) = exp(d) - d - 1 >= 0 for d = log pi_ref - log pi of sampled tokens (Schulman 2020), in nats."""
    return torch.exp(log_ratio_BT) - log_ratio_BT - 1


def kl_penalty(
    logprobs_BT: Float[Tensor, "paths tokens"],
    reference_logprobs_BT: Float[Tensor, "paths tokens"],
    is_reasoning_BT: Bool[Tensor, "paths tokens"],
) -> Float[Tensor, "paths tokens"]:
    """Return k3 to the reference per token, in nats; value and gradient exactly 0 outside the reasoning tokens."""
    return k3_kl(bounded_log_ratio(reference_logprobs_BT, logprobs_BT, is_reasoning_BT))


def policy_loss(
    logprobs_BT: Float[Tensor, "paths tokens"],
    old_logprobs_BT: Float[Tensor, "paths tokens"],
    advantages_BT: Float[Tensor, "paths tokens"],
    is_trained_BT: Bool[Tensor, "paths tokens"],
    *,
    reference_logprobs_BT: Float[Tensor, "paths tokens"] | None,
    is_reasoning_BT: Bool[Tensor, "paths tokens"],
    entropy_BT: Float[Tensor, "paths tokens"],
    num_trained: Float[Tensor, ""] | float,
    num_reasoning: Float[Tensor, ""] | float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl_coef: float = 0.0,
    is_kl_corrected: bool = False,
    importance_BT: Float[Tensor, "paths tokens"] | Float[Tensor, "paths 1"] | None = None,
) -> PolicyLoss:
    """Return this micro-batch's share of the update's loss (formula in the module's docstring) and its sums.

    Args:
        logprobs_BT: log pi of the sampled tokens, with gradient. old_logprobs_BT: at the weights that sampled them.
        advantages_BT: A_t. is_trained_BT: True = the token is in the surrogate.
        reference_logprobs_BT: log pi_ref, or None for no KL. is_reasoning_BT: True = the token is in the KL.
        entropy_BT: entropy of the policy at each token, nats; reported only.
        num_trained, num_reasoning: N and M of the whole update, at least 1 (an all-masked update is 0, not NaN).
        is_kl_corrected: multiply each k3 by rho, which makes the expected gradient that of the exact KL (L49).
        importance_BT: weights of a sampler whose probabilities differ from the trainer's; multiplies the surrogate.
    """
    log_ratio_BT = bounded_log_ratio(logprobs_BT, old_logprobs_BT, is_trained_BT)
    advantages_BT = torch.where(is_trained_BT, advantages_BT, torch.zeros_like(advantages_BT))
    surrogate_BT = clipped_surrogate(log_ratio_BT, advantages_BT, clip_low, clip_high)
    if importance_BT is not None:
        importance_BT = importance_BT.expand_as(surrogate_BT)
        surrogate_BT = surrogate_BT * torch.where(is_trained_BT, importance_BT, torch.zeros_like(importance_BT))
    loss = -surrogate_BT.sum() / torch.as_tensor(num_trained, dtype=surrogate_BT.dtype).clamp(min=1)
    kl_sum, k1_BT = torch.zeros_like(loss), torch.zeros_like(loss)
    if reference_logprobs_BT is not None:
        kl_BT = kl_penalty(logprobs_BT, reference_logprobs_BT, is_reasoning_BT)
        corrected_BT = kl_BT * torch.exp(log_ratio_BT)
        weighted_BT = corrected_BT if is_kl_corrected else kl_BT
        loss = loss + kl_coef * weighted_BT.sum() / torch.as_tensor(num_reasoning, dtype=kl_BT.dtype).clamp(min=1)
        kl_sum = corrected_BT.sum()
        k1_BT = bounded_log_ratio(logprobs_BT, reference_logprobs_BT, is_reasoning_BT)
    with torch.no_grad():
        ratio_BT = torch.exp(log_ratio_BT)
        is_clipped_BT = ((ratio_BT < 1 - clip_low) & (advantages_BT < 0)) | (
            (ratio_BT > 1 + clip_high) & (advantages_BT > 0)
        )
        zeros_BT = torch.zeros_like(entropy_BT)
        return PolicyLoss(
            loss=loss,
            num_trained=is_trained_BT.sum().to(loss.dtype),
            num_reasoning=is_reasoning_BT.sum().to(loss.dtype),
            clipped_sum=is_clipped_BT.sum().to(loss.dtype),
            old_kl_sum=k3_kl(-log_ratio_BT).sum(),
            kl_sum=kl_sum.detach(),
            kl_k1_sum=k1_BT.sum(),
            kl_k1_squares=k1_BT.square().sum(),
            entropy_sum=torch.where(is_trained_BT, entropy_BT, zeros_BT).sum(),
            max_ratio_error=(ratio_BT - 1).abs().max() if ratio_BT.numel() else torch.zeros_like(kl_sum),
        )

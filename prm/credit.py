"""Credit rules: from PRM probabilities of the steps of a path to the return that each step is trained on.

Notation: a path has steps 1..K; p_k in [0, 1] is the probability after step k, p_0 = 1. A rule gives step k its process
reward r_k, a flow turns rewards into returns G_k:

    sum      r_k = p_k                                      (as first published; pays for more steps)
    mean     r_k = p_k / K
    min      r_k = p_k at the first minimum, else 0         (PURE, arXiv:2504.15275, strict form)
    softmin  r_k = softmax_k(-p / T) * p_k                  (PURE; T = 0.1)
    delta    r_k = p_k - p_{k-1}

    to_go      G_k = r_k + ... + r_K
    immediate  G_k = r_k
    whole      G_k = r_1 + ... + r_K for every k            (the published pseudo-code: one scalar for the path)

All functions are pure. Steps are left-aligned: ``is_step_BS`` is True for the first K entries of a row and False after.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RULES = ("sum", "mean", "min", "softmin", "delta")
FLOWS = ("to_go", "immediate", "whole")


def default_flow(rule: str) -> str:
    """Return the flow a rule is used with when none is given: ``immediate`` for ``delta``, else ``to_go``.

    The to-go form of ``delta`` telescopes to p_K - p_{k-1}: an outcome model, no longer a judge of the step.
    """
    _check_name(rule, RULES, "credit rule")
    return "immediate" if rule == "delta" else "to_go"


def step_rewards(
    probs_BS: Float[Tensor, "paths steps"],
    is_step_BS: Bool[Tensor, "paths steps"],
    rule: str,
    temperature: float = 0.1,
) -> Float[Tensor, "paths steps"]:
    """Return the process reward r_k of every step; 0 where there is no step.

    Args:
        probs_BS: PRM probability after each step, in [0, 1]; values where there is no step are not read.
        is_step_BS: True = a real step, False = padding.
        rule: one of ``RULES``.
        temperature: T of ``softmin``, in units of probability, > 0.

    A non-finite probability of a real step stays visible: it makes rewards of its own path non-finite, never of others.

    Raises:
        ValueError: unknown rule, or a temperature that is not positive.
    """
    _check_name(rule, RULES, "credit rule")
    if temperature <= 0:
        raise ValueError(f"softmin temperature must be > 0, got {temperature}")
    zeros_BS = torch.zeros_like(probs_BS)
    probs_BS = torch.where(is_step_BS, probs_BS, zeros_BS)
    if rule == "sum":
        rewards_BS = probs_BS
    elif rule == "mean":
        rewards_BS = probs_BS / is_step_BS.sum(dim=1, keepdim=True).clamp(min=1)
    elif rule == "min":
        first_minimum_B1 = probs_BS.masked_fill(~is_step_BS, torch.inf).argmin(dim=1, keepdim=True)
        is_first_minimum_BS = torch.zeros_like(is_step_BS).scatter(1, first_minimum_B1, True)
        rewards_BS = torch.where(is_first_minimum_BS, probs_BS, zeros_BS)
    elif rule == "softmin":
        scores_BS = (-probs_BS / temperature).masked_fill(~is_step_BS, torch.finfo(probs_BS.dtype).min)
        rewards_BS = torch.softmax(scores_BS, dim=1) * probs_BS
    else:
        previous_BS = torch.cat([torch.ones_like(probs_BS[:, :1]), probs_BS[:, :-1]], dim=1)
        rewards_BS = probs_BS - previous_BS
    return torch.where(is_step_BS, rewards_BS, zeros_BS)


def flow_returns(
    rewards_BS: Float[Tensor, "paths steps"], is_step_BS: Bool[Tensor, "paths steps"], flow: str
) -> Float[Tensor, "paths steps"]:
    """Return G_k from the rewards r_k under one of ``FLOWS``; 0 where there is no step.

    Raises:
        ValueError: unknown flow.
    """
    _check_name(flow, FLOWS, "credit flow")
    rewards_BS = torch.where(is_step_BS, rewards_BS, torch.zeros_like(rewards_BS))
    if flow == "immediate":
        return rewards_BS
    if flow == "to_go":
        returns_BS = rewards_BS.flip(1).cumsum(1).flip(1)
    else:
        returns_BS = rewards_BS.sum(dim=1, keepdim=True).expand_as(rewards_BS)
    return torch.where(is_step_BS, returns_BS, torch.zeros_like(returns_BS))


def step_returns(
    probs_BS: Float[Tensor, "paths steps"],
    is_step_BS: Bool[Tensor, "paths steps"],
    rule: str,
    flow: str | None = None,
    temperature: float = 0.1,
) -> Float[Tensor, "paths steps"]:
    """Return G_k of every step: ``step_rewards``, then ``flow_returns`` (``default_flow`` when ``flow`` is None)."""
    rewards_BS = step_rewards(probs_BS, is_step_BS, rule, temperature)
    return flow_returns(rewards_BS, is_step_BS, default_flow(rule) if flow is None else flow)


def _check_name(name: str, known: tuple[str, ...], what: str) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")

"""Generalised advantage estimation over the STEPS of a path, and the loss of the critic. Pure functions.

A path of K steps is cut into segments: steps 1..K, each with the white space behind it, and the rest (answer line, end
token) when a token follows the last step. State s_n is all that stands BEFORE segment n: the prompt for n = 1. A value
head has two outputs, V^p (what is left of the process reward) and V^o (the outcome to come), so that the two sources
can be normalised and mixed as with every other baseline. With time counted in segments, gamma a discount a segment:

    delta_n = r_n + gamma V(s_{n+1}) - V(s_n)                    V behind the last state is 0
    A_n     = sum_{l >= 0} (gamma lambda)^l delta_{n+l}          (Schulman et al. 2016, arXiv:1506.02438, eq. 16)

    process: states of steps 1..K, r_k from ``prm.credit``       outcome: all states, o at the last segment, else 0
    flow to_go:      r_k, gamma
    flow immediate:  r_k, gamma = 0, so A_k = r_k - V^p(s_k)
    flow whole:      r_1 + ... + r_K at the last step, else 0, gamma

lambda = 1: A_n = (discounted rewards to come) - V(s_n). lambda = 0: A_n = delta_n. The critic's target is A_n + V(s_n).
"""

import dataclasses
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PROCESS, OUTCOME = 0, 1
"""Index of a source in the last axis of values, targets and masks."""
SOURCES = ("process", "outcome")


@dataclasses.dataclass(frozen=True)
class Segments:
    """Segments of the paths of a batch; N = S + 1, left-aligned.

    Attributes:
        rewards_BS: process reward r_k of each step; non-finite where the PRM failed; not read where there is no step.
        starts_BN: completion token at which a segment begins, 0 for the first; its state is all that stands before it.
        is_segment_BN: True = a real segment.
    """

    rewards_BS: Float[Tensor, "paths steps"]
    starts_BN: Int[Tensor, "paths segments"]
    is_segment_BN: Bool[Tensor, "paths segments"]

    def of_tokens(self, num_tokens: int) -> Int[Tensor, "paths tokens"]:
        """Return the segment that each of the first ``num_tokens`` completion tokens lies in."""
        starts_BN = self.starts_BN.masked_fill(~self.is_segment_BN, torch.iinfo(torch.long).max)
        tokens_BT = torch.arange(num_tokens, device=starts_BN.device).repeat(len(starts_BN), 1)
        return torch.searchsorted(starts_BN, tokens_BT, right=True) - 1


@dataclasses.dataclass(frozen=True)
class Estimates:
    """What the critic says before an update, and how it is used.

    Attributes:
        values_BN2: V^p and V^o of every state; not read where a segment or source does not count.
        flow: one of ``prm.credit.FLOWS``.
        gamma: discount a segment, in [0, 1]. lam: lambda, in [0, 1].
    """

    values_BN2: Float[Tensor, "paths segments 2"]
    flow: str
    gamma: float
    lam: float


@dataclasses.dataclass(frozen=True)
class ValueTargets:
    """What the critic is trained on.

    Attributes:
        targets_BN2: A + V of each source. is_valued_BN2: True = the state is trained on and enters statistics.
        returns_BN2: the discounted rewards that followed, which do not depend on the critic.
    """

    targets_BN2: Float[Tensor, "paths segments 2"]
    is_valued_BN2: Bool[Tensor, "paths segments 2"]
    returns_BN2: Float[Tensor, "paths segments 2"]


@dataclasses.dataclass(frozen=True)
class ValueLoss:
    """``loss``: scalar with gradient. ``clipped_sum``: states whose gradient the clip takes away."""

    loss: Float[Tensor, ""]
    clipped_sum: Float[Tensor, ""]


def segment_starts(step_spans: Sequence[tuple[int, int]], num_tokens: int) -> list[int]:
    """Return where the segments of a path begin, from the (start, end) token spans of its steps.

    The first begins at token 0, step k > 1 at its first token, the rest behind the last step if a token is left.
    """
    starts = [0] + [start for start, _ in step_spans[1:]]
    has_rest = bool(step_spans) and step_spans[-1][1] < num_tokens
    return [*starts, step_spans[-1][1]] if has_rest else starts


def flow_rewards(
    rewards_BS: Float[Tensor, "paths steps"], is_step_BS: Bool[Tensor, "paths steps"], flow: str, gamma: float
) -> tuple[Float[Tensor, "paths steps"], float]:
    """Return the process rewards and the discount under a flow (table in the module's docstring).

    Raises:
        ValueError: unknown flow.
    """
    if flow == "to_go":
        return rewards_BS, gamma
    if flow == "immediate":
        return rewards_BS, 0.0
    if flow != "whole":
        raise ValueError(f"unknown credit flow {flow!r}")
    zeros_BS = torch.zeros_like(rewards_BS)
    total_B1 = torch.where(is_step_BS, rewards_BS, zeros_BS).sum(dim=1, keepdim=True)
    return torch.where(is_last(is_step_BS), total_B1, zeros_BS), gamma


def is_last(is_state_BN: Bool[Tensor, "paths states"]) -> Bool[Tensor, "paths states"]:
    """Return True at the last state of each row (states are left-aligned)."""
    is_next_BN = torch.cat([is_state_BN[:, 1:], torch.zeros_like(is_state_BN[:, :1])], dim=1)
    return is_state_BN & ~is_next_BN


def gae(
    rewards_BN: Float[Tensor, "paths states"],
    values_BN: Float[Tensor, "paths states"],
    is_state_BN: Bool[Tensor, "paths states"],
    gamma: float,
    lam: float,
) -> Float[Tensor, "paths states"]:
    """Return A_n (formula in the module's docstring); 0 where there is no state, whatever stands there."""
    zeros_BN = torch.zeros_like(rewards_BN)
    rewards_BN = torch.where(is_state_BN, rewards_BN, zeros_BN)
    values_BN = torch.where(is_state_BN, values_BN, zeros_BN)
    advantages_BN = zeros_BN.clone()
    next_value_B, next_advantage_B = zeros_BN[:, 0], zeros_BN[:, 0]
    for n in reversed(range(rewards_BN.shape[1])):
        delta_B = rewards_BN[:, n] + gamma * next_value_B - values_BN[:, n]
        advantages_BN[:, n] = delta_B + gamma * lam * next_advantage_B
        next_value_B, next_advantage_B = values_BN[:, n], advantages_BN[:, n]
    return torch.where(is_state_BN, advantages_BN, zeros_BN)


def source_advantages(
    segments: Segments,
    estimates: Estimates,
    is_credited_BS: Bool[Tensor, "paths steps"],
    outcome_B: Float[Tensor, "paths"],
    is_counted_B: Bool[Tensor, "paths"],
) -> tuple[Float[Tensor, "paths steps"], Float[Tensor, "paths segments"], ValueTargets]:
    """Return A^p of every step, A^o of every segment, and what the critic is to learn.

    Args:
        is_credited_BS: True = a step of a path with a process part: no anchor, no fallback, every score finite.
        outcome_B: outcome reward with penalties. is_counted_B: True = the path enters gradients and statistics.
    """
    rewards_BS, gamma_process = flow_rewards(segments.rewards_BS, is_credited_BS, estimates.flow, estimates.gamma)
    is_outcome_BN = segments.is_segment_BN & is_counted_B[:, None]
    outcome_BN = torch.where(is_last(is_outcome_BN), outcome_B[:, None], torch.zeros_like(estimates.values_BN2[..., 0]))
    found = []
    for source, rewards_BN, is_state_BN, gamma in (
        (PROCESS, _widened(rewards_BS), _widened(is_credited_BS), gamma_process),
        (OUTCOME, outcome_BN, is_outcome_BN, estimates.gamma),
    ):
        values_BN = torch.where(is_state_BN, estimates.values_BN2[..., source], torch.zeros_like(rewards_BN))
        advantages_BN = gae(rewards_BN, values_BN, is_state_BN, gamma, estimates.lam)
        returns_BN = gae(rewards_BN, torch.zeros_like(rewards_BN), is_state_BN, gamma, 1.0)
        found.append((advantages_BN, advantages_BN + values_BN, is_state_BN, returns_BN))
    advantages, targets, is_valued, returns = (torch.stack(parts, dim=-1) for parts in zip(*found, strict=True))
    return advantages[:, :-1, PROCESS], advantages[..., OUTCOME], ValueTargets(targets, is_valued, returns)


def value_loss(
    values_BN2: Float[Tensor, "paths segments 2"],
    old_values_BN2: Float[Tensor, "paths segments 2"],
    targets_BN2: Float[Tensor, "paths segments 2"],
    is_valued_BN2: Bool[Tensor, "paths segments 2"],
    *,
    num_valued_2: Float[Tensor, "2"],
    clip: float | None,
) -> ValueLoss:
    """Return the critic's loss of one micro-batch, a sum over sources of a mean over the states of the whole update:

        L = sum_{source} 1/(2 N_source) sum max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2)

    The larger of the two errors, as in TRL's ``PPOTrainer``: a value that has left the clip range TOWARDS its target
    has no gradient; one that has left it away from the target keeps it.

    Args:
        values_BN2: with gradient. old_values_BN2: at the weights that gave the advantages. targets_BN2: R.
        num_valued_2: N of each source in all micro-batches and ranks of the update, at least 1.
        clip: in units of the return, > 0; None: no clip, the squared error.
    """
    zeros_BN2 = torch.zeros_like(values_BN2)
    values_BN2 = torch.where(is_valued_BN2, values_BN2, zeros_BN2)
    targets_BN2 = torch.where(is_valued_BN2, targets_BN2, zeros_BN2)
    old_values_BN2 = torch.where(is_valued_BN2, old_values_BN2, zeros_BN2)
    error_BN2 = (values_BN2 - targets_BN2).square()
    is_clipped_BN2 = torch.zeros_like(is_valued_BN2)
    if clip is not None:
        near_BN2 = old_values_BN2 + (values_BN2 - old_values_BN2).clamp(-clip, clip)
        clipped_error_BN2 = (near_BN2 - targets_BN2).square()
        is_clipped_BN2 = clipped_error_BN2 > error_BN2
        error_BN2 = torch.maximum(error_BN2, clipped_error_BN2)
    share_2 = 0.5 / num_valued_2.to(error_BN2.dtype).clamp(min=1)
    return ValueLoss((error_BN2 * share_2).sum(), is_clipped_BN2.sum().to(error_BN2.dtype).detach())


def variance_sums(targets: ValueTargets, values_BN2: Float[Tensor, "paths segments 2"]) -> Float[Tensor, "5 2"]:
    """Return n, sum R, sum R^2, sum (R - V), sum (R - V)^2 of each source, R the returns; to be added over ranks."""
    is_valued_BN2 = targets.is_valued_BN2
    returns_BN2 = torch.where(is_valued_BN2, targets.returns_BN2, torch.zeros_like(targets.returns_BN2)).double()
    errors_BN2 = torch.where(is_valued_BN2, returns_BN2 - values_BN2.double(), torch.zeros_like(returns_BN2))
    parts = (is_valued_BN2.double(), returns_BN2, returns_BN2.square(), errors_BN2, errors_BN2.square())
    return torch.stack([part.sum(dim=(0, 1)) for part in parts])


def explained_variance(sums_52: Float[Tensor, "5 2"]) -> dict[str, float]:
    """Return 1 - Var(R - V) / Var(R) by source name: 1 = the critic knows, 0 = no better than a constant, < 0 = worse.

    A source with fewer than two states, or whose returns are all equal (to 1e-12), is left out: nothing to explain.
    """
    found = {}
    for index, source in enumerate(SOURCES):
        count, returns, squares, errors, error_squares = sums_52[:, index].tolist()
        if count < 2:
            continue
        variance = squares / count - (returns / count) ** 2
        if variance > 1e-12:
            found[source] = 1 - (error_squares / count - (errors / count) ** 2) / variance
    return found


def _widened(values_BS: Tensor) -> Tensor:
    """Add the column of the last segment, 0 or False: the rest of a path has no process part."""
    return torch.cat([values_BS, torch.zeros_like(values_BS[:, :1])], dim=1)

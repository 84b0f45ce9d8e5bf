"""Advantages: baselines, normalisation of the two sources, and the mix that each token is trained on. Pure functions.

For a path with process returns G_k (``prm.credit``) and outcome reward o:

    A^p_k = G_k - b^p_k        a baseline for each step POSITION k
    A^o   = o - b^o
    token of step k:           w_p A^p_k + w_o A^o
    token outside the steps, separator inside a step, path without a step:   w_o A^o
    path on the outcome alone (anchor, or fallback because a score is not finite):   A^o on all tokens
    path that does not count (verdict not about the model):   0, and it enters no statistic

With baseline ``gae`` a critic gives the baselines and A^o has a value for each segment of a path (``policy.gae``).

When no path of the global batch has a usable process signal the whole batch is on the outcome alone. So a run whose
PRM returns only NaN is the outcome-only run, bit for bit: in both, every path is trained as an anchor.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from policy.gae import OUTCOME, Estimates, Segments, ValueTargets, source_advantages

GROUP_BASELINES = ("group", "rloo", "grpo")
BASELINES = ("moving_average", *GROUP_BASELINES, "gae")
EPSILON = 1e-4
"""Added to every scale that an advantage is divided by."""

ReduceSum = Callable[[Tensor], Tensor]
"""Sums a tensor of sums and counts over all ranks; the identity on one rank."""


@dataclasses.dataclass(frozen=True)
class MovingAverage:
    """Exponential moving average over generation batches, one slot for the outcome and one for each step position.

    Attributes:
        mean_K: current average of each slot; slot 0 is the outcome, slot k step position k (last slot: k and later).
        is_set_K: True = the slot has seen data.
        momentum: weight of the old average, in [0, 1).
    """

    mean_K: Float[Tensor, "slots"]
    is_set_K: Bool[Tensor, "slots"]
    momentum: float = 0.9

    @classmethod
    def create(cls, num_positions: int = 64, momentum: float = 0.9) -> Self:
        """Return an average that has seen nothing, with ``num_positions`` step positions."""
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {momentum}")
        slots = num_positions + 1
        return cls(torch.zeros(slots, dtype=torch.float64), torch.zeros(slots, dtype=torch.bool), momentum)

    def baseline(self, batch_mean_K: Tensor) -> Tensor:
        """Return b for this batch: the average BEFORE it, or the batch's own mean for a slot that has seen nothing."""
        return torch.where(self.is_set_K, self.mean_K, batch_mean_K)

    def updated(self, batch_mean_K: Tensor, batch_count_K: Tensor) -> Self:
        """Return the average after this batch; a slot without data in the batch stays as it is."""
        moved_K = self.momentum * self.mean_K + (1 - self.momentum) * batch_mean_K
        moved_K = torch.where(self.is_set_K, moved_K, batch_mean_K)
        has_data_K = batch_count_K > 0
        return dataclasses.replace(
            self, mean_K=torch.where(has_data_K, moved_K, self.mean_K), is_set_K=self.is_set_K | has_data_K
        )

    def state_dict(self) -> dict[str, Any]:
        """Return plain lists that ``from_state_dict`` restores exactly."""
        return {"mean": self.mean_K.tolist(), "is_set": self.is_set_K.tolist(), "momentum": self.momentum}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        return cls(torch.tensor(state["mean"], dtype=torch.float64), torch.tensor(state["is_set"]), state["momentum"])


@dataclasses.dataclass(frozen=True)
class AdvantageInputs:
    """What the advantages of one local generation batch are made of.

    Attributes:
        returns_BS: process return G_k of each step; non-finite where the PRM failed; not read where there is no step.
        is_step_BS: True = a real step (left-aligned).
        outcome_B: outcome reward with penalties.
        is_counted_B: True = the verdict is about the model: the path has a gradient and enters statistics.
        is_anchor_B: True = the path is trained on the outcome alone.
        group_B: explicit group id; paths with the same id answer the same problem.
        step_of_token_BT: index into the S axis, or -1 for a token outside every step.
        is_separator_BT: True = white-space-only token between steps: no process part.
        is_completion_BT: True = sampled token, False = padding.
        segments: states of the critic, None with another baseline than ``gae``.
    """

    returns_BS: Float[Tensor, "paths steps"]
    is_step_BS: Bool[Tensor, "paths steps"]
    outcome_B: Float[Tensor, "paths"]
    is_counted_B: Bool[Tensor, "paths"]
    is_anchor_B: Bool[Tensor, "paths"]
    group_B: Int[Tensor, "paths"]
    step_of_token_BT: Int[Tensor, "paths tokens"]
    is_separator_BT: Bool[Tensor, "paths tokens"]
    is_completion_BT: Bool[Tensor, "paths tokens"]
    segments: Segments | None = None


@dataclasses.dataclass(frozen=True)
class Advantages:
    """Token advantages and what happened on the way.

    Attributes:
        advantages_BT: what the surrogate is multiplied with; 0 on padding and on paths that do not count.
        moving_average: state after this batch (unchanged for the group kinds).
        process_share: realised share of the process part, sum|w_p A^p| / (sum|w_p A^p| + sum|outcome part|) over tokens
            of all ranks, in [0, 1]; 0 when both are 0.
        num_anchors, num_fallbacks, num_no_step, num_uncounted: local paths; a failed anchor is an anchor.
        num_groups, num_equal_groups: local groups with a counted path, and those whose outcomes are all equal.
        targets: what the critic learns from this batch, None without one.
    """

    advantages_BT: Float[Tensor, "paths tokens"]
    moving_average: MovingAverage
    process_share: float
    num_anchors: int
    num_fallbacks: int
    num_no_step: int
    num_uncounted: int
    num_groups: int
    num_equal_groups: int
    targets: ValueTargets | None = None


def is_anchor(seed: int, problem_id: str, generation: int, fraction: float) -> bool:
    """Return True for a share ``fraction`` of the problems of a generation batch; the same answer on every rank."""
    digest = hashlib.sha256(f"{seed}/{problem_id}/{generation}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < fraction


def group_advantages(
    values_N: Float[Tensor, "values"],
    group_N: Int[Tensor, "values"],
    is_counted_N: Bool[Tensor, "values"],
    kind: str,
) -> Float[Tensor, "values"]:
    """Return advantages inside groups, 0 for values that do not count.

    With n, mean, std (n - 1 in the denominator) of the counted values of the value's group:
    ``group``: x - mean; ``rloo``: x - mean of the others = (x - mean) n / (n - 1); ``grpo``: (x - mean) / (std + 1e-4).
    A group whose counted values are all equal (max == min), also a group of one, gives exactly 0.
    """
    if kind not in GROUP_BASELINES:
        raise ValueError(f"unknown group baseline {kind!r}; known: {', '.join(GROUP_BASELINES)}")
    _, index_N = torch.unique(group_N, return_inverse=True)
    num_groups = int(index_N.max()) + 1 if index_N.numel() else 0
    exact_N = torch.where(is_counted_N, values_N, torch.zeros_like(values_N)).double()
    count_G = _sum_into(is_counted_N.double(), index_N, num_groups)
    mean_G = _sum_into(exact_N, index_N, num_groups) / count_G.clamp(min=1)
    centred_N = torch.where(is_counted_N, exact_N - mean_G[index_N], torch.zeros_like(exact_N))
    is_equal_G = _is_equal_group(exact_N, is_counted_N, index_N, num_groups)
    if kind == "rloo":
        centred_N = centred_N * (count_G / (count_G - 1).clamp(min=1))[index_N]
    elif kind == "grpo":
        std_G = (_sum_into(centred_N.square(), index_N, num_groups) / (count_G - 1).clamp(min=1)).sqrt()
        centred_N = centred_N / (std_G[index_N] + EPSILON)
    is_zero_N = is_equal_G[index_N] | ~is_counted_N
    return torch.where(is_zero_N, torch.zeros_like(centred_N), centred_N).to(values_N.dtype)


def normalise(
    advantages: Float[Tensor, "*shape"], is_counted: Bool[Tensor, "*shape"], reduce_sum: ReduceSum
) -> Float[Tensor, "*shape"]:
    """Divide by the deviation from the baseline, sqrt(mean of A^2 over counted entries of all ranks) + 1e-4.

    The second moment is taken about the baseline and not about the mean of A: when a whole batch lies on one side of a
    moving baseline the standard deviation is near 0 and would blow a constant up. No mean is subtracted.
    """
    zeros = torch.zeros_like(advantages)
    counted = torch.where(is_counted, advantages, zeros).double()
    total = reduce_sum(torch.stack([counted.square().sum(), is_counted.double().sum()]))
    deviation = (total[0] / total[1].clamp(min=1)).sqrt() + EPSILON
    return torch.where(is_counted, (advantages.double() / deviation).to(advantages.dtype), zeros)


def compute_advantages(
    inputs: AdvantageInputs,
    *,
    process_weight: float,
    outcome_weight: float,
    baseline: str,
    normalise_sources: bool,
    moving_average: MovingAverage,
    reduce_sum: ReduceSum = lambda sums: sums,
    estimates: Estimates | None = None,
) -> Advantages:
    """Return the token advantages of a local batch (formulas in the module's docstring).

    Args:
        estimates: the critic's, with baseline ``gae``.

    Raises:
        ValueError: unknown baseline, or ``gae`` without segments or estimates.
    """
    if baseline not in BASELINES:
        raise ValueError(f"unknown baseline {baseline!r}; known: {', '.join(BASELINES)}")
    is_counted_B = inputs.is_counted_B & torch.isfinite(inputs.outcome_B)
    has_step_B = inputs.is_step_BS.any(dim=1)
    is_bad_B = (~torch.isfinite(inputs.returns_BS) & inputs.is_step_BS).any(dim=1)
    is_fallback_B = is_counted_B & ~inputs.is_anchor_B & is_bad_B
    is_process_B = is_counted_B & ~inputs.is_anchor_B & has_step_B & ~is_bad_B
    is_outcome_only_B = inputs.is_anchor_B | is_fallback_B
    if int(reduce_sum(is_process_B.sum())) == 0:
        is_outcome_only_B = torch.ones_like(is_outcome_only_B)

    is_credited_BS = is_process_B[:, None] & inputs.is_step_BS
    returns_BS = torch.where(is_credited_BS, inputs.returns_BS, torch.zeros_like(inputs.returns_BS))
    outcome_B = torch.where(is_counted_B, inputs.outcome_B, torch.zeros_like(inputs.outcome_B))
    outcome_BC, is_outcome_BC, column_BT, targets = outcome_B[:, None], is_counted_B[:, None], None, None
    if baseline == "gae":
        if inputs.segments is None or estimates is None:
            raise ValueError("baseline gae needs the segments of the paths and a critic's estimates")
        process_BS, outcome_BC, targets = source_advantages(
            inputs.segments, estimates, is_credited_BS, outcome_B, is_counted_B
        )
        is_outcome_BC = targets.is_valued_BN2[..., OUTCOME]
        column_BT = inputs.segments.of_tokens(inputs.step_of_token_BT.shape[1])
    elif baseline == "moving_average":
        process_BS, outcome_B, moving_average = _moving_average_advantages(
            returns_BS, is_credited_BS, outcome_B, is_counted_B, moving_average, reduce_sum
        )
        outcome_BC = outcome_B[:, None]
    else:
        process_BS = _positional(returns_BS, is_credited_BS, inputs.group_B, baseline)
        outcome_BC = group_advantages(outcome_B, inputs.group_B, is_counted_B, baseline)[:, None]
    if normalise_sources:
        process_BS = normalise(process_BS, is_credited_BS, reduce_sum)
        outcome_BC = normalise(outcome_BC, is_outcome_BC, reduce_sum)

    process_BT = process_weight * _to_tokens(process_BS, inputs.step_of_token_BT, inputs.is_separator_BT)
    outcome_BC = torch.where(is_outcome_only_B[:, None], outcome_BC, outcome_weight * outcome_BC)
    is_live_BT = inputs.is_completion_BT & is_counted_B[:, None]
    process_BT = torch.where(is_live_BT, process_BT, torch.zeros_like(process_BT))
    outcome_BT = outcome_BC if column_BT is None else outcome_BC.gather(1, column_BT)
    outcome_BT = torch.where(is_live_BT, outcome_BT, torch.zeros_like(process_BT))
    size = reduce_sum(torch.stack([process_BT.abs().sum(), outcome_BT.abs().sum()]).double())
    num_groups, num_equal = count_equal_groups(inputs.outcome_B, inputs.group_B, is_counted_B)
    return Advantages(
        advantages_BT=process_BT + outcome_BT,
        moving_average=moving_average,
        process_share=float(size[0] / size.sum()) if float(size.sum()) > 0 else 0.0,
        num_anchors=int((inputs.is_anchor_B & is_counted_B).sum()),
        num_fallbacks=int(is_fallback_B.sum()),
        num_no_step=int((is_counted_B & ~has_step_B).sum()),
        num_uncounted=int((~is_counted_B).sum()),
        num_groups=num_groups,
        num_equal_groups=num_equal,
        targets=targets,
    )


def count_equal_groups(
    values_N: Float[Tensor, "values"], group_N: Int[Tensor, "values"], is_counted_N: Bool[Tensor, "values"]
) -> tuple[int, int]:
    """Return how many groups hold a counted value, and in how many of those all counted values are equal."""
    _, index_N = torch.unique(group_N, return_inverse=True)
    num_groups = int(index_N.max()) + 1 if index_N.numel() else 0
    has_data_G = _sum_into(is_counted_N.double(), index_N, num_groups) > 0
    is_equal_G = _is_equal_group(values_N.double(), is_counted_N, index_N, num_groups)
    return int(has_data_G.sum()), int((has_data_G & is_equal_G).sum())


def _positional(returns_BS, is_credited_BS, group_B, kind):
    """Return A^p inside the groups of the same problem and step position."""
    num_steps = returns_BS.shape[1]
    position_BS = group_B[:, None] * num_steps + torch.arange(num_steps, device=returns_BS.device)
    flat = group_advantages(returns_BS.flatten(), position_BS.flatten(), is_credited_BS.flatten(), kind)
    return flat.view_as(returns_BS)


def _moving_average_advantages(returns_BS, is_credited_BS, outcome_B, is_counted_B, average, reduce_sum):
    """Return (A^p, A^o, average after this batch); sums and counts of every slot are taken over all ranks."""
    device, num_slots = outcome_B.device, average.mean_K.numel()
    slot_BS = torch.arange(1, returns_BS.shape[1] + 1, device=device).clamp(max=num_slots - 1).expand_as(returns_BS)
    slots_N = torch.cat([torch.zeros_like(outcome_B, dtype=torch.long), slot_BS.flatten()])
    values_N = torch.cat([outcome_B, returns_BS.flatten()]).double()
    is_counted_N = torch.cat([is_counted_B, is_credited_BS.flatten()])
    sums_2K = torch.stack(
        [
            _sum_into(torch.where(is_counted_N, values_N, torch.zeros_like(values_N)), slots_N, num_slots),
            _sum_into(is_counted_N.double(), slots_N, num_slots),
        ]
    )
    sums_2K = reduce_sum(sums_2K).cpu()
    mean_K = sums_2K[0] / sums_2K[1].clamp(min=1)
    baseline_K = average.baseline(mean_K).to(device)
    advantages_N = torch.where(is_counted_N, values_N - baseline_K[slots_N], torch.zeros_like(values_N))
    advantages_N = advantages_N.to(outcome_B.dtype)
    num_paths = outcome_B.shape[0]
    return (
        advantages_N[num_paths:].view_as(returns_BS),
        advantages_N[:num_paths],
        average.updated(mean_K, sums_2K[1]),
    )


def _to_tokens(values_BS, step_of_token_BT, is_separator_BT):
    """Give each token the value of its step; 0 outside the steps and on separators."""
    if values_BS.shape[1] == 0:
        return torch.zeros_like(step_of_token_BT, dtype=values_BS.dtype)
    values_BT = values_BS.gather(1, step_of_token_BT.clamp(min=0))
    return torch.where((step_of_token_BT >= 0) & ~is_separator_BT, values_BT, torch.zeros_like(values_BT))


def _sum_into(values_N: Tensor, index_N: Tensor, num_groups: int) -> Tensor:
    return torch.zeros(num_groups, dtype=values_N.dtype, device=values_N.device).index_add(0, index_N, values_N)


def _is_equal_group(values_N: Tensor, is_counted_N: Tensor, index_N: Tensor, num_groups: int) -> Tensor:
    """True where the counted values of a group are all equal (also for a group without any)."""
    low_G = torch.full((num_groups,), torch.inf, dtype=torch.float64, device=values_N.device)
    highest_N = values_N.masked_fill(~is_counted_N, -torch.inf)
    lowest_N = values_N.masked_fill(~is_counted_N, torch.inf)
    minimum_G = low_G.scatter_reduce(0, index_N, lowest_N, "amin")
    maximum_G = (-low_G).scatter_reduce(0, index_N, highest_N, "amax")
    return maximum_G <= minimum_G

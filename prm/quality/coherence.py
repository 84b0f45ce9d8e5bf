"""Coherence of neighbouring steps by a causal language model's likelihood. No words are compared.

For neighbours a, b of a path, with the problem and all steps before them as context c:

    gain = log p(a b | c) - log p(b a | c)        nats
    coherence of the pair = sigmoid(gain / SCALE), in (0, 1)

0.5: the model does not mind the order (independent steps); near 0: it would expect them the other way round. Both
sides hold the same text, so rare words, long steps and a weak model cancel out, as they do not in a likelihood or
perplexity of a step (ROSCOE, arXiv:2212.07919, table 3) or in its pointwise gain over the problem alone (ReCEval,
arXiv:2304.10703). The model must be frozen: a policy that judges itself can move the measure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from common.records import Path

SCALE = 2.0
"""Nats of a pair's gain at which its coherence is 0.73."""
MAX_PAIRS = 8
"""Pairs of a path that are looked at, spread evenly; each costs a forward of the path up to its end."""
MAX_TOKENS = 1024
"""Tokens of problem and path that are read; later pairs say nothing."""

Row = tuple[tuple[int, ...], int]
"""Token ids, and the first of them whose likelihood is asked for."""
Segments = Sequence[Sequence[int]]
"""Token ids of each step with the separator behind it; together with the prompt they are the path up to its answer."""


def segments_of(path: Path) -> list[list[int]]:
    """Return the steps of a sampled path as segments of its own tokens, [] for a path without token ids.

    What stands before the first step (white space as a rule) belongs to the first, what stands between two steps to
    the first of them. The last segment ends with its step and as much separator as the one before it has.
    """
    steps = path.steps
    if not steps or steps[0].token_start < 0:
        return []
    starts = [0, *(step.token_start for step in steps[1:])]
    gap = steps[-1].token_start - steps[-2].token_end if len(steps) > 1 else 0
    ends = [*starts[1:], min(len(path.token_ids), steps[-1].token_end + max(gap, 0))]
    return [list(path.token_ids[start:end]) for start, end in zip(starts, ends, strict=True)]


def pair_places(num_steps: int, max_pairs: int = MAX_PAIRS) -> list[int]:
    """Return the indices of the first step of the pairs that are looked at, evenly spread."""
    pairs = max(num_steps - 1, 0)
    if pairs <= max_pairs:
        return list(range(pairs))
    return [round(k * (pairs - 1) / (max_pairs - 1)) for k in range(max_pairs)] if max_pairs > 1 else [0]


def pair_coherence(gains: Sequence[float]) -> list[float]:
    """Return sigmoid(gain / SCALE) of each gain in nats."""
    return [1 / (1 + math.exp(-max(-50.0, min(50.0, gain / SCALE)))) for gain in gains]


def coherence(gains: Sequence[float]) -> float | None:
    """Return the mean of ``pair_coherence`` in (0, 1), None without a pair: a single step cannot be out of order."""
    return math.fsum(pair_coherence(gains)) / len(gains) if gains else None


def neighbour_gains(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    paths: Sequence[Segments],
    *,
    max_pairs: int = MAX_PAIRS,
    max_batch_tokens: int = 16_384,
) -> list[list[float]]:
    """Return the gain in nats of each pair looked at (``pair_places``), one list a path.

    Args:
        model: a causal language model; evaluation mode for the call, no gradient.
        prompts, paths: ids of the problem's prompt, and the segments of each path's steps.
        max_batch_tokens: tokens of a forward, padding included.
    """
    rows: list[Row] = []
    places: list[list[int]] = []
    bounds: list[list[int]] = []
    for prompt, segments in zip(prompts, paths, strict=True):
        ends = list(itertools.accumulate(map(len, segments), initial=len(prompt)))
        kept = [k for k in pair_places(len(segments), max_pairs) if ends[k + 2] <= MAX_TOKENS]
        places.append(kept)
        bounds.append(ends)
        ids = (*prompt, *itertools.chain.from_iterable(segments))
        if kept:
            rows.append((ids[: ends[kept[-1] + 2]], ends[0]))
        for k in kept:
            swapped = (*ids[: ends[k]], *segments[k + 1], *segments[k])
            rows.append((swapped, ends[k]))
    read = iter(tail_logprobs(model, rows, max_batch_tokens))
    gains = []
    for kept, ends in zip(places, bounds, strict=True):
        own = next(read) if kept else []
        sums = [math.fsum(own[ends[k] - ends[0] : ends[k + 2] - ends[0]]) for k in kept]
        gains.append([as_written - math.fsum(next(read)) for as_written in sums])
    return gains


def tail_logprobs(model: nn.Module, rows: Sequence[Row], max_batch_tokens: int = 16_384) -> list[list[float]]:
    """Return log p(ids[t] | ids[:t]) in nats for t = start .. len(ids) - 1 of each (ids, start), start >= 1.

    Rows are read shortest first, equal ones once.
    """
    was_training, device = model.training, next(model.parameters()).device
    found: dict[Row, list[float]] = {}
    model.eval()
    try:
        with torch.inference_mode():
            for batch in _batches(sorted(set(rows), key=lambda row: len(row[0])), max_batch_tokens):
                found.update(zip(batch, _tail_logprobs(model, batch, device), strict=True))
    finally:
        model.train(was_training)
    return [found[row] for row in rows]


def _batches(rows: Sequence[Any], max_batch_tokens: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for row in rows:  # shortest first, so that the newest is the longest
        if batch and (len(batch) + 1) * len(row[0]) > max_batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _tail_logprobs(model: nn.Module, rows: Sequence[Row], device: Any) -> list[list[float]]:
    width, first = max(len(ids) for ids, _ in rows), min(start for _, start in rows)
    ids_BT = torch.zeros(len(rows), width, dtype=torch.long)
    for row, (ids, _) in enumerate(rows):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
    ids_BT = ids_BT.to(device)  # padded on the right: under a causal model that changes nothing before it
    logits: Tensor = model(input_ids=ids_BT, use_cache=False, logits_to_keep=width - first + 1).logits
    taken_BT = logits[:, :-1].float().log_softmax(-1).gather(2, ids_BT[:, first:, None])[..., 0].cpu()
    return [taken_BT[row, start - first : len(ids) - first].tolist() for row, (ids, start) in enumerate(rows)]

"""Which token comes next: pure functions from logits and a uniform number to a token.

Axis letters: B rows, V vocabulary. One uniform number a token (inverse of the cumulative distribution) instead of V
Gumbel numbers, so that a path's noise is cheap to draw for each path on its own and to reproduce.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def uniform_noise(seed: int, prompt: Sequence[int], path: int, count: int) -> np.ndarray:
    """Return `count` uniform numbers in [0, 1), multiples of 2**-32, that depend on (seed, prompt, path) only.

    A longer `count` continues the same sequence.
    """
    content = np.asarray([seed, path, *prompt], dtype=np.int64).tobytes()
    key = np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), dtype=np.uint64)
    return np.random.Philox(key=key).random_raw(count).astype(np.uint64).__rshift__(np.uint64(32)) / 2.0**32


def filtered_logits(logits_BV: Tensor, temperature: float, top_p: float, top_k: int) -> Tensor:
    """Return logits / temperature with everything outside top-k, then outside the top-p nucleus, at -inf (float32)."""
    logits_BV = logits_BV.float() / temperature
    if 0 < top_k < logits_BV.shape[-1]:
        floor = logits_BV.topk(top_k, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < floor, -torch.inf)
    if top_p < 1:
        ordered, index = logits_BV.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        ordered = ordered.masked_fill(probs.cumsum(-1) - probs >= top_p, -torch.inf)
        logits_BV = torch.empty_like(ordered).scatter_(-1, index, ordered)
    return logits_BV


def pick_tokens(logits_BV: Tensor, u_B: Tensor, temperature: float, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """Return one token a row: the first v whose cumulative probability exceeds `u_B` (in [0, 1)); argmax when
    greedy.
    """
    if temperature == 0:
        return logits_BV.argmax(-1)
    probs = filtered_logits(logits_BV, temperature, top_p, top_k).softmax(-1)
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    chosen = torch.searchsorted(cumulative, (u_B * cumulative[:, -1]).unsqueeze(-1), right=True).squeeze(-1)
    return chosen.clamp_(max=logits_BV.shape[-1] - 1)


def request_seed(seed: int, prompt: Sequence[int], occurrence: int) -> int:
    """Return a 31-bit seed for one request that depends on (seed, prompt, occurrence) only."""
    content = np.asarray([seed, occurrence, *prompt], dtype=np.int64).tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "big") >> 1

"""A key/value cache with room set aside: rows are written in place, repeated for a prompt's paths and dropped as
they end.

The caches of `transformers` grow by concatenation, which copies everything at every token, or keep every row to the
end.
Axis letters: B rows, H key/value heads, T cached tokens, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

GROWTH = 16
"""Tokens of room added at a time: rows that lie close together are read faster than rows with much empty room
between.
"""


class RoomyLayer(CacheLayerMixin):
    """One layer's keys and values, (B, H, room, D) each, of which the first `filled` tokens hold something."""

    is_sliding = False

    keys: Tensor
    values: Tensor

    def __init__(
        self, capacity: int, keys: Tensor | None = None, values: Tensor | None = None, filled: int = 0
    ) -> None:
        super().__init__()
        self.capacity = capacity
        self.filled = filled
        if keys is not None and values is not None:
            self.keys, self.values = keys, values
            self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Set aside the room, in the shape, type and device of the first states."""
        self.keys, self.values = (_room(states, self.capacity) for states in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write (B, H, q, D) states behind what is there; return all filled keys and values as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.filled + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            room = min(max(end, self.keys.shape[-2] + GROWTH), self.capacity)
            self.keys, self.values = (_copied(old, self.filled, room) for old in (self.keys, self.values))
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return self.capacity

    def repeated(self, row_of_B: Tensor, capacity: int) -> RoomyLayer:
        """Return a new layer whose row b is this one's row `row_of_B[b]`, with room for `capacity` tokens."""
        room = min(self.filled + GROWTH, capacity)
        keys, values = (_copied(old[row_of_B], self.filled, room) for old in (self.keys, self.values))
        return RoomyLayer(capacity, keys, values, self.filled)

    def keep(self, kept: Tensor) -> None:
        """Row `kept[i]` moves to row i; only rows whose place changes are copied, all from behind the result."""
        target = torch.arange(len(kept), device=kept.device)
        moved = kept != target
        for states in (self.keys, self.values):
            states[target[moved], :, : self.filled] = states[kept[moved], :, : self.filled]
        self.keys, self.values = self.keys[: len(kept)], self.values[: len(kept)]


def _room(states: Tensor, room: int) -> Tensor:
    rows, heads, _, size = states.shape
    return states.new_empty(rows, heads, room, size)


def _copied(states: Tensor, filled: int, room: int) -> Tensor:
    new = _room(states, room)
    new[:, :, :filled] = states[:, :, :filled]
    return new


def new_cache(n_layers: int, capacity: int) -> Cache:
    """Return an empty cache of `n_layers` layers with room for `capacity` tokens."""
    return Cache(layers=[RoomyLayer(capacity) for _ in range(n_layers)])


def repeated(cache: Cache, row_of_B: Tensor, capacity: int) -> Cache:
    """Return a cache whose row b continues row `row_of_B[b]` of `cache`."""
    return Cache(layers=[layer.repeated(row_of_B, capacity) for layer in cache.layers])


def keep_rows(cache: Cache, kept: Tensor) -> None:
    """Shrink the cache in place: row `kept[i]` becomes row i. `kept` comes from `compaction`."""
    for layer in cache.layers:
        layer.keep(kept)


def compaction(alive_B: Tensor) -> Tensor:
    """Return, for each row of the shrunken batch, the row it comes from: holes in front are filled from behind.

    alive_B: True for rows that go on. As few rows as possible move: for [0, 1, 0, 1, 1] the three rows of the result
    come from rows [3, 1, 4].
    """
    size = int(alive_B.sum())
    source = torch.arange(size, device=alive_B.device)
    source[~alive_B[:size]] = size + alive_B[size:].nonzero().squeeze(-1)
    return source

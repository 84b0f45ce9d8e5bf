"""Sampling engines: one interface, a `transformers` engine that shares the trainer's module, and a vLLM engine.

Every engine takes prompts as token ids and returns the sampled ids unchanged: an end token that was sampled stays,
none is ever added, and nothing is decoded and encoded again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from common.records import FinishReason
from data_gen.kv_cache import compaction, keep_rows, new_cache, repeated
from data_gen.token_choice import pick_tokens, uniform_noise
from data_gen.token_spans import piece_table


@dataclasses.dataclass(frozen=True)
class Completion:
    """What an engine sampled for one path.

    Attributes:
        token_ids: ids as sampled. finish_reason: why it stopped.
        logprobs: log-prob of each id under the distribution it was drawn from (temperature applied), nats; None from
            an engine that samples from the trainer's own module, or was not asked for them.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...] | None = None


@dataclasses.dataclass
class EngineStats:
    """What one engine did so far: sampled tokens, prompt tokens computed, wall seconds inside `sample`."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Sampled tokens a second of wall time; 0 before the first sample."""
        return self.sampled_tokens / self.seconds if self.seconds else 0.0


class Engine(Protocol):
    """Samples completions. Implementations are interchangeable up to rounding of their log-probabilities."""

    stats: EngineStats

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        n: int,
        temperature: float,
        max_new_tokens: int,
        seed: int,
        top_p: float = 1.0,
        top_k: int = 0,
        stop: Sequence[str] = (),
    ) -> list[list[Completion]]:
        """Sample `n` completions for each prompt; result[i][j] is path j of prompt i.

        temperature 0 is greedy. top_k 0 and top_p 1 are off. A completion ends after an end token, after the token that
        completes one of the strings `stop` (the ids keep both; the caller cuts the text before the string), or at
        `max_new_tokens` (finish_reason LENGTH). The same seed gives the same path for a prompt, whatever else is in
        the batch.
        """
        ...


@dataclasses.dataclass(frozen=True)
class _Settings:
    temperature: float
    max_new_tokens: int
    seed: int
    top_p: float
    top_k: int
    stop: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.max_new_tokens < 1 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(
                f"sampling: temperature {self.temperature} (wanted >= 0), max_new_tokens {self.max_new_tokens} (>= 1), "
                f"top_p {self.top_p} (0 < p <= 1), top_k {self.top_k} (>= 0)"
            )


@dataclasses.dataclass(frozen=True)
class _Row:
    """One path to sample: which unique prompt, which path of it, and the (prompt, path) places of the result."""

    prompt: tuple[int, ...]
    path: int
    slots: tuple[tuple[int, int], ...]


def end_token_ids(model: nn.Module, tokenizer: Any) -> tuple[int, ...]:
    """Return every id that ends a completion: the tokenizer's and those of the model's generation config."""
    ids = {tokenizer.eos_token_id}
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids.update(configured if isinstance(configured, (list, tuple)) else [configured])
    return tuple(sorted(i for i in ids if i is not None))


KEEP_ENDED_ABOVE = 0.9
"""Rows that ended are dropped once fewer than this share of the batch goes on: dropping copies cache rows."""


def _rows_of(prompts: Sequence[Sequence[int]], n: int, *, greedy: bool) -> list[_Row]:
    """Return one row for each path to sample; all paths of a prompt share one row when greedy."""
    places: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for i, prompt in enumerate(prompts):
        places.setdefault(tuple(prompt), []).extend((i, j) for j in range(n))
    if greedy:
        return [_Row(prompt, 0, tuple(slots)) for prompt, slots in places.items()]
    return [_Row(prompt, k, (slot,)) for prompt, slots in places.items() for k, slot in enumerate(slots)]


def _completions(sampled: list[list[int]], lengths: list[int], has_ended: list[bool]) -> list[Completion]:
    reasons = (FinishReason.LENGTH, FinishReason.STOP)
    rows = zip(sampled, lengths, has_ended, strict=True)
    return [Completion(tuple(ids[:length]), reasons[ended]) for ids, length, ended in rows]


class StopWatch:
    """Tells for each row whether the text sampled so far holds a stop string."""

    def __init__(self, tokenizer: Any, stop: Sequence[str], n_rows: int) -> None:
        self._pieces = piece_table(tokenizer)
        self._stop = tuple(stop)
        self._keep = max(map(len, stop)) - 1
        self._tails = [""] * n_rows

    def feed(self, rows: list[int], tokens: list[int]) -> Tensor:
        """Add one token to each of `rows`; return True, (len(rows),), where a stop string was completed by it."""
        found = []
        for row, token in zip(rows, tokens, strict=True):
            text = self._tails[row] + self._pieces[token]
            found.append(any(string in text for string in self._stop))
            self._tails[row] = text[-self._keep :] if self._keep else ""
        return torch.tensor(found)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


class TransformersEngine:
    """Samples from a `transformers` causal model in this process; the trainer's own module needs no weight sync.

    Prompts are sorted by length; each distinct prompt is computed once, then its cache rows are repeated for its
    paths; rows leave batch and cache as they end. Padding is on the left, masked, with true position ids, so it
    changes nothing.

    Args:
        model: a causal LM with the forward of `transformers` (cache, logits_to_keep); read at each call, never changed.
        tokenizer: gives pad and end ids, and the text of tokens for stop strings.
        eos_token_ids: overrides the end ids found on tokenizer and generation config.
        max_rows: paths decoded at once. max_cache_tokens: bound on rows x (prompt + new tokens) at once.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        eos_token_ids: Sequence[int] | None = None,
        max_rows: int = 256,
        max_cache_tokens: int = 1 << 18,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.eos_token_ids = tuple(eos_token_ids) if eos_token_ids is not None else end_token_ids(model, tokenizer)
        self.max_rows = max_rows
        self.max_cache_tokens = max_cache_tokens
        self.stats = EngineStats()
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        takes = inspect.signature(type(inner).forward).parameters
        self._cache_name = "cache" if "cache" in takes else "past_key_values"

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        n: int,
        temperature: float,
        max_new_tokens: int,
        seed: int,
        top_p: float = 1.0,
        top_k: int = 0,
        stop: Sequence[str] = (),
    ) -> list[list[Completion]]:
        """See `Engine.sample`. A prompt given k times gets k * n different paths."""
        settings = _Settings(temperature, max_new_tokens, seed, top_p, top_k, tuple(stop))
        if n < 1 or any(len(prompt) == 0 for prompt in prompts):
            raise ValueError(f"sampling needs n >= 1 (got {n}) and prompts of at least one token")
        started = time.perf_counter()
        done: list[list[Completion | None]] = [[None] * n for _ in prompts]
        with _evaluating(self.model):
            for rows in self._groups(_rows_of(prompts, n, greedy=temperature == 0), max_new_tokens):
                for row, completion in zip(rows, self._decode(rows, settings), strict=True):
                    for i, j in row.slots:
                        done[i][j] = completion
        self.stats.sampled_tokens += sum(len(c.token_ids) for paths in done for c in paths if c)
        self.stats.seconds += time.perf_counter() - started
        return done  # type: ignore[return-value]  # every place is filled

    def _groups(self, rows: list[_Row], max_new_tokens: int) -> Iterator[list[_Row]]:
        """Cut rows, sorted by prompt length, into groups that fit `max_rows` and `max_cache_tokens`."""
        group: list[_Row] = []
        for row in sorted(rows, key=lambda row: (len(row.prompt), row.prompt, row.path)):
            tokens = (len(group) + 1) * (len(row.prompt) + max_new_tokens)
            if group and (len(group) == self.max_rows or tokens > self.max_cache_tokens):
                yield group
                group = []
            group.append(row)
        if group:
            yield group

    def _forward(self, ids_Bq: Tensor, bias: Tensor, positions_Bq: Tensor, cache: Any) -> Tensor:
        """Return the logits of the last column, (B, V). `bias`: (B, 1, q, T) added to attention scores."""
        outputs = self.model(
            input_ids=ids_Bq,
            attention_mask=bias,
            position_ids=positions_Bq,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: cache},
        )
        return outputs.logits[:, -1]

    def _prefill(self, rows: list[_Row], capacity: int) -> tuple[Tensor, Any, Tensor]:
        """Compute each distinct prompt of `rows` once.

        Returns logits (B, V), a cache of B rows with `capacity` and the number of pads in front of each row (B,).
        """
        unique = list(dict.fromkeys(row.prompt for row in rows))
        place = {prompt: i for i, prompt in enumerate(unique)}
        width = max(map(len, unique))
        pads = torch.tensor([width - len(prompt) for prompt in unique])
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in unique])
        column = torch.arange(width)
        is_seen = (column[None, None, :] >= pads[:, None, None]) & (column[None, None, :] <= column[None, :, None])
        parameter = next(self.model.parameters())
        device, dtype = parameter.device, parameter.dtype
        bias = torch.where(is_seen, 0.0, torch.finfo(dtype).min).to(device, dtype)[:, None]
        positions = (column[None, :] - pads[:, None]).clamp(min=0)
        cache = new_cache(self.model.config.num_hidden_layers, width)
        logits = self._forward(ids.to(device), bias, positions.to(device), cache)
        self.stats.prompt_tokens += sum(map(len, unique))
        row_of_B = torch.tensor([place[row.prompt] for row in rows])
        return logits[row_of_B.to(device)], repeated(cache, row_of_B.to(device), capacity), pads[row_of_B].to(device)

    def _decode(self, rows: list[_Row], settings: _Settings) -> list[Completion]:
        """Sample all rows of a group, one token a round, and return their completions in order."""
        width, limit = max(len(row.prompt) for row in rows), settings.max_new_tokens
        logits, cache, pads = self._prefill(rows, width + limit)
        device = logits.device
        is_padding = torch.arange(width + limit, device=device) < pads[:, None]
        bias = torch.where(is_padding, torch.finfo(logits.dtype).min, 0.0).to(logits.dtype)[:, None, None, :]
        noise = np.stack([uniform_noise(settings.seed, row.prompt, row.path, limit) for row in rows])
        noise = torch.from_numpy(noise).to(device)
        eos = torch.tensor(self.eos_token_ids, device=device)
        watch = StopWatch(self.tokenizer, settings.stop, len(rows)) if settings.stop else None
        sampled = torch.zeros(len(rows), limit, dtype=torch.long, device=device)
        lengths = torch.full((len(rows),), limit, device=device)
        has_ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
        place_B = torch.arange(len(rows), device=device)  # row of the batch -> row of the group
        for t in range(limit):
            tokens = pick_tokens(logits, noise[place_B, t], settings.temperature, settings.top_p, settings.top_k)
            sampled[place_B, t] = tokens
            ends = torch.isin(tokens, eos)
            if watch:
                ends |= watch.feed(place_B.tolist(), tokens.tolist()).to(device)
            ends &= ~has_ended[place_B]
            lengths[place_B[ends]] = t + 1
            has_ended[place_B[ends]] = True
            alive = ~has_ended[place_B]
            n_alive = int(alive.sum())
            if n_alive == 0 or t == limit - 1:
                break
            if n_alive < KEEP_ENDED_ABOVE * len(alive):
                kept = compaction(alive)
                keep_rows(cache, kept)
                tokens, place_B, bias, pads = tokens[kept], place_B[kept], bias[kept], pads[kept]
            positions = (width + t - pads)[:, None]
            logits = self._forward(tokens[:, None], bias[..., : width + t + 1], positions, cache)
        return _completions(sampled.tolist(), lengths.tolist(), has_ended.tolist())


def make_engine(name: str, model: Any, tokenizer: Any, **settings: Any) -> Engine:
    """Build an engine by name: `transformers` (model is a module) or `vllm` (model is the directory of saved weights).

    Raises ValueError for another name and, for `vllm` without the package, InputError naming the extra to install.
    """
    if name == "transformers":
        return TransformersEngine(model, tokenizer, **settings)
    if name == "vllm":
        from data_gen.vllm_engine import VllmEngine

        return VllmEngine(model, tokenizer, **settings)
    raise ValueError(f"engine: {name!r} is not known; wanted 'transformers' or 'vllm'")

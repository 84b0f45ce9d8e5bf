"""Which problems make a generation batch, and how a generation batch becomes the micro-batches of its updates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

_MASK_64 = (1 << 64) - 1


def derived_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part (splitmix64 over them)."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state ^ (part & _MASK_64)) & _MASK_64
        state = (state + 0x9E3779B97F4A7C15) & _MASK_64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK_64
        state ^= state >> 31
    return state >> 1


class BatchPlan:
    """Random access to the problems of every generation batch of a run; depends on nothing but its arguments.

    Problems are sorted by difficulty (unknown ones count as 0.5) and cut into bands of equal size; batch g comes from
    band g mod bands. Inside a band the order is a new permutation for each pass, and a batch never holds a problem
    twice (the rest of a pass that does not fill a batch is dropped).

    Raises:
        ValueError: fewer problems in a band than a batch needs.
    """

    def __init__(self, difficulties: Sequence[float | None], batch_size: int, bands: int, seed: int) -> None:
        order = sorted(range(len(difficulties)), key=lambda i: (_known(difficulties[i]), i))
        self.batch_size, self.seed = batch_size, seed
        self._bands = [order[len(order) * b // bands : len(order) * (b + 1) // bands] for b in range(bands)]
        smallest = min(len(band) for band in self._bands)
        if smallest < batch_size:
            raise ValueError(
                f"{len(difficulties)} problems in {bands} difficulty band(s) give bands of {smallest}; a batch needs "
                f"{batch_size} problems: use more problems, fewer bands or a smaller batch"
            )

    def batch(self, generation: int) -> list[int]:
        """Return the problem indices of generation batch ``generation`` (0-based)."""
        bands = len(self._bands)
        band, turn = generation % bands, generation // bands
        indices = self._bands[band]
        batches_a_pass = len(indices) // self.batch_size
        pass_index, place = divmod(turn, batches_a_pass)
        generator = torch.Generator().manual_seed(derived_seed(self.seed, band, pass_index))
        order = torch.randperm(len(indices), generator=generator).tolist()
        return [indices[i] for i in order[place * self.batch_size : (place + 1) * self.batch_size]]

    @property
    def batches_a_pass(self) -> int:
        """Generation batches in which every problem comes once at most."""
        return sum(len(band) // self.batch_size for band in self._bands)

    # What follows is for plans that change with what the policy can do (``policy.curriculum``); this one does not.

    def rows(self, generation: int, drawn: Sequence[int]) -> list[int]:
        """The problem indices that rows ``drawn`` by the sampler stand for when batch ``generation`` is sampled."""
        return list(drawn)

    def facts(self) -> dict[str, float]:
        """Metrics of the batch at hand."""
        return {}

    def after_evaluation(self, num_batches: int, metrics: Mapping[str, float]) -> str | None:
        """Take in a validation after ``num_batches`` generation batches; a line in words if the plan changed."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a checkpoint was written."""


class PlanSampler(Sampler):
    """Rows of every micro-step of a run, as TRL's dataloader expects them: each batch repeated for every micro-step.

    One pass over it is the whole run, so skipping the first batches resumes it and no state has to be saved.
    """

    def __init__(self, plan: BatchPlan, generations: int, paths: int, repeats: int) -> None:
        self._plan, self._generations, self._paths, self._repeats = plan, generations, paths, repeats

    def __iter__(self) -> Iterator[int]:
        for generation in range(self._generations):
            rows = [index for index in self._plan.batch(generation) for _ in range(self._paths)]
            for _ in range(self._repeats):
                yield from rows

    def __len__(self) -> int:
        return self._generations * self._plan.batch_size * self._paths * self._repeats


def generations_needed(args: Any) -> int:
    """Return the number of generation batches that ``args.max_steps`` updates take."""
    return math.ceil(
        args.max_steps * args.gradient_accumulation_steps / (args.steps_per_generation * args.num_iterations)
    )


def sort_windows(micro_batches: list[dict[str, Any]], accumulation: int) -> list[dict[str, Any]]:
    """Sort the paths of each update (``accumulation`` micro-batches) by length, so that micro-batches pad little.

    The update's loss is a sum over its paths divided by counts of the whole update, so the order inside an update
    changes nothing but the rounding. Each micro-batch also gets ``window_trained`` and ``window_reasoning``: the counts
    of trained and of reasoning tokens of its update on this rank; with a critic also ``window_valued``, (2,): the
    states it learns from, by source.
    """
    arranged = []
    for start in range(0, len(micro_batches), accumulation):
        window = micro_batches[start : start + accumulation]
        size = len(window[0]["completion_ids"])
        merged = {key: _join([batch[key] for batch in window]) for key in window[0]}
        order = (merged["prompt_mask"].sum(1) + merged["completion_mask"].sum(1)).argsort(stable=True)
        counts = {
            "window_trained": merged["is_trained"].sum().double(),
            "window_reasoning": merged["is_reasoning"].sum().double(),
        }
        if "is_valued" in merged:
            counts["window_valued"] = merged["is_valued"].sum(dim=(0, 1)).double()
        for rows in order.split(size):
            arranged.append({key: _take(value, rows) for key, value in merged.items()} | counts)
    return arranged


def _known(difficulty: float | None) -> float:
    return 0.5 if difficulty is None else difficulty


def _join(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return first if first.ndim == 0 else torch.cat(values)
    return None if first is None else [item for value in values for item in value]


def _take(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value if value.ndim == 0 else value[rows]
    return None if value is None else [value[row] for row in rows.tolist()]

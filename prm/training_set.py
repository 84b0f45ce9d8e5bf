"""What one epoch of a PRM fit reads: each distinct path once, cut soon after its first error, like lengths together.

Sampled paths repeat and go on long after they went wrong; neither teaches a PRM much and both cost time. On 8 paths a
problem of 2 to 8 steps, taking equal paths once leaves 60 % of the tokens, and cutting at the first error a third
(LOG.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

from common.records import IGNORED
from prm.inputs import PRMInput
from prm.score import label_first_error


def training_view(inputs: Sequence[PRMInput], *, steps_after_error: int | None) -> list[PRMInput]:
    """Return the distinct training inputs: cut, then equal ones merged.

    Cutting takes away the steps from ``first error + 1 + steps_after_error`` on, so that a few steps still teach that
    what follows an error stays wrong; and ignored steps at the end. Merging takes the mean of labels that differ (the
    summed cross entropy has the same minimum); paths whose ignored steps differ stay apart.

    Args:
        inputs: labelled inputs.
        steps_after_error: steps kept behind the first wrong one, >= 0; None keeps all.
    """
    merged: dict[tuple[object, ...], list[PRMInput]] = {}
    for one in inputs:
        cut = _cut(one, steps_after_error)
        ignored = tuple(label == IGNORED for label in cut.labels or ())
        merged.setdefault((cut.problem_id, cut.token_ids, cut.step_positions, ignored), []).append(cut)
    return [_mean(equal) for equal in merged.values()]


def _cut(one: PRMInput, steps_after_error: int | None) -> PRMInput:
    labels = one.labels or ()
    kept = max((k + 1 for k, label in enumerate(labels) if label != IGNORED), default=0)
    first = label_first_error(labels)
    if first is not None and steps_after_error is not None:
        kept = min(kept, first + 1 + steps_after_error)
    if kept in (0, len(labels)):
        return one
    positions = one.step_positions[:kept]
    return dataclasses.replace(
        one, token_ids=one.token_ids[: positions[-1] + 1], step_positions=positions, labels=labels[:kept]
    )


def _mean(equal: Sequence[PRMInput]) -> PRMInput:
    columns = zip(*(one.labels or () for one in equal), strict=True)
    return dataclasses.replace(equal[0], labels=tuple(sum(column) / len(equal) for column in columns))


class LengthGrouped(Sampler[int]):
    """Random order in which neighbours have similar length; fixed by (seed, epoch), so a resumed fit repeats it.

    Paths are shuffled, sorted by length within pools of 16 windows, and the windows shuffled: little padding, and no
    trend of length over an epoch.
    """

    def __init__(self, lengths: Sequence[int], window: int, seed: int) -> None:
        self.lengths = lengths
        self.window = window
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(stable_hash(self.seed, self.epoch) % 2**63)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        pool = 16 * self.window
        pooled = [
            row
            for start in range(0, len(order), pool)
            for row in sorted(order[start : start + pool], key=self.lengths.__getitem__)
        ]
        windows = [pooled[start : start + self.window] for start in range(0, len(pooled), self.window)]
        last = windows.pop() if len(windows[-1]) < self.window else []  # a short window must stay the last
        shuffled = torch.randperm(len(windows), generator=generator).tolist()
        return iter([row for window in shuffled for row in windows[window]] + last)


class WholeWindows(Sampler[int]):
    """``LengthGrouped`` for several processes: the last, short window is dealt out evenly and filled with a blank row.

    accelerate would fill it with rows of the epoch's start, which then count twice.

    Args:
        batch: rows of a micro-batch; a window is a whole number of them.
        blank: index of a row without labels (``blank_row``).
    """

    def __init__(self, rows: LengthGrouped, batch: int, blank: int) -> None:
        self.rows, self.batch, self.blank = rows, batch, blank

    def set_epoch(self, epoch: int) -> None:
        self.rows.set_epoch(epoch)

    def __len__(self) -> int:
        return -(-len(self.rows) // self.rows.window) * self.rows.window

    def __iter__(self) -> Iterator[int]:
        order = list(self.rows)
        whole = len(order) // self.rows.window * self.rows.window
        last, batches = order[whole:], self.rows.window // self.batch
        yield from order[:whole]
        if last:
            for number in range(batches):
                dealt = last[number::batches]
                yield from dealt + [self.blank] * (self.batch - len(dealt))


def blank_row(inputs: Sequence[PRMInput]) -> PRMInput:
    """The shortest input, its labels ignored: it adds nothing to a loss."""
    shortest = min(inputs, key=lambda one: len(one.token_ids))
    return dataclasses.replace(shortest, labels=(float(IGNORED),) * len(shortest.step_positions))


def stable_hash(*parts: object) -> int:
    """A 64-bit number that depends on ``parts`` only, the same in every process."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:16], 16)

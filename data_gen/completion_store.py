"""Outcomes of completions kept on disk, so that labelling that was killed goes on where it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.checksums import read_checked_rows, write_checked_rows
from common.records import content_id
from data_gen.completions import CompletionCost, CompletionSampler, PrefixKey

CHUNK = 128
"""Prefixes between two saves."""


@dataclasses.dataclass(frozen=True)
class StoredCompletions:
    """A ``CompletionSampler`` with a memory in a folder.

    Attributes:
        sampler: samples what is not there.
        folder: a file a chunk of prefixes, named by a hash of all that its outcomes depend on but the model.
        say: is told what is read and not sampled again, and which file is not trusted.
        on_chunk: called when a chunk is safe.
        chunk: prefixes of a file.
    """

    sampler: CompletionSampler
    folder: FilePath
    say: Callable[[str], None] = print
    on_chunk: Callable[[], None] = lambda: None
    chunk: int = CHUNK

    def outcomes(self, keys: Sequence[PrefixKey], n: int, cost: CompletionCost) -> dict[PrefixKey, list[bool]]:
        """See ``CompletionSampler.outcomes``; what is read is charged as when it was sampled, seconds left out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        found: dict[PrefixKey, list[bool]] = {}
        read = 0
        for start in range(0, len(keys), self.chunk):
            members = list(keys[start : start + self.chunk])
            file = self.folder / f"{self._id(members, n)}.jsonl"
            rows = read_checked_rows(file, _as_read, self.say)
            if rows is None:
                if read:
                    self.say(f"completions of {read} of {len(keys)} prefixes are there; continues after them")
                    read = 0
                rows = self._sampled(members, n)
                write_checked_rows(file, rows)
                self.on_chunk()
            else:
                read += len(members)
            right = {key: list(row["right"]) for key, row in zip(members, rows, strict=True)}
            found |= right
            cost.prefixes += len(members)
            cost.completions += sum(map(len, right.values()))
            cost.tokens += sum(row["tokens"] for row in rows)
        return found

    def _sampled(self, members: Sequence[PrefixKey], n: int) -> list[Mapping[str, Any]]:
        """One row a prefix; the first carries the sampled tokens of all."""
        cost = CompletionCost()
        right = self.sampler.outcomes(members, n, cost)
        return [{"right": right[key], "tokens": cost.tokens if k == 0 else 0} for k, key in enumerate(members)]

    def _id(self, members: Sequence[PrefixKey], n: int) -> str:
        settings = dataclasses.astuple(self.sampler.sampling)
        return content_id(members, n, self.sampler.seed, settings)


def _as_read(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row

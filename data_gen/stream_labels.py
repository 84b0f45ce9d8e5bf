"""Labels of a pool that fits no memory: problems are labelled a chunk at a time, wherever the chunk is, and what the
chunks hold is then put together from file to file.
"""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from common.checksums import read_checked, read_checked_rows, write_checked_rows
from common.errors import InputError, RunError
from common.records import LabelledPath, Path, Problem, content_id
from common.runs import read_rows_at
from data_gen.label_quality import QualityCounts, count_quality
from data_gen.labels import LabelSettings, LabelSummary, can_be_labelled, label_paths, merged
from data_gen.synthetic import judge


@dataclasses.dataclass(frozen=True)
class LabelChunk:
    """Problems whose paths are labelled together.

    Attributes:
        file: where the labelled paths go, and behind them their `LabelTotals`.
        paths_file, place, count: the chunk's paths: so many lines from this byte on.
        problems_file, places: bytes at which its problems start.
    """

    file: str
    paths_file: str
    place: int
    count: int
    problems_file: str
    places: tuple[int, ...]

    def paths(self) -> list[Path]:
        with open(self.paths_file, "rb") as handle:
            handle.seek(self.place)
            return [Path.from_row(json.loads(handle.readline())) for _ in range(self.count)]

    def problems(self) -> list[Problem]:
        problems = []
        with open(self.problems_file, "rb") as handle:
            for place in self.places:
                handle.seek(place)
                problems.append(Problem.from_row(json.loads(handle.readline())))
        return problems


@dataclasses.dataclass(frozen=True)
class LabelTotals:
    """What is counted of labelled paths; totals of parts without a common problem add up.

    Attributes:
        summary: of `label_paths`. judged: paths that `can_be_labelled`.
        quality, unknown: against the oracle; paths that it cannot judge. Zeros where it was not asked.
    """

    summary: LabelSummary
    judged: int
    quality: QualityCounts = dataclasses.field(default_factory=QualityCounts)
    unknown: int = 0

    def __add__(self, other: LabelTotals) -> LabelTotals:
        judged = self.judged + other.judged
        summary = merged([self.summary, other.summary], judged)
        return LabelTotals(summary, judged, self.quality + other.quality, self.unknown + other.unknown)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> LabelTotals:
        return cls(LabelSummary(**row["summary"]), row["judged"], QualityCounts(**row["quality"]), row["unknown"])


def cut_label_chunks(
    paths_file: FilePath, problems_file: FilePath, folder: FilePath, size: int, *identity: object
) -> list[LabelChunk]:
    """Cut a file of paths, those of a problem side by side, into chunks of `size` problems.

    identity: what the labels depend on; it enters the names of the chunks' files.

    Raises:
        InputError: a path's problem is not in `problems_file`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids, starts = array("Q"), array("q")
    for start, row in read_rows_at(problems_file):
        ids.append(int(row["id"], 16))
        starts.append(start)
    order = np.argsort(np.asarray(ids), kind="stable")
    sorted_ids = np.asarray(ids)[order]
    chunks: list[LabelChunk] = []
    place, count = 0, 0
    places: list[int] = []
    for problem_id, rows in groupby(read_rows_at(paths_file), key=lambda at: at[1]["problem_id"]):
        first, *others = (start for start, _ in rows)
        if len(places) == size:
            chunks.append(_chunk(folder, identity, paths_file, place, count, problems_file, places))
            count, places = 0, []
        place = place if places else first
        count += 1 + len(others)
        found = int(np.searchsorted(sorted_ids, np.uint64(int(problem_id, 16))))
        if found == len(sorted_ids) or int(sorted_ids[found]) != int(problem_id, 16):
            raise InputError(f"{problems_file}: no problem {problem_id!r}, which has paths in {paths_file}")
        places.append(starts[order[found]])
    if places:
        chunks.append(_chunk(folder, identity, paths_file, place, count, problems_file, places))
    return chunks


def _chunk(
    folder: FilePath,
    identity: Sequence[object],
    paths_file: FilePath,
    place: int,
    count: int,
    problems_file: FilePath,
    places: Sequence[int],
) -> LabelChunk:
    file = folder / f"{place:012d}-{content_id(*identity, place, count)}.jsonl"
    return LabelChunk(str(file), str(paths_file), place, count, str(problems_file), tuple(places))


def oracle_quality(labelled: Sequence[LabelledPath], texts: dict[str, str]) -> tuple[QualityCounts, int]:
    """Compare labels with the exact oracle; the paths that it cannot judge are left out and counted.

    texts: problem id -> text.
    """
    truths = [judge(texts[row.path.problem_id], [step.text for step in row.path.steps]) for row in labelled]
    known = [(row, truth.first_error) for row, truth in zip(labelled, truths, strict=True) if not truth.unknown]
    return count_quality([row for row, _ in known], [error for _, error in known]), len(labelled) - len(known)


def label_chunk(chunk: LabelChunk, settings: LabelSettings, has_oracle: bool) -> int:
    """Label one chunk, compare with the oracle where there is one, write both; return the number of paths."""
    paths, texts = chunk.paths(), {problem.id: problem.text for problem in chunk.problems()}
    labelled, summary = label_paths(paths, settings, texts)
    judged = sum(map(can_be_labelled, paths))
    totals = LabelTotals(summary, judged, *(oracle_quality(labelled, texts) if has_oracle else ()))
    write_checked_rows(FilePath(chunk.file), [*(row.to_row() for row in labelled), dataclasses.asdict(totals)])
    return len(paths)


def label_missing(
    chunks: Sequence[LabelChunk],
    label: Callable[[Sequence[LabelChunk]], Iterable[int]],
    say: Callable[[str], None] = print,
    on_chunk: Callable[[], None] = lambda: None,
) -> LabelTotals:
    """Let `label` write the chunks that are not there or cannot be trusted, and return the totals of all."""
    missing = [chunk for chunk in chunks if read_checked(FilePath(chunk.file), say) is None]
    if 0 < len(missing) < len(chunks):
        problem = missing[0].problems()[0].id
        say(f"label: {len(chunks) - len(missing)} of {len(chunks)} chunks are there; continues with problem {problem}")
    for _ in label(missing) if missing else ():
        on_chunk()
    totals = LabelTotals(label_paths([])[1], 0)
    for chunk in chunks:
        totals += LabelTotals.from_row(_rows(chunk, say)[-1])
    return totals


def labelled_rows(chunks: Iterable[LabelChunk], say: Callable[[str], None] = print) -> Iterator[dict[str, Any]]:
    """Rows of all labelled paths, in order; one chunk is held at a time."""
    for chunk in chunks:
        yield from _rows(chunk, say)[:-1]


def _rows(chunk: LabelChunk, say: Callable[[str], None]) -> list[dict[str, Any]]:
    rows = read_checked_rows(FilePath(chunk.file), dict, say)
    if rows is None:
        raise RunError(f"{chunk.file}: gone or changed while the stage was running; run again: it is labelled again")
    return rows

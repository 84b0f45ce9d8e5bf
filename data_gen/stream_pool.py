"""`data_gen.sample.make_pool` for pools that fit no memory: the same problems and paths, from file to file.

Of a problem three numbers are held: its pass rate, its kind and the key by which kinds are balanced. What is sampled
goes from the chunks' files to the stage's files one chunk at a time.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from common.records import Path, Problem, content_id
from common.runs import read_rows, write_rows
from data_gen.chunks import Chunk, Draw, Fill, cut_chunks, fill_missing, read_groups
from data_gen.measure import SampleSettings, pass_rate
from data_gen.sample import PoolSettings


@dataclasses.dataclass(frozen=True)
class Measured:
    """What is held of the P problems of a pool.

    Attributes:
        rate_P: pass rates, NaN where no path was judged.
        kind_P: index into `kinds`.
        key_P: who stays when kinds are balanced: the smallest keys of a kind.
    """

    rate_P: Float[np.ndarray, problems]
    kind_P: Int[np.ndarray, problems]
    key_P: UInt64[np.ndarray, problems]
    kinds: tuple[str, ...]

    def chosen(self, pool: PoolSettings) -> tuple[Bool[np.ndarray, problems], Bool[np.ndarray, problems]]:
        """Masks of the problems that are kept, and of those whose measuring paths alone are handed on."""
        is_in_band = (self.rate_P >= pool.pass_low) & (self.rate_P <= pool.pass_high)  # NaN: False
        is_kept = is_in_band.copy()
        counts = np.bincount(self.kind_P[is_in_band])
        if pool.balance > 0 and is_in_band.any():
            most = max(1, round(pool.balance * int(counts[counts > 0].min())))
            for kind in np.flatnonzero(counts > most):
                members = np.flatnonzero(is_in_band & (self.kind_P == kind))
                order = np.argsort(self.key_P[members], kind="stable")
                is_kept[members[order[most:]]] = False
        is_mixed = (self.rate_P > 0) & (self.rate_P < 1)
        return is_kept, is_mixed & ~is_in_band & pool.label_measured


@dataclasses.dataclass(frozen=True)
class PoolCounts:
    """Counts of a pool, as `data_gen.sample.Pool` holds the problems themselves."""

    measured: int
    mean_pass_rate: float
    kept: int
    kept_by_topic: Mapping[str, int]
    others: int
    paths: int


def stream_pool(
    problems: Iterable[Problem],
    folder: FilePath,
    pool: PoolSettings,
    settings: SampleSettings,
    fill: Fill,
    *,
    problems_file: FilePath,
    paths_file: FilePath,
    say: Callable[[str], None] = print,
    on_chunk: Callable[[], None] = lambda: None,
) -> PoolCounts:
    """Measure every problem, keep the band, balance kinds, sample the kept ones up to `paths` paths.

    Writes what `make_pool` returns: `measured` to `problems_file`, `paths` to `paths_file`, neither when nothing is
    kept. Chunk files have the names that `make_pool` gives them: a run may change from one to the other.
    """
    asked = folder / "pool.jsonl"
    draw = Draw(pool.measure_paths, pool.seed, 0, settings)
    folder.mkdir(parents=True, exist_ok=True)
    first = cut_chunks(problems, asked, folder / "measure", draw, pool.chunk)
    fill_missing(first, draw, fill, "measure", say, on_chunk)
    measured = _measure(asked, first, pool, say)
    is_kept, is_other = measured.chosen(pool)
    rest = pool.paths - pool.measure_paths
    more: list[Chunk] = []
    if rest and is_kept.any():
        draw = Draw(rest, pool.seed, pool.measure_paths, settings)
        kept = (problem for problem, keep in zip(_rated(asked, measured), is_kept, strict=True) if keep)
        more = cut_chunks(kept, folder / "kept.jsonl", folder / "paths", draw, pool.chunk)
        fill_missing(more, draw, fill, "sample", say, on_chunk)
    if is_kept.any():
        write_rows(problems_file, (problem.to_row() for problem in _rated(asked, measured)))
        write_rows(paths_file, _paths(first, more, pool, is_kept, is_other, say))
    counts = Counter(measured.kinds[kind] for kind in measured.kind_P[is_kept])
    rates = measured.rate_P[~np.isnan(measured.rate_P)]
    return PoolCounts(
        measured=len(is_kept),
        mean_pass_rate=sum(map(float, rates)) / max(len(rates), 1),
        kept=int(is_kept.sum()),
        kept_by_topic=dict(sorted(counts.items())),
        others=int(is_other.sum()),
        paths=int(is_kept.sum()) * pool.paths + int(is_other.sum()) * pool.measure_paths,
    )


def _measure(asked: FilePath, chunks: list[Chunk], pool: PoolSettings, say: Callable[[str], None]) -> Measured:
    kinds: dict[str, int] = {}
    rates, own_kinds, keys = array("d"), array("i"), array("Q")
    groups = read_groups(chunks, pool.measure_paths, say)
    for row, group in zip(read_rows(asked), groups, strict=True):
        rate = pass_rate([Path.from_row(path) for path in group])
        rates.append(float("nan") if rate is None else rate)
        own_kinds.append(kinds.setdefault(row["topic"], len(kinds)))
        keys.append(int(content_id(pool.seed, row["id"]), 16))
    return Measured(np.asarray(rates), np.asarray(own_kinds), np.asarray(keys), tuple(kinds))


def _rated(asked: FilePath, measured: Measured) -> Iterator[Problem]:
    for row, rate in zip(read_rows(asked), measured.rate_P, strict=True):
        yield dataclasses.replace(Problem.from_row(row), difficulty=None if np.isnan(rate) else float(rate))


def _paths(
    first: list[Chunk],
    more: list[Chunk],
    pool: PoolSettings,
    is_kept: Bool[np.ndarray, problems],
    is_other: Bool[np.ndarray, problems],
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Rows of all paths of the kept problems, then of the measuring paths of the others, in the order of the pool."""
    rest = read_groups(more, pool.paths - pool.measure_paths, say)
    for group, keep in zip(read_groups(first, pool.measure_paths, say), is_kept, strict=True):
        if keep:
            yield from group
            yield from next(rest) if more else ()
    if is_other.any():
        for group, is_asked in zip(read_groups(first, pool.measure_paths, say), is_other, strict=True):
            yield from group if is_asked else ()

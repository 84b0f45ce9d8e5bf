"""The sampling half of the data stage: measure pass rates, keep the middle band, balance kinds, sample the rest of
the paths.

Work is cut into chunks of problems in the order given. A chunk's file is written by rename, holds what was sampled,
and is read instead of sampled again by a later run; seeds come from problem and path, so a killed run ends with the
same paths. The paths that measured a problem's pass rate are the first of its group: a kept problem only needs the
others.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from tqdm import tqdm

from common.checksums import read_checked_rows
from common.errors import RunError
from common.records import Path, Problem, content_id
from data_gen.chunks import Draw, write_paths
from data_gen.engines import Engine
from data_gen.measure import Accuracy, RenderPrompt, SampleSettings, pass_rate, sample_paths
from data_gen.sampling_workers import SamplingWorkers


@dataclasses.dataclass(frozen=True)
class PoolSettings:
    """How the pool is made.

    Attributes:
        measure_paths: paths a problem that measure its pass rate, the first of its group.
        paths: paths a kept problem has in all (method: 16-32).
        pass_low, pass_high: band of kept pass rates, both ends in it.
        chunk: problems between two saves.
        label_measured: the measuring paths of problems outside the band are handed on too, wherever some are right and
            some wrong: they are paid for, and hold the habits that are almost always, or hardly ever, followed.
        balance: at most this many times the problems of the rarest kind are kept of any kind; 0 keeps all.
        seed: of sampling and of the choice when kinds are balanced.
    """

    measure_paths: int = 8
    paths: int = 16
    pass_low: float = 0.2
    pass_high: float = 0.8
    chunk: int = 64
    label_measured: bool = False
    balance: float = 2.0
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Pool:
    """Kept problems, each with its measured difficulty, and their paths.

    Attributes:
        problems: kept problems; `difficulty` is the pass rate over `measure_paths`.
        paths: their paths, problem by problem, in the order of the group; then, with `label_measured`, the measuring
            paths of the others.
        others: the problems outside the band whose measuring paths are among `paths`.
        measured: all problems of the pool with their pass rates (None: no path was judged).
        kept_by_topic: kept problems by kind.
    """

    problems: tuple[Problem, ...]
    paths: tuple[Path, ...]
    others: tuple[Problem, ...]
    measured: tuple[Problem, ...]
    kept_by_topic: Mapping[str, int]


def sample_chunked(
    engine: Engine,
    problems: Sequence[Problem],
    tokenizer: Any,
    render_prompt: RenderPrompt,
    folder: FilePath,
    *,
    n: int,
    seed: int,
    chunk: int,
    settings: SampleSettings,
    first_index: int = 0,
    title: str = "sample",
    sample: Callable[..., list[list[Path]]] = sample_paths,
    workers: SamplingWorkers | None = None,
    say: Callable[[str], None] = print,
    on_chunk: Callable[[], None] = lambda: None,
) -> Accuracy:
    """Sample `n` paths a problem into chunk files of `folder`; chunks that are there already are read.

    A chunk that was cut or changed since it was written is sampled again. ``say`` is told so, and with which problem a
    run that was cut goes on; ``on_chunk`` is called whenever a chunk is safe.

    A chunk's file name holds a hash of its problems, settings and seed, so that files of other settings are never read.
    With ``workers`` the missing chunks are sampled by processes side by side and ``engine`` is not used; the paths are
    the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chunks: list[tuple[FilePath, Sequence[Problem]]] = []
    drawn = Draw(n, seed, first_index, settings)
    for start in range(0, len(problems), chunk):
        members = problems[start : start + chunk]
        chunks.append((folder / drawn.chunk_name(start, [p.id for p in members]), members))
    kept = {file: read_checked_rows(file, Path.from_row, say) for file, _ in chunks}
    missing = [(file, members) for file, members in chunks if kept[file] is None]
    if 0 < len(missing) < len(chunks):
        first = missing[0][1][0].id
        done = len(problems) - sum(len(members) for _, members in missing)
        say(f"{title}: {done} of {len(problems)} problems are there; continues with problem {first}")
    bar = tqdm(total=len(problems) * n, desc=title, unit=" paths", mininterval=1.0, dynamic_ncols=True)
    bar.update(bar.total - n * sum(len(members) for _, members in missing))
    bar.unpause()
    draw = vars(drawn)
    if workers is not None:
        for count in workers.fill(missing, render_prompt, **draw):
            bar.update(count)
            on_chunk()
    else:
        for file, members in missing:
            write_paths(file, sample(engine, members, tokenizer, render_prompt, **draw))
            bar.update(n * len(members))
            on_chunk()
    bar.close()
    groups: list[tuple[Path, ...]] = []
    for file, members in chunks:
        rows = kept[file] or read_checked_rows(file, Path.from_row, say)
        if rows is None:
            raise RunError(f"{file}: gone or changed while the stage was running; run again: it is sampled again")
        groups += [tuple(rows[i * n : (i + 1) * n]) for i in range(len(members))]
    return Accuracy(tuple(problems), tuple(groups))


def in_band(problem: Problem, low: float, high: float) -> bool:
    """True when the problem's measured pass rate is in [low, high]."""
    return problem.difficulty is not None and low <= problem.difficulty <= high


def balanced(problems: Sequence[Problem], ratio: float, seed: int) -> list[Problem]:
    """Return the problems with no kind above `ratio` times the rarest kind's number; who stays is drawn by seed and id.

    Order is kept. ratio 0 keeps all.
    """
    if ratio <= 0 or not problems:
        return list(problems)
    most = max(1, round(ratio * min(Counter(p.topic for p in problems).values())))
    chosen: set[str] = set()
    for topic in {p.topic for p in problems}:
        members = sorted((p.id for p in problems if p.topic == topic), key=lambda i: content_id(seed, i))
        chosen.update(members[:most])
    return [p for p in problems if p.id in chosen]


def make_pool(
    engine: Engine,
    problems: Sequence[Problem],
    tokenizer: Any,
    render_prompt: RenderPrompt,
    folder: FilePath,
    pool: PoolSettings,
    settings: SampleSettings,
    workers: SamplingWorkers | None = None,
    say: Callable[[str], None] = print,
    on_chunk: Callable[[], None] = lambda: None,
) -> Pool:
    """Measure every problem, keep the band, balance kinds, and sample the kept problems up to `paths` paths.

    Chunk files lie in `folder`/measure and `folder`/paths; a killed run continues from the first chunk that is missing.
    """
    first = sample_chunked(
        engine,
        problems,
        tokenizer,
        render_prompt,
        folder / "measure",
        n=pool.measure_paths,
        seed=pool.seed,
        chunk=pool.chunk,
        settings=settings,
        title="measure",
        workers=workers,
        say=say,
        on_chunk=on_chunk,
    )
    measured = [
        dataclasses.replace(problem, difficulty=pass_rate(group))
        for problem, group in zip(problems, first.paths, strict=True)
    ]
    band = [problem for problem in measured if in_band(problem, pool.pass_low, pool.pass_high)]
    kept = balanced(band, pool.balance, pool.seed)
    by_id = {problem.id: list(group) for problem, group in zip(problems, first.paths, strict=True)}
    rest = pool.paths - pool.measure_paths
    if kept and rest > 0:
        more = sample_chunked(
            engine,
            kept,
            tokenizer,
            render_prompt,
            folder / "paths",
            n=rest,
            seed=pool.seed,
            chunk=pool.chunk,
            settings=settings,
            first_index=pool.measure_paths,
            title="sample",
            workers=workers,
            say=say,
            on_chunk=on_chunk,
        )
        for problem, group in zip(kept, more.paths, strict=True):
            by_id[problem.id].extend(group)
    others = [
        problem
        for problem in (measured if pool.label_measured else [])
        if problem.difficulty not in (None, 0, 1) and not in_band(problem, pool.pass_low, pool.pass_high)
    ]
    return Pool(
        problems=tuple(kept),
        paths=tuple(path for problem in [*kept, *others] for path in by_id[problem.id]),
        others=tuple(others),
        measured=tuple(measured),
        kept_by_topic=dict(sorted(Counter(p.topic for p in kept).items())),
    )

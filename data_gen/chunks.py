"""Chunks of problems in files: the unit that is sampled as one, saved as one and resumed by. The problems of a pool lie
in one file, a chunk knows its place there, so that whoever samples it needs the chunk alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from tqdm import tqdm

from common.checksums import read_checked, read_checked_rows, write_checked_rows
from common.errors import RunError
from common.files import write_lines
from common.records import Path, Problem, content_id
from data_gen.engines import Engine
from data_gen.measure import RenderPrompt, SampleSettings, sample_paths


@dataclasses.dataclass(frozen=True)
class Draw:
    """Which paths of a problem: `n` of them from index `first_index` of its group on, with `seed` and `settings`."""

    n: int
    seed: int
    first_index: int
    settings: SampleSettings

    def chunk_name(self, start: int, ids: Sequence[str]) -> str:
        """File name of the chunk of problems `ids`, the first being number `start`; other draws have other names."""
        name = content_id(*ids, self.n, self.seed, self.first_index, dataclasses.astuple(self.settings))
        return f"{self.first_index:03d}-{start:06d}-{name}.jsonl"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Problems that are sampled together.

    Attributes:
        file: where their paths go. source: JSON Lines of problems.
        place: byte of `source` at which the first problem starts. count: problems. first_id: id of the first.
    """

    file: str
    source: str
    place: int
    count: int
    first_id: str

    def problems(self) -> list[Problem]:
        with open(self.source, "rb") as handle:
            handle.seek(self.place)
            return [Problem.from_row(json.loads(handle.readline())) for _ in range(self.count)]


Fill = Callable[[Sequence[Chunk], Draw], Iterable[int]]
"""Samples chunks in any order and writes their files; gives the number of paths of each that is safe."""


def write_paths(file: FilePath, groups: Iterable[Sequence[Path]]) -> None:
    """Write a chunk's paths by rename, problem by problem, with their checksum."""
    write_checked_rows(file, (path.to_row() for group in groups for path in group))


def cut_chunks(problems: Iterable[Problem], source: FilePath, folder: FilePath, draw: Draw, size: int) -> list[Chunk]:
    """Write problems to `source` one by one, and return the chunks of `size` whose paths go into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    chunks: list[Chunk] = []
    ids: list[str] = []
    place = next_place = number = 0

    def close() -> None:
        file = folder / draw.chunk_name(number - len(ids), ids)
        chunks.append(Chunk(str(file), str(source), place, len(ids), ids[0]))
        ids.clear()

    def lines() -> Iterator[str]:
        nonlocal place, next_place, number
        for problem in problems:
            if not ids:
                place = next_place
            line = json.dumps(problem.to_row(), ensure_ascii=False) + "\n"
            next_place += len(line.encode())
            ids.append(problem.id)
            number += 1
            yield line
            if len(ids) == size:
                close()
        if ids:
            close()

    write_lines(source, lines())
    return chunks


def sample_chunk(engine: Engine, tokenizer: Any, render_prompt: RenderPrompt, chunk: Chunk, draw: Draw) -> int:
    """Sample, grade and write one chunk; return its number of paths."""
    groups = sample_paths(engine, chunk.problems(), tokenizer, render_prompt, **vars(draw))
    write_paths(FilePath(chunk.file), groups)
    return draw.n * chunk.count


def fill_missing(
    chunks: Sequence[Chunk],
    draw: Draw,
    fill: Fill,
    title: str,
    say: Callable[[str], None] = print,
    on_chunk: Callable[[], None] = lambda: None,
) -> None:
    """Let `fill` sample the chunks whose files are not there, or were cut or changed since they were written.

    ``say`` is told with which problem a run that was cut goes on; ``on_chunk`` is called whenever a chunk is safe.
    """
    missing = [chunk for chunk in chunks if read_checked(FilePath(chunk.file), say) is None]
    total, left = (sum(chunk.count for chunk in some) for some in (chunks, missing))
    if 0 < left < total:
        say(f"{title}: {total - left} of {total} problems are there; continues with problem {missing[0].first_id}")
    with tqdm(total=total * draw.n, desc=title, unit=" paths", mininterval=1.0, dynamic_ncols=True) as bar:
        bar.update((total - left) * draw.n)
        bar.unpause()
        for count in fill(missing, draw) if missing else ():
            bar.update(count)
            on_chunk()


def read_groups(chunks: Iterable[Chunk], n: int, say: Callable[[str], None] = print) -> Iterator[list[dict[str, Any]]]:
    """The `n` paths of each problem as rows, problem by problem; one chunk is held at a time.

    Raises:
        RunError: a chunk is gone or not as it was written.
    """
    for chunk in chunks:
        rows = read_checked_rows(FilePath(chunk.file), dict, say)
        if rows is None:
            raise RunError(f"{chunk.file}: gone or changed while the stage was running; run again: it is sampled again")
        yield from (rows[i * n : (i + 1) * n] for i in range(chunk.count))

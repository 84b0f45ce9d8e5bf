"""Paths of the base model are sampled once a run: every round compares with the same ones.

Only sampling is saved; scores are this round's PRM's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath

from common.config import Config
from common.records import Path, Problem, content_id
from common.runs import read_records, write_rows
from eval.collect import Sample

FOLDER = "base_paths"


def sampling_id(config: Config, problems: Sequence[Problem], n: int, temperature: float, seed: int) -> str:
    """Return what the sampled paths depend on: the ``base`` section, the length limit, the problems and the draw."""
    base = config.base.model_dump(mode="json", exclude={"threads"})
    return content_id(base, config.data.max_new_tokens, [p.id for p in problems], n, temperature, seed)


def saved(sample: Sample, config: Config, run_folder: FilePath) -> Sample:
    """Return ``sample`` with a memory in ``run_folder``; a file is written by rename, after its paths are complete."""

    def remembered(problems: Sequence[Problem], n: int, temperature: float, seed: int) -> list[list[Path]]:
        file = run_folder / FOLDER / f"{sampling_id(config, problems, n, temperature, seed)}.jsonl"
        if file.exists():
            paths = read_records(file, Path.from_row)
        else:
            paths = [path for group in sample(problems, n, temperature, seed) for path in group]
            file.parent.mkdir(parents=True, exist_ok=True)
            write_rows(file, (path.to_row() for path in paths))
        return [paths[start : start + n] for start in range(0, len(paths), n)]

    return remembered

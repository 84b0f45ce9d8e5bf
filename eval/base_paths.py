"""Paths that an evaluation sampled are kept: a killed one goes on, and every round compares with the same base paths.

Those of the base lie in the run folder, those of a policy in its evaluation's. Only sampling is saved; scores are this
round's PRM's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path as FilePath

from common.checksums import read_checked_rows, write_checked_rows
from common.config import Config
from common.records import Path, Problem, content_id
from eval.collect import Sample

FOLDER = "base_paths"


def sampling_id(
    config: Config, problems: Sequence[Problem], n: int, temperature: float, seed: int, model: str = ""
) -> str:
    """Return what the sampled paths depend on: the ``base`` section, the length limit, the problems and the draw.

    Args:
        model: hash of the weights of a model that is not the base.
    """
    base = config.base.model_dump(mode="json", exclude={"threads"})
    draw = (base, config.data.max_new_tokens, [p.id for p in problems], n, temperature, seed)
    return content_id(*draw, *([model] if model else []))


def saved(
    sample: Sample,
    config: Config,
    folder: FilePath,
    *,
    model: str = "",
    say: Callable[[str], None] = print,
    on_saved: Callable[[], None] = lambda: None,
) -> Sample:
    """Return ``sample`` with a memory in ``folder``; a file is written by rename, after its paths are complete.

    A file that was cut or changed since is sampled again.

    Args:
        model: see ``sampling_id``.
        say: is told what is read and not sampled again, and which file is not trusted.
        on_saved: called when paths are safe.
    """

    def remembered(problems: Sequence[Problem], n: int, temperature: float, seed: int) -> list[list[Path]]:
        file = folder / f"{sampling_id(config, problems, n, temperature, seed, model)}.jsonl"
        paths = read_checked_rows(file, Path.from_row, say)
        if paths is None:
            paths = [path for group in sample(problems, n, temperature, seed) for path in group]
            file.parent.mkdir(parents=True, exist_ok=True)
            write_checked_rows(file, (path.to_row() for path in paths))
            on_saved()
        else:
            say(f"{len(problems)} problems x {n} at temperature {temperature:g} are there; continues after them")
        return [paths[start : start + n] for start in range(0, len(paths), n)]

    return remembered

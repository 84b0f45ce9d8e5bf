"""Where problems come from: the built-in generator, or a JSON Lines file."""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import InputError
from common.records import Problem, content_id
from common.runs import read_rows, read_rows_at

TEXT_FIELDS = ("problem", "question", "input", "text", "prompt")
ANSWER_FIELDS = ("answer", "gt_answer", "gold", "target")


@dataclasses.dataclass(frozen=True)
class ProblemSource:
    """What to load.

    Attributes:
        source: ``synthetic`` or the path of a JSON Lines file.
        levels: lowest and highest number of reference steps; used by ``synthetic`` only.
        kinds: kinds of problems; empty takes all.
    """

    source: str = "synthetic"
    levels: tuple[int, int] = (2, 8)
    kinds: tuple[str, ...] = ()


def load_problems(what: ProblemSource, split: str, seed: int, count: int) -> list[Problem]:
    """Return up to `count` problems of a split (``train``, ``validation``, ``test``).

    A file's problems are split by their id (8:1:1), so that the splits never meet whatever is asked for; rows that
    carry a ``split`` field stay in it. They come in an order drawn from `seed`.

    Raises:
        InputError: unknown kind, no such file, a row without text or answer (file, row, field, value seen and wanted).
    """
    if what.source == "synthetic":
        from data_gen.synthetic import generate

        levels = range(what.levels[0], what.levels[1] + 1)
        try:
            return generate(split, seed, count, levels=levels, kinds=what.kinds or None)
        except ValueError as error:
            raise InputError(f"data.source = 'synthetic': {error}") from error
    problems = [p for p, own in read_problems(Path(what.source)) if (own or _split_of(p)) == split]
    if what.kinds:
        problems = [p for p in problems if p.topic in what.kinds]
    if not problems:
        raise no_problem(what, split)
    return sorted(problems, key=lambda p: _order(p, seed))[:count]


def stream_problems(what: ProblemSource, split: str, seed: int, count: int) -> Iterator[Problem]:
    """``load_problems``, one at a time: of a file's rows three numbers each are held, never their text.

    The built-in generator holds what it draws: no two of its problems may be equal.
    """
    path = Path(what.source)
    if what.source == "synthetic":
        yield from load_problems(what, split, seed, count)
        return
    ids, orders, places = array("Q"), array("Q"), array("q")
    asked = array("b")
    for number, (place, row) in enumerate(read_rows_at(path), 1):
        problem = _problem(path, number, row)
        ids.append(int(problem.id, 16))
        orders.append(int(_order(problem, seed), 16))
        places.append(place)
        is_of_kind = not what.kinds or problem.topic in what.kinds
        asked.append(is_of_kind and (row.get("split") or _split_of(problem)) == split)
    is_first = np.zeros(len(ids), dtype=bool)
    is_first[np.unique(ids, return_index=True)[1]] = True
    chosen = np.flatnonzero(is_first & (np.asarray(asked, dtype=bool)))
    if not len(chosen):
        raise no_problem(what, split)
    chosen = chosen[np.argsort(np.asarray(orders)[chosen], kind="stable")[:count]]
    with path.open("rb") as handle:
        for index in chosen:
            handle.seek(places[index])
            yield _problem(path, int(index) + 1, json.loads(handle.readline()))


def no_problem(what: ProblemSource, split: str) -> InputError:
    """What is raised where a file holds nothing that was asked for."""
    return InputError(f"{what.source}: no problem of split {split!r}" + (f" and kinds {what.kinds}" * bool(what.kinds)))


def read_problems(path: Path) -> Iterable[tuple[Problem, str | None]]:
    """Yield the problems of a JSON Lines file in order, each with the split its row names; equal problems come once."""
    seen = set()
    for number, row in enumerate(read_rows(path), 1):
        problem = _problem(path, number, row)
        if problem.id not in seen:
            seen.add(problem.id)
            yield problem, row.get("split")


def _problem(path: Path, number: int, row: dict[str, Any]) -> Problem:
    level = row.get("level")
    return Problem.create(
        _field(path, number, row, TEXT_FIELDS),
        _field(path, number, row, ANSWER_FIELDS),
        source=path.name,
        topic=str(row.get("topic") or row.get("type") or row.get("subject") or "file"),
        level=level if isinstance(level, int) else None,
    )


def _field(path: Path, number: int, row: dict[str, Any], names: tuple[str, ...]) -> str:
    name = next((name for name in names if name in row), None)
    if name is None:
        raise InputError(
            f"{path}, row {number}: no field {names[0]!r} (nor {', '.join(names[1:])}); it has {sorted(row)}"
        )
    value = row[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{path}, row {number}, field {name!r}: {value!r}, want text that is not empty")
    return value


def _order(problem: Problem, seed: int) -> str:
    return content_id(seed, problem.id)


def _split_of(problem: Problem) -> str:
    share = int(problem.id[:8], 16) % 10
    return {8: "validation", 9: "test"}.get(share, "train")

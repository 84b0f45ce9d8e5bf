"""The answers of one model, one a problem, from whatever holds them.

- a run, or ``RUN/round-K``: greedy paths of the policy on the test problems; with ``:base`` behind it, of the base;
- a folder that ``python -m eval --benchmark`` wrote, or its ``outputs.jsonl``: the first sample of each problem;
- JSON Lines with a ``problem`` and a text (``samples``, ``output``, ``response``, ``completion``, ``text`` or
  ``solution``), perhaps a ``gold`` or ``answer``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from common.checksums import read_checked_rows
from common.errors import InputError
from common.records import Path, Problem
from common.runs import STAGE_FOLDERS, read_records, read_rows

TEXT_FIELDS = ("samples", "output", "response", "completion", "text", "solution")
GOLD_FIELDS = ("gold", "answer")
SIDES = ("base", "policy")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a model answered to a problem; ``gold`` is the reference answer, None where it is not known."""

    problem: str
    text: str
    gold: str | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """The answers of one model by the problem's text, in the order they were found; ``name`` is as the user gave it."""

    name: str
    answers: dict[str, Answer]


def read_source(name: str) -> Source:
    """Read the answers that ``name`` stands for (see the module).

    Raises:
        InputError: no such run or file, no finished evaluation, or a row without problem or text.
    """
    place, _, side = name.rpartition(":")
    if side not in SIDES or not place:
        place, side = name, "policy"
    path = FilePath(place)
    if path.is_dir() and (path / "outputs.jsonl").is_file():
        path /= "outputs.jsonl"
    if path.is_file():
        answers = [_from_row(row, f"{path}, row {number}") for number, row in enumerate(read_rows(path), 1)]
    elif path.is_dir():
        answers = _from_run(path, side)
    else:
        raise InputError(f"{place}: no such run, folder or file of answers")
    found: dict[str, Answer] = {}
    for answer in answers:
        found.setdefault(answer.problem, answer)
    if not found:
        raise InputError(f"{path}: no answer in it")
    return Source(name, found)


def _from_row(row: Mapping[str, Any], place: str) -> Answer:
    problem = row.get("problem")
    if not isinstance(problem, str) or not problem.strip():
        raise InputError(f"{place}: problem = {problem!r}, want a text")
    field = next((name for name in TEXT_FIELDS if name in row), None)
    if field is None:
        raise InputError(f"{place}: no field with the answer's text, want one of {', '.join(TEXT_FIELDS)}")
    text = row[field]
    if isinstance(text, list):
        text = text[0] if text else None
    if isinstance(text, Mapping):
        text = next((text[name] for name in TEXT_FIELDS if name in text), None)
    if not isinstance(text, str):
        raise InputError(f"{place}: {field} = {str(row[field])[:80]!r}, want a text, or a list that starts with one")
    gold = next((row[name] for name in GOLD_FIELDS if row.get(name) is not None), None)
    return Answer(problem.strip(), text.strip(), None if gold is None else str(gold))


def _from_run(folder: FilePath, side: str) -> list[Answer]:
    """Greedy paths on the test problems; a model without them gives the first path of each problem."""
    place = folder if folder.name.startswith("round-") else _latest_round(folder)
    problems = {
        problem.id: problem
        for problem in read_records(place / STAGE_FOLDERS["sample"] / "problems_test.jsonl", Problem.from_row)
    }
    files = place / STAGE_FOLDERS["eval"] / "paths" if side == "policy" else place.parent / "base_paths"
    found = [read_checked_rows(file, Path.from_row) or [] for file in sorted(files.glob("*.jsonl"))]
    pools = [pool for pool in found if {path.problem_id for path in pool} == problems.keys()]
    if not pools:
        raise InputError(f"{files}: no paths of the {side} on the test problems; run: make eval RUN={place.parent}")
    paths = min(pools, key=len)  # the greedy pool has one path a problem, the others have several
    first = {path.problem_id: path for path in reversed(paths)}
    return [Answer(p.text.strip(), first[p.id].text.strip(), p.answer) for p in problems.values()]


def _latest_round(run: FilePath) -> FilePath:
    rounds = {int(number): folder for folder in run.glob("round-*") if (number := folder.name[6:]).isdecimal()}
    done = [number for number, folder in rounds.items() if (folder / STAGE_FOLDERS["eval"] / "DONE").is_file()]
    if not done:
        raise InputError(f"{run}: no round with a finished evaluation; run: make eval RUN={run}")
    return rounds[max(done)]


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two answers to one problem."""

    problem: str
    gold: str | None
    a: str
    b: str


@dataclasses.dataclass(frozen=True)
class Pairs:
    """What two models answered to the same problems.

    Attributes:
        different: pairs whose texts differ, in the order of the first source.
        identical: problems on which both wrote the same text; there is nothing to compare.
        only_a, only_b: problems that one source alone has.
    """

    different: list[Pair]
    identical: int
    only_a: int
    only_b: int


def paired(a: Source, b: Source) -> Pairs:
    """Bring two sources together by the problem's text.

    Raises:
        InputError: they share no problem, or all their shared answers are the same.
    """
    shared = [problem for problem in a.answers if problem in b.answers]
    if not shared:
        raise InputError(f"{a.name} and {b.name} have no problem in common")
    pairs = [
        Pair(
            problem,
            a.answers[problem].gold or b.answers[problem].gold,
            a.answers[problem].text,
            b.answers[problem].text,
        )
        for problem in shared
    ]
    different = [pair for pair in pairs if pair.a != pair.b]
    if not different:
        raise InputError(f"{a.name} and {b.name} give the same text to each of {len(shared)} problems")

    return Pairs(different, len(pairs) - len(different), len(a.answers) - len(shared), len(b.answers) - len(shared))

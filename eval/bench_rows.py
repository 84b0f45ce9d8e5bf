"""Rows of PRM benchmarks as records: solutions with a human first-error label, and pools of samples for best-of-N.

Step rows: ``problem``, ``steps`` (list of texts), ``label`` (0-based first wrong step, -1: every step is right).
Pool rows: ``problem``, ``answer``, ``samples`` (list of ``{response, correct}``, or of texts, which are graded here).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

from common.errors import InputError
from common.records import Path, Problem, Verdict
from common.runs import read_rows
from data_gen.steps import path_from_text

SubsetBy = Literal["auto", "file", "subset", "id"]
_ID_PREFIX = re.compile(r"(.*?)[-_:]?\d+")


@dataclasses.dataclass(frozen=True)
class StepRow:
    """One solution with its label.

    Attributes:
        place: "file, row n" for messages; ``number`` is n, counted from 1.
        subset: what F1 is averaged over.
        first_error: 0-based index of the first wrong step, None when every step is right.
    """

    place: str
    number: int
    id: str
    subset: str
    problem: str
    steps: tuple[str, ...]
    first_error: int | None

    @property
    def unit(self) -> str:
        """What is resampled: solutions of one problem stay together, however its text is spaced."""
        return problem_key(self.problem)


@dataclasses.dataclass(frozen=True)
class PoolRow:
    """One problem with its sampled paths; ``place`` and ``number`` as for ``StepRow``."""

    place: str
    number: int
    problem: Problem
    paths: tuple[Path, ...]


def problem_key(text: str) -> str:
    """Equal for problems that differ in white space and letter case only."""
    return " ".join(text.casefold().split())


def read_bench_file(
    path: FilePath, name: str, *, subset_by: SubsetBy = "auto", limit: int | None = None
) -> tuple[list[StepRow], list[PoolRow]]:
    """Read the first ``limit`` rows of one file; those with a ``samples`` field are pool rows.

    name: the file's name in reports, and the subset of rows that name none.

    Raises:
        InputError: no row; a field is missing or unusable (file, row and field are named).
    """
    steps: list[StepRow] = []
    pools: list[PoolRow] = []
    for number, row in enumerate(read_rows(path), 1):
        if limit is not None and number > limit:
            break
        place = f"{path}, row {number}"
        if "samples" in row:
            pools.append(_pool_row(row, place, number, name))
        else:
            steps.append(_step_row(row, place, number, name, subset_by))
    if not steps and not pools:
        raise InputError(f"{path}: no row, want step rows or pool rows")
    return steps, pools


def _field(row: dict[str, Any], name: str, kind: type, place: str, wanted: str) -> Any:
    if name not in row:
        raise InputError(f"{place}: no field {name!r}, want {wanted}")
    if not isinstance(row[name], kind) or isinstance(row[name], bool) or (not row[name] and kind is not int):
        raise InputError(f"{place}, field {name!r}: {row[name]!r}, want {wanted}")
    return row[name]


def _step_row(row: dict[str, Any], place: str, number: int, name: str, subset_by: SubsetBy) -> StepRow:
    problem = _field(row, "problem", str, place, "text")
    steps = _field(row, "steps", list, place, "a list of at least one step")
    for index, step in enumerate(steps):
        if not isinstance(step, str) or not step.strip():
            raise InputError(f"{place}, field 'steps': step {index} is {step!r}, want visible text in every step")
    label = _field(row, "label", int, place, "the 0-based index of the first wrong step, or -1")
    if not -1 <= label < len(steps):
        raise InputError(f"{place}, field 'label': {label}, want -1 to {len(steps) - 1} for {len(steps)} steps")
    identity = str(row.get("id", f"{name}-{number}"))
    subset = _subset(row, identity, name, subset_by, place)
    return StepRow(place, number, identity, subset, problem, tuple(steps), None if label == -1 else label)


def _subset(row: dict[str, Any], identity: str, name: str, subset_by: SubsetBy, place: str) -> str:
    if subset_by == "file" or (subset_by == "auto" and "subset" not in row):
        return name
    if subset_by == "id":
        prefix = _ID_PREFIX.fullmatch(identity)
        return prefix[1] if prefix and prefix[1] else name
    return str(_field(row, "subset", str, place, "text"))


def _pool_row(row: dict[str, Any], place: str, number: int, name: str) -> PoolRow:
    text = _field(row, "problem", str, place, "text")
    answer = str(row.get("answer", "")).strip()
    if not answer:
        raise InputError(f"{place}: no field 'answer', want the gold answer")
    problem = Problem.create(text, answer, source=name, topic="file")
    samples = _field(row, "samples", list, place, "a list of at least one sample")
    return PoolRow(place, number, problem, tuple(_sample(problem, one, k, place) for k, one in enumerate(samples)))


def _sample(problem: Problem, sample: Any, index: int, place: str) -> Path:
    """A path from a text (graded here) or from a ``response`` with the verdict ``correct`` that came with it."""
    if isinstance(sample, str):
        return path_from_text(problem, sample, index)
    if not isinstance(sample, dict) or not isinstance(sample.get("response"), str):
        raise InputError(
            f"{place}, field 'samples': sample {index} is {sample!r:.80}, want text or {{response, correct}}"
        )
    path = path_from_text(problem, sample["response"], index)
    if "correct" not in sample:
        return path
    if not isinstance(sample["correct"], bool | int):
        raise InputError(f"{place}, field 'samples': sample {index} has correct = {sample['correct']!r}, want a bool")
    return dataclasses.replace(path, verdict=Verdict.CORRECT if sample["correct"] else Verdict.WRONG)


def refuse_overlap(measured: Sequence[StepRow], chosen_on: Sequence[StepRow], path: FilePath) -> None:
    """Raise InputError when the rows a threshold is chosen on share a problem with the rows that are measured."""
    seen = {row.unit: row for row in measured}
    shared = [row for row in chosen_on if row.unit in seen]
    if shared:
        raise InputError(
            f"{path}: {len(shared)} rows have problems that are measured, the first is row {shared[0].number}"
            f" = {seen[shared[0].unit].place}; want a threshold from other problems"
        )

"""Rows of a benchmark as records: from the hub, from a local file, or with outputs that were recorded before."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.errors import InputError
from common.records import Problem
from common.runs import read_rows
from eval.benchmark_spec import Benchmark, Fields, Shots

CALCULATOR_MARK = re.compile(r"<<[^<>]*>>")
"""GSM8K's calculator annotations: no part of a worked example."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A problem of a benchmark.

    Attributes:
        problem: text, gold answer and content id.
        tolerance: absolute tolerance of this problem's answer; 0: the benchmark's own policy alone.
    """

    problem: Problem
    tolerance: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sample:
    """One output.

    Attributes:
        text: what is graded: decoded, cut before the first stop string.
        tokens: sampled tokens, end token included; None where outputs were recorded without.
        is_cut: True when the length limit ended it.
        recorded: the verdict that came with a recorded output, None without one.
    """

    text: str
    tokens: int | None = None
    is_cut: bool = False
    recorded: bool | None = None


def hub_rows(hub: str, config: str | None, split: str, name: str, instead: str = "--rows FILE") -> list[dict[str, Any]]:
    """All rows of a split on the hub, through ``datasets`` (its cache serves a second run offline).

    instead: the option that takes local rows, for the message.

    Raises:
        InputError: no such data set, or no connection.
    """
    import datasets

    try:
        found = datasets.load_dataset(hub, config, split=split)
    except (OSError, ValueError) as error:  # DatasetNotFoundError, ConnectionError and a bad split are among these
        reason = str(error).splitlines()[0]
        raise InputError(f"{name}: cannot load {hub} from the hub ({reason}); {instead} takes local rows") from error
    return [dict(row) for row in found]


def rows_of(benchmark: Benchmark, file: FilePath | None) -> tuple[list[dict[str, Any]], str]:
    """The rows of a benchmark and where they come from, for messages and the report.

    Raises:
        InputError: no file where one is needed, no hub, no rows.
    """
    if file is not None:
        rows, where = list(read_rows(file)), str(file)
    elif benchmark.source is None:
        raise InputError(f"{benchmark.name}: no rows; want --rows FILE")
    else:
        source = benchmark.source
        rows = hub_rows(source.hub, source.config, source.split, benchmark.name)
        where = f"{source.hub}, {source.config or 'default'}, {source.split}"
    if not rows:
        raise InputError(f"{where}: no row, want problems")
    return rows, where


def questions(rows: Iterable[Mapping[str, Any]], benchmark: Benchmark, where: str) -> list[Question]:
    """Read rows; equal problems come once.

    Raises:
        InputError: a row without problem or answer; row, field, value seen and value wanted are named.
    """
    found: dict[str, Question] = {}
    for number, row in enumerate(rows, 1):
        question = read_question(row, benchmark, f"{where}, row {number}")
        found.setdefault(question.problem.id, question)
    return list(found.values())


def read_question(row: Mapping[str, Any], benchmark: Benchmark, place: str) -> Question:
    """One row as a question. Raises InputError as ``questions`` does."""
    fields = benchmark.fields
    text = text_field(row, fields.problem, place)
    context = _optional(row, fields.context)
    topic, level = _optional(row, fields.topic), _optional(row, fields.level)
    problem = Problem.create(
        f"{str(context).strip()}\n{text}" if context else text,
        gold_answer(row, fields, place),
        source=benchmark.name,
        topic=str(topic or benchmark.name),
        level=int(str(level)) if str(level).isdigit() else None,
    )
    return Question(problem, _tolerance(_optional(row, fields.tolerance), place))


def text_field(row: Mapping[str, Any], names: Sequence[str], place: str) -> str:
    """The first of the named fields that a row has, as text that is not empty; numbers are written out.

    Raises:
        InputError: none of them is there, or it holds something else.
    """
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        raise InputError(f"{place}: no field {' or '.join(map(repr, names))}; it has {sorted(row)}")
    value = row[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{place}, field {name!r}: {value!r}, want text that is not empty")
    return value.strip()


def gold_answer(row: Mapping[str, Any], fields: Fields, place: str) -> str:
    """The gold answer, written as ``fields.gold`` says. Raises InputError for a row without one."""
    name = next((name for name in fields.answer if row.get(name) is not None), None)
    if name is not None and fields.gold in ("list", "auto") and isinstance(row[name], list | tuple):
        items = [str(item).strip() for item in row[name] if str(item).strip()]
        if not items:
            raise InputError(f"{place}, field {name!r}: {row[name]!r}, want at least one answer")
        return ", ".join(items)
    text = text_field(row, fields.answer, place)
    if fields.gold == "marker" and "####" not in text and "\n" in text:
        raise InputError(f"{place}, field {name!r}: no '#### answer' line in {text[:60]!r}")
    if "####" in text and fields.gold in ("marker", "auto"):
        return text.rpartition("####")[2].strip()
    return text


def _optional(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def _tolerance(value: Any, place: str) -> float:
    """An absolute tolerance: a number, or several with commas between them, of which the smallest counts."""
    if value is None:
        return 0.0
    try:
        return min(float(part) for part in str(value).split(",") if part.strip())
    except ValueError as error:
        raise InputError(f"{place}: tolerance {value!r}, want a number") from error


def worked_examples(shots: Shots, count: int, file: FilePath | None, name: str) -> list[tuple[str, str]]:
    """The first ``count`` (problem, solution) pairs of the shots' rows, calculator marks taken out.

    Raises:
        InputError: nowhere to take them from, or fewer rows than asked for.
    """
    if count == 0:
        return []
    if file is not None:
        rows, where = list(read_rows(file)), str(file)
    elif shots.hub is not None:
        rows = hub_rows(shots.hub, shots.config, shots.split, name, "--shot-rows FILE")
        where = f"{shots.hub}, {shots.split}"
    else:
        raise InputError(f"{name}: --shots {count}: want --shot-rows FILE (rows with problem and solution)")
    if len(rows) < count:
        raise InputError(f"{where}: {len(rows)} rows for --shots {count}")
    return [
        (
            text_field(row, shots.problem, f"{where}, row {number}"),
            CALCULATOR_MARK.sub("", text_field(row, shots.solution, f"{where}, row {number}")),
        )
        for number, row in enumerate(rows[:count], 1)
    ]


def recorded(
    file: FilePath, benchmark: Benchmark, only: Mapping[str, str], limit: int | None
) -> tuple[list[Question], dict[str, list[Sample]]]:
    """Questions with the outputs recorded for them: rows with a list ``samples`` of texts or of ``{response, …}``.

    Args:
        only: fields that a sample must have with these values, e.g. ``{"model": "a"}``; others are left out.
        limit: read the first so many rows.

    Raises:
        InputError: no list of samples, a sample without text, none that fits ``only``, or not as many for each problem.
    """
    found: dict[str, Question] = {}
    samples: dict[str, list[Sample]] = {}
    for number, row in enumerate(read_rows(file), 1):
        if limit is not None and number > limit:
            break
        place = f"{file}, row {number}"
        question = read_question(row, benchmark, place)
        if not isinstance(row.get("samples"), list) or not row["samples"]:
            raise InputError(f"{place}, field 'samples': {row.get('samples')!r:.60}, want a list of outputs")
        kept = [one for one in row["samples"] if _fits(one, only)]
        if not kept:
            raise InputError(f"{place}: no sample with {dict(only)}")
        found.setdefault(question.problem.id, question)
        samples.setdefault(question.problem.id, []).extend(_sample(one, k, place) for k, one in enumerate(kept))
    if not found:
        raise InputError(f"{file}: no row, want problems with samples")
    counts = sorted({len(group) for group in samples.values()})
    if len(counts) > 1:
        raise InputError(f"{file}: {counts[0]} to {counts[-1]} samples a problem, want the same number for each")
    return list(found.values()), samples


def _fits(sample: Any, only: Mapping[str, str]) -> bool:
    return not only or (isinstance(sample, dict) and all(str(sample.get(key)) == value for key, value in only.items()))


def _sample(sample: Any, index: int, place: str) -> Sample:
    if isinstance(sample, str):
        return Sample(sample)
    if not isinstance(sample, dict) or not isinstance(sample.get("response"), str):
        raise InputError(f"{place}, field 'samples': sample {index} is {sample!r:.60}, want text or {{response, …}}")
    correct = sample.get("correct")
    if correct is not None and not isinstance(correct, bool | int):
        raise InputError(f"{place}, field 'samples': sample {index} has correct = {correct!r}, want a bool")
    return Sample(
        sample["response"],
        tokens=sample.get("tokens"),
        is_cut=sample.get("finish_reason") == "length",
        recorded=None if correct is None else bool(correct),
    )

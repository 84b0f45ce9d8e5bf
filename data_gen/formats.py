"""PRM data in and out: which format is read and written by what, and the command line.

``python -m data_gen.formats --from prm800k --to trl --input rows.jsonl --output out.jsonl`` converts labelled
solutions; ``--from run --input runs/tiny`` exports the labelled paths of a run; ``--from simplerl --to problems`` makes
problems that ``data.source`` reads. Every note, loss and dropped row is counted in the JSON line on standard output;
docs/formats.md says what each format keeps and loses.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from common.cli import rows_main
from common.errors import InputError
from common.records import LabelledPath, Problem
from common.runs import Run, read_records, read_rows, write_rows
from data_gen.math_shepherd import read_math_shepherd, write_math_shepherd
from data_gen.prm800k import NEUTRAL, read_prm800k
from data_gen.stepwise import (
    Converted,
    LabelledSteps,
    Row,
    field,
    from_labelled_path,
    read_processbench,
    read_trl,
    write_processbench,
    write_trl,
)

READERS: dict[str, Callable[..., Converted[LabelledSteps]]] = {
    "trl": read_trl,
    "math_shepherd": read_math_shepherd,
    "prm800k": read_prm800k,
    "processbench": read_processbench,
}
WRITERS: dict[str, Callable[[LabelledSteps], Converted[Row]]] = {
    "trl": write_trl,
    "math_shepherd": write_math_shepherd,
    "processbench": write_processbench,
}
GOLD_FIELDS = ("gt_answer", "ground_truth_answer", "target", "answer")
CHAT_USER = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL)

BadRows = Literal["stop", "drop"]
OnLoss = Literal["stop", "drop", "keep"]


def read_simplerl(row: Mapping[str, Any], *, source: str) -> Converted[Problem]:
    """Read a SimpleRL problem: ``question``, else the user turn of ``input``, else ``input`` as it is; the gold answer
    from the first of ``gt_answer``, ``ground_truth_answer``, ``target``, ``answer`` that is there.

    ``subject`` becomes the topic. Noted: gold answers that differ, a chat template taken off, and ``level`` (difficulty
    1 to 5), which is not kept: a ``Problem``'s level counts steps.

    Raises:
        ValueError: no text, no gold answer, or a field of another kind.
    """
    notes = ["field 'level' is not kept"] * ("level" in row)
    if "question" in row:
        text = field(row, "question", str, "text")
    else:
        text = field(row, "input", str, "text")
        turns = CHAT_USER.findall(text)
        if turns:
            text = turns[-1]
            notes.append("chat template taken off 'input'")
    golds = {name: row[name] for name in GOLD_FIELDS if row.get(name) not in (None, "")}
    if not golds:
        raise ValueError(f"no gold answer in any of {', '.join(GOLD_FIELDS)}")
    for name, gold in golds.items():
        if isinstance(gold, bool) or not isinstance(gold, str | int | float):
            raise ValueError(f"field {name!r}: {gold!r}, want text or a number")
    answers = [str(gold).strip() for gold in golds.values()]
    if not text.strip() or not answers[0]:
        raise ValueError(f"the problem is {text!r} and its answer {answers[0]!r}, want text that is not blank")
    if len(set(answers)) > 1:
        notes.append(f"gold answers differ: {next(iter(golds))!r} kept")
    problem = Problem.create(text.strip(), answers[0], source=source, topic=str(row.get("subject") or "file"))
    return Converted((problem,), tuple(notes))


def json_rows(path: Path) -> Iterator[Row]:
    """Read JSON Lines, or one JSON list of objects (as SimpleRL publishes its problems).

    Raises:
        InputError: no such file, not JSON, or a row that is not an object.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with path.open(encoding="utf-8") as handle:
        is_list = next((line for line in handle if line.strip()), "").lstrip().startswith("[")
    if not is_list:
        yield from read_rows(path)
        return
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number}: a {type(row).__name__}, want a JSON object")
        yield row


def run_paths(folder: Path, round_index: int) -> list[tuple[LabelledPath, Problem]]:
    """Return the labelled paths of a run's round, each with its problem.

    Raises:
        InputError: the label stage is not finished, or a path's problem is not in the run.
    """
    run = Run(folder, round_index)
    labelled = read_records(run.require("label").file("paths.jsonl"), LabelledPath.from_row)
    listed = read_records(run.require("sample").file("problems_train.jsonl"), Problem.from_row)
    problems = {problem.id: problem for problem in listed}
    missing = next((one.path for one in labelled if one.path.problem_id not in problems), None)
    if missing is not None:
        raise InputError(f"{run.folder}: path {missing.path_id}: no problem {missing.problem_id} in the run")
    return [(one, problems[one.path.problem_id]) for one in labelled]


def convert_all(
    rows: Iterable[Any], read: Callable[[Any], Converted[Any]], where: str, counts: Counter[str], bad_rows: BadRows
) -> Iterator[tuple[int, Any]]:
    """Yield (row number from 1, result) of every row; notes, bad rows and numbers go to ``counts``.

    Raises:
        InputError: a bad row and ``bad_rows`` is ``stop``; file, row, field, value seen and wanted are named.
    """
    for number, row in enumerate(rows, 1):
        counts["rows read"] += 1
        try:
            converted = read(row)
        except ValueError as error:
            if bad_rows == "stop":
                raise InputError(f"{where}, row {number}, {error}") from error
            counts["bad rows dropped"] += 1
            continue
        counts.update(f"note: {note}" for note in converted.notes)
        yield from ((number, result) for result in converted.rows)


def load_steps(
    path: Path, name: str, *, neutral: str = "right", alternatives: bool = True, bad_rows: BadRows = "stop"
) -> tuple[list[LabelledSteps], Counter[str]]:
    """Read a file of labelled solutions, and count what happened.

    Args:
        name: one of ``READERS``.
        neutral, alternatives: of ``read_prm800k``; the other formats have nothing of the kind.
    """
    counts: Counter[str] = Counter()
    found = convert_all(json_rows(path), _reader(name, neutral, alternatives), str(path), counts, bad_rows)
    return [one for _, one in found], counts


def _reader(name: str, neutral: str, alternatives: bool) -> Callable[[Any], Converted[LabelledSteps]]:
    read = READERS[name]
    return functools.partial(read, neutral=neutral, alternatives=alternatives) if read is read_prm800k else read


def written(
    found: Iterable[tuple[int, LabelledSteps]],
    name: str,
    where: str,
    counts: Counter[str],
    on_loss: OnLoss,
    bad_rows: BadRows,
) -> Iterator[Row]:
    """Yield the rows of the target format; what it cannot hold stops, drops the row, or is counted."""
    for number, one in found:
        try:
            converted = WRITERS[name](one)
        except ValueError as error:
            if bad_rows == "stop":
                raise InputError(f"{where}, row {number}: not a {name} row: {error}") from error
            counts["rows the format cannot hold, dropped"] += 1
            continue
        if converted.lost and on_loss == "stop":
            raise InputError(
                f"{where}, row {number}: {name} would lose {' and '.join(converted.lost)}; --on-loss keep writes the"
                " rest and counts, --on-loss drop leaves such rows out"
            )
        counts.update(f"lost: {loss}" for loss in converted.lost)
        counts.update(f"note: {note}" for note in converted.notes)
        if converted.lost and on_loss == "drop":
            counts["rows with a loss dropped"] += 1
            continue
        yield from converted.rows


def convert_rows(arguments: Sequence[str] | None = None) -> int:
    """Convert a file of labelled solutions, the labelled paths of a run, or problems; return the exit code (2: bad
    input, nothing written). What was noted, lost and dropped is counted on standard output.
    """
    parser = argparse.ArgumentParser(prog="python -m data_gen.formats", description=convert_rows.__doc__)
    parser.add_argument("--from", dest="source", required=True, choices=(*READERS, "run", "simplerl"))
    parser.add_argument("--to", dest="target", required=True, choices=(*WRITERS, "problems"))
    parser.add_argument("--neutral", choices=tuple(NEUTRAL), default="right", help="prm800k: label of rating 0")
    parser.add_argument("--taken-only", action="store_true", help="prm800k: no rows for completions not taken on")
    parser.add_argument("--round", type=int, default=0, help="run: round, counted from 0")
    parser.add_argument(
        "--bad-rows", choices=("stop", "drop"), default="stop", help="rows that cannot be read or written"
    )
    parser.add_argument(
        "--on-loss", choices=("stop", "drop", "keep"), default="stop", help="rows of which the target loses something"
    )

    def work(options: Any) -> None:
        counts: Counter[str] = Counter()
        path, where = options.input, str(options.input)
        if (options.source == "simplerl") != (options.target == "problems"):
            raise InputError(f"--from {options.source} --to {options.target}: simplerl gives problems and nothing else")
        if options.source == "simplerl":
            read_problem = functools.partial(read_simplerl, source=path.name)
            problems = convert_all(json_rows(path), read_problem, where, counts, options.bad_rows)
            rows: list[Row] = [problem.to_row() for _, problem in problems]
        else:
            if options.source == "run":
                pairs = run_paths(path, options.round)
                found = convert_all(pairs, _from_pair, where, counts, options.bad_rows)
            else:
                read = _reader(options.source, options.neutral, not options.taken_only)
                found = convert_all(json_rows(path), read, where, counts, options.bad_rows)
            rows = list(written(found, options.target, where, counts, options.on_loss, options.bad_rows))
        if not rows:
            raise InputError(f"{where}: no row is left to write ({dict(counts)})")
        try:
            write_rows(options.output, rows)
        except ValueError as error:
            raise InputError(f"{where}: a number that JSON does not know (NaN or infinity) in a row") from error
        print(json.dumps({"rows written": len(rows), **counts}, ensure_ascii=False))

    return rows_main(parser, arguments, work)


def _from_pair(pair: tuple[LabelledPath, Problem]) -> Converted[LabelledSteps]:
    labelled, problem = pair
    if not labelled.path.steps:
        return Converted((), ("path without a step left out",))
    return Converted((from_labelled_path(labelled, problem),))


if __name__ == "__main__":
    raise SystemExit(convert_rows())

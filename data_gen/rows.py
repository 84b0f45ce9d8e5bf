"""The command lines of the step cutter and of the labels, on JSON Lines: they are useful without the rest of the
project.

``python -m data_gen.steps --input rows.jsonl --output out.jsonl``: field ``text`` in, field ``steps`` added.
``python -m data_gen.labels --input pools.jsonl --output labels.jsonl [--rule forward|backward]``: fields
``problem``, ``answer``, ``samples`` (list of texts) in; one labelled path a line out. Refused when the pool itself
shows that support cannot be believed (``--max-unsupported``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.cli import rows_main
from common.errors import InputError
from common.records import Problem
from common.runs import read_rows, write_rows
from data_gen.labels import LabelSettings, label_paths, refusal
from data_gen.steps import clean_step, cut_steps, path_from_text


def _field(path: Path, number: int, row: dict[str, Any], name: str, kind: type, wanted: str) -> Any:
    if not isinstance(row.get(name), kind):
        raise InputError(f"{path}, row {number}, field {name!r}: {row.get(name)!r}, want {wanted}")
    return row[name]


def cut_rows(arguments: Sequence[str] | None = None) -> int:
    """Cut the texts of a file into steps; return the exit code (2: bad input, nothing written)."""

    def work(options: Any) -> None:
        rows = []
        for number, row in enumerate(read_rows(options.input), 1):
            text = _field(options.input, number, row, "text", str, "text")
            rows.append({**row, "steps": [clean_step(step.text) for step in cut_steps(text)]})
        write_rows(options.output, rows)

    parser = argparse.ArgumentParser(prog="python -m data_gen.steps", description=cut_rows.__doc__)
    return rows_main(parser, arguments, work)


def label_rows(arguments: Sequence[str] | None = None) -> int:
    """Label the steps of sample pools; return the exit code (2: bad input, nothing written). The summary goes to
    standard output.
    """
    parser = argparse.ArgumentParser(prog="python -m data_gen.labels", description=label_rows.__doc__)
    parser.add_argument("--rule", choices=("forward", "backward"), default="forward")
    parser.add_argument(
        "--sources", nargs="+", choices=("frequency", "arithmetic"), default=["frequency", "arithmetic"]
    )
    parser.add_argument("--min-support", type=int, default=0)
    parser.add_argument("--after-error", choices=("negative", "ignore"), default="negative")
    parser.add_argument(
        "--keys", choices=("values", "equations"), default="values", help="what equal steps share (values: prose)"
    )
    parser.add_argument(
        "--max-unsupported", type=float, default=0.05, help="largest share of steps of correct paths without support"
    )

    def work(options: Any) -> None:
        settings = LabelSettings(
            options.rule, tuple(options.sources), options.min_support, options.after_error, keys=options.keys
        )
        paths, texts = [], {}
        for number, row in enumerate(read_rows(options.input), 1):
            text = _field(options.input, number, row, "problem", str, "text")
            answer = str(row.get("answer", ""))
            samples = _field(options.input, number, row, "samples", list, "a list of texts")
            problem = Problem.create(text, answer, source=options.input.name, topic="file")
            texts[problem.id] = text
            paths += [path_from_text(problem, str(sample), index) for index, sample in enumerate(samples)]
        labelled, summary = label_paths(paths, settings, texts)
        reason = refusal(summary, settings, options.max_unsupported)
        if reason:
            raise InputError(f"{options.input}: --max-unsupported: {reason}")
        write_rows(options.output, (row.to_row() for row in labelled))
        print(json.dumps(summary.to_row()))

    return rows_main(parser, arguments, work)

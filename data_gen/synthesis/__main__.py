"""Make problems with checked answers: ``python -m data_gen.synthesis --output FOLDER --count 10000``.

docs/synthesis.md explains it. Writes ``problems.jsonl`` (rows that ``data.source`` reads), ``rejected.jsonl`` and
``journal.jsonl``; the last line printed is one JSON object. A run that was stopped goes on where it was. Exit code 2
and one line for what the user can mend, 3 for a run that came to an end before it was done.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import InputError, RunError
from common.files import file_sha256
from data_gen.synthesis.contamination import TestSets
from data_gen.synthesis.draft import DIFFICULTIES
from data_gen.synthesis.gate import Gate
from data_gen.synthesis.journal import Journal
from data_gen.synthesis.made import cells, make_problems


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m data_gen.synthesis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--output", type=Path, required=True, help="folder; the same one goes on")
    made.add_argument("--count", type=int, default=1000, help="problems wanted (default 1000)")
    made.add_argument("--source", choices=("templates", "writer", "gym"), default="templates")
    made.add_argument("--topics", default="", help="names with commas; default: all (--list shows them)")
    made.add_argument("--difficulty", default="", help=f"{', '.join(DIFFICULTIES)}, with commas; default: all")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--workers", type=int, default=2, help="processes that derive answers; 0: none beside this one")
    made.add_argument(
        "--avoid", type=Path, nargs="*", default=[], help="test sets (JSON Lines): no problem may overlap"
    )
    writer = made.add_argument_group("--source writer: a model behind an OpenAI-compatible endpoint")
    writer.add_argument("--endpoint", help="base address, e.g. http://127.0.0.1:8000/v1; key: OPENAI_API_KEY, if any")
    writer.add_argument("--model", help="name of the model there")
    writer.add_argument("--concurrency", type=int, default=8, help="requests under way at once")
    writer.add_argument("--timeout", type=float, default=120.0, help="seconds for one request")
    writer.add_argument("--attempts", type=int, default=5, help="tries of a request that meets 429, 5xx or a timeout")
    writer.add_argument("--wait", type=float, default=1.0, help="seconds before the second try; doubled each time")
    writer.add_argument(
        "--max-requests", type=int, default=0, help="replies with problems in all; 0: 10 a problem wanted"
    )
    writer.add_argument("--temperature", type=float, default=1.0)
    writer.add_argument("--max-alike", type=int, default=1, help="problems that may differ in numbers and names only")
    writer.add_argument("--no-tools", action="store_true", help="do not offer the SymPy tool to the model")
    writer.add_argument("--read-back", choices=("always", "hard", "never"), default="always",
                        help="have the text alone formalised again; both have to give one answer")  # fmt: skip
    gym = made.add_argument_group("--source gym: reasoning-gym")
    gym.add_argument("--tasks", default="", help="names with commas; default: all that docs/synthesis.md lists")
    return made


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the rows of a folder depend on; a folder made with other values is refused."""
    kept: dict[str, Any] = {"source": options.source, "seed": options.seed}
    kept["avoid"] = sorted(file_sha256(path)[:16] for path in options.avoid)
    if options.source != "gym":
        kept |= {"topics": split(options.topics), "difficulty": split(options.difficulty)}
    if options.source == "writer":
        kept |= {"model": options.model, "max_alike": options.max_alike, "read_back": options.read_back}
    if options.source == "gym":
        kept["tasks"] = split(options.tasks)
    return kept


def split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def check(options: argparse.Namespace) -> None:
    """Raise InputError for values out of range."""
    for name, least in (
        ("count", 1),
        ("workers", 0),
        ("concurrency", 1),
        ("attempts", 1),
        ("max_requests", 0),
        ("max_alike", 0),
    ):
        if getattr(options, name) < least:
            raise InputError(f"--{name.replace('_', '-')} {getattr(options, name)}, want {least} or more")
    for path in options.avoid:
        if not path.is_file():
            raise InputError(f"--avoid {path}: no such file")
    if options.output.exists() and not options.output.is_dir():
        raise InputError(f"--output {options.output}: not a folder")
    for name in ("timeout", "wait"):
        if not 0 < getattr(options, name) < float("inf"):
            raise InputError(f"--{name} {getattr(options, name)}, want seconds above 0")


def work(options: argparse.Namespace) -> dict[str, Any]:
    """Run one source; return what is printed."""
    check(options)
    started = time.perf_counter()
    wanted = cells(split(options.topics), split(options.difficulty)) if options.source != "gym" else []
    if options.source == "writer" and not (options.endpoint and options.model):
        raise InputError("--source writer: want --endpoint and --model")
    gate = Gate(TestSets.read(options.avoid), options.max_alike if options.source == "writer" else 0)
    cpu = None
    with Journal(options.output, settings_of(options)) as journal:
        try:
            if options.source == "templates":
                cpu = make_problems(
                    journal, gate, count=options.count, seed=options.seed, wanted=wanted, workers=options.workers
                )
            elif options.source == "writer":
                from data_gen.synthesis.writer import write_problems

                write_problems(journal, gate, options, wanted)
            else:
                from data_gen.synthesis.gym import gather_problems

                gather_problems(journal, gate, count=options.count, seed=options.seed, tasks=split(options.tasks))
        finally:
            summary = journal.finish(options.count)
    summary["seconds"] = round(time.perf_counter() - started, 1)
    if cpu is not None:
        summary["cpu_seconds"] = round(cpu, 1)
    if summary["problems"] < options.count:
        print(json.dumps(summary, ensure_ascii=False))
        raise RunError(f"{summary['problems']} of {options.count} problems: no more were found; see rejected.jsonl")
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = parser().parse_args(arguments)
    try:
        print(json.dumps(work(options), ensure_ascii=False))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

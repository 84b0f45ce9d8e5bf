"""Judge answers of a JSON Lines file: ``python -m grading --input rows.jsonl --output verdicts.jsonl``.

Rows in: ``gold``, ``output`` (a whole solution). Rows out: the row in, with ``verdict``, ``extracted``, ``how`` and
``seconds`` (wall). Exit code 2 and one line for a bad file; nothing is written then.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import Counter
from pathlib import Path

from common.errors import InputError
from common.runs import read_rows, write_rows
from grading.equivalence import grade
from grading.extract import extract
from grading.settings import DEFAULT, GradingSettings, setting_choices


def judged_row(
    row: dict[str, object], path: Path, number: int, settings: GradingSettings = DEFAULT
) -> dict[str, object]:
    """Return the row with its verdict. Raises InputError for a field that is missing or no text."""
    for name in ("gold", "output"):
        if not isinstance(row.get(name), str):
            raise InputError(f"{path}, row {number}, field {name!r}: {row.get(name)!r}, want text")
    started = time.perf_counter()
    found = extract(str(row["output"]))
    result = grade(found.answer, str(row["gold"]), settings)
    return {
        **row,
        "verdict": result.verdict.value,
        "extracted": found.answer,
        "how": f"{found.how}/{result.how}",
        "seconds": round(time.perf_counter() - started, 6),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m grading", description=__doc__)
    parser.add_argument("--input", type=Path, required=True, help="JSON Lines with fields gold and output")
    parser.add_argument("--output", type=Path, required=True, help="JSON Lines to write")
    for name, choices in setting_choices().items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=choices, default=getattr(DEFAULT, name))
    parser.add_argument("--rounding-digits", type=int, default=DEFAULT.rounding_digits, help="0: none")
    for name in ("relative", "absolute"):
        parser.add_argument(f"--{name}-tolerance", type=float, default=0.0, help="0: numbers must be equal")
    options = parser.parse_args(arguments)
    try:
        names = [field.name for field in dataclasses.fields(GradingSettings)]
        settings = GradingSettings(**{name: getattr(options, name) for name in names})
        rows = [
            judged_row(row, options.input, number, settings) for number, row in enumerate(read_rows(options.input), 1)
        ]
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_rows(options.output, rows)
    counts = Counter(str(row["verdict"]) for row in rows)
    print(f"{len(rows)} rows: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

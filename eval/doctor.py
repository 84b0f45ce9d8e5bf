"""``python -m eval.doctor RUN``: what is wrong with a finished or running run, most suspect first.

Exit code 0: nothing found; 1: findings; 2: no such run. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import InputError
from eval.doctor_rules import RULES, History
from eval.run_folder import RoundData, read_rounds


@dataclasses.dataclass(frozen=True)
class Finding:
    """One symptom of one round: what is seen, the numbers with their file, the likely cause, what to change."""

    round: int
    rule: str
    symptom: str
    evidence: str
    cause: str
    change: str


def diagnose(rounds: Sequence[RoundData]) -> list[Finding]:
    """Return what the rules find, in order of suspicion; within a rule the newest round first."""
    histories = [History.of(data) for data in reversed(rounds)]
    found = []
    for rule in RULES:
        for history in histories:
            seen = rule.look(history)
            if seen is not None:
                found.append(Finding(history.data.index, rule.name, *seen, rule.cause, rule.change))
    return found


def describe(found: Sequence[Finding], rounds: Sequence[RoundData]) -> str:
    """Return the findings as text."""
    lines = [] if found else ["nothing found"]
    for number, finding in enumerate(found, 1):
        lines += [
            f"{number}. {finding.symptom}",
            f"   evidence  round-{finding.round}: {finding.evidence}",
            f"   cause     {finding.cause}",
            f"   change    {finding.change}",
        ]
    return "\n".join(lines + [f"note: {note}" for data in rounds for note in data.notes])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.doctor", description=__doc__)
    parser.add_argument("run", type=Path, help="run folder")
    options = parser.parse_args(argv)
    try:
        rounds = read_rounds(options.run)
        if not any(data.config for data in rounds):
            raise InputError(f"{options.run}: no stage has been started in it; run: make data RUN={options.run}")
    except InputError as error:
        print(f"eval.doctor: {error}", file=sys.stderr)
        return 2
    found = diagnose(rounds)
    print(describe(found, rounds))
    row = {"run": str(options.run), "healthy": not found, "findings": [dataclasses.asdict(one) for one in found]}
    print(json.dumps(row, ensure_ascii=False))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

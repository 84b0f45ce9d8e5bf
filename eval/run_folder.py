"""Read a run folder for the report: whatever is there, with a note for whatever is not.

A report is built while a run is going on and after it was killed, so nothing that is missing, unfinished or damaged
stops it; each such thing becomes a line of text.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from common.errors import InputError
from common.runs import ALL_FOLDERS, OPTIONAL_STAGES, STAGE_COMMAND, STAGE_FOLDERS
from eval.browse import PathShelf
from eval.failures import Cases
from eval.schema import Metrics, read_record


@dataclasses.dataclass(frozen=True)
class RoundData:
    """What one round left behind.

    Attributes:
        index: number of the round.
        metrics, cases, shelf: of the eval stage; None when it has not finished, shelf also when it was by an older
            version.
        logs: rows of ``metrics.jsonl`` of each stage, in order; only finite numbers, texts and lists are kept.
        done: the summary each finished stage wrote.
        payload: ``metrics.json`` of the stages before eval.
        config: flat ``section.key`` settings of the latest stage that has them.
        notes: what is missing or unreadable, a line each.
    """

    index: int
    metrics: Metrics | None
    cases: Cases | None
    shelf: PathShelf | None
    logs: dict[str, list[dict[str, Any]]]
    done: dict[str, dict[str, Any]]
    payload: dict[str, dict[str, Any]]
    config: dict[str, Any]
    notes: list[str]

    @property
    def stages(self) -> list[str]:
        """The stages that this round has, in order of their folders; those not begun yet too."""
        return [stage for stage in ALL_FOLDERS if stage in self.done or stage not in OPTIONAL_STAGES]

    @property
    def seconds(self) -> dict[str, float | None]:
        """Seconds of each stage: from its ``DONE``, else from the metrics, else None."""
        found: dict[str, float | None] = {}
        for stage in ALL_FOLDERS:
            value = self.done.get(stage, {}).get("seconds")
            if value is None and self.metrics is not None:
                value = getattr(self.metrics.seconds, stage)
            found[stage] = float(value) if isinstance(value, int | float) else None
        return found


def read_rounds(run_dir: Path) -> list[RoundData]:
    """All rounds of a run, oldest first.

    Raises:
        InputError: the folder does not exist or holds no round.
    """
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: no such run folder; run: make data RUN={run_dir}")
    numbered = [(folder.name.removeprefix("round-"), folder) for folder in run_dir.glob("round-*") if folder.is_dir()]
    rounds = sorted((int(number), folder) for number, folder in numbered if number.isdecimal())
    if not rounds:
        raise InputError(f"{run_dir}: no round-<k> folder in it; run: make data RUN={run_dir}")
    return [read_round(folder, index) for index, folder in rounds]


def read_round(folder: Path, index: int) -> RoundData:
    """Read one ``round-<k>`` folder."""
    notes: list[str] = []
    logs: dict[str, list[dict[str, Any]]] = {}
    done: dict[str, dict[str, Any]] = {}
    payload: dict[str, dict[str, Any]] = {}
    config: dict[str, Any] = {}
    for stage, name in ALL_FOLDERS.items():
        place = folder / name
        if stage in OPTIONAL_STAGES and not place.is_dir():
            continue
        command = f"make {STAGE_COMMAND[stage]}" + (f" ROUND={index}" if index else "")
        if not place.is_dir():
            notes.append(f"round {index}: stage {stage} has not been run ({command})")
            continue
        if not (place / "DONE").is_file():
            notes.append(f"round {index}: stage {stage} is not finished ({command} continues it)")
        done[stage] = _mapping(place / "DONE", notes)
        config |= _mapping(place / "config.json", notes)
        logs[stage] = _rows(place / "metrics.jsonl", notes)
        if stage != "eval":
            payload[stage] = _mapping(place / "metrics.json", notes)
    last = folder / STAGE_FOLDERS["eval"]
    return RoundData(
        index=index,
        metrics=_record(last / "metrics.json", Metrics, notes),
        cases=_record(last / "cases.json", Cases, notes),
        shelf=_record(last / "browser.json", PathShelf, notes),
        logs=logs,
        done=done,
        payload=payload,
        config=config,
        notes=notes,
    )


def _record(path: Path, kind: Any, notes: list[str]) -> Any:
    if not path.is_file():
        return None
    try:
        return read_record(path, kind)
    except (InputError, OSError) as error:
        notes.append(f"not shown: {_short(path)} does not follow its schema: {str(error).split(': ', 1)[-1][:300]}")
        return None


def _mapping(path: Path, notes: list[str]) -> dict[str, Any]:
    """A JSON object, or {} when the file does not exist or is damaged."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (json.JSONDecodeError, OSError, RecursionError):
        value = None
    if not isinstance(value, dict):
        notes.append(f"not shown: {_short(path)} is not a JSON object")
        return {}
    return _finite(value)


def _rows(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """Rows of a log; a line cut by a kill is left out and counted."""
    if not path.is_file():
        return []
    rows, lost = [], 0
    with path.open(encoding="utf-8", errors="replace") as handle:
        for line in handle:
            try:
                row = json.loads(line) if line.strip() else {}
            except (json.JSONDecodeError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(_finite(row))
            else:
                lost += 1
    if lost:
        notes.append(f"{_short(path)}: {lost} unreadable row(s) left out")
    return [row for row in rows if row]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """The row without non-finite numbers."""
    return {key: value for key, value in row.items() if not (isinstance(value, float) and not math.isfinite(value))}


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])

"""``python -m eval.report RUN --watch SECONDS``: the page is written again whenever the run's files change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eval.ablation import ablations_of
from eval.run_folder import RoundData

READ = ("DONE", "config.json", "metrics.jsonl", "metrics.json", "cases.json", "browser.json")
"""Files of a stage that the report reads."""


def stage_states(data: RoundData) -> list[dict[str, Any]]:
    """How far each stage of a round is: ``state`` done, running or waiting, ``detail`` its seconds or last update."""
    states = []
    for stage in data.stages:
        seconds = data.seconds[stage]
        if data.done.get(stage):
            state, detail = "done", "" if seconds is None else f"{seconds:.0f} s"
        elif stage in data.logs:
            steps = [row["step"] for row in data.logs[stage] if isinstance(row.get("step"), int | float)]
            state, detail = "running", f"update {max(steps):.0f}" if steps else ""
        else:
            state, detail = "waiting", ""
        states.append({"stage": stage, "state": state, "detail": detail})
    return states


def newest_change(run_dir: Path) -> float:
    """When a file of any stage was last written, seconds since 1970; 0 without a file."""
    return max((change for _, change, _ in _files(run_dir, every=True)), default=0.0)


def signature(run_dir: Path) -> frozenset[tuple[str, float, int]]:
    """Changes when a file that the report reads does, or a stage begins."""
    return frozenset(_files(run_dir, every=False))


def _files(run_dir: Path, *, every: bool) -> Iterator[tuple[str, float, int]]:
    for path in ablations_of(run_dir):
        status = path.stat()
        yield str(path), status.st_mtime, status.st_size
    for place in run_dir.glob("round-*/*"):
        yield str(place), 0.0, 0
        for entry in place.glob("*"):
            if every or entry.name in READ:
                try:
                    status = entry.stat()
                except FileNotFoundError:  # a stage renames and removes files while it works
                    continue
                yield str(entry), status.st_mtime, status.st_size


def watch(
    run_dir: Path,
    build: Callable[[float | None], Path],
    seconds: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = print,
) -> None:
    """Build the page whenever the run changes, until the user interrupts; the last page does not refresh itself.

    Args:
        build: writes the page; is told after how many seconds it reads itself again, None: never.
        seconds: between two looks at the folder.
    """
    seen: frozenset[tuple[str, float, int]] | None = None
    try:
        while True:
            now = signature(run_dir)
            if now != seen:
                page, is_first, seen = build(seconds), seen is None, now
                if is_first:
                    say(f"report: {page}, written again whenever the run changes; Ctrl-C ends it")
            sleep(seconds)
    except KeyboardInterrupt:
        say(f"report: {build(None)}")

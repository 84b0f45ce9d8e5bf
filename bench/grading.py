"""The answer checker beside math-verify: ``python -m bench.grading --input rows.jsonl`` prints one JSON line.

Rows hold ``gold`` and ``output`` (a whole solution). Both checkers see every row once, in alternating pieces of the
same run, after one row each that is not counted (start of the process, lazy imports). Extraction and comparison count;
CPU seconds of our worker processes count as ours. math-verify (a dev dependency) runs with its defaults, the gold in a
box. ``--memory-rows N`` grades N different symbolic pairs more and shows the worker's resident memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from common.errors import InputError
from common.records import Verdict
from common.runs import read_rows
from grading.equivalence import grade, grade_completion
from grading.workers import WORKER, resident_bytes

Row = tuple[str, str]
"""A solution and its gold answer."""
PIECES = 8


def load(path: Path) -> list[Row]:
    """Read the rows. Raises InputError for a field that is missing or no text, and for a file without rows."""
    rows = []
    for number, row in enumerate(read_rows(path), 1):
        for name in ("gold", "output"):
            if not isinstance(row.get(name), str):
                raise InputError(f"{path}, row {number}, field {name!r}: {row.get(name)!r}, want text")
        rows.append((row["output"], row["gold"]))
    if not rows:
        raise InputError(f"{path}: no rows")
    return rows


def ours(row: Row) -> bool:
    """Judge a row with this project's checker."""
    return grade_completion(*row).verdict is Verdict.CORRECT


def math_verify() -> Callable[[Row], bool]:
    """Return math-verify as a judge. Raises InputError when it is not installed."""
    try:
        from math_verify import parse, verify
    except ImportError:
        raise InputError("math-verify is not installed; want pip install -e '.[dev]'") from None
    return lambda row: bool(verify(parse(f"\\boxed{{{row[1]}}}"), parse(row[0])))


def measure(rows: Sequence[Row], judges: Sequence[Callable[[Row], bool]]) -> list[tuple[float, float, list[bool]]]:
    """Run the judges over the rows in alternating pieces; return wall seconds, own CPU seconds and verdicts of each."""
    results = [[0.0, 0.0] for _ in judges]
    verdicts: list[list[bool]] = [[] for _ in judges]
    size = -(-len(rows) // PIECES)
    for start in range(0, len(rows), size):
        for k, judge in enumerate(judges):
            wall, cpu = time.perf_counter(), time.process_time()
            verdicts[k] += [judge(row) for row in rows[start : start + size]]
            results[k][0] += time.perf_counter() - wall
            results[k][1] += time.process_time() - cpu
    return [(wall, cpu, found) for (wall, cpu), found in zip(results, verdicts, strict=True)]


def workers_cpu_s() -> float:
    """Return the CPU seconds so far of our template process and its workers, from /proc; 0 when there are none."""
    if WORKER.pid is None:
        return 0.0
    template = _stat(WORKER.pid)[1]
    ticks = sum(_stat(WORKER.pid)[11:13]) + sum(_stat(template)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[int]:
    """Return /proc/<pid>/stat behind the name and the state: parent at 1, CPU ticks at 11 to 14."""
    behind = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:]
    return [0, *map(int, behind)]


def memory(count: int) -> dict[str, object]:
    """Grade `count` different symbolic pairs; return the worker's resident MiB at the start, in the middle, at the end,
    its peak over 200 readings, and the number of workers used."""
    readings, pids = [], set()
    for k in range(count + 1):
        a, b = k + 2, 3 * k + 1
        gold = f"x^2 + {a + b}x + {a * b}" if k % 2 else f"\\sqrt{{{a}}}x + {b}"
        answer = f"(x + {a})(x + {b})" if k % 2 else f"{b} + x\\sqrt{{{a}}}"
        if grade(answer, gold).verdict is not Verdict.CORRECT:
            raise RuntimeError(f"{answer} against {gold}: not CORRECT")
        if WORKER.pid is not None:
            pids.add(WORKER.pid)
            if k % max(1, count // 200) == 0:
                readings.append(resident_bytes(WORKER.pid) / 2**20)
    shown = {"start": readings[0], "middle": readings[len(readings) // 2], "end": readings[-1], "peak": max(readings)}
    own = resident_bytes(os.getpid()) / 2**20
    return {
        "rows": count,
        "workers": len(pids),
        "worker_mib": {name: round(value, 1) for name, value in shown.items()},
        "own_mib": round(own, 1),
    }


def _figures(rows: int, wall_s: float, cpu_s: float, right: list[bool]) -> dict[str, float]:
    return {"rows_per_s": round(rows / wall_s, 1), "cpu_us_a_row": round(1e6 * cpu_s / rows, 1), "right": sum(right)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.grading", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", type=Path, required=True, help="JSON Lines with fields gold and output")
    parser.add_argument("--memory-rows", type=int, default=0, help="0: no memory run")
    options = parser.parse_args(argv)
    try:
        rows, peer = load(options.input), math_verify()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    warm = ("\\boxed{(w+1)^2}", "w^2+2w+1")
    ours(warm)
    peer(warm)
    before = workers_cpu_s()
    (wall, cpu, found), (peer_wall, peer_cpu, peer_found) = measure(rows, [ours, peer])
    cpu += workers_cpu_s() - before
    result: dict[str, object] = {
        "rows": len(rows),
        "ours": _figures(len(rows), wall, cpu, found),
        "math_verify": _figures(len(rows), peer_wall, peer_cpu, peer_found),
        "ratio": round(peer_wall / wall, 1),
        "cpu_ratio": round(peer_cpu / cpu, 1),
        "verdicts_equal": sum(x == y for x, y in zip(found, peer_found, strict=True)),
    }
    if options.memory_rows:
        result["memory"] = memory(options.memory_rows)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

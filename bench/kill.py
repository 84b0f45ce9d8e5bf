"""``python -m bench.kill --config configs/micro.yaml --kills 50``: SIGKILL at random moments inside the stages, resume,
and compare the end of every run with that of a run that was never cut (docs/resume.md).

unbroken run -> CPU seconds of every stage -> moments drawn uniformly over them, ``--each`` a run
  -> every stage killed at its moments, started again each time, then run to its end -> ``bench.endings`` compared

One JSON object on standard output; exit code 1 when any run ends differently, 2 when a stage fails by itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.differences import differences
from bench.stage_process import MODULES, StageProcesses, say, tail
from common.config import load_config
from common.errors import InputError
from common.runs import Run


@dataclasses.dataclass(frozen=True)
class Kill:
    """One SIGKILL: CPU seconds of the stage's process, since its own start, at which it came."""

    run: int
    stage: str
    cpu_s: float


def draw_moments(stage_cpu: Mapping[str, float], count: int, rng: random.Random) -> dict[str, list[float]]:
    """Draw ``count`` moments uniformly over the stages laid end to end.

    Args:
        stage_cpu: CPU seconds of each stage of an unbroken run.

    Returns:
        for each stage the moments that fall into it, in seconds after its start, early ones first: after a late one
        the stage has saved what it did, and less is left to be killed in.
    """
    moments: dict[str, list[float]] = {stage: [] for stage in stage_cpu}
    for _ in range(count):
        place = rng.uniform(0, sum(stage_cpu.values()))
        for stage, seconds in stage_cpu.items():
            if place <= seconds:
                moments[stage].append(place)
                break
            place -= seconds
    return {stage: sorted(found) for stage, found in moments.items()}


def run_with_kills(
    processes: StageProcesses, root: Path, number: int, moments: Mapping[str, Sequence[float]]
) -> tuple[list[Kill], dict[str, float]]:
    """Run the loop to its end, every stage killed at its moments and started again after each.

    A resumed stage has less to do: when it ends before its moment that kill does not come.

    Returns:
        the kills that came; CPU seconds of each stage's last process.

    Raises:
        InputError: a stage ended by itself with an error.
    """
    log, kills, used = root.with_name(f"{root.name}.log"), [], {}
    for stage in MODULES:
        for kill_at in [*moments.get(stage, ()), None]:
            code, used[stage] = processes.run(stage, Run(root), log, kill_at)
            if code == -signal.SIGKILL and kill_at is not None:
                kills.append(Kill(number, stage, round(used[stage], 3)))
            elif code != 0:
                raise InputError(f"run {number}: stage {stage} ended by itself with exit code {code}\n{tail(log)}")
            else:
                break
    return kills, used


def kill_and_compare(
    processes: StageProcesses, folder: Path, name: str, kills: int, each: int, seed: int
) -> dict[str, Any]:
    """Make one unbroken run and as many cut ones as ``kills`` take; return the JSON result.

    Args:
        each: moments drawn for one run.
    """
    rng, started = random.Random(seed), time.perf_counter()
    unbroken = folder / "unbroken" / name
    unbroken.parent.mkdir(parents=True)
    _, stage_cpu = run_with_kills(processes, unbroken, 0, {})
    wanted = processes.ending(unbroken)
    say(f"unbroken run: CPU seconds { ({stage: round(value, 2) for stage, value in stage_cpu.items()}) }")
    landed: list[Kill] = []
    different: dict[int, list[str]] = {}
    number = drawn = 0
    while len(landed) < kills:
        number += 1
        root = folder / f"cut-{number}" / name
        root.parent.mkdir(parents=True)
        count = min(each, kills - len(landed))
        drawn += count
        came, _ = run_with_kills(processes, root, number, draw_moments(stage_cpu, count, rng))
        landed += came
        differ = differences(wanted, processes.ending(root))
        different |= {number: differ} if differ else {}
        say(f"run {number}: {len(came)} kills, {len(landed)} of {kills}; {len(differ)} of {len(wanted)} values differ")
        if not differ:
            shutil.rmtree(root.parent)
    return {
        "kills": len(landed),
        "runs": number,
        "moments_not_reached": drawn - len(landed),
        "kills_by_stage": dict(Counter(kill.stage for kill in landed)),
        "cpu_s_unbroken": {stage: round(value, 2) for stage, value in stage_cpu.items()},
        "compared_values": len(wanted),
        "runs_that_differ": len(different),
        "different": {str(number): names[:20] for number, names in different.items()},
        "weights": {what: wanted[f"weights.{what}"][:16] for what in ("prm", "policy")},
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
        "moments": [dataclasses.astuple(kill) for kill in landed],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill and compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.kill", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/micro.yaml", help="YAML file of the experiment")
    parser.add_argument("--kills", type=int, default=50, help="SIGKILLs in all")
    parser.add_argument("--each", type=int, default=20, help="moments drawn for one run")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; the run's own seed is seed=…")
    parser.add_argument("--folder", type=Path, default=None, help="where runs go; default: a temporary folder")
    parser.add_argument("overrides", nargs="*", help="section.key=value, e.g. seed=1")
    options = parser.parse_args(arguments)
    try:
        if options.kills < 1 or options.each < 1:
            raise InputError(f"--kills {options.kills} --each {options.each}: must be 1 or more")
        load_config(options.config, options.overrides)
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.folder or Path(temporary)
            name = Path(options.config).stem
            processes = StageProcesses(options.config, options.overrides)
            result = kill_and_compare(processes, folder, name, options.kills, options.each, options.seed)
    except InputError as error:
        print(f"bench.kill: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 1 if result["runs_that_differ"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

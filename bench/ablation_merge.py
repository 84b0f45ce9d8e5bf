"""Take finished seeds of earlier ablations into a new table: ``--with docs/results/ablation-tiny.json``.

So seeds can be added later, and be run on several machines. A job counts as finished when it ran with the very
settings it would run with now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.ablation_results import JobResult, StageCost
from common.errors import InputError

Finished = tuple[dict[str, list[JobResult]], dict[str, dict[int, StageCost]]]
"""Jobs by arm, and what each seed's stages cost by arm and seed."""


def read_finished(path: Path, arms: Iterable[str], wanted: Mapping[str, Mapping[str, Any]]) -> Finished:
    """Jobs and stage costs of ``arms`` in the file of an ablation, seeds in the file's order.

    Args:
        path: ``ablation.json``. wanted: flat settings of a job of this ablation by arm, of any seed.

    Raises:
        InputError: no such file, an arm is missing, or a job ran with other settings.
    """
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        jobs = {arm: [JobResult.from_row(job) for job in row["jobs"][arm]] for arm in arms}
        costs = {arm: {int(seed): StageCost(**one) for seed, one in row["stage_costs"][arm].items()} for arm in jobs}
    except FileNotFoundError as error:
        raise InputError(f"--with {path}: no such file") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"--with {path}: {type(error).__name__}: {error}; want an ablation.json with all arms"
        ) from error
    for arm, found in jobs.items():
        for job in found:
            _check_settings(path, job, wanted[arm])
    return jobs, costs


def _check_settings(path: Path, job: JobResult, wanted: Mapping[str, Any]) -> None:
    ran, now = (json.loads(json.dumps({**one, "seed": None})) for one in (job.settings, wanted))
    for key in sorted(ran.keys() | now.keys()):
        if ran.get(key) != now.get(key):
            what = f"ran with {key} = {ran.get(key)!r}, now it is {now.get(key)!r}"
            raise InputError(f"--with {path}: {job.arm}, seed {job.seed} {what}")


def merge(mine: Finished, found: Finished) -> Finished:
    """Both together, by seed.

    Raises:
        InputError: a seed is in both, so one of them would count twice.
    """
    jobs, costs = dict(mine[0]), dict(mine[1])
    for arm, more in found[0].items():
        twice = {job.seed for job in jobs[arm]} & {job.seed for job in more}
        if twice:
            raise InputError(f"--with: {arm}, seed {min(twice)} is in two of the results; leave it out of --seeds")
        jobs[arm] = sorted([*jobs[arm], *more], key=lambda job: job.seed)
        costs[arm] = costs[arm] | found[1][arm]
    return jobs, costs

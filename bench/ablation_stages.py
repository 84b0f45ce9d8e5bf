"""What an ablation is asked for, and the stages before training: made once a seed, shared by arms, charged."""

from __future__ import annotations

import dataclasses
import functools
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.ablation_results import Clock, StageCost
from bench.arms import Arm
from common.config import Config, load_config
from common.errors import InputError
from common.records import content_id
from common.runs import Run, write_atomic
from pipeline.stages import stage_command


@dataclasses.dataclass(frozen=True)
class Plan:
    """An ablation as asked for.

    Attributes:
        overrides: of the configuration, for all arms.
        reference: the arm all others are compared with.
        pacer: the arm whose charged seconds at equal rollouts are the budget in seconds of all.
        budgets: ``rollouts``, ``seconds`` or both. clock: which seconds.
        cap: most generation batches of an arm, as a multiple of the configuration's.
        samples: sampled paths a test problem.
        rates: learning rates to screen; empty: the configuration's.
        finished: results of earlier ablations whose seeds are added.
    """

    config_path: str
    overrides: tuple[str, ...]
    arms: tuple[Arm, ...]
    reference: Arm
    pacer: Arm
    seeds: tuple[int, ...]
    out: Path
    budgets: tuple[str, ...]
    clock: Clock
    cap: float
    samples: int
    rates: tuple[float, ...]
    finished: tuple[Path, ...] = ()

    @functools.cached_property
    def config(self) -> Config:
        return load_config(self.config_path, list(self.overrides))

    @property
    def max_batches(self) -> int:
        """Generation batches after which a job ends, whatever its seconds."""
        batches = self.config.ppo.batches
        return round(batches * self.cap) if "seconds" in self.budgets else batches


def stages_of(plan: Plan, arm: Arm, seed: int) -> Run:
    """The run folder with the stages of an arm: one for a seed, and one for every arm that changes them."""
    own = f"-{content_id(*arm.stage_overrides)[:6]}" if arm.stage_overrides else ""
    return Run(plan.out / "stages" / f"seed-{seed}{own}")


FINISHED_BY = {"data": "label", "sft": "sft", "prm": "prm"}
"""The folder that a stage of an ablation writes last."""


def stage_names(plan: Plan, arm: Arm) -> list[str]:
    """The stages an arm cannot do without, in order: problems come from ``data`` for every arm."""
    is_scored = arm.process == "prm"
    names = ["data"]
    if plan.config.sft.is_on and (is_scored or arm.start == "sft"):  # the PRM is fitted on its backbone
        names.append("sft")
    return [*names, "prm"] if is_scored else names


def run_stages(plan: Plan, arm: Arm, seed: int) -> None:
    """Make data and, where the arm needs them, the supervised start and the PRM; what is there is used.

    Raises:
        InputError: a stage ended with an error.
    """
    run = stages_of(plan, arm, seed)
    overrides = [*plan.overrides, *arm.stage_overrides, f"seed={seed}"]
    for stage in stage_names(plan, arm):
        note = run.root / f"cost-{stage}.json"
        if run.stage(FINISHED_BY[stage]).is_done and note.is_file():
            continue
        is_whole = not run.stage("sample" if stage == "data" else stage).path.exists()
        before = _child_cpu()
        run_command(stage_command(stage, plan.config_path, run, overrides), f"stage {stage} of seed {seed}")
        write_atomic(note, json.dumps({"cpu": _child_cpu() - before, "is_whole": is_whole}))


def _child_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_command(command: Sequence[str], what: str) -> None:
    print(f"ablation: {what}", file=sys.stderr, flush=True)
    code = subprocess.run(command).returncode
    if code != 0:
        raise InputError(f"{what} ended with exit code {code}; mend it and give the same command again")


def stage_cost(plan: Plan, arm: Arm, seed: int) -> StageCost:
    """What an arm is charged with beside its training: its stages, when it learns from the paths they sampled.

    The measured pass rates choose the problems of every arm; they are charged to those arms all the same.
    """
    names = stage_names(plan, arm)
    if names == ["data"]:
        return StageCost()
    run, data = stages_of(plan, arm, seed), load_config(plan.config_path, [*plan.overrides, *arm.stage_overrides]).data
    notes = {name: json.loads((run.root / f"cost-{name}.json").read_text()) for name in names}
    sample = run.require("sample").summary
    seconds = {name: run.require(FINISHED_BY[name]).summary["seconds"] for name in names}
    labels = json.loads(run.require("label").file("metrics.json").read_text(encoding="utf-8"))
    completions = labels.get("monte_carlo", {}).get("cost", {}).get("completions", 0)
    return StageCost(
        rollouts=sample["pool"] * data.measure_paths + sample["kept"] * (data.paths - data.measure_paths) + completions,
        wall=sample["seconds"] + sum(seconds.values()),
        cpu=sum(note["cpu"] for note in notes.values()),
        fit_wall=seconds.get("prm", 0.0),
        fit_cpu=notes["prm"]["cpu"] if "prm" in notes else 0.0,
        is_whole=all(note["is_whole"] for note in notes.values()),
    )

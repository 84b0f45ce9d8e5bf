"""The matched ablation: several ways to train, the same problems, rollouts or seconds, one table.

``python -m bench.ablation --config configs/tiny.yaml --arms trl_grpo default --seeds 0 1 2 --out runs/ablation``
makes data and PRM once a seed, trains every arm with every seed (``bench/arms.yaml``), tests each at equal rollouts and
at equal seconds, and writes ``ablation.json`` and ``ablation.md``. What is finished is not run again; a killed ablation
continues when the same command is given. docs/ablation.md holds the protocol.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.ablation_merge import merge, read_finished
from bench.ablation_results import JobResult, Milestone, StageCost
from bench.ablation_spec import JobSpec, job_settings
from bench.ablation_stages import Plan, run_command, run_stages, stage_cost, stages_of
from bench.ablation_table import Report, build_report, versions
from bench.arms import Arm, choose, load_arms
from common.config import load_config
from common.errors import InputError
from common.runs import write_atomic

NO_PATIENCE = "ppo.patience=1000000"
"""The rule that stops on flat validation would give arms different budgets; the other stop rules stay."""


def check(plan: Plan) -> None:
    """Refuse what would not be a matched comparison.

    Raises:
        InputError: one line that says what to change.
    """
    ppo = plan.config.ppo
    for option, arm in (("--reference", plan.reference), ("--seconds-of", plan.pacer)):
        if arm not in plan.arms:
            raise InputError(f"{option} {arm.name}: not among --arms")
    if "seconds" in plan.budgets and ppo.schedule != "constant":
        raise InputError(f"ppo.schedule = {ppo.schedule!r}: its length depends on the budget; want 'constant'")
    if plan.cap < 1:
        raise InputError(f"--cap {plan.cap}: want 1 or more")
    if min(plan.seeds) < 0 or len(set(plan.seeds)) < len(plan.seeds):
        raise InputError(f"--seeds {plan.seeds}: want different numbers, 0 or more")
    if plan.samples < 1 or any(rate <= 0 for rate in plan.rates):
        raise InputError("--samples and --learning-rates: want numbers above 0")
    if plan.config.sft.source == "solutions":
        raise InputError(
            "sft.source = 'solutions': not every arm would learn from them; give all of them that start by"
            " base.model=<run>/round-0/0_sft/policy sft.source=none"
        )
    for arm in plan.arms:
        load_config(plan.config_path, [*plan.overrides, *arm.overrides])


def job_spec(plan: Plan, arm: Arm, seed: int, rate: float, milestones: Sequence[Milestone] = ()) -> JobSpec:
    """What a job is told."""
    batches = f"ppo.batches={plan.max_batches}"
    own = (f"seed={seed}", f"ppo.learning_rate={rate}", batches, NO_PATIENCE)
    return JobSpec(
        arm=arm.name,
        seed=seed,
        config=plan.config_path,
        overrides=(*plan.overrides, *arm.overrides, *own),
        stages=str(stages_of(plan, arm, seed).root),
        folder=str(plan.out / "jobs" / arm.name / f"seed-{seed}" / f"rate-{rate:g}"),
        milestones=tuple(milestones),
        samples=plan.samples,
    )


def run_job(plan: Plan, arm: Arm, seed: int, rate: float, milestones: Sequence[Milestone]) -> JobResult:
    """Train one arm with one seed in a process of its own; a result that has all milestones is read.

    Raises:
        InputError: the job failed, or its folder was made with other settings.
    """
    spec = job_spec(plan, arm, seed, rate, milestones)
    folder = Path(spec.folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(job_settings(spec.load(), spec.samples) | {"batches": plan.config.ppo.batches}))
    saved = folder / "settings.json"
    if saved.is_file():
        before = json.loads(saved.read_text(encoding="utf-8"))
        for key in sorted(before.keys() | settings.keys()):
            if before.get(key) != settings.get(key):
                now = f"now it is {settings.get(key)!r}; use another --out"
                raise InputError(f"{saved}: made with {key} = {before.get(key)!r}, {now}")
    write_atomic(saved, json.dumps(settings, indent=1))
    found = JobResult.read(folder / "result.json")
    if found is None or any(one.name not in found.tests for one in milestones):
        write_atomic(folder / "spec.json", json.dumps(dataclasses.asdict(spec), indent=1))
        command = [sys.executable, "-m", "bench.ablation_job", str(folder / "spec.json")]
        run_command(command, f"{arm.name}, seed {seed}, learning rate {rate:g}")
        found = JobResult.read(folder / "result.json")
    if found is None:
        raise InputError(f"{folder}: the job left no result")
    return found


def milestones_of(
    plan: Plan, arm: Arm, charge: StageCost, paced: JobResult | None, pace_charge: StageCost
) -> list[Milestone]:
    """Where an arm is tested.

    Args:
        charge: of the arm. paced: of the arm that sets the seconds, None when it is this one. pace_charge: its charge.
    """
    found = [Milestone("rollouts", batches=plan.config.ppo.batches)]
    if arm == plan.reference:
        found.insert(0, Milestone("base", batches=0))
    if "seconds" in plan.budgets and paced is not None:
        training = getattr(paced.tests["rollouts"], plan.clock)
        charged = training + getattr(pace_charge, plan.clock) - getattr(charge, plan.clock)
        found.append(Milestone("seconds", seconds=charged, clock=plan.clock))
        found.append(Milestone("training_seconds", seconds=training, clock=plan.clock))
    return found


def screen(plan: Plan, arm: Arm) -> dict[float, float]:
    """Final validation accuracy by learning rate, on the first seed, at equal rollouts; empty without a search."""
    milestones = milestones_of(plan, arm, StageCost(), None, StageCost())
    results = {rate: run_job(plan, arm, plan.seeds[0], rate, milestones) for rate in plan.rates}
    return {rate: result.at(plan.config.ppo.batches).accuracy for rate, result in results.items()}


def run_ablation(plan: Plan, argv: Sequence[str]) -> Report:
    """Stages, screen, jobs (first the arm whose seconds are the others' budget), report."""
    check(plan)
    order = [plan.pacer, *(arm for arm in plan.arms if arm is not plan.pacer)]
    for seed in plan.seeds:
        for arm in order:
            run_stages(plan, arm, seed)
    screens = {arm.name: screen(plan, arm) for arm in order}
    rates = {
        name: max(found, key=lambda rate: (found[rate], -rate)) if found else plan.config.ppo.learning_rate
        for name, found in screens.items()
    }
    jobs: dict[str, list[JobResult]] = {arm.name: [] for arm in order}
    costs: dict[str, dict[int, StageCost]] = {
        arm.name: {seed: stage_cost(plan, arm, seed) for seed in plan.seeds} for arm in order
    }
    for seed in plan.seeds:
        for arm in order:
            paced = jobs[plan.pacer.name][-1] if arm is not plan.pacer else None
            milestones = milestones_of(plan, arm, costs[arm.name][seed], paced, costs[plan.pacer.name][seed])
            jobs[arm.name].append(run_job(plan, arm, seed, rates[arm.name], milestones))
    wanted = {arm.name: job_settings(job_spec(plan, arm, 0, rates[arm.name]).load(), plan.samples) for arm in order}
    for path in plan.finished:
        jobs, costs = merge((jobs, costs), read_finished(path, list(jobs), wanted))
    return build_report(
        plan.config,
        arms=plan.arms,
        reference=plan.reference.name,
        pacer=plan.pacer.name,
        jobs=jobs,
        costs=costs,
        screens=screens,
        budgets=plan.budgets,
        clock=plan.clock,
        head=_head(plan, argv),
    )


def _head(plan: Plan, argv: Sequence[str]) -> dict[str, Any]:
    """Where the figures come from."""
    command = shlex.join(["python", "-m", "bench.ablation", *argv])
    threads = plan.config.base.threads or os.cpu_count()
    return {
        "command": command,
        "config": plan.config_path,
        "overrides": list(plan.overrides),
        "cap_batches": plan.max_batches,
        "samples": plan.samples,
        "cpus": os.cpu_count(),
        "threads": threads,
        "versions": versions(),
    }


def parse(argv: Sequence[str]) -> Plan:
    arms = load_arms()
    parser = argparse.ArgumentParser(
        prog="python -m bench.ablation",
        description=(__doc__ or "").splitlines()[0],
        epilog="arms:\n" + "\n".join(f"  {arm.name:22} {arm.about}" for arm in arms.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", default="configs/tiny.yaml", help="YAML file of the experiment")
    parser.add_argument("--arms", nargs="+", required=True, metavar="ARM")
    parser.add_argument("--reference", default=None, help="arm the others are compared with; default: the first")
    parser.add_argument(
        "--seconds-of",
        default=None,
        metavar="ARM",
        help="arm whose charged seconds are the budget; default: the reference",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--out", type=Path, required=True, help="folder of stages, jobs and results")
    parser.add_argument("--budget", nargs="+", choices=("rollouts", "seconds"), default=["rollouts", "seconds"])
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="which seconds are made equal")
    parser.add_argument("--cap", type=float, default=3.0, help="most batches of an arm, times ppo.batches")
    parser.add_argument("--samples", type=int, default=4, help="sampled paths a test problem")
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[], help="screened on the first seed")
    parser.add_argument(
        "--with", nargs="+", type=Path, default=[], dest="finished", metavar="FILE", help="add seeds of ablation.json"
    )
    parser.add_argument("overrides", nargs="*", help="section.key=value, for all arms")
    options = parser.parse_args(_overrides_last(argv))
    chosen = choose(options.arms, arms)
    reference = choose([options.reference], arms)[0] if options.reference else chosen[0]
    return Plan(
        config_path=options.config,
        overrides=tuple(options.overrides),
        arms=tuple(chosen),
        reference=reference,
        pacer=choose([options.seconds_of], arms)[0] if options.seconds_of else reference,
        seeds=tuple(options.seeds),
        out=options.out,
        budgets=tuple(options.budget),
        clock=options.clock,
        cap=options.cap,
        samples=options.samples,
        rates=tuple(options.learning_rates),
        finished=tuple(options.finished),
    )


def _overrides_last(argv: Sequence[str]) -> list[str]:
    """Part ``section.key=value`` from an option before it that takes many values."""
    overrides = [word for word in argv if re.match(r"[a-z]+(\.[a-z_0-9]+)?=", word)]
    return [*(word for word in argv if word not in overrides), *(["--", *overrides] if overrides else [])]


def main(argv: Sequence[str] | None = None) -> int:
    try:
        argv = sys.argv[1:] if argv is None else argv
        plan = parse(argv)
        report = run_ablation(plan, argv)
    except InputError as error:
        print(f"ablation: {error}", file=sys.stderr)
        return 2
    write_atomic(plan.out / "ablation.json", report.to_json())
    write_atomic(plan.out / "ablation.md", report.markdown)
    print(report.markdown)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

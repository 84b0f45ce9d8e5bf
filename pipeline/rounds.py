"""``python -m pipeline.rounds``: rounds of data -> prm -> ppo -> eval, the PRM refitted on each new policy's paths.

Each stage runs as its own process, so a killed run continues where it stopped when the same command is given again.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from common.config import Config, load_config
from common.errors import InputError
from common.runs import Run
from eval.report import build_report
from eval.schema import Figure, Metrics, read_record
from pipeline.stages import stage_command, stages_of_round


def round_overrides(config: Config, index: int, overrides: Sequence[str]) -> list[str]:
    """Settings of one round: its own of ``rounds.overrides``, then those of the command line, which win."""
    listed = config.rounds.overrides
    return [*(listed[index] if index < len(listed) else ()), *overrides]


def run_rounds(
    config: Config, config_path: str, root: Path, overrides: Sequence[str], launch: Sequence[str] = ()
) -> None:
    """Run ``rounds.count`` rounds.

    Raises:
        InputError: a stage ended with an error, or the settings of a round cannot be read; the message names it.
    """
    own = [round_overrides(config, index, overrides) for index in range(config.rounds.count)]
    for settings in own:
        load_config(config_path, settings)  # what cannot be read in a late round ends the run before its first
    for index in range(config.rounds.count):
        run = Run(root, index)
        for stage in stages_of_round(config, index):
            print(f"round {index}: {stage}", flush=True)
            code = subprocess.run(stage_command(stage, config_path, run, own[index], launch)).returncode
            if code != 0:
                raise InputError(f"round {index}: stage {stage} ended with exit code {code}; mend it and run again")


def rounds_table(root: Path, count: int) -> Table:
    """One row a round: difficulty of the pool, PRM, policy accuracy, KL."""
    table = Table(title=f"{root}: rounds")
    for column in (
        "round",
        "pool pass rate",
        "PRM F1",
        "refit",
        "greedy",
        "sampled",
        "majority@8",
        "PRM best-of-8",
        "KL",
    ):
        table.add_column(column, justify="right")
    for index in range(count):
        run = Run(root, index)
        metrics = read_record(run.require("eval").file("metrics.json"), Metrics)
        prm = run.require("prm").summary
        policy = metrics.policy
        table.add_row(
            str(index),
            f"{run.require('sample').summary['pool_pass_rate']:.3f}",
            f"{prm['first_error_f1']:.3f}",
            "taken" if prm["accepted"] else "rejected",
            *(_percent(f) for f in (policy.pass1_greedy, policy.pass1_sampled, policy.majority8, policy.prm_best8)),
            "-" if metrics.ppo.kl is None else f"{metrics.ppo.kl:.3f}",
        )
    return table


def _percent(figure: Figure) -> str:
    if figure.value is None or figure.ci95 is None:
        return "-"
    return f"{100 * figure.value:.1f} [{100 * figure.ci95[0]:.1f}, {100 * figure.ci95[1]:.1f}]"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.rounds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml", help="YAML file of the experiment")
    parser.add_argument("--run", default=None, help="run folder; default: runs/<name of the configuration>")
    parser.add_argument(
        "--launch", default="", help="launcher of prm and ppo, e.g. 'accelerate launch --config_file …'"
    )
    parser.add_argument("overrides", nargs="*", help="section.key=value; rounds.count=N sets the number of rounds")
    options = parser.parse_args(argv)
    root = Path(options.run) if options.run else Path("runs") / Path(options.config).stem
    try:
        config = load_config(options.config, options.overrides)
        run_rounds(config, options.config, root, options.overrides, shlex.split(options.launch))
        Console().print(rounds_table(root, config.rounds.count))
        print(f"report: {build_report(root)}")
    except InputError as error:
        print(f"rounds: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

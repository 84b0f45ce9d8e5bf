"""``python -m bench.repro --config configs/tiny.yaml --seeds 3``: does the whole loop give the same again
(docs/resume.md)?

one run a seed, and the first seed once more
  -> the two runs of the first seed must end in the very same figures and weights (``bench.endings``)
  -> for each figure the spread over the seeds (largest - smallest) must not exceed its limit

The limit of a figure is ``--limit``, or the mean width of the runs' own 95 % intervals: all seeds share their test
problems, so seeds that lie further apart than that differ by more than the test set's own uncertainty.

A table and ``repro.json``; exit code 1 when something is above its limit, 2 when a stage ends with an error. Runs that
are there are continued, so a killed command goes on when it is given again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.differences import differences
from bench.endings import ending
from common.config import load_config
from common.errors import InputError
from common.runs import Run, write_atomic
from eval.schema import Figure, Metrics, read_record
from pipeline.stages import stage_command, stages_of_round

HEADLINE = ("pass1_greedy", "pass1_sampled", "pass1_best_temperature", "majority8", "prm_best8")


@dataclasses.dataclass(frozen=True)
class Spread:
    """One figure over the seeds.

    Attributes:
        values: of each seed, None where it does not exist.
        limit: most that largest and smallest value may lie apart; None when no run has an interval.
    """

    name: str
    values: tuple[float | None, ...]
    limit: float | None

    @property
    def spread(self) -> float | None:
        """Largest minus smallest value; None when fewer than two exist."""
        known = [value for value in self.values if value is not None]
        return max(known) - min(known) if len(known) > 1 else None

    @property
    def is_within(self) -> bool:
        """True for a spread up to the limit, and when no run has the figure; a figure of only some runs fails."""
        if self.spread is None or None in self.values:
            return set(self.values) == {None} or len(self.values) == 1
        return self.limit is not None and self.spread <= self.limit

    def to_row(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "spread": self.spread, "within": self.is_within}


def figures_of(metrics: Metrics) -> dict[str, Figure]:
    """The figures that are compared, by name: base, policy and difference on the test problems, the PRM's F1."""
    parts = {"base": metrics.base, "policy": metrics.policy, "difference": metrics.difference}
    found = {f"{part} {name}": getattr(record, name) for part, record in parts.items() for name in HEADLINE}
    return found | {"PRM first-error F1": metrics.prm.first_error_f1}


def spread_of(name: str, figures: Sequence[Figure], limit: float | None = None) -> Spread:
    """Spread of one figure over seeds; ``limit`` None: the mean width of the figures' intervals."""
    widths = [figure.ci95[1] - figure.ci95[0] for figure in figures if figure.ci95 is not None]
    own = statistics.fmean(widths) if widths else None
    return Spread(name, tuple(figure.value for figure in figures), own if limit is None else limit)


def spreads(runs: Sequence[Metrics], limit: float | None = None) -> list[Spread]:
    """Spread of every figure over the runs of the seeds."""
    found: list[Mapping[str, Figure]] = [figures_of(metrics) for metrics in runs]
    return [spread_of(name, [figures[name] for figures in found], limit) for name in found[0]]


def run_loop(config_path: str, root: Path, overrides: Sequence[str]) -> None:
    """Run the four stages in processes of their own; finished ones are left alone.

    Raises:
        InputError: a stage ended with an error.
    """
    for stage in stages_of_round(load_config(config_path, list(overrides)), 0):
        code = subprocess.run(stage_command(stage, config_path, Run(root), overrides)).returncode
        if code != 0:
            raise InputError(f"{root}: stage {stage} ended with exit code {code}; mend it and run again")


def table(seeds: Sequence[int], rows: Sequence[Spread], differ: Sequence[str]) -> Table:
    """Figures in percent: one row a figure, one column a seed."""
    end = f"{len(differ)} values differ: {', '.join(differ[:3])} …" if differ else "identical"
    made = Table(title=f"spread over seeds, percent; seed {seeds[0]} twice: {end}")
    for column in ("figure", *(f"seed {seed}" for seed in seeds), "spread", "limit", ""):
        made.add_column(column, justify="left" if column == "figure" else "right")
    for row in rows:
        numbers = [*row.values, row.spread, row.limit]
        shown = ["-" if number is None else f"{100 * number:.1f}" for number in numbers]
        made.add_row(row.name, *shown, "pass" if row.is_within else "FAIL")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, compare, print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.repro", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml", help="YAML file of the experiment")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from the configuration's own on")
    parser.add_argument("--limit", type=float, help="most spread of any figure, as a share; default: see above")
    parser.add_argument("--folder", type=Path, help="where the runs go; default: runs/repro-<configuration>")
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    options = parser.parse_args(arguments)
    folder = options.folder or Path("runs") / f"repro-{Path(options.config).stem}"
    try:
        if options.seeds < 2:
            raise InputError(f"--seeds {options.seeds}: must be 2 or more")
        first = load_config(options.config, options.overrides).seed
        seeds = range(first, first + options.seeds)
        roots = [folder / f"seed-{seed}" for seed in seeds]
        for root, seed in [*zip(roots, seeds, strict=True), (folder / "again", first)]:
            run_loop(options.config, root, [*options.overrides, f"seed={seed}"])
        differ = differences(ending(roots[0]), ending(folder / "again"))
        metrics = [read_record(Run(root).require("eval").file("metrics.json"), Metrics) for root in roots]
        rows = spreads(metrics, options.limit)
    except InputError as error:
        print(f"bench.repro: {error}", file=sys.stderr)
        return 2
    is_good = not differ and all(row.is_within for row in rows)
    result = {"passed": is_good, "seeds": list(seeds), "different": differ, "spreads": [row.to_row() for row in rows]}
    write_atomic(folder / "repro.json", json.dumps(result, indent=1, allow_nan=False))
    Console(width=120).print(table(seeds, rows, differ))
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""The result of ``bench.ablation`` as a part of the report: tables by budget, costs, validation curves of the arms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from common.errors import InputError
from eval.charts import Chart, Point, Series, line_chart
from eval.schema import Figure

TITLES = {
    "rollouts": "Equal rollouts",
    "seconds": "Equal seconds, data and PRM charged",
    "training_seconds": "Equal seconds of training, data and PRM at hand",
}
MAX_CURVES = 8
"""Arms with a curve; the style sheet has a colour and a dash for each."""
PATTERN = "ablation*.json"


class _Read(BaseModel):
    """Of a file with more in it only what is shown; finite numbers."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Head(_Read):
    command: str
    config: str
    seeds: list[int]
    test_problems: int
    batches: int
    rollouts: int
    samples: int
    clock: Literal["wall", "cpu"]


class Compared(_Read):
    value: dict[str, float | None]
    difference: dict[str, Figure] | None
    ahead: int
    seeds: int
    batches: float
    ended_by: dict[str, str]


class Seconds(_Read):
    wall: float
    cpu: float


class Price(_Read):
    train: Seconds
    stages: Seconds
    batch: Seconds
    label_rollouts: float


class Goal(_Read):
    has_gain: bool
    rollouts: float | None
    share: float | None


class ArmResult(_Read):
    about: str
    comparisons: dict[str, Compared]
    cost: Price
    reach: Goal
    learning_rate: float


def curve_accuracy(greedy: float, sampled: float) -> float:
    """What curves of validations show: the mean of greedy and sampled accuracy, all in [0, 1]."""
    return (greedy + sampled) / 2


class Validated(_Read):
    batch: int
    wall: float
    cpu: float
    greedy: float
    sampled: float

    @property
    def accuracy(self) -> float:
        """By which runs are compared while they train."""
        return curve_accuracy(self.greedy, self.sampled)


class Job(_Read):
    curve: list[Validated]
    rollouts_a_batch: int


class Ablation(_Read):
    """``ablation.json`` as ``bench.ablation_table.Report.to_json`` writes it."""

    head: Head
    reference: str
    base: dict[str, float | None]
    arms: dict[str, ArmResult]
    jobs: dict[str, list[Job]]
    notes: list[str] = []


@dataclasses.dataclass(frozen=True)
class AblationView:
    """What the template shows of one ablation.

    Attributes:
        name: of the file. budgets: (title, [(arm, result at that budget)]) in the file's order of arms.
        charts: validation curves against rollouts and against seconds.
    """

    name: str
    result: Ablation
    budgets: list[tuple[str, list[tuple[str, Compared]]]]
    charts: list[Chart]


def ablations_of(run_dir: Path) -> list[Path]:
    """The results that lie in a run folder, or in the folder that ``bench.ablation --out`` made."""
    return sorted(run_dir.glob(PATTERN))


def read_ablation(path: Path) -> Ablation:
    """Read a result.

    Raises:
        InputError: no such file, or not what ``bench.ablation`` writes; one line with the field.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; python -m bench.ablation writes ablation.json into its --out folder")
    try:
        found = Ablation.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "whole file"
        raise InputError(f"{path}: no result of bench.ablation: {field}: {first['msg']}") from error
    if found.reference not in found.arms:
        raise InputError(f"{path}: reference: {found.reference!r} is not among the arms {', '.join(found.arms)}")
    return found


def shown_ablations(run_dir: Path, named: Sequence[Path]) -> tuple[list[tuple[str, Ablation]], list[str]]:
    """(name, result) of the files named and of those in the run folder, and a note for each that cannot be read.

    Raises:
        InputError: a file that was named cannot be read, or one of a folder that holds no round to show beside it.
    """
    found, notes = [], []
    for path in dict.fromkeys([*named, *ablations_of(run_dir)]):
        try:
            found.append((f"{path.parent.name}/{path.name}", read_ablation(path)))
        except InputError as error:
            if path in named or not any(run_dir.glob("round-*")):
                raise
            notes.append(f"not shown: {error}")
    return found, notes


def ablation_view(name: str, result: Ablation) -> AblationView:
    budgets = list(dict.fromkeys(budget for arm in result.arms.values() for budget in arm.comparisons))
    tables = [
        (
            TITLES.get(one, one),
            [(name, arm.comparisons[one]) for name, arm in result.arms.items() if one in arm.comparisons],
        )
        for one in budgets
    ]
    return AblationView(name, result, tables, [chart for chart in _charts(result) if chart])


def chosen_arms(result: Ablation, most: int = MAX_CURVES) -> list[str]:
    """The arms with a curve: the reference, then the best by sampled accuracy at the first budget, in file order."""

    def score(name: str) -> float:
        return next(iter(result.arms[name].comparisons.values())).value.get("sampled") or 0.0

    others = sorted((name for name in result.arms if name != result.reference), key=score, reverse=True)
    kept = {result.reference, *others[: most - 1]}
    return [name for name in result.arms if name in kept and result.jobs.get(name)]


def _charts(result: Ablation) -> list[Chart | None]:
    names = chosen_arms(result)
    left_out = len(result.arms) - len(names)
    note = "percent, mean of greedy and sampled"
    note += "; mean over seeds, shaded: lowest to highest" if len(result.head.seeds) > 1 else ""
    note += f"; {left_out} arms with lower accuracy left out" if left_out else ""
    clock = result.head.clock

    def rollouts(name: str, job: Job, point: Validated) -> float:
        return float(point.batch * job.rollouts_a_batch)

    def charged(name: str, job: Job, point: Validated) -> float:
        return getattr(result.arms[name].cost.stages, clock) + getattr(point, clock)

    charts = []
    for title, label, place in (
        ("Validation accuracy against rollouts", "rollouts for training", rollouts),
        ("Validation accuracy against seconds", f"seconds ({clock}), data and PRM charged", charged),
    ):
        series = [_series(name, f"arm{index}", result.jobs[name], place) for index, name in enumerate(names)]
        charts.append(line_chart(title, series, x_label=label, note=note))
    return charts


def _series(name: str, style: str, jobs: Sequence[Job], place: Callable[[str, Job, Validated], float]) -> Series:
    """An arm's curve over the batches at which all its seeds were validated; ``place`` gives a point's x."""
    shared = set.intersection(*({point.batch for point in job.curve} for job in jobs))
    points: list[Point] = []
    band = []
    for batch in sorted(shared):
        here = [(job, point) for job in jobs for point in job.curve if point.batch == batch]
        x = sum(place(name, job, point) for job, point in here) / len(here)
        values = [100 * point.accuracy for _, point in here]
        points.append((x, sum(values) / len(values)))
        band.append((x, min(values), max(values)))
    return Series(name, style, points, band if len(jobs) > 1 else ())


def is_clear(figure: Figure) -> str:
    """CSS class of a difference: better or worse when its interval excludes 0, else nothing."""
    if figure.ci95 is None or figure.ci95[0] <= 0 <= figure.ci95[1]:
        return ""
    return "better" if figure.ci95[0] > 0 else "worse"

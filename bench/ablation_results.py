"""What one job of an ablation leaves behind: one arm trained with one seed. Records only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from common.errors import InputError
from eval.ablation import curve_accuracy

Clock = Literal["wall", "cpu"]
TRACES = {
    "rollout/steps": "steps",
    "rollout/tokens": "tokens",
    "prm/mean_score": "PRM score",
    "verdict/CORRECT": "right",
}
"""Monitors of a generation batch that a job keeps, and their names in the table; the last one as a share of it."""


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """One validation of a policy in training.

    Attributes:
        batch: generation batches trained on before it.
        wall, cpu: seconds of training until then, validation and checkpoints left out; cpu: of the training process.
        greedy, sampled: validation accuracy in [0, 1]; sampled at temperature 1.
    """

    batch: int
    wall: float
    cpu: float
    greedy: float
    sampled: float

    @property
    def accuracy(self) -> float:
        """By which runs are compared while they train."""
        return curve_accuracy(self.greedy, self.sampled)


@dataclasses.dataclass(frozen=True)
class Milestone:
    """Where a job is measured on the test problems: after a number of batches, or of seconds of training.

    Attributes:
        name: ``rollouts``, or a clock and what it is charged with.
        batches: generation batches, None for a milestone in seconds.
        seconds: seconds of training allowed; 0 or less: the base model.
        clock: which seconds.
    """

    name: str
    batches: int | None = None
    seconds: float | None = None
    clock: Clock = "wall"

    def is_reached(self, batch: int, elapsed: Mapping[str, float]) -> bool:
        """True at the end of the batch whose end is nearest to the milestone.

        Args:
            batch: batches done. elapsed: seconds of training by clock.
        """
        if self.batches is not None:
            return batch >= self.batches
        assert self.seconds is not None
        half_a_batch = elapsed[self.clock] / batch / 2 if batch else 0.0
        return elapsed[self.clock] + half_a_batch >= self.seconds


@dataclasses.dataclass(frozen=True)
class TestScores:
    """A policy on the test problems.

    Attributes:
        batch, wall, cpu: where in the training it stood, as in ``CurvePoint``.
        greedy, sampled: one value a test problem in [0, 1]: is the greedy path right, share of right ones among the
            sampled paths; None when no path was judged.
        ended_by: ``milestone``; ``cap`` when the most batches came first; else the monitor that stopped the run.
    """

    __test__ = False  # no test class

    batch: int
    wall: float
    cpu: float
    greedy: tuple[float | None, ...]
    sampled: tuple[float | None, ...]
    ended_by: str


@dataclasses.dataclass(frozen=True)
class JobResult:
    """One arm trained with one seed.

    Attributes:
        curve: validations in order of batches, the first before any training.
        tests: test scores by milestone.
        parts: mean wall seconds a batch of sampling, grading, logprobs, prm and update; empty for TRL's trainer.
        rollouts_a_batch: paths sampled for one batch.
        settings: what the job ran with, flat.
        traces: monitors by name, one value a generation batch (``TRACES``); empty for TRL's trainer.
    """

    arm: str
    seed: int
    learning_rate: float
    curve: tuple[CurvePoint, ...]
    tests: dict[str, TestScores]
    parts: dict[str, float]
    rollouts_a_batch: int
    settings: dict[str, Any]
    traces: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)

    @property
    def prm_share(self) -> float | None:
        """Share of a batch's seconds spent in the PRM; None for TRL's trainer, which has none."""
        total = sum(self.parts.values())
        return self.parts["prm"] / total if total else None

    def at(self, batch: int) -> CurvePoint:
        """The last validation at or before ``batch``."""
        return [point for point in self.curve if point.batch <= batch][-1]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From JSON."""
        tests = {
            name: TestScores(**{**test, "greedy": tuple(test["greedy"]), "sampled": tuple(test["sampled"])})
            for name, test in row["tests"].items()
        }
        curve = tuple(CurvePoint(**point) for point in row["curve"])
        traces = {name: tuple(values) for name, values in row.get("traces", {}).items()}
        return cls(**{**row, "curve": curve, "tests": tests, "traces": traces})

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The result of a job; None when it has none yet.

        Raises:
            InputError: the file does not fit.
        """
        if not path.is_file():
            return None
        try:
            return cls.from_row(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}: {type(error).__name__}: {error}; delete it to run the job again") from error

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), allow_nan=False)


@dataclasses.dataclass(frozen=True)
class StageCost:
    """What the stages before PPO cost for one seed: sampling for labels, labelling, fit of the PRM.

    Attributes:
        rollouts: paths sampled, pass rates and completions for labels included.
        wall, cpu: seconds; cpu over all processes, with their start.
        fit_wall, fit_cpu: the part of them that is the fit.
        is_whole: False = a stage was killed in between and its seconds before that are missing.
    """

    rollouts: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    fit_wall: float = 0.0
    fit_cpu: float = 0.0
    is_whole: bool = True

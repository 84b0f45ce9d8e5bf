"""Validations and tests of a policy in training: what is measured when, kept on disk, and when the run is over."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.ablation_results import CurvePoint, Milestone, TestScores
from common.errors import InputError
from common.runs import write_atomic


@dataclasses.dataclass
class Stopwatch:
    """Seconds of training alone, by clock; validation, tests and checkpoints lie between two updates."""

    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: {"wall": 0.0, "cpu": 0.0})
    _since: tuple[float, float] | None = None

    def start(self) -> None:
        self._since = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        if self._since is None:
            raise RuntimeError("the stopwatch was not started")
        self.seconds["wall"] += time.perf_counter() - self._since[0]
        self.seconds["cpu"] += time.process_time() - self._since[1]
        self._since = None


class Meter:
    """Validates and tests a policy in training, and ends it after the last milestone. Its state is on disk.

    Args:
        folder: of the job; ``curve.json`` and ``test-<milestone>.json`` are written there.
        updates: updates of one generation batch.
        last_batch: the most batches; milestones that are not reached by then are tested there.
        validate: validation figures with ``greedy`` and ``sampled``; None when the trainer evaluates by itself.
        test: (greedy, sampled), one value a test problem each.
        stopped_by: the monitor that has stopped the run, or None.
    """

    def __init__(
        self,
        folder: Path,
        *,
        updates: int,
        last_batch: int,
        eval_every: int,
        milestones: Sequence[Milestone],
        validate: Callable[[], dict[str, float]] | None,
        test: Callable[[], tuple[tuple[float | None, ...], tuple[float | None, ...]]],
        stopped_by: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.folder, self.updates, self.last_batch, self.eval_every = folder, updates, last_batch, eval_every
        self.milestones, self.validate, self.test, self.stopped_by = milestones, validate, test, stopped_by
        self.watch = Stopwatch()
        self.curve: list[CurvePoint] = []

    def continue_from(self, batch: int) -> None:
        """Forget what was measured after ``batch``, a batch with a validation, and go on counting from there."""
        rows = json.loads(self.folder.joinpath("curve.json").read_text(encoding="utf-8"))
        self.curve = [CurvePoint(**row) for row in rows if row["batch"] <= batch]
        if not self.curve or self.curve[-1].batch != batch:
            raise InputError(f"{self.folder}: no validation after batch {batch}; delete the folder to start anew")
        self.watch.seconds = {"wall": self.curve[-1].wall, "cpu": self.curve[-1].cpu}
        for path in self.folder.glob("test-*.json"):
            if json.loads(path.read_text(encoding="utf-8"))["batch"] > batch:
                path.unlink()

    def start_anew(self) -> None:
        for path in self.folder.glob("test-*.json"):
            path.unlink()

    @property
    def pending(self) -> list[Milestone]:
        return [one for one in self.milestones if not self._file(one).is_file()]

    def tests(self) -> dict[str, TestScores]:
        rows = {one.name: json.loads(self._file(one).read_text(encoding="utf-8")) for one in self.milestones}
        return {
            name: TestScores(**{**row, "greedy": tuple(row["greedy"]), "sampled": tuple(row["sampled"])})
            for name, row in rows.items()
        }

    def _file(self, milestone: Milestone) -> Path:
        return self.folder / f"test-{milestone.name}.json"

    def record(self, batch: int, found: dict[str, float]) -> None:
        """Add a validation to the curve."""
        point = CurvePoint(batch, **self.watch.seconds, greedy=found["greedy"], sampled=found["sampled"])
        self.curve = [one for one in self.curve if one.batch < batch] + [point]
        write_atomic(self.folder / "curve.json", json.dumps([dataclasses.asdict(one) for one in self.curve]))

    def look(self, batch: int) -> bool:
        """Test the milestones that are reached at the end of ``batch``; True when none is left."""
        stopped_by = self.stopped_by()
        ended_by = stopped_by or ("cap" if batch >= self.last_batch else None)
        here = [one for one in self.pending if ended_by or one.is_reached(batch, self.watch.seconds)]
        if here:
            greedy, sampled = self.test()
            for one in here:
                is_reached = one.is_reached(batch, self.watch.seconds)
                reason = "milestone" if is_reached else str(ended_by)
                scores = TestScores(batch, **self.watch.seconds, greedy=greedy, sampled=sampled, ended_by=reason)
                write_atomic(self._file(one), json.dumps(dataclasses.asdict(scores), allow_nan=False))
        return not self.pending

    def batch_ended(self, batch: int) -> bool:
        """Test what is reached, validate when it is time or the run is over; True when the run is over."""
        is_over = self.look(batch)
        if self.validate is not None and (is_over or batch % self.eval_every == 0):
            self.record(batch, self.validate())
        return is_over

    def evaluated(self, batch: int, found: dict[str, float]) -> None:
        """Take in a validation that the trainer made by itself."""
        self.record(batch, found)
        if self.stopped_by() is not None:
            self.look(batch)

"""Curriculum of a ppo run: stages of training problems from easy to hard, each left by a promotion.

Pure: which problems are in a stage, when it ends, and which problems make a batch are functions of numbers. A promotion
changes nothing but the problems: model, optimiser, adapters, baseline and KL reference are carried on. Each stage keeps
some of its problems out of training; accuracy on them is what promotes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.records import content_id
from policy.batches import BatchPlan, derived_seed

STAGE_ACCURACY = "stage_accuracy"
"""Validation metric: accuracy in [0, 1] on the problems that the stage in force keeps out of training."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """Problems of a stage, as indices into the run's training problems.

    Attributes:
        low, high: band of the value that sorts problems, both ends in it.
        train: problems that are trained on. checked: problems that are never trained on and measure the stage.
    """

    low: float
    high: float
    train: tuple[int, ...]
    checked: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Promotion:
    """When a stage ends; the last one never does.

    Attributes:
        accuracy: validation accuracy in [0, 1] on the stage's checked problems from which on it ends; None: never.
        max_batches: generation batches of the stage after which it ends anyway; None: never.
    """

    accuracy: float | None
    max_batches: int | None


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is: the stage in force (0-based), and the generation batches made before its first."""

    stage: int = 0
    entered: int = 0


def split_stages(
    ids: Sequence[str], values: Sequence[float | None], bands: Sequence[tuple[float, float]], num_checked: int
) -> list[Stage]:
    """Deal problems out to the first band that holds their value; the others, and those without a value, to none.

    A stage's checked problems are those with the smallest hash of their id, so they do not depend on order or seed.

    Args:
        ids, values: of each problem: id, and pass rate in [0, 1] or level in steps. num_checked: of each stage.
    """
    dealt: list[list[int]] = [[] for _ in bands]
    for index, value in enumerate(values):
        home = next((b for b, (low, high) in enumerate(bands) if value is not None and low <= value <= high), None)
        if home is not None:
            dealt[home].append(index)
    stages = []
    for (low, high), indices in zip(bands, dealt, strict=True):
        by_hash = sorted(indices, key=lambda i: content_id("checked", ids[i]))
        kept = set(by_hash[:num_checked])
        train = tuple(i for i in indices if i not in kept)
        stages.append(Stage(low, high, train, tuple(sorted(kept))))
    return stages


def after_evaluation(
    progress: Progress, rules: Sequence[Promotion], num_batches: int, accuracy: float
) -> tuple[Progress, str | None]:
    """Return where a run is after an evaluation, and the reason in words if it was promoted.

    At most one promotion an evaluation, none before the stage's first batch and none from the last stage.

    Args:
        rules: of each stage. num_batches: generation batches of the run so far. accuracy: see ``STAGE_ACCURACY``.
    """
    made, rule = num_batches - progress.entered, rules[progress.stage]
    if progress.stage + 1 >= len(rules) or made < 1:
        return progress, None
    if rule.accuracy is not None and accuracy >= rule.accuracy:
        reason = f"validation accuracy {accuracy:.3f} on its problems reached {rule.accuracy:g}"
    elif rule.max_batches is not None and made >= rule.max_batches:
        reason = f"its {rule.max_batches} batches are over, validation accuracy {accuracy:.3f} on its problems"
    else:
        return progress, None
    reason = f"curriculum: stage {progress.stage + 1} of {len(rules)} ended after {made} batches: {reason}"
    return Progress(progress.stage + 1, num_batches), reason


class StagedPlan(BatchPlan):
    """Problems of every generation batch under a curriculum; its progress goes into every checkpoint.

    TRL's loader draws a batch before the evaluation that may end the stage, so ``batch`` gives places in a batch, and
    ``rows`` the problems at those places once the batch is sampled.

    Args:
        stages: see ``split_stages``.
        difficulties, batch_size, bands, seed: see ``BatchPlan``, here for each stage on its own.
        promote_at: see ``Promotion.accuracy``. max_batches, max_epochs: a stage ends anyway after this many generation
            batches, or passes over its problems, whichever is less; None: no limit.

    Raises:
        ValueError: a stage has fewer problems than its bands' batches need.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        difficulties: Sequence[float | None],
        *,
        batch_size: int,
        bands: int,
        seed: int,
        promote_at: float | None,
        max_batches: int | None = None,
        max_epochs: int | None = None,
    ) -> None:
        self.stages, self.batch_size = tuple(stages), batch_size
        self.progress = Progress()
        self._plans = [
            BatchPlan([difficulties[i] for i in stage.train], batch_size, bands, derived_seed(seed, number))
            for number, stage in enumerate(stages)
        ]
        passes = [None if max_epochs is None else max_epochs * plan.batches_a_pass for plan in self._plans]
        limits = [min((n for n in (max_batches, limit) if n is not None), default=None) for limit in passes]
        self.rules = tuple(Promotion(promote_at, limit) for limit in limits)

    def batch(self, generation: int) -> list[int]:
        return list(range(self.batch_size))

    def rows(self, generation: int, drawn: Sequence[int]) -> list[int]:
        stage, entered = self.progress.stage, self.progress.entered
        own = self._plans[stage].batch(generation - entered)
        return [self.stages[stage].train[own[place]] for place in drawn]

    def facts(self) -> dict[str, float]:
        return {"curriculum/stage": float(self.progress.stage + 1)}

    def after_evaluation(self, num_batches: int, metrics: Mapping[str, float]) -> str | None:
        self.progress, reason = after_evaluation(self.progress, self.rules, num_batches, metrics[STAGE_ACCURACY])
        return reason

    def state_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self.progress)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a checkpoint was written.

        Raises:
            ValueError: it was written without a curriculum, or with more stages.
        """
        if not state or state["stage"] >= len(self.stages):
            raise ValueError(f"the checkpoint's curriculum is {dict(state)}, want a stage below {len(self.stages)}")
        self.progress = Progress(**state)


Measure = Callable[[Any], dict[str, float]]


def staged_validation(plan: StagedPlan, whole: Measure, of_stage: Sequence[Measure]) -> Measure:
    """Return ``whole`` with the accuracy on the checked problems of the stage in force beside it.

    Args:
        of_stage: for each stage the function that measures a policy on its checked problems.
    """

    def measure(policy: Any) -> dict[str, float]:
        stage = plan.progress.stage
        return whole(policy) | {STAGE_ACCURACY: of_stage[stage](policy)["accuracy"], "stage": float(stage + 1)}

    return measure

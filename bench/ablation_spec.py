"""What a job of an ablation is told, and the settings its result depends on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from bench.ablation_results import Milestone
from common.config import Config, load_config
from common.runs import UNCHECKED, stage_config


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """What a job is told.

    Attributes:
        arm, seed, config, overrides: what to train; overrides hold those of the arm, the seed and the learning rate.
        stages: run folder with the problems and, where the arm needs it, the PRM.
        folder: where the job writes.
        milestones: where to test.
        samples: sampled paths a test problem.
    """

    arm: str
    seed: int
    config: str
    overrides: tuple[str, ...]
    stages: str
    folder: str
    milestones: tuple[Milestone, ...]
    samples: int

    @classmethod
    def read(cls, path: Path) -> JobSpec:
        row = json.loads(path.read_text(encoding="utf-8"))
        milestones = tuple(Milestone(**one) for one in row["milestones"])
        return cls(**{**row, "overrides": tuple(row["overrides"]), "milestones": milestones})

    def load(self) -> Config:
        return load_config(self.config, list(self.overrides))


def job_settings(config: Config, samples: int) -> dict[str, Any]:
    """Flat settings a job's result depends on; the number of batches is a milestone's."""
    flat = stage_config(config, "ppo") | {"test.samples": samples}
    return {key: value for key, value in flat.items() if key not in UNCHECKED | {"ppo.batches"}}

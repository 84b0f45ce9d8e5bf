"""The stages of a round, their order and their command lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.config import Config
from common.runs import Run

STAGES = {"data": "data_gen", "prm": "prm", "ppo": "policy", "eval": "eval"}
"""Name of each stage in the Makefile -> module that runs it, in order."""
MODULES = {**STAGES, "sft": "policy.sft"}

LAUNCHED = ("sft", "prm", "ppo")
"""Stages that train and so are started through ``--launch`` when it is given."""


def stage_command(
    stage: str, config_path: str, run: Run, overrides: Sequence[str], launch: Sequence[str] = ()
) -> list[str]:
    """The command line that runs one stage of one round."""
    head = [*launch, "-m"] if launch and stage in LAUNCHED else [sys.executable, "-m"]
    place = ["--config", config_path, "--run", str(run.root), "--round", str(run.round)]
    return [*head, MODULES[stage], *place, *overrides]


def stages_of_round(config: Config, index: int) -> list[str]:
    """The stages of a round in order. A supervised start belongs to round 0: before ``data``, whose paths are then its
    own, or behind it when it learns from those paths.
    """
    stages = list(STAGES)
    if config.sft.is_on and index == 0:
        stages.insert(1 if config.sft.source == "right_paths" else 0, "sft")
    return stages

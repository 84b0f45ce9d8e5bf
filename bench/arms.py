"""The arms of an ablation, read from ``bench/arms.yaml``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from omegaconf import OmegaConf
from pydantic import Field, ValidationError

from common.config import Section
from common.errors import InputError

ARMS_FILE = Path(__file__).parent / "arms.yaml"
RESERVED = (
    "seed",
    *(
        f"ppo.{key}"
        for key in ("batches", "learning_rate", "problems", "paths", "epochs", "minibatches", "kl_coef", "temperature")
    ),
    *(f"data.{key}" for key in ("source", "levels", "test_levels", "pool", "validation", "test", "max_new_tokens")),
)
"""Settings an arm may not change: they are what makes arms comparable."""


class Arm(Section):
    """One way to train: a small set of overrides of the experiment's configuration."""

    name: str
    about: str
    trainer: Literal["ppo", "trl", "trl_generate"] = "ppo"
    process: Literal["prm", "oracle", "none"] = "prm"
    start: Literal["sft", "base"] = Field("sft", description="from where, in a configuration with a supervised start")
    overrides: tuple[str, ...] = Field((), alias="set")

    @property
    def stage_overrides(self) -> list[str]:
        """The overrides that change data, labels or PRM, so that the arm needs stages of its own."""
        return [override for override in self.overrides if not override.startswith(("ppo.", "curriculum."))]


def load_arms(path: Path = ARMS_FILE) -> dict[str, Arm]:
    """Read a file of arms, by name.

    Raises:
        InputError: an arm with an unknown key or value, or one that changes a setting all arms share.
    """
    arms = {}
    for name, fields in OmegaConf.to_container(OmegaConf.load(path)).items():  # type: ignore[union-attr]
        try:
            arm = Arm.model_validate({"name": str(name), **(fields or {})})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}, arm {name}: {where} = {first['input']!r}: {first['msg']}") from error
        for override in arm.overrides:
            if override.split("=")[0] in RESERVED:
                raise InputError(
                    f"{path}, arm {name}: {override!r} is the same for all arms; give it on the command line"
                )
        arms[arm.name] = arm
    return arms


def choose(names: Sequence[str], arms: dict[str, Arm]) -> list[Arm]:
    """Return the named arms in order, each once.

    Raises:
        InputError: an unknown name; the closest one is named.
    """
    for name in names:
        if name not in arms:
            near = difflib.get_close_matches(name, list(arms), n=1, cutoff=0.0)[0]
            raise InputError(f"--arms {name}: no such arm; is {near!r} meant? Known: {', '.join(arms)}")
    return [arms[name] for name in dict.fromkeys(names)]

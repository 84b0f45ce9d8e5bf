"""Writes the certificate of every accepted proof to a file, one line of JSON each, for a later audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, SupportsInt

import gymnasium as gym

from math_env.certify import certificate
from math_env.env import MathEnv, Observation


class RecordProofs(gym.Wrapper[Observation, SupportsInt, Observation, SupportsInt]):
    """Appends to `path` when the environment pays for a proof; nothing else is touched."""

    def __init__(self, env: gym.Env[Observation, SupportsInt], path: str | Path) -> None:
        super().__init__(env)
        self.path = Path(path)

    def step(self, action: SupportsInt) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        outcome = self.env.step(action)
        base = self.env.unwrapped
        assert isinstance(base, MathEnv)
        assert base.problem is not None
        theorem = base.state.theorem
        if outcome[2] and theorem is not None and base.problem.is_proved_by(theorem):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(certificate(theorem, base.problem)) + "\n")
        return outcome

"""Sparse against dense reward on Math-v0, with and without the reverse curriculum; one JSON line an arm.

    python -m bench.math_env_rewards --steps 8000

Every arm trains the demo's MaskablePPO for the same steps and is measured on unseen problems by proofs alone, the most
likely action taken. Rewards, added to the environment's own:

- sparse: nothing.
- goals: γ·Φ(s') − Φ(s) with Φ = −0.1·(open goals), 0 at the end: potential-based, so the best policy stays the best
  one (Ng, Harada and Russell 1999).
- facts: 0.02 for every action that adds a fact: progress as it looks, which can be earned without a proof.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, SupportsFloat, SupportsInt

import gymnasium as gym
import numpy as np

from math_env.curriculum import Curriculum
from math_env.env import Observation
from math_env.evaluation import evaluate, summary, unseen
from math_env.problems import FAMILIES, Problem
from math_env.train import PPO, learner, train

GOAL, FACT = 0.1, 0.02


class Beginning(Curriculum):
    """No curriculum: every episode starts at the beginning."""

    def draw(self) -> tuple[Problem, int]:
        problem, _ = super().draw()
        return problem, len(problem.script)


class Dense(gym.Wrapper[Observation, SupportsInt, Observation, SupportsInt]):
    """Adds to the reward what the module says; `earned` sums that over all episodes."""

    def __init__(self, env: gym.Env[Observation, SupportsInt], kind: str) -> None:
        super().__init__(env)
        self.kind, self.earned = kind, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.last, info = self.env.reset(seed=seed, options=options)
        return self.last, info

    def step(self, action: SupportsInt) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        extra = 0.0
        if self.kind == "goals":
            after = 0.0 if terminated or truncated else -GOAL * int(observation["counts"][0])
            extra = float(PPO["gamma"]) * after + GOAL * int(self.last["counts"][0])  # type: ignore[arg-type]
        elif self.kind == "facts":
            is_same_goal = np.array_equal(observation["goal"], self.last["goal"])
            extra = FACT * bool(is_same_goal and observation["counts"][1] == self.last["counts"][1] + 1)
        self.last = observation
        self.earned += extra
        return observation, float(reward) + extra, terminated, truncated, info


KINDS = ("sparse", "goals", "facts")


def arm(kind: str, has_curriculum: bool, topics: list[str], steps: int, problems: int, seed: int) -> dict[str, Any]:
    curriculum = (Curriculum if has_curriculum else Beginning)(topics, (1,), seed)
    model = learner(curriculum, seed, paid=lambda env: Dense(env, kind))
    begin = time.process_time()
    taken = train(model, curriculum, seconds=1e9, steps=steps)
    spent = time.process_time() - begin
    attempts = evaluate(model, unseen(topics, (1,), problems, seed))
    return {
        "reward": kind,
        "curriculum": has_curriculum,
        "steps": taken,
        "cpu_seconds": round(spent, 1),
        "solved": {topic: f"{solved}/{count}" for topic, (count, solved, _) in summary(attempts).items()},
        "left": str(curriculum) if has_curriculum else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8000, help="of training, each arm")
    parser.add_argument("--problems", type=int, default=20, help="unseen problems a topic")
    parser.add_argument("--topics", nargs="+", choices=list(FAMILIES), default=["linear", "quadratic"])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for has_curriculum in (False, True):
        for kind in KINDS:
            line = arm(kind, has_curriculum, args.topics, args.steps, args.problems, args.seed)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""Steps a second of Math-v0 and of mathy_envs under a random policy on valid actions, in turn in one process.

    pip install --no-deps mathy_envs==0.12.5 mathy_core==0.9.5 wasabi colr
    python -m bench.math_env_peers --steps 1000 --rounds 3

In an environment of its own: its gym<0.26 is not needed, but it installs a package `tests` that hides ours.

CPU time of `step` alone, without gymnasium's wrappers, resets excluded, on one core; mathy_envs keeps its mask in the
action space, Math-v0 in `info`. Prints one JSON line: the median of the rounds of each, and the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import gymnasium as gym
import numpy as np

import math_env  # noqa: F401 registers Math-v0
from math_env.problems import LEVELS

PEERS = ("mathy-poly-easy-v0", "mathy-poly-normal-v0")


def speed(env: gym.Env[Any, Any], steps: int, seed: int) -> float:
    """Steps a second of CPU time."""
    rng, spent = np.random.default_rng(seed), 0.0
    _, info = env.reset(seed=seed)
    for _ in range(steps):
        action = int(rng.choice(np.flatnonzero(_mask(env, info))))
        begin = time.process_time()
        _, _, terminated, truncated, info = env.step(action)
        spent += time.process_time() - begin
        if terminated or truncated:
            _, info = env.reset()
    return steps / spent


def _mask(env: gym.Env[Any, Any], info: dict[str, Any]) -> np.ndarray:
    """That of Math-v0 is in `info`, that of mathy_envs in its action space."""
    found = info.get("action_mask")
    return np.asarray(env.action_space.mask if found is None else found)  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="of each environment and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    import mathy_envs.gym  # noqa: F401 registers its environments

    settings: dict[str, dict[str, Any]] = {name: {} for name in PEERS} | {"Math-v0": {"levels": LEVELS}}
    envs = {name: gym.make(name, disable_env_checker=True, **given).unwrapped for name, given in settings.items()}
    found: dict[str, list[float]] = {name: [] for name in envs}
    for number in range(args.rounds):
        for name, env in envs.items():
            found[name].append(speed(env, args.steps, args.seed + number))
    medians = {name: round(statistics.median(rates), 1) for name, rates in found.items()}
    ratios = {name: round(medians["Math-v0"] / medians[name], 2) for name in PEERS}
    print(json.dumps({"steps": args.steps, "rounds": args.rounds, "steps_per_second": medians, "ratio": ratios}))


if __name__ == "__main__":
    main()

"""MaskablePPO on the mixed levels with a reverse curriculum: the demonstration that Math-v0 can be learned.

    python -m math_env.train --minutes 4 --threads 2          # `make env-demo`

Prints, for problems of the test split, solved and mean proof length of each topic before and after, the curriculum
reached, and one proof with its tree; every proof found is audited (`audit.audit`: a kernel in a fresh process, the
witness, z3 and Coq where they are installed), and the exit code is 1 when a check fails. One core steps the
environments, torch takes `threads`.

Departures from plain PPO: the network sees the valid actions beside the formulas (`View`); training episodes start k
actions before the end of a scripted proof, k drawn up to a length that grows when the longest ones are solved
(`Curriculum`), and end after 2k + 6 actions; a few start at the beginning. Evaluation starts at the beginning and takes
the most likely valid action.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym

from common.errors import InputError
from math_env import audit
from math_env.curriculum import Curriculum, FromCurriculum, View
from math_env.env import MathEnv
from math_env.evaluation import certified, evaluate, longest_proof, proofs, table, unseen
from math_env.problems import FAMILIES, LEVELS

REPORT = 30
"""Seconds between two lines on stderr."""
PPO = {
    "n_steps": 64,
    "batch_size": 256,
    "n_epochs": 4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.01,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": {"pi": [128], "vf": [128]}},
}
ENVIRONMENTS = 16


def learner(
    curriculum: Curriculum,
    seed: int,
    environments: int = ENVIRONMENTS,
    paid: Callable[[FromCurriculum], gym.Env[Any, Any]] = lambda env: env,
) -> Any:
    """A MaskablePPO over environments that start where the curriculum says; `paid` may wrap their rewards.

    Raises:
        InputError: stable-baselines3 or sb3-contrib is not installed.
    """
    if find_spec("sb3_contrib") is None:
        raise InputError("stable-baselines3 and sb3-contrib are wanted: pip install -e '.[env]'")
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([lambda: View(paid(FromCurriculum(MathEnv(), curriculum))) for _ in range(environments)])
    return MaskablePPO("MlpPolicy", envs, seed=seed, device="cpu", **PPO)


def train(model: Any, curriculum: Curriculum, seconds: float, steps: int = 10**9) -> int:
    """Learns for that long or that many steps; the steps taken."""
    from stable_baselines3.common.callbacks import BaseCallback

    begin = time.monotonic()

    class Clock(BaseCallback):
        printed = begin

        def _on_step(self) -> bool:
            now = time.monotonic()
            if now - self.printed >= REPORT:
                self.printed = now
                text = f"{now - begin:5.0f} s  {self.num_timesteps} steps  left {curriculum}"
                print(text, file=sys.stderr, flush=True)
            return now - begin < seconds

    model.learn(steps, callback=Clock())
    return int(model.num_timesteps)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0, help="of training, by the clock")
    parser.add_argument("--steps", type=int, default=10**9, help="of training, at most")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--problems", type=int, default=30, help="unseen problems a topic")
    parser.add_argument("--topics", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--levels", nargs="+", type=int, choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="file for the trained policy (stable-baselines3's zip)")
    parser.add_argument("--out", type=Path, help="folder for the certificates of what was proved after training")
    args = parser.parse_args(argv)
    import torch

    torch.set_num_threads(args.threads)
    torch.distributions.Distribution.set_default_validate_args(False)  # checks every batch
    started = time.monotonic()
    curriculum = Curriculum(args.topics, args.levels, args.seed)
    model = learner(curriculum, args.seed)
    problems = unseen(args.topics, args.levels, args.problems, args.seed)
    before = evaluate(model, problems, is_greedy=False)
    begin = time.process_time(), time.monotonic()
    steps = train(model, curriculum, 60 * args.minutes, args.steps)
    spent = time.process_time() - begin[0], time.monotonic() - begin[1]
    if args.save is not None:
        model.save(args.save)
    after = evaluate(model, problems)
    print(f"{steps} steps in {spent[1]:.0f} s ({spent[0]:.0f} s of CPU); left {curriculum}")
    print(f"{table(before, after)}\n\n{longest_proof(after)}\n", flush=True)
    for index, proof in enumerate(proofs(after) if args.out is not None else ()):
        audit.write_bundle(args.out / f"{index:05d}_{proof[0].question_id}", *proof)
    findings = certified([*before, *after])
    print(f"audit: {findings}\n{time.monotonic() - started:.0f} s in all")
    return int(bool(findings["failed"]))


if __name__ == "__main__":
    raise SystemExit(main())

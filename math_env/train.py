"""MaskablePPO on the mixed levels with a reverse curriculum: the demonstration that Math-v0 can be learned.

    python -m math_env.train --minutes 4 --threads 2          # `make env-demo`

Prints, for problems of the test split, solved and mean proof length of each topic before and after, the curriculum
reached, and one proof; every proof found is written as a certificate and replayed by the kernel. One core steps the
environments, torch takes `threads`.

Departures from plain PPO: the network sees the valid actions beside the formulas (`View`); training episodes start k
actions before the end of a scripted proof, k drawn up to a length that grows when the longest ones are solved
(`Curriculum`); a fifth of them start at the beginning. Evaluation starts at the beginning and takes the most likely
valid action.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import statistics
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, SupportsFloat, SupportsInt

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from common.errors import InputError
from math_env import certify
from math_env.env import MAX_STEPS, MathEnv, Observation
from math_env.facts import zero_form
from math_env.kernel import Theorem
from math_env.problems import FAMILIES, LEVELS, Problem, generate
from math_env.rules import ACTIONS, FACTS, INDEX, NAMES
from math_env.sparse import code
from math_env.tokens import CODES, LENGTH

POOL = 150
"""Training problems of a topic and level; drawn anew until there are so many."""
WINDOW, RATE, LONGEST = 10, 0.8, 40
"""The curriculum goes on when `RATE` of the last `WINDOW` longest starts were solved, up to `LONGEST` actions."""
FROM_THE_START, AT_THE_LONGEST = 0.2, 0.4
"""Shares of the episodes that start at the beginning and at the longest distance; the others start nearer the end."""
REPORT = 60
"""Seconds between two lines."""
QUADRATIC = ("", "x", "y", "z", "xx", "xy", "xz", "yy", "yz", "zz")
MONOMIALS = [code(tuple(sorted(collections.Counter(mono).items()))) for mono in QUADRATIC]
SIZE = len(ACTIONS) + (FACTS + 1) * (len(CODES) + 1) + len(MONOMIALS) + 3
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


class View(gym.ObservationWrapper[np.ndarray, SupportsInt, Observation]):
    """(SIZE,) float32: the mask, root operator and length of every formula, the goal's coefficients, the counts."""

    def __init__(self, env: gym.Env[Observation, SupportsInt]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-1.0, 1.0, (SIZE,), np.float32)

    def observation(self, observation: Observation) -> np.ndarray:
        base = self.env.unwrapped
        assert isinstance(base, MathEnv)
        rows = np.vstack([observation["facts"], observation["goal"]])
        roots = np.zeros((len(rows), len(CODES)))
        roots[np.arange(len(rows)), rows[:, 0]] = 1
        lengths = np.count_nonzero(rows, axis=1) / LENGTH
        goal = base.state.goal
        p = zero_form(goal.target)[1] if goal is not None else {}
        coefficients = [c / (1 + abs(c)) for c in (float(p.get(mono, 0)) for mono in MONOMIALS)]
        counts = np.minimum(observation["counts"] / (4, FACTS, MAX_STEPS), 1)
        parts = (base.action_masks(), roots.ravel(), lengths, coefficients, counts)
        return np.concatenate(parts).astype(np.float32)


class Curriculum:
    """Where training episodes start; shared by the environments of a run.

    `left[topic, level]` is the longest distance to the end of the scripted proof, in actions, drawn so far.
    """

    def __init__(self, topics: Sequence[str], levels: Sequence[int], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.left = {(topic, level): 1 for topic in topics for level in levels}
        self.recent = {key: collections.deque[bool](maxlen=WINDOW) for key in self.left}
        self.pool: dict[tuple[str, int], list[Problem]] = {key: [] for key in self.left}

    def draw(self) -> tuple[Problem, int]:
        """(problem, actions of its script left to play); the whole script is left from the beginning."""
        key = list(self.left)[int(self.rng.integers(len(self.left)))]
        pool = self.pool[key]
        position = int(self.rng.integers(POOL))
        if position >= len(pool):
            pool.append(generate(self.rng, *key))
        problem = pool[min(position, len(pool) - 1)]
        kind, whole = self.rng.random(), len(problem.script)
        left = self.left[key] if kind < AT_THE_LONGEST else int(self.rng.integers(1, self.left[key] + 1))
        return problem, whole if kind > 1 - FROM_THE_START else min(left, whole)

    def record(self, problem: Problem, left: int, is_solved: bool) -> None:
        key = problem.topic, problem.difficulty
        if left < min(self.left[key], len(problem.script)):
            return
        self.recent[key].append(is_solved)
        if len(self.recent[key]) == WINDOW and statistics.mean(self.recent[key]) >= RATE and self.left[key] < LONGEST:
            self.left[key] = min(LONGEST, self.left[key] + 1 + self.left[key] // 4)
            self.recent[key].clear()


class FromCurriculum(gym.Wrapper[Observation, SupportsInt, Observation, SupportsInt]):
    """Starts where the curriculum says and tells it how the episode went."""

    def __init__(self, env: MathEnv, curriculum: Curriculum) -> None:
        super().__init__(env)
        self.curriculum = curriculum

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.problem, self.left = self.curriculum.draw()
        return self.env.reset(seed=seed, options={"problem": self.problem, "prefix": -self.left, **(options or {})})

    def step(self, action: SupportsInt) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            self.curriculum.record(self.problem, self.left, info["is_proved"])
        return observation, reward, terminated, truncated, info


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An evaluation episode; `theorem` is None where no proof was found."""

    problem: Problem
    actions: tuple[str, ...]
    theorem: Theorem | None


def unseen(topics: Sequence[str], levels: Sequence[int], count: int, seed: int) -> list[Problem]:
    """`count` problems of each topic from the test split, levels in turn."""
    rng = np.random.default_rng([seed, 1])
    return [generate(rng, topic, levels[i % len(levels)], "test") for topic in topics for i in range(count)]


def evaluate(model: Any, problems: Sequence[Problem], is_greedy: bool = True) -> list[Attempt]:
    """One attempt at each problem from its beginning, all side by side."""
    envs = [View(MathEnv()) for _ in problems]
    seen = [env.reset(options={"problem": item})[0] for env, item in zip(envs, problems, strict=True)]
    played: list[list[str]] = [[] for _ in problems]
    open_ones = list(range(len(problems)))
    while open_ones:
        masks = np.stack([_base(envs[i]).action_masks() for i in open_ones])
        observations = np.stack([seen[i] for i in open_ones])
        actions, _ = model.predict(observations, action_masks=masks, deterministic=is_greedy)
        for i, action in zip(list(open_ones), actions, strict=True):
            seen[i], _, terminated, truncated, _ = envs[i].step(int(action))
            played[i].append(NAMES[int(action)])
            if terminated or truncated:
                open_ones.remove(i)
    states = [_base(env).state for env in envs]
    return [Attempt(p, tuple(names), s.theorem) for p, names, s in zip(problems, played, states, strict=True)]


def _base(env: gym.Env[Any, Any]) -> MathEnv:
    base = env.unwrapped
    assert isinstance(base, MathEnv)
    return base


def summary(attempts: Sequence[Attempt]) -> dict[str, tuple[int, int, float | None]]:
    """topic -> (problems, solved, mean actions of the proofs found, None without one)."""
    found = {}
    for topic in dict.fromkeys(attempt.problem.topic for attempt in attempts):
        mine = [attempt for attempt in attempts if attempt.problem.topic == topic]
        lengths = [len(attempt.actions) for attempt in mine if attempt.theorem is not None]
        found[topic] = (len(mine), len(lengths), round(float(statistics.mean(lengths)), 1) if lengths else None)
    return found


def certified(attempts: Sequence[Attempt]) -> int:
    """How many proofs there are; each is written down and replayed by the kernel, a wrong one is an error."""
    proofs = [attempt for attempt in attempts if attempt.theorem is not None]
    for attempt in proofs:
        assert attempt.theorem is not None
        again = certify.replay(json.loads(json.dumps(certify.certificate(attempt.theorem))))
        if not attempt.problem.is_proved_by(again):
            raise AssertionError(f"the replayed proof of {attempt.problem.question_id} states something else")
    return len(proofs)


def learner(curriculum: Curriculum, seed: int, environments: int = ENVIRONMENTS) -> Any:
    """A MaskablePPO over environments that start where the curriculum says.

    Raises:
        InputError: stable-baselines3 or sb3-contrib is not installed.
    """
    if find_spec("sb3_contrib") is None:
        raise InputError("stable-baselines3 and sb3-contrib are wanted: pip install -e '.[env]'")
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([lambda: View(FromCurriculum(MathEnv(), curriculum)) for _ in range(environments)])
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
                print(f"{now - begin:5.0f} s  {self.num_timesteps} steps  left {_left(curriculum)}", flush=True)
            return now - begin < seconds

    model.learn(steps, callback=Clock())
    return int(model.num_timesteps)


def _left(curriculum: Curriculum) -> str:
    topics = dict.fromkeys(topic for topic, _ in curriculum.left)
    lengths = {topic: [n for (name, _), n in curriculum.left.items() if name == topic] for topic in topics}
    return "  ".join(f"{topic} {'/'.join(map(str, found))}" for topic, found in lengths.items())


def table(before: Sequence[Attempt], after: Sequence[Attempt]) -> str:
    lines = [f"{'topic':<12}{'solved before':>15}{'after':>10}{'mean length before':>20}{'after':>8}"]
    later = summary(after)
    for topic, (count, solved, length) in summary(before).items():
        _, solved_later, length_later = later[topic]
        shown = [f"{solved}/{count}", f"{solved_later}/{count}", str(length or "-"), str(length_later or "-")]
        lines.append(f"{topic:<12}{shown[0]:>15}{shown[1]:>10}{shown[2]:>20}{shown[3]:>8}")
    return "\n".join(lines)


def longest_proof(attempts: Sequence[Attempt], at_most: int = 20) -> str:
    """The longest proof found of no more than so many actions: each action with what it leaves to prove."""
    proofs = [attempt for attempt in attempts if attempt.theorem is not None and len(attempt.actions) <= at_most]
    if not proofs:
        return "no proof"
    best = max(proofs, key=lambda attempt: len(attempt.actions))
    env = MathEnv()
    env.reset(options={"problem": best.problem})
    lines = [best.problem.text]
    for name in best.actions:
        env.step(INDEX[name])
        lines.append(f"  {name:<22}{env.state_str().splitlines()[-2] if env.state.goal else 'proved'}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0, help="of training, by the clock")
    parser.add_argument("--steps", type=int, default=10**9, help="of training, at most")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--problems", type=int, default=30, help="unseen problems a topic")
    parser.add_argument("--topics", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--levels", nargs="+", type=int, choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    import torch

    torch.set_num_threads(args.threads)
    curriculum = Curriculum(args.topics, args.levels, args.seed)
    model = learner(curriculum, args.seed)
    problems = unseen(args.topics, args.levels, args.problems, args.seed)
    before = evaluate(model, problems, is_greedy=False)
    begin = time.process_time(), time.monotonic()
    steps = train(model, curriculum, 60 * args.minutes, args.steps)
    spent = time.process_time() - begin[0], time.monotonic() - begin[1]
    after = evaluate(model, problems)
    print(f"{steps} steps in {spent[1]:.0f} s ({spent[0]:.0f} s of CPU); left {_left(curriculum)}")
    print(table(before, after))
    print(f"{certified([*before, *after])} proofs found, each replayed by the kernel\n{longest_proof(after)}")


if __name__ == "__main__":
    main()

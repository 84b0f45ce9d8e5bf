"""What the training demo adds to the environment: what its network sees, and a reverse curriculum over the scripts."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsInt

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from math_env.env import MAX_STEPS, MathEnv, Observation
from math_env.facts import fact_of, zero_form
from math_env.masks import target_of
from math_env.problems import Problem, generate
from math_env.rules import ACTIONS, FACTS, MODULI
from math_env.sparse import code
from math_env.terms import VARIABLES
from math_env.tokens import CODES, LENGTH

POOL = 150
"""Training problems of a topic and level; drawn anew until there are so many."""
WINDOW, RATE = 10, 0.8
"""The curriculum goes on when `RATE` of the last `WINDOW` longest starts were solved, up to whole scripts."""
FROM_THE_START, AT_THE_LONGEST = 0.05, 0.5
"""Shares of the episodes that start at the beginning and at the longest distance; the others start nearer the end."""
SLACK = 6
"""A training episode may take twice the actions left in its script and so many more."""
LEAST = 0.15
"""Weight of a topic and level whose scripts are solved as a whole, against 1 for one that is not solved at all."""
QUADRATIC = ("", "x", "y", "z", "xx", "xy", "xz", "yy", "yz", "zz")
MONOMIALS = [code(tuple(sorted(collections.Counter(mono).items()))) for mono in QUADRATIC]
PLACE = {name: place for place, name in enumerate(VARIABLES)}
LARGEST = 9
"""Coefficients are shown one by one from −LARGEST to LARGEST, larger ones as that."""
SIZE = (
    len(ACTIONS)
    + (FACTS + 1) * (len(CODES) + 1 + 2 * len(VARIABLES))
    + len(MONOMIALS) * (2 * LARGEST + 1)
    + len(MODULI)
    + 3
)


def math_env(env: gym.Env[Any, Any]) -> MathEnv:
    """The environment inside the wrappers."""
    base = env.unwrapped
    assert isinstance(base, MathEnv)
    return base


class View(gym.ObservationWrapper[np.ndarray, SupportsInt, Observation]):
    """(SIZE,) float32: what a look at the state gives, not the formulas themselves.

    The mask; of every formula its root operator, length, variables and which one it defines (v = t); the goal's
    coefficients up to degree 2 and its modulus; the counts.
    """

    def __init__(self, env: gym.Env[Observation, SupportsInt]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-1.0, 1.0, (SIZE,), np.float32)

    def observation(self, observation: Observation) -> np.ndarray:
        base = math_env(self.env)
        rows = np.vstack([observation["facts"], observation["goal"]])
        roots = np.zeros((len(rows), len(CODES)))
        roots[np.arange(len(rows)), rows[:, 0]] = 1
        lengths = np.count_nonzero(rows, axis=1) / LENGTH
        names = np.zeros((len(rows), 2 * len(VARIABLES)))
        coefficients, moduli = np.zeros((len(MONOMIALS), 2 * LARGEST + 1)), np.zeros(len(MODULI))
        goal = base.state.goal
        if goal is not None:
            facts = [fact_of(fact.concl) for fact in goal.facts]
            for slot, fact in enumerate(facts):
                names[slot, [PLACE[name] for name in fact.names]] = 1
                if fact.defines is not None:
                    names[slot, len(VARIABLES) + PLACE[fact.defines[0]]] = 1
            names[-1, [PLACE[name] for name in target_of(goal.target).names]] = 1
            p = zero_form(goal.target)[1]
            found = [LARGEST + max(-LARGEST, min(LARGEST, round(p.get(mono, 0)))) for mono in MONOMIALS]
            coefficients[np.arange(len(MONOMIALS)), found] = 1
            moduli[[i for i, m in enumerate(MODULI) if goal.target.op == "dvd" and goal.target.args[0] == m]] = 1
        counts = np.minimum(observation["counts"] / (4, FACTS, MAX_STEPS), 1)
        parts = (base.action_masks(), roots.ravel(), lengths, names.ravel(), coefficients.ravel(), moduli, counts)
        return np.concatenate(parts).astype(np.float32)


class Curriculum:
    """Where training episodes start; shared by the environments of a run.

    `left[topic, level]` is the longest distance to the end of the scripted proof, in actions, drawn so far. A topic and
    level is drawn the more often the less of it is solved (`weight`).
    """

    def __init__(self, topics: Sequence[str], levels: Sequence[int], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.left = {(topic, level): 1 for topic in topics for level in levels}
        self.recent = {key: collections.deque[bool](maxlen=WINDOW) for key in self.left}
        self.pool: dict[tuple[str, int], list[Problem]] = {key: [] for key in self.left}

    def is_whole(self, key: tuple[str, int]) -> bool:
        """Whether the longest starts are the beginnings of all problems drawn so far."""
        return self.left[key] >= max((len(problem.script) for problem in self.pool[key]), default=10**9)

    def weight(self, key: tuple[str, int]) -> float:
        """LEAST where the longest starts are the beginnings and all were solved, 1 where the curriculum goes on."""
        if not self.is_whole(key):
            return 1.0
        return LEAST + (1 - LEAST) * (1 - statistics.mean(self.recent[key] or [False]))

    def draw(self) -> tuple[Problem, int]:
        """(problem, actions of its script left to play); the whole script is left from the beginning."""
        keys = list(self.left)
        weights = np.array([self.weight(key) for key in keys])
        key = keys[int(self.rng.choice(len(keys), p=weights / weights.sum()))]
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
        is_solved_mostly = len(self.recent[key]) == WINDOW and statistics.mean(self.recent[key]) >= RATE
        if is_solved_mostly and not self.is_whole(key):
            self.left[key] += 1 + self.left[key] // 6
            self.recent[key].clear()

    def __str__(self) -> str:
        topics = dict.fromkeys(topic for topic, _ in self.left)
        lengths = {topic: [n for (name, _), n in self.left.items() if name == topic] for topic in topics}
        return "  ".join(f"{topic} {'/'.join(map(str, found))}" for topic, found in lengths.items())


class FromCurriculum(gym.Wrapper[Observation, SupportsInt, Observation, SupportsInt]):
    """Starts where the curriculum says, ends when so many actions more are too many, and tells it how it went."""

    def __init__(self, env: MathEnv, curriculum: Curriculum) -> None:
        super().__init__(env)
        self.curriculum = curriculum

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.problem, self.left = self.curriculum.draw()
        math_env(self.env).max_steps = min(MAX_STEPS, 2 * self.left + SLACK)
        return self.env.reset(seed=seed, options={"problem": self.problem, "prefix": -self.left, **(options or {})})

    def step(self, action: SupportsInt) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            self.curriculum.record(self.problem, self.left, info["is_proved"])
        return observation, reward, terminated, truncated, info

"""How many unseen problems a policy proves: attempts from the beginning, their table, the audit of what was found."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from math_env import audit
from math_env.coq import run as coqc
from math_env.curriculum import View, math_env
from math_env.env import MathEnv
from math_env.kernel import Theorem
from math_env.problems import Problem, generate
from math_env.render import text_tree
from math_env.rules import INDEX, NAMES


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
        masks = np.stack([math_env(envs[i]).action_masks() for i in open_ones])
        observations = np.stack([seen[i] for i in open_ones])
        actions, _ = model.predict(observations, action_masks=masks, deterministic=is_greedy)
        for i, action in zip(list(open_ones), actions, strict=True):
            seen[i], _, terminated, truncated, _ = envs[i].step(int(action))
            played[i].append(NAMES[int(action)])
            if terminated or truncated:
                open_ones.remove(i)
    states = [math_env(env).state for env in envs]
    return [Attempt(p, tuple(names), s.theorem) for p, names, s in zip(problems, played, states, strict=True)]


def summary(attempts: Sequence[Attempt]) -> dict[str, tuple[int, int, float | None]]:
    """topic -> (problems, solved, mean actions of the proofs found, None without one)."""
    found = {}
    for topic in dict.fromkeys(attempt.problem.topic for attempt in attempts):
        mine = [attempt for attempt in attempts if attempt.problem.topic == topic]
        lengths = [len(attempt.actions) for attempt in mine if attempt.theorem is not None]
        found[topic] = (len(mine), len(lengths), round(float(statistics.mean(lengths)), 1) if lengths else None)
    return found


def by_level(attempts: Sequence[Attempt]) -> dict[str, dict[int, str]]:
    """topic -> level -> "solved/problems"."""
    found: dict[str, dict[int, str]] = {}
    for topic, level in dict.fromkeys((a.problem.topic, a.problem.difficulty) for a in attempts):
        mine = [a.theorem is not None for a in attempts if (a.problem.topic, a.problem.difficulty) == (topic, level)]
        found.setdefault(topic, {})[level] = f"{sum(mine)}/{len(mine)}"
    return found


def table(before: Sequence[Attempt], after: Sequence[Attempt]) -> str:
    lines = [f"{'topic':<12}{'solved before':>15}{'after':>10}{'mean length before':>20}{'after':>8}  after, by level"]
    later, levels = summary(after), by_level(after)
    for topic, (count, solved, length) in summary(before).items():
        _, solved_later, length_later = later[topic]
        shown = [f"{solved}/{count}", f"{solved_later}/{count}", str(length or "-"), str(length_later or "-")]
        split = " ".join(levels[topic].values())
        lines.append(f"{topic:<12}{shown[0]:>15}{shown[1]:>10}{shown[2]:>20}{shown[3]:>8}  {split}")
    return "\n".join(lines)


def proofs(attempts: Sequence[Attempt]) -> list[tuple[Problem, Theorem]]:
    return [(attempt.problem, attempt.theorem) for attempt in attempts if attempt.theorem is not None]


def certified(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Counts of `audit.summary` over every proof found; z3 and Coq are asked where they are installed."""
    found = proofs(attempts)
    return audit.summary(audit.audit(found, z3=find_spec("z3") is not None, coq=bool(found) and coqc.is_available()))


def longest_proof(attempts: Sequence[Attempt], at_most: int = 20) -> str:
    """The longest proof found of no more than so many actions: each action with what it leaves to prove, and its
    tree."""
    short = [attempt for attempt in attempts if attempt.theorem is not None and len(attempt.actions) <= at_most]
    if not short:
        return "no proof"
    best = max(short, key=lambda attempt: len(attempt.actions))
    env = MathEnv()
    env.reset(options={"problem": best.problem})
    lines = [best.problem.text]
    for name in best.actions:
        env.step(INDEX[name])
        lines.append(f"  {name:<22}{env.state_str().splitlines()[-2] if env.state.goal else 'proved'}")
    assert best.theorem is not None
    return "\n".join([*lines, "", text_tree(best.theorem)])

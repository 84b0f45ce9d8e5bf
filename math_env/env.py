"""Gymnasium environment `Math-v0`: an episode is a problem, an action is one typed inference, 1 is paid for a proof.

Reward: 1 when the kernel has a theorem that states the problem (divided by 1 + 0.1·steps with `step_discount`), −0.1
for an action that is not valid and at the step limit, else 0. Nothing else is looked at: no solver, no text, no
clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsInt

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from common.errors import InputError
from math_env import masks, problems, rules
from math_env.latex import custom
from math_env.problems import FAMILIES, LEVELS, SPLITS, Problem
from math_env.rules import ACTIONS, FACTS, INDEX, NAMES
from math_env.terms import Expr, Refused
from math_env.tokens import LENGTH, LIMIT, row, show

PROVED, PENALTY = 1.0, -0.1
MAX_STEPS = 60
OPTIONS = ("topic", "level", "split", "problem", "prefix")
Observation = dict[str, np.ndarray]


class MathEnv(gym.Env[Observation, SupportsInt]):
    """See the module; the action table and the tokens are in docs/math_env.md.

    Args:
        topics: families drawn from, all by default.
        levels: levels drawn from.
        split: train, validation or test.
        max_steps: actions an episode may take (backtracking counts).
        invalid_ends: whether an action that is not valid ends the episode; else the state stays and the step counts.
        step_discount: pays 1 / (1 + 0.1·steps) instead of 1.
        render_mode: None or "ansi".
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 gymnasium's name

    def __init__(
        self,
        topics: Sequence[str] | None = None,
        levels: Sequence[int] = (1,),
        split: str = "train",
        max_steps: int = MAX_STEPS,
        invalid_ends: bool = True,
        step_discount: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.topics = tuple(FAMILIES if topics is None else topics)
        self.levels = tuple(levels)
        self.split = split
        if not self.topics or not self.levels or max_steps < 1:
            raise InputError("at least one topic, one level and one step are wanted")
        for topic in self.topics:
            _known("topic", topic, tuple(FAMILIES))
        for level in self.levels:
            _known("level", level, LEVELS)
        _known("split", split, SPLITS)
        _known("render_mode", render_mode, (None, "ansi"))
        self.max_steps, self.invalid_ends, self.step_discount = max_steps, invalid_ends, step_discount
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = spaces.Dict(  # type: ignore[assignment]
            {
                "facts": spaces.Box(-LIMIT, LIMIT, (FACTS, LENGTH), np.int32),
                "goal": spaces.Box(-LIMIT, LIMIT, (LENGTH,), np.int32),
                "counts": spaces.Box(0, 2**30, (3,), np.int32),
            }
        )
        self.problem: Problem | None = None
        self.steps = 0
        self.is_over = True

    # ------------------------------------------------------------ gymnasium

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new problem.

        Options: `topic`, `level`, `split`; `problem`, a Problem or a statement in the LaTeX of `latex`, instead of a
        drawn one; `prefix`: how many actions of the scripted proof are played beforehand, −k leaves k of them, never
        the whole proof.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        for key in chosen:
            _known("option", key, OPTIONS)
        topic = chosen.get("topic", self.topics[int(self.np_random.integers(len(self.topics)))])
        level = chosen.get("level", self.levels[int(self.np_random.integers(len(self.levels)))])
        split = chosen.get("split", self.split)
        _known("topic", topic, tuple(FAMILIES))
        _known("level", level, LEVELS)
        _known("split", split, SPLITS)
        self.problem = _given(chosen.get("problem")) or problems.generate(self.np_random, topic, level, split)
        self.state = self.problem.start()
        self.steps, self.is_over = 0, False
        for name in _prefix(self.problem.script, chosen.get("prefix", 0)):
            self.state = rules.apply(self.state, INDEX[name])
        self._mask: np.ndarray | None = None
        return self._observation(), self._info("")

    def step(self, action: SupportsInt) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One inference. Any integer is taken: one outside the space is an action that is not valid."""
        if self.problem is None:
            raise InputError("reset() comes before step()")
        index = int(action)
        self.steps += 1
        reward, terminated, refusal = 0.0, False, ""
        try:
            if not 0 <= index < len(ACTIONS):
                raise Refused("no such action")
            self.state = rules.apply(self.state, index)
            self._mask = None
        except Refused as error:
            reward, terminated, refusal = PENALTY, self.invalid_ends, str(error)
        if not refusal and self.problem.is_proved_by(self.state.theorem):
            reward = PROVED / (1 + 0.1 * self.steps) if self.step_discount else PROVED
            terminated = True
        truncated = not terminated and self.steps >= self.max_steps
        if truncated:
            reward = PENALTY
        self.is_over = terminated or truncated
        return self._observation(), reward, terminated, truncated, self._info(refusal)

    def render(self) -> str | None:  # type: ignore[override]
        """The state as text with `render_mode="ansi"`."""
        return self.state_str() if self.render_mode == "ansi" and self.problem else None

    # ------------------------------------------------------------ actions

    def action_masks(self) -> np.ndarray:
        """(actions,) bool, True = valid. Once the proof is finished only `backtrack()`: samplers need a choice."""
        if self._mask is None:
            mask = masks.mask(self.state)
            if self.state.goal is None:
                mask[INDEX["backtrack()"]] = True
            self._mask = mask
        return self._mask.copy()

    def get_action_names(self) -> list[str]:
        """Index -> stable id, for every action of the space."""
        return list(NAMES)

    def get_valid_actions(self) -> list[int]:
        return [int(index) for index in np.flatnonzero(self.action_masks())]

    def state_str(self) -> str:
        """Numbered facts, the goal in work and how many goals wait."""
        goal = self.state.goal
        if goal is None:
            return "proved"
        facts = "\n".join(f"f{i}: {show(fact.concl)}" for i, fact in enumerate(goal.facts))
        waiting = sum(isinstance(item, rules.Goal) for item in self.state.work) - 1
        return f"{facts}\nprove: {show(goal.target)}\nother goals: {waiting}".lstrip("\n")

    # ------------------------------------------------------------ what is seen

    def _observation(self) -> Observation:
        """facts (FACTS, LENGTH), goal (LENGTH,), counts (3,): open goals, facts, steps taken."""
        facts, target = np.zeros((FACTS, LENGTH), np.int32), np.zeros(LENGTH, np.int32)
        goal = self.state.goal
        if goal is not None:
            for slot, fact in enumerate(goal.facts):
                facts[slot] = _row(fact.concl)
            target[:] = _row(goal.target)
        goals = sum(isinstance(item, rules.Goal) for item in self.state.work)
        counts = np.array([goals, len(goal.facts) if goal else 0, self.steps], np.int32)
        return {"facts": facts, "goal": target, "counts": counts}

    def _info(self, refusal: str) -> dict[str, Any]:
        assert self.problem is not None
        return {
            "action_mask": self.action_masks().astype(np.int8),
            "question_id": self.problem.question_id,
            "topic": self.problem.topic,
            "difficulty": self.problem.difficulty,
            "is_proved": self.state.theorem is not None,
            "refusal": refusal,
        }


def _row(expr: Expr) -> np.ndarray:
    found = row(expr)
    assert found is not None, "a state holds only what fits"
    return found


def _given(problem: object) -> Problem | None:
    if isinstance(problem, str):
        return custom(problem)
    if problem is not None and not isinstance(problem, Problem):
        raise InputError(f"option problem: a Problem or a LaTeX statement is wanted, got {type(problem).__name__}")
    return problem


def _prefix(script: tuple[str, ...], prefix: int) -> tuple[str, ...]:
    if type(prefix) is not int:
        raise InputError(f"option prefix: an integer is wanted, got {prefix!r}")
    if not script:
        if prefix:
            raise InputError("option prefix: a problem with a scripted proof is wanted")
        return ()
    count = prefix if prefix >= 0 else max(0, len(script) + prefix)
    return script[: min(count, len(script) - 1)]


def _known(name: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise InputError(f"unknown {name} {value!r}; one of {', '.join(map(str, known))} is wanted")

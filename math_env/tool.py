"""The environment as a tool of a language model: the class for TRL 1.16's `environment_factory`, and its data rows.

TRL makes every public method of that class a tool, so `MathTool` has `reset`, `act` and `get_reward` and nothing else.
The reward is the environment's: 1 for a proof, −0.1 for an answer that is not exactly one listed action, −0.1 for an
episode that the model left unfinished. Text is compared with the listed actions, never evaluated.

A tokenizer without a chat template for tools gets a plain one from `with_tool_template`: the model writes the choice
alone, `Play: act choice=` stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.errors import InputError
from math_env.env import PENALTY, MathEnv
from math_env.problems import FAMILIES
from math_env.text import INVALID, parse, prompt

INSTRUCTION = "Prove the goal, one action at a time.\n"
OVER = "The episode is over."
NAME = "math"
"""Names the environment in data rows, for a run that mixes several."""

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}"
    "{%- for call in message.tool_calls or [] -%}"
    "Play: {{ call.function.name }}"
    "{%- for key, value in call.function.arguments.items() %} {{ key }}={{ value }}{%- endfor -%}"
    "{%- endfor -%}{{ message.content }}{{ eos_token }}"
    "{%- else -%}{{ message.content }}{{ '\\n' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}Play: act choice={%- endif -%}"
)


class MathTool:
    """One rollout's environment.

    Args:
        settings: of `MathEnv`; topic, difficulty and split of a data row go before them.
    """

    def __init__(self, **settings: Any) -> None:
        self._env = MathEnv(**settings)
        self._reward = PENALTY

    def reset(self, **row: Any) -> str:
        """Starts the problem that a data row names; the text goes to the end of the row's prompt.

        Raises:
            InputError: no `problem_seed`: a group would compare rewards of different problems.
        """
        if type(row.get("problem_seed")) is not int:
            raise InputError("a data row with an integer problem_seed is wanted: the paths of a group share a problem")
        named = {"topic": row.get("topic"), "level": row.get("difficulty"), "split": row.get("split")}
        options = {key: value for key, value in named.items() if value is not None}
        self._env.reset(seed=row["problem_seed"], options=options)
        self._reward = PENALTY
        return prompt(self._env)

    def act(self, choice: str) -> str:
        """Play one action of the proof.

        Args:
            choice: The number or the name of one listed action.

        Returns:
            The state after the action and the actions that are valid then, or how the episode ended.
        """
        if self._env.is_over:
            return OVER
        index = parse(self._env, choice) if isinstance(choice, str) else INVALID
        _, reward, _, _, info = self._env.step(index)
        if not self._env.is_over:
            return prompt(self._env)
        self._reward = reward
        return f"{'Proved.' if info['is_proved'] else 'Not proved.'} {OVER}"

    def get_reward(self) -> float:
        """The reward of the episode; an unfinished one earns what the step limit earns."""
        return self._reward


def rows(
    count: int,
    topics: Sequence[str] | None = None,
    levels: Sequence[int] = (1,),
    split: str = "train",
    seed: int = 0,
) -> list[dict[str, Any]]:
    """`count` data rows, topics and levels in turn: prompt, environment, problem_seed, topic, difficulty, split,
    question_id. `datasets.Dataset.from_list` takes them as they are."""
    kinds = [(topic, level) for level in levels for topic in (FAMILIES if topics is None else topics)]
    found = []
    for i in range(count):
        topic, level = kinds[i % len(kinds)]
        problem_seed = int(np.random.default_rng([seed, i]).integers(2**31))
        env = MathEnv()
        _, info = env.reset(seed=problem_seed, options={"topic": topic, "level": level, "split": split})
        found.append(
            {
                "prompt": [{"role": "user", "content": INSTRUCTION}],
                "environment": NAME,
                "problem_seed": problem_seed,
                "topic": topic,
                "difficulty": level,
                "split": split,
                "question_id": info["question_id"],
            }
        )
    return found


def with_tool_template(tokenizer: Any) -> Any:
    """The tokenizer, given the plain template above (and how to read the choice back) when it has none."""
    if tokenizer.chat_template is None:
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.response_template = {
            "defaults": {"role": "assistant"},
            "start_anchor": "Play: ",
            "fields": {
                "tool_calls": {
                    "open_pattern": "(?P<name>act) choice=",
                    "close": tokenizer.eos_token,
                    "repeats": True,
                    "content": "text",
                    "transform": {
                        "type": "function",
                        "function": {"name": "{name}", "arguments": {"choice": "{content}"}},
                    },
                },
            },
        }
    return tokenizer

"""The environment for language models: a prompt that lists the valid actions, a strict reader of the answer, a wrapper.

Text of a model is compared with the listed ids and nothing else: it is never evaluated and never reaches the kernel.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from math_env.env import MathEnv, Observation
from math_env.rules import INDEX, NAMES, OFFSETS, SCHEMAS, action_name

INVALID = -1
"""An index that `step` counts as an action that is not valid."""
MAX_ANSWER = 80
"""Characters of the longest answer that is read."""
STATE_CHARS = 4096


def prompt(env: MathEnv) -> str:
    """The state and the valid actions, one a line: `12. factor(f0)`, numbered in the order of the indices. A problem
    that has a story starts with it."""
    actions = "\n".join(f"{number}. {NAMES[index]}" for number, index in enumerate(env.get_valid_actions(), 1))
    story = f"{env.problem.story}\n" if env.problem is not None and env.problem.story else ""
    return f"{story}{env.state_str()}\nActions:\n{actions}\nAnswer with one action or its number."


def parse(env: MathEnv, text: str) -> int:
    """The action that a text names: exactly one listed id or number, blanks around it allowed; else INVALID."""
    if len(text) > MAX_ANSWER:
        return INVALID
    answer, valid = text.strip(), env.get_valid_actions()
    if answer in INDEX:
        return INDEX[answer] if INDEX[answer] in valid else INVALID
    if answer.isascii() and answer.isdigit() and len(answer) <= 4 and 1 <= int(answer) <= len(valid):
        return valid[int(answer) - 1]
    return INVALID


def action_table() -> str:
    """The action space as the Markdown table of docs/math_env.md."""
    lines = ["| family | first index | actions | for example | effect |", "|---|---|---|---|---|"]
    for schema, offset in zip(SCHEMAS, OFFSETS, strict=True):
        effect = schema.doc.replace("|", "\\|")
        lines.append(f"| {schema.family} | {offset} | {len(schema.parameters)} | `{action_name(offset)}` | {effect} |")
    return "\n".join(lines)


class TextObservation(gym.ObservationWrapper[dict[str, Any], Any, Observation]):
    """Adds `state_str` (at most STATE_CHARS characters) and, with a tokenizer, `input_ids` (max_length, right-padded).

    Args:
        encode: text -> token ids; without it there is no `input_ids`.
        max_length: tokens kept; a longer state keeps its END, where the goal is.
        vocabulary: number of token ids.
        pad_id: fills the rest.
    """

    def __init__(
        self,
        env: MathEnv,
        encode: Callable[[str], Sequence[int]] | None = None,
        max_length: int = 512,
        vocabulary: int = 2**17,
        pad_id: int = 0,
    ) -> None:
        super().__init__(env)
        self.encode, self.max_length, self.pad_id = encode, max_length, pad_id
        assert isinstance(env.observation_space, spaces.Dict)
        added: dict[str, gym.Space[Any]] = {
            "state_str": spaces.Text(STATE_CHARS, min_length=0, charset=string.printable)
        }
        if encode is not None:
            added["input_ids"] = spaces.Box(0, vocabulary - 1, (max_length,), np.int64)
        self.observation_space = spaces.Dict({**env.observation_space.spaces, **added})

    def observation(self, observation: Observation) -> dict[str, Any]:
        base = self.env.unwrapped
        assert isinstance(base, MathEnv)
        text = base.state_str()[-STATE_CHARS:]
        seen: dict[str, Any] = {**observation, "state_str": text}
        if self.encode is not None:
            ids = np.full(self.max_length, self.pad_id, np.int64)
            kept = list(self.encode(text))[-self.max_length :]
            ids[: len(kept)] = kept
            seen["input_ids"] = ids
        return seen

"""Constrained choice: a language model that can answer with a valid action only, by a trie of token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from math_env.env import MathEnv
from math_env.rules import NAMES

Node = dict[int, Any]


class TokenTrie:
    """The token sequences of some choices.

    Args:
        choices: their ids, none empty, no two equal.
        end: the token that ends an answer; in no choice.
    """

    def __init__(self, choices: Iterable[Sequence[int]], end: int) -> None:
        self.end = end
        self._root: Node = {}
        self._positions: dict[tuple[int, ...], int] = {}
        for position, ids in enumerate(choices):
            key = tuple(ids)
            if not key or end in key or key in self._positions:
                raise ValueError(f"choice {position}: not empty, without the end token and not twice is wanted")
            self._positions[key] = position
            node = self._root
            for token in key:
                node = node.setdefault(token, {})
        if not self._positions:
            raise ValueError("at least one choice is wanted")

    def after(self, ids: Sequence[int]) -> list[int]:
        """The tokens that may follow: `end` where a choice is complete (and after it), else never an empty list."""
        node = self._root
        for token in ids:
            if token not in node:
                return [self.end]
            node = node[token]
        allowed = list(node)
        return [*allowed, self.end] if tuple(ids) in self._positions else allowed

    def position(self, ids: Sequence[int]) -> int | None:
        """Which choice these ids are, up to the first `end`; None when it is none."""
        tokens = list(ids)
        return self._positions.get(tuple(tokens[: tokens.index(self.end)] if self.end in tokens else tokens))


def allowed_tokens(tries: Sequence[TokenTrie], prompt_tokens: int) -> Callable[[int, Any], list[int]]:
    """For `generate(prefix_allowed_tokens_fn=…)`: row i of the batch answers within tries[i] (or all within tries[0]).

    `prompt_tokens` is the padded length of the prompts.
    """

    def allowed(row: int, ids: Any) -> list[int]:
        trie = tries[row if len(tries) > 1 else 0]
        return trie.after(ids[prompt_tokens:].tolist())

    return allowed


def trie_of(env: MathEnv, tokenizer: Any) -> TokenTrie:
    """The names of the valid actions, in the order of `env.get_valid_actions()`."""
    names = [NAMES[index] for index in env.get_valid_actions()]
    return TokenTrie((tokenizer(name, add_special_tokens=False)["input_ids"] for name in names), tokenizer.eos_token_id)


def choose(model: Any, tokenizer: Any, env: MathEnv, text: str, **generation: Any) -> int:
    """The valid action that the model answers `text` with; `generation` goes to `generate` (greedy by default)."""
    import torch

    trie = trie_of(env, tokenizer)
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]], device=model.device)
    settings = {"do_sample": False, "max_new_tokens": 64, **generation}
    with torch.no_grad():
        answer = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            prefix_allowed_tokens_fn=allowed_tokens([trie], ids.shape[1]),
            eos_token_id=trie.end,
            pad_token_id=trie.end,
            **settings,
        )
    position = trie.position(answer[0, ids.shape[1] :].tolist())
    if position is None:
        raise ValueError("the answer was cut before a whole action: raise max_new_tokens")
    return env.get_valid_actions()[position]

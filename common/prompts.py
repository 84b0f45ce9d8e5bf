"""How a problem becomes the ids a model is asked with: one place for training, sampling, scoring and evaluation."""

from __future__ import annotations

import dataclasses
from typing import Any

from common.config import BaseSection
from common.errors import InputError


@dataclasses.dataclass(frozen=True)
class PromptTemplate:
    """Turns problem text into prompt ids.

    Attributes:
        kind: ``plain`` (instruction, problem, newline) or ``chat`` (the tokenizer's chat template).
        instruction: text put before the problem; may be empty.
    """

    kind: str = "plain"
    instruction: str = ""

    @classmethod
    def from_config(cls, base: BaseSection) -> PromptTemplate:
        return cls(base.template, base.instruction)

    def text(self, problem_text: str, tokenizer: Any) -> str:
        """The prompt as text.

        Raises:
            InputError: ``chat`` with a tokenizer that has no chat template.
        """
        asked = f"{self.instruction}\n{problem_text}" if self.instruction else problem_text
        if self.kind == "plain":
            return asked + "\n"
        if not getattr(tokenizer, "chat_template", None):
            raise InputError("base.template = 'chat': this tokenizer has no chat template; use 'plain'")
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}], tokenize=False, add_generation_prompt=True
        )

    def ids(self, problem_text: str, tokenizer: Any) -> list[int]:
        """The prompt as token ids; special tokens are the template's own (``chat``) or the tokenizer's (``plain``)."""
        return list(tokenizer(self.text(problem_text, tokenizer), add_special_tokens=self.kind == "plain")["input_ids"])

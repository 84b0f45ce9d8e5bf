"""How a benchmark problem becomes prompt ids: the registry's own text, worked examples in front, chat or plain."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from common.config import BaseSection
from common.errors import InputError
from common.prompts import PromptTemplate
from eval.benchmark_spec import Prompt

Kind = Literal["chat", "plain"]
_INSTRUCTION_LINE = "\n{instruction}"


@dataclasses.dataclass(frozen=True)
class BenchmarkPrompt:
    """Turns problem text into prompt ids.

    Attributes:
        kind: ``chat`` (the tokenizer's chat template, worked examples as earlier turns) or ``plain`` (one text).
        form: text of one question with the place ``{problem}``, the instruction already in it.
        examples: (problem, solution) pairs in front of the question.
        stop: strings that end an output.
        trained: the prompt a policy was trained with, in place of all this.
    """

    kind: Kind
    form: str
    examples: tuple[tuple[str, str], ...] = ()
    stop: tuple[str, ...] = ()
    trained: PromptTemplate | None = None

    @classmethod
    def of_benchmark(cls, prompt: Prompt, kind: Kind, examples: list[tuple[str, str]]) -> BenchmarkPrompt:
        """The registry's prompt."""
        form = prompt.chat if kind == "chat" else prompt.plain
        instruction = "" if examples else f"\n{prompt.instruction}"
        stop = prompt.stop_chat if kind == "chat" else prompt.stop_plain
        return cls(kind, form.replace(_INSTRUCTION_LINE, instruction), tuple(examples), stop)

    @classmethod
    def of_training(cls, base: BaseSection) -> BenchmarkPrompt:
        """The prompt of a configuration's ``base`` section: how the policy was asked while it learnt."""
        return cls(base.template, "{problem}", stop=base.stop, trained=PromptTemplate.from_config(base))

    def text(self, problem_text: str, tokenizer: Any) -> str:
        """The whole prompt as text.

        Raises:
            InputError: ``chat`` with a tokenizer that has no chat template.
        """
        if self.trained is not None:
            return self.trained.text(problem_text, tokenizer)
        if self.kind == "plain":
            shown = [f"{self._asked(problem)} {solution}\n\n" for problem, solution in self.examples]
            return "".join(shown) + self._asked(problem_text)
        if not getattr(tokenizer, "chat_template", None):
            raise InputError("--template chat: this tokenizer has no chat template; use plain")
        turns = []
        for problem, solution in self.examples:
            turns.append({"role": "user", "content": self._asked(problem)})
            turns.append({"role": "assistant", "content": solution})
        turns.append({"role": "user", "content": self._asked(problem_text)})
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def ids(self, problem_text: str, tokenizer: Any) -> list[int]:
        """The prompt as ids; special tokens are the template's own (``chat``) or the tokenizer's (``plain``)."""
        text = self.text(problem_text, tokenizer)
        return list(tokenizer(text, add_special_tokens=self.kind == "plain")["input_ids"])

    def _asked(self, problem_text: str) -> str:
        return self.form.replace("{problem}", problem_text)


def template_kind(wanted: str, tokenizer: Any) -> Kind:
    """``chat`` or ``plain`` as asked; ``auto``: chat where the tokenizer has a chat template."""
    if wanted == "auto":
        return "chat" if getattr(tokenizer, "chat_template", None) else "plain"
    return "chat" if wanted == "chat" else "plain"

"""What can be put to a PRM benchmark: a saved PRM, the exact check of equations alone, a constant guess.

Every scorer gives each step a number in [0, 1], its belief that steps 1..k are all right, and a rule that turns the
numbers of a solution into the predicted first wrong step.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, Protocol

from common.errors import InputError
from common.metrics import first_below
from common.models import load_tokenizer
from common.prompts import PromptTemplate
from data_gen.step_keys import falsehoods, step_key
from prm.inputs import text_input
from prm.score import PRMScorer


@dataclasses.dataclass(frozen=True)
class Question:
    """A solution to be scored; ``place`` names it in messages."""

    problem: str
    steps: Sequence[str]
    place: str


class Scorer(Protocol):
    """Scores solutions.

    Attributes:
        name: for the report.
        threshold: a step with a lower score is called wrong; None when the scorer needs none.
        threshold_rule: where the threshold comes from, in words.
    """

    name: str
    threshold: float | None
    threshold_rule: str

    def score(self, questions: Sequence[Question]) -> list[list[float]]:
        """One number a step, NaN where there is none to have; fewer numbers than steps where the input was cut."""
        ...

    def predict(self, scores: Sequence[float]) -> int | None:
        """The predicted first wrong step, None for none. A score that is not finite predicts nothing."""
        ...


def is_bad(scores: Sequence[float]) -> bool:
    """True when a score is not finite: such a solution is predicted to be without error, and counted."""
    return not all(map(math.isfinite, scores))


class ArithmeticScorer:
    """``data_gen.step_keys.falsehoods``: the first step that exact algebra refutes is the predicted error."""

    name = "arithmetic"
    threshold: float | None = None
    threshold_rule = "no threshold: the first step that exact algebra refutes"

    def score(self, questions: Sequence[Question]) -> list[list[float]]:
        """1 before the first refuted step, 0 from it on."""
        refuted = [falsehoods([step_key(step) for step in one.steps]) for one in questions]
        return [[0.0 if any(flags[: k + 1]) else 1.0 for k in range(len(flags))] for flags in refuted]

    def predict(self, scores: Sequence[float]) -> int | None:
        return first_below(scores, 0.5)


class ConstantScorer:
    """Predicts the same step of every solution, whether it has that many or not; -1 predicts no error."""

    threshold: float | None = None

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"constant:{index}"
        self.threshold_rule = f"no threshold: always {index}"

    def score(self, questions: Sequence[Question]) -> list[list[float]]:
        """1 before the constant step, 0 from it on."""
        return [[float(self.index == -1 or k < self.index) for k in range(len(one.steps))] for one in questions]

    def predict(self, scores: Sequence[float]) -> int | None:
        return None if self.index == -1 else self.index


class SavedPRM:
    """A PRM as the prm stage saved it: weights, calibration and tokenizer in one folder."""

    def __init__(
        self, directory: str, scorer: PRMScorer, tokenizer: Any, template: PromptTemplate, separator: str = "\n"
    ) -> None:
        self.name = directory
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.template = template
        self.separator = separator
        self.threshold: float | None = scorer.calibration.threshold
        self.threshold_rule = "the PRM's own, from its calibration on held-out paths"

    def score(self, questions: Sequence[Question]) -> list[list[float]]:
        """Raises InputError for a step that the tokenizer has no token for."""
        prompts = {text: self.template.ids(text, self.tokenizer) for text in {one.problem for one in questions}}
        inputs = []
        for one in questions:
            try:
                inputs.append(
                    text_input(
                        self.tokenizer,
                        prompts[one.problem],
                        one.steps,
                        separator=self.separator,
                        max_length=self.scorer.max_length,
                    )
                )
            except ValueError as error:
                raise InputError(f"{one.place}: {error}") from error
        return self.scorer.score_inputs(inputs)

    def predict(self, scores: Sequence[float]) -> int | None:
        if is_bad(scores):
            return None
        return first_below(scores, float(self.threshold or 0.0))


def load_saved_prm(
    directory: str,
    template: PromptTemplate,
    *,
    separator: str = "\n",
    device: str = "cpu",
    max_length: int | None = None,
    max_batch_tokens: int = 16384,
) -> SavedPRM:
    """Load a PRM folder.

    max_length: longest input in tokens; None: what the PRM's positions allow.

    Raises:
        InputError: no calibration, model or tokenizer there.
    """
    try:
        scorer = PRMScorer.load(directory, device=device, max_batch_tokens=max_batch_tokens)
    except OSError as error:
        raise InputError(f"{directory}: no PRM to load ({str(error).splitlines()[0]})") from error
    config = scorer.model.config
    policy = getattr(config, "policy", None) or config.to_dict()
    scorer.max_length = max_length or policy.get("max_position_embeddings")
    return SavedPRM(directory, scorer, load_tokenizer(directory), template, separator)


def symbolic_scorer(name: str) -> Scorer:
    """The scorer of ``--scorer``: ``arithmetic`` or ``constant:K`` with K >= -1.

    Raises:
        InputError: another name.
    """
    if name == "arithmetic":
        return ArithmeticScorer()
    constant = re.fullmatch(r"constant:(-1|\d+)", name)
    if constant:
        return ConstantScorer(int(constant[1]))
    raise InputError(f"--scorer {name!r}: want arithmetic, constant:-1 or constant:K with K = 0, 1, …")

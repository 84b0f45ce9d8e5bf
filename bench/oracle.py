"""The exact oracle in the place of a PRM."""

from __future__ import annotations

from collections.abc import Sequence

from common.config import Config
from common.errors import InputError
from common.models import load_tokenizer, locate
from common.prompts import PromptTemplate
from common.records import Path, Problem
from data_gen.synthetic import judge
from policy.rollouts import Score


def oracle_score(config: Config, problems: Sequence[Problem]) -> Score:
    """The exact oracle in the place of a PRM: 1 before the first wrong step, 0 from it on; what it cannot judge 0.5.

    Raises:
        InputError: the problems are not the built-in generator's.
    """
    if config.data.source != "synthetic":
        raise InputError(f"arm oracle: data.source = {config.data.source!r} has no exact judge; want 'synthetic'")
    tokenizer = load_tokenizer(locate(config.base.model))
    template = PromptTemplate.from_config(config.base)
    texts = {tuple(template.ids(problem.text, tokenizer)): problem.text for problem in problems}

    def score(prompt_ids: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[list[float]]:
        scores = []
        for prompt, path in zip(prompt_ids, paths, strict=True):
            found = judge(texts[tuple(prompt)], [step.text for step in path.steps])
            first = len(path.steps) if found.first_error is None else found.first_error
            good = 0.5 if found.unknown else 1.0
            scores.append([good if k < first else 0.0 for k in range(len(path.steps))])
        return scores

    return score

"""Quality of the greedy paths of base and policy (docs/quality.md), the base as language model of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from common.config import Config
from common.models import load_policy, load_tokenizer, sampling_device
from common.prompts import PromptTemplate
from eval.collect import ModelPools
from eval.pools import is_right
from policy.quality import JudgeCoherence, coherence_judge, usual_steps
from prm.quality.measures import Quality, quality_of


def with_qualities(base: ModelPools, policy: ModelPools, config: Config) -> tuple[ModelPools, ModelPools]:
    """Return both models' pools with the quality of their greedy paths to the same problems.

    ``eval.quality_paths`` problems are looked at, spread evenly over the test set; 0: the pools as they are.
    """
    rows = spread(len(base.problems), config.eval.quality_paths)
    if not rows:
        return base, policy
    tokenizer = load_tokenizer(config.base.model)
    template = PromptTemplate.from_config(config.base)
    prompts = {row: list(template.ids(base.problems[row].text, tokenizer)) for row in rows}
    judge = coherence_judge(load_policy(config.base.model, config.base.dtype).to(sampling_device()))
    usual = {row: usual_for(base, row) for row in rows}
    first, second = (
        dataclasses.replace(model, qualities=qualities(model, rows, prompts, usual, judge)) for model in (base, policy)
    )
    return first, second


def spread(size: int, count: int) -> list[int]:
    """Return up to ``count`` indices below ``size``, evenly spread."""
    return list(range(size)) if count >= size else [k * size // count for k in range(count)]


def usual_for(base: ModelPools, row: int) -> float | None:
    """Return the usual number of deriving steps of a problem by the base's sampled paths, the same for both models."""
    paths = base.sampled.paths[row]
    return usual_steps(base.problems[row], paths, [is_right(path) for path in paths])


def qualities(
    model: ModelPools,
    rows: Sequence[int],
    prompts: dict[int, list[int]],
    usual: dict[int, float | None],
    judge: JudgeCoherence,
) -> list[Quality | None]:
    """Return the quality of the greedy path of each problem among ``rows``, None for the others."""
    paths = [model.greedy.paths[row][0] for row in rows]
    coherences = judge([prompts[row] for row in rows], paths)
    found: list[Quality | None] = [None] * len(model.problems)
    for row, path, value in zip(rows, paths, coherences, strict=True):
        steps = [step.text for step in path.steps]
        found[row] = quality_of(model.problems[row].text, steps, path.answer, usual=usual[row], coherence=value)
    return found

"""Mined paths of a round in the hands of ``policy.harden``: training inputs, and figures before and after the refit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import Any

from common.config import Config
from common.prompts import PromptTemplate
from common.records import Problem
from common.runs import Run, read_records
from data_gen.settings import text_settings
from policy.arguments import policy_settings
from policy.attack_cases import Case
from policy.attack_learned import mined_paths
from policy.attack_teach import GROUPS, Split, measure_mined, mined_labels, split_mined
from prm.inputs import PRMInput, labelled_inputs
from prm.score import PRMScorer


@dataclasses.dataclass(frozen=True)
class Lesson:
    """Mined paths of a round, split.

    Attributes:
        split: what is taught and what is measured.
        cases: all cases of the round.
        problems: by id. prompts: problem id -> prompt ids.
    """

    config: Config
    split: Split
    cases: Sequence[Case]
    problems: Mapping[str, Problem]
    prompts: Mapping[str, Sequence[int]]
    tokenizer: Any

    def inputs(self) -> tuple[list[PRMInput], dict[str, int]]:
        """Return the training inputs of the taught paths, and how many had their label from where."""
        sources = tuple(source for source in self.config.data.label_sources if source != "monte_carlo")
        labelled, counts = mined_labels(
            [one.path for one in self.split.teach],
            {case.problem.id: case.sampled for case in self.cases},
            {name: problem.text for name, problem in self.problems.items()},
            text_settings(self.config, sources) if sources else None,
        )
        if not labelled:
            return [], counts
        return labelled_inputs(labelled, self.prompts, max_length=self.config.prm.max_length)[0], counts

    def measure(self, scorer: PRMScorer) -> dict[str, dict[str, Any]]:
        """Return what a PRM makes of the measured paths, by group."""
        threshold, settings = scorer.calibration.threshold, policy_settings(self.config)
        return measure_mined(self.split, self.cases, self.prompts, scorer.score, threshold, settings, self.tokenizer)


def load_lesson(
    config: Config, run: Run, cases: Sequence[Case], prm_hash: str, apart: Set[str], tokenizer: Any
) -> Lesson | None:
    """Return what a learned attack on this PRM has to teach; None where there was none, or it found nothing.

    Args:
        prm_hash: of the weights of the PRM. apart: ids of the problems held out for the PRM's own measures.
    """
    mined = mined_paths(run, prm_hash)
    if not mined:
        return None
    template = PromptTemplate.from_config(config.base)
    rows = read_records(run.require("sample").file("problems_train.jsonl"), Problem.from_row)
    problems = {problem.id: problem for problem in rows}
    prompts = {one.path.problem_id: template.ids(problems[one.path.problem_id].text, tokenizer) for one in mined}
    return Lesson(config, split_mined(mined, config.seed, apart), cases, problems, prompts, tokenizer)


def lesson_row(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat figures of the command's last line; shares are None where a group has no path to measure."""
    row: dict[str, Any] = {}
    for name in GROUPS:
        for when, found in (("before", before[name]), ("after", after[name])):
            row[f"learned_{name}_high_{when}"] = found["high"] / found["of"] if found["of"] else None
    return row | {f"learned_{name}_paths": before[name]["of"] for name in GROUPS}

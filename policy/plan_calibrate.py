"""Lengths and rates of a finished run, from which the stages of another one are predicted.

    rate of a part = its measured seconds / the operations that ``policy.plan_work`` counts for it

so what the count leaves out (grading, loading, Python) is in the rate, in proportion.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable
from typing import Any

from common.config import Config
from common.errors import InputError
from common.models import load_tokenizer, locate
from common.prompts import PromptTemplate
from common.records import Path, Problem
from common.runs import STAGE_SECTIONS, Run, read_records
from policy.plan_shape import read_shape
from policy.plan_work import Lengths, Work, round_work, uses_prm
from prm.__main__ import training_inputs
from prm.train import split_by_problem
from prm.training_set import training_view

PPO_PARTS = {
    "sampling: prompts": "sampling",
    "sampling": "sampling",
    "log-probs": "log-probs",
    "values": "log-probs",
    "PRM": "PRM",
    "updates": "updates",
    "critic": "updates",
    "validation: prompts": "validation",
    "validation": "validation",
}
"""Work of ``ppo`` -> the part of its log that measures it."""

LOGGED = {"sampling": ("sampling", "grading"), "log-probs": ("logprobs",), "PRM": ("prm",), "updates": ("update",)}
"""Part -> names behind ``seconds/`` in the log of ``ppo``; the rest of the stage's seconds is validation."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What a run measured.

    Attributes:
        lengths: its mean lengths and shares. rates: seconds an operation, by (stage, part).
        measured: its seconds by (stage, part).
    """

    lengths: Lengths
    rates: dict[tuple[str, str], float]
    measured: dict[tuple[str, str], float]

    def seconds(self, work: Work) -> float:
        """Predicted seconds of a piece of work on one device like the run's.

        Raises:
            InputError: the run has nothing of the kind.
        """
        key = part_of(work)
        if key not in self.rates:
            raise InputError(
                f"--calibrate: that run measured no {key[1]!r} in stage {key[0]}; want one whose settings have it"
            )
        return work.operations * self.rates[key]


def part_of(work: Work) -> tuple[str, str]:
    """(stage, part) under which a piece of work is measured: stages as a whole, ``ppo`` by the parts of its log."""
    return (work.stage, PPO_PARTS[work.name]) if work.stage == "ppo" else (work.stage, "all")


def operations_by_part(works: Iterable[Work]) -> dict[tuple[str, str], float]:
    """Sum of operations of each part."""
    sums: dict[tuple[str, str], float] = {}
    for work in works:
        sums[part_of(work)] = sums.get(part_of(work), 0.0) + work.operations
    return sums


def calibrate(run: Run) -> Calibration:
    """Measure lengths and rates of a run on one device.

    Raises:
        InputError: one of its stages is not finished.
    """
    config = run_config(run)
    shape, lengths = read_shape(config.base.model), measured_lengths(config, run)
    measured = stage_seconds(config, run)
    counted = operations_by_part(round_work(config, shape, lengths, run.round == 0 and not config.sft.is_on))
    rates = {part: seconds / counted[part] for part, seconds in measured.items() if counted.get(part)}
    return Calibration(lengths, rates, measured)


def run_config(run: Run) -> Config:
    """The configuration that a finished evaluation was made with."""
    flat: dict[str, Any] = json.loads(run.require("eval").file("config.json").read_text(encoding="utf-8"))
    tree: dict[str, Any] = {section: {} for section in STAGE_SECTIONS["eval"]}
    for key, value in flat.items():
        section, _, name = key.partition(".")
        if name:
            tree[section][name] = value
    return Config.model_validate({**tree, "seed": flat["seed"]})


def measured_lengths(config: Config, run: Run) -> Lengths:
    """Mean tokens of problems and of the labelled band's paths, share of the pool kept, and tokens of a PRM epoch."""
    sampled = run.require("sample")
    problems = read_records(sampled.file("problems_train.jsonl"), Problem.from_row)
    paths = read_records(sampled.file("paths.jsonl"), Path.from_row)
    tokenizer = load_tokenizer(locate(run.start_model(config)))
    template = PromptTemplate.from_config(config.base)
    prompt = statistics.fmean(len(template.ids(problem.text, tokenizer)) for problem in problems)
    path = statistics.fmean(len(one.token_ids) for one in paths)
    read = Lengths.read
    if uses_prm(config):
        inputs, _ = training_inputs(config, run, tokenizer)
        train, _ = split_by_problem(inputs, config.prm.holdout, seed=config.seed)
        view = training_view([one for one in train if one.has_label], steps_after_error=config.prm.steps_after_error)
        read = sum(len(one.token_ids) for one in view) / (len(paths) * (1 - config.prm.holdout) * (prompt + path))
    return Lengths(
        prompt=prompt,
        path=path,
        steps=statistics.fmean(len(one.steps) for one in paths),
        kept=float(sampled.summary["kept"]) / len(problems),
        read=read,
    )


def stage_seconds(config: Config, run: Run) -> dict[tuple[str, str], float]:
    """Measured seconds by part; see ``part_of``."""
    done = {name: float(run.require(name).summary["seconds"]) for name in ("sample", "label", "ppo", "eval")}
    seconds = {("data", "all"): done["sample"] + done["label"], ("eval", "all"): done["eval"]}
    if uses_prm(config):
        seconds["prm", "all"] = float(run.require("prm").summary["seconds"])
    rows = run.require("ppo").metrics()
    for part, names in LOGGED.items():
        seconds["ppo", part] = sum(row.get(f"seconds/{name}", 0.0) for row in rows for name in names)
    known = sum(value for (stage, _), value in seconds.items() if stage == "ppo")
    seconds["ppo", "validation"] = max(done["ppo"] - known, 0.0)
    return {part: value for part, value in seconds.items() if value > 0}

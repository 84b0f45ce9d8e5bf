"""Measure a base model on validation problems: ``python -m data_gen.base_eval DIR``.

For each range of levels: greedy and sampled accuracy, pass@8, by kind; the best over temperatures; and, from the exact
oracle, how often a step is wrong in a way that no habit of the catalogue explains (plain incompetence).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from common.records import Problem
from data_gen.engines import TransformersEngine
from data_gen.synthetic import generate, judge
from data_gen.synthetic.corpus import ANSWER_PREFIX

RANGES = {"2-6": range(2, 7), "8-10": range(8, 11)}
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SEED = 101


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    paths: int,
    temperature: float,
) -> list[list[str]]:
    """Return ``paths`` completions a problem; temperature 0 is greedy."""
    engine = TransformersEngine(model, tokenizer)
    prompts = [tokenizer(problem.text + "\n")["input_ids"] for problem in problems]
    longest = max(problem.level or 10 for problem in problems)
    groups = engine.sample(prompts, n=paths, temperature=temperature, max_new_tokens=24 * longest + 20, seed=SEED)
    return [[tokenizer.decode(one.token_ids, skip_special_tokens=True) for one in group] for group in groups]


def split_path(text: str) -> tuple[list[str], str | None]:
    """Return (steps, answer) of a completion; the answer is None without an answer line at the end."""
    lines = [line for line in text.split("\n") if line.strip()]
    if lines and lines[-1].startswith(ANSWER_PREFIX):
        return lines[:-1], lines[-1].removeprefix(ANSWER_PREFIX).strip()
    return lines, None


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(len(values), 1), 4)


@dataclasses.dataclass
class Tally:
    """What the oracle says of sampled paths, counted."""

    paths: int = 0
    unknown: int = 0
    lucky: int = 0
    steps: int = 0
    errors: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unexplained: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, problem: Problem, text: str, is_right: bool) -> None:
        steps, _ = split_path(text)
        judged = judge(problem.text, steps)
        self.paths += 1
        self.unknown += judged.unknown
        self.steps += len(steps) if judged.first_error is None else judged.first_error + 1
        if judged.first_error is not None:
            self.lucky += is_right
            self.errors[judged.habit or "unexplained"] += 1
            self.unexplained[problem.topic] += judged.habit is None

    def to_row(self) -> dict[str, object]:
        return {
            "unknown_share_of_paths": round(self.unknown / self.paths, 4),
            "right_answer_with_wrong_step_share_of_paths": round(self.lucky / self.paths, 4),
            "unexplained_share_of_steps": round(self.errors["unexplained"] / self.steps, 4),
            "unexplained_by_kind": dict(self.unexplained),
            "first_errors": dict(self.errors.most_common()),
        }


def measure_range(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, levels: Sequence[int], count: int, paths: int = 8
) -> dict[str, object]:
    """Return the measured numbers of one range of levels over ``count`` validation problems."""
    problems = generate("validation", SEED, count, levels=levels)
    torch.manual_seed(SEED)

    def right(count: int, temperature: float, tally: Tally | None = None) -> list[list[bool]]:
        texts = sample(model, tokenizer, problems, count, temperature)
        found = [[split_path(text)[1] == p.answer for text in own] for p, own in zip(problems, texts, strict=True)]
        if tally is not None:
            for problem, own, marks in zip(problems, texts, found, strict=True):
                for text, is_right in zip(own, marks, strict=True):
                    tally.add(problem, text, is_right)
        return found

    tally = Tally()
    greedy, sampled = right(1, 0.0), right(paths, 1.0, tally)
    table = {}
    for kind in ("all", *dict.fromkeys(problem.topic for problem in problems)):
        own = [index for index, problem in enumerate(problems) if kind in ("all", problem.topic)]
        table[kind] = {
            "problems": len(own),
            "greedy": _mean([greedy[index][0] for index in own]),
            "sampled": _mean([mark for index in own for mark in sampled[index]]),
            f"pass@{paths}": _mean([any(sampled[index]) for index in own]),
        }
    by_temperature: dict[str, float] = {"0.0": table["all"]["greedy"], "1.0": table["all"]["sampled"]}
    for temperature in TEMPERATURES[1:-1]:
        by_temperature[str(temperature)] = _mean([mark for own in right(2, temperature) for mark in own])
    return {"accuracy": table, "by_temperature": dict(sorted(by_temperature.items())), **tally.to_row()}


def measure(folder: Path, count: int = 400) -> dict[str, dict[str, object]]:
    """Return the measured numbers of the model in ``folder`` for every range of levels, and print them."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    measured = {name: measure_range(model, tokenizer, levels, count) for name, levels in RANGES.items()}
    for name, numbers in measured.items():
        print(f"levels {name}: {json.dumps(numbers, indent=1)}", flush=True)
    return measured


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m data_gen.base_eval", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=400, help="problems a range of levels")
    given = parser.parse_args()
    torch.set_num_threads(1)
    measure(given.folder, given.count)

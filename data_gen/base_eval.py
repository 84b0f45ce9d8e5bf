"""Measure a base model on validation problems: ``python -m data_gen.base_eval DIR``.

For each range of levels: greedy and sampled accuracy, pass@8, by kind; the best over temperatures; and, from the exact
oracle, how often a step is wrong in a way that no habit of the catalogue explains (plain incompetence).
"""

from __future__ import annotations

import argparse
import collections
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from common.records import Problem
from data_gen.synthetic import generate, judge
from data_gen.synthetic.corpus import ANSWER_PREFIX

RANGES = {"2-6": range(2, 7), "8-10": range(8, 11)}
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SEED = 101


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    paths: int,
    temperature: float,
    batch: int = 256,
) -> list[list[str]]:
    """Return ``paths`` completions a problem; temperature 0 is greedy."""
    rows = [index for index, _ in enumerate(problems) for _ in range(paths)]
    rows.sort(key=lambda index: -len(problems[index].text))
    texts: list[list[str]] = [[] for _ in problems]
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        encoded = tokenizer([problems[i].text + "\n" for i in part], return_tensors="pt", padding=True)
        longest = max(problems[i].level or 10 for i in part)
        out = model.generate(
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            max_new_tokens=24 * longest + 20,
            do_sample=temperature > 0,
            temperature=temperature or None,
            top_k=0 if temperature else None,
        )
        for index, ids in zip(part, out[:, encoded["input_ids"].shape[1] :], strict=True):
            texts[index].append(tokenizer.decode(ids, skip_special_tokens=True))
    return texts


def split_path(text: str) -> tuple[list[str], str | None]:
    """Return (steps, answer) of a completion; the answer is None without an answer line at the end."""
    lines = [line for line in text.split("\n") if line.strip()]
    if lines and lines[-1].startswith(ANSWER_PREFIX):
        return lines[:-1], lines[-1].removeprefix(ANSWER_PREFIX).strip()
    return lines, None


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(len(values), 1), 4)


def measure_range(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, levels: Sequence[int], count: int, paths: int = 8
) -> dict[str, object]:
    """Return the measured numbers of one range of levels over ``count`` validation problems."""
    problems = generate("validation", SEED, count, levels=levels)
    torch.manual_seed(SEED)
    rows: dict[str, list[tuple[float, float, float]]] = collections.defaultdict(list)
    steps, errors, unknown, unexplained, total = 0, collections.Counter(), 0, collections.Counter(), 0
    hidden = 0
    greedy_texts = sample(model, tokenizer, problems, 1, 0.0)
    for problem, greedy, texts in zip(
        problems, greedy_texts, sample(model, tokenizer, problems, paths, 1.0), strict=True
    ):
        is_right = [split_path(text)[1] == problem.answer for text in texts]
        greedy_right = split_path(greedy[0])[1] == problem.answer
        for key in ("all", problem.topic):
            rows[key].append((float(greedy_right), sum(is_right) / paths, float(any(is_right))))
        for text, right in zip(texts, is_right, strict=True):
            path_steps, _ = split_path(text)
            judged = judge(problem.text, path_steps)
            total += 1
            unknown += judged.unknown
            hidden += right and judged.first_error is not None
            steps += len(path_steps) if judged.first_error is None else judged.first_error + 1
            if judged.first_error is not None:
                errors[judged.habit or "unexplained"] += 1
                unexplained[problem.topic] += judged.habit is None
    table = {
        key: {
            "problems": len(v),
            "greedy": _mean([r[0] for r in v]),
            "sampled": _mean([r[1] for r in v]),
            f"pass@{paths}": _mean([r[2] for r in v]),
        }
        for key, v in rows.items()
    }
    by_temperature = {"0.0": table["all"]["greedy"], "1.0": table["all"]["sampled"]}
    for temperature in TEMPERATURES[1:-1]:
        texts = sample(model, tokenizer, problems, 2, temperature)
        right = [split_path(t)[1] == p.answer for p, pair in zip(problems, texts, strict=True) for t in pair]
        by_temperature[str(temperature)] = _mean([float(r) for r in right])
    return {
        "accuracy": table,
        "by_temperature": dict(sorted(by_temperature.items())),
        "unknown_share_of_paths": round(unknown / total, 4),
        "right_answer_with_wrong_step_share_of_paths": round(hidden / total, 4),
        "unexplained_share_of_steps": round(errors["unexplained"] / max(steps, 1), 4),
        "unexplained_by_kind": dict(unexplained),
        "first_errors": dict(errors.most_common()),
    }


def measure(folder: Path, count: int = 400) -> dict[str, object]:
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

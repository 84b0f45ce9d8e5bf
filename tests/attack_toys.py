"""A run folder with sampled and labelled sums and a tiny PRM, for the tests of the attacks; nothing is sampled."""

from __future__ import annotations

import json
from pathlib import Path as FilePath

from prm_support import character_tokenizer, tiny_policy, tiny_prm

from common.records import FinishReason, LabelledPath, Path, Problem
from common.runs import Run, write_rows
from data_gen.steps import build_paths
from prm.model import Calibration, save_prm

TOKENIZER = character_tokenizer()


def sum_problem(k: int) -> Problem:
    """``Compute k+3+4.``, two steps long."""
    return Problem.create(f"Compute {k}+3+4.", str(k + 7), source="toy", topic="sum", level=2)


def sampled_path(problem: Problem, text: str, index: int = 0) -> Path:
    """A graded path with token ids, as a sampler would return it."""
    ids = [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
    return build_paths([problem], [(ids, FinishReason.STOP)], TOKENIZER, seed=0, indices=[index])[0]


def sampled_paths(problem: Problem) -> list[Path]:
    """A right path, and a wrong one whose first step is wrong."""
    k = int(problem.answer) - 7
    right = f"{k}+3={k + 3}\n{k + 3}+4={k + 7}\nAnswer: {k + 7}"
    wrong = f"{k}+3={k + 5}\n{k + 5}+4={k + 9}\nAnswer: {k + 9}"
    return [sampled_path(problem, right), sampled_path(problem, wrong, 1)]


def attack_run(folder: FilePath, problems: int = 8) -> tuple[Run, list[str]]:
    """Write stages 1 to 3 of a run; return it and the overrides that a command on it needs."""
    run = Run(folder / "run")
    base = tiny_policy(folder / "base")
    TOKENIZER.save_pretrained(base)
    asked = [sum_problem(k) for k in range(problems)]
    paths = [path for problem in asked for path in sampled_paths(problem)]
    labels = [(1, 1), (0, 0)] * problems
    rows = [
        LabelledPath(path, marks, None if marks[0] else 0, (0, 0), ("toy", "toy"), "toy")
        for path, marks in zip(paths, labels, strict=True)
    ]
    for stage in ("sample", "label", "prm"):
        run.stage(stage).path.mkdir(parents=True)
    write_rows(run.stage("sample").file("problems_train.jsonl"), [problem.to_row() for problem in asked])
    write_rows(run.stage("sample").file("paths.jsonl"), [path.to_row() for path in paths])
    write_rows(run.stage("label").file("paths.jsonl"), [row.to_row() for row in rows])
    save_prm(tiny_prm(folder / "prm_base"), run.stage("prm").file("prm"), Calibration())
    TOKENIZER.save_pretrained(run.stage("prm").file("prm"))
    summary = json.dumps({"first_error_f1": 0.9, "brier": 0.1, "threshold": 0.5})
    for stage in ("sample", "label", "prm"):
        run.stage(stage).file("DONE").write_text(summary)
    return run, [f"base.model={base}", "prm.epochs=1", "prm.head_epochs=0", "prm.holdout=0.3"]

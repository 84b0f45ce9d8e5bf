"""Rows of each format of PRM data, and readings of them, for the tests of ``data_gen.formats``."""

from __future__ import annotations

from common.records import FinishReason, LabelledPath, Step, Verdict
from common.records import Path as SampledPath
from data_gen.prm800k import read_prm800k
from data_gen.stepwise import (
    LabelledSteps,
)

TRL = {"prompt": "What is 2 + 3 * 4?", "completions": ["3 * 4 = 12", "2 + 12 = 15"], "labels": [True, False]}
SHEPHERD = {
    "input": "What is 2 + 3 * 4? Step 1: 3 * 4 = <<3*4=12>>12. ки\nStep 2: 2 + 12 = 15. The answer is: 15 ки",
    "label": "What is 2 + 3 * 4? Step 1: 3 * 4 = <<3*4=12>>12. +\nStep 2: 2 + 12 = 15. The answer is: 15 -",
    "task": "GSM8K",
}
BENCH = {
    "id": "math-7",
    "generator": "some-model",
    "problem": "What is 2 + 3 * 4?",
    "steps": ["3 * 4 = 12", "2 + 12 = 15", "The answer is 15."],
    "final_answer_correct": False,
    "label": 1,
}


def completion(text: str, rating: int | None, flagged: bool | None = None) -> dict:
    return {"text": text, "rating": rating, "flagged": flagged}


def step(*completions: dict, chosen: int | None = None, human: str | None = None) -> dict:
    written = None if human is None else {"text": human, "rating": None, "source": "human", "flagged": False}
    return {"completions": list(completions), "human_completion": written, "chosen_completion": chosen}


def record(*steps: dict, finish: str = "solution") -> dict:
    question = {"problem": "What is 2 + 3 * 4?", "ground_truth_answer": "14"}
    return {
        "labeler": "someone",
        "generation": None,
        "question": question,
        "label": {"steps": list(steps), "finish_reason": finish},
    }


def only(converted):
    """The one row of a conversion that noted and lost nothing."""
    assert (converted.notes, converted.lost) == ((), ())
    (row,) = converted.rows
    return row


def taken(row: dict, **options) -> LabelledSteps:
    return read_prm800k(row, **({"neutral": "right"} | options)).rows[0]


def labelled_path(labels: tuple[int, ...], verdict: Verdict) -> LabelledPath:
    text = "\n".join("abc"[: len(labels)])
    steps = tuple(Step(text[2 * k], 2 * k, 2 * k + 1) for k in range(len(labels)))
    path = SampledPath("p", "path-1", text, (), steps, "5", verdict, FinishReason.STOP)
    return LabelledPath(path, labels, None, (0,) * len(labels), ("value",) * len(labels), "frequency:forward")

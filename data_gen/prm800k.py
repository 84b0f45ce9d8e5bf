"""Raw labeler records of PRM800K (arXiv:2305.20050), phases 1 and 2, as the repository openai/prm800k publishes them.

At each step the labeler rated one or more completions -1 (wrong), 0 (neutral: not wrong, no progress) or 1, and one of
them, or a step of the labeler's own, was taken on. Only texts become steps: ratings never do (prm800k#7, #11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from common.records import IGNORED
from data_gen.stepwise import Converted, LabelledSteps, Row, field

Neutral = Literal["right", "wrong", "ignore"]
NEUTRAL: dict[str, float] = {"right": 1.0, "wrong": 0.0, "ignore": float(IGNORED)}
FINISH_REASONS = ("solution", "found_error", "give_up", "bad_problem")
KEPT = ("labeler", "timestamp", "generation", "is_quality_control_question", "is_initial_screening_question")


def read_prm800k(row: Mapping[str, Any], *, neutral: Neutral, alternatives: bool = True) -> Converted[LabelledSteps]:
    """Read one record: the path that was taken, then a row for each other rated completion, behind the steps before it.

    A step written by the labeler counts as right (they wrote it to go on; its rating is null). Where nothing was taken
    on, the first completion ends the path: in phase 2 it is the model's own. ``extra["path"]`` tells ``taken`` from
    ``alternative``. Rows of a record share their first steps with these steps' labels.

    Args:
        neutral: label of rating 0. ``right`` keeps the rating's meaning; TRL's script for this data took ``wrong``.
        alternatives: False leaves the other completions out (noted).

    Noted: records of a bad problem (no row), records given up (rows kept: what was rated stays rated), steps without
    completion, unrated completions (``IGNORED``), alternatives that are blank or have no label, flagged ratings.

    Raises:
        ValueError: a field is missing or of another kind, an unknown rating or finish reason, or an index outside the
            completions.
    """
    question = field(row, "question", dict, "an object with the problem")
    label = field(row, "label", dict, "an object with steps and finish_reason")
    reason = label.get("finish_reason")
    if reason not in FINISH_REASONS:
        raise ValueError(f"field 'finish_reason': {reason!r}, want one of {', '.join(FINISH_REASONS)}")
    problem = field(question, "problem", str, "text")
    if reason == "bad_problem":
        return Converted((), ("bad problem: record left out",))
    notes = ["labeler gave up: rated steps kept"] * (reason == "give_up")
    extra: Row = {name: row[name] for name in KEPT if name in row}
    extra |= {"finish_reason": reason, "answer": question.get("ground_truth_answer")}
    taken: list[tuple[str, float]] = []
    others: list[LabelledSteps] = []

    def build(path: list[tuple[str, float]], kind: str) -> LabelledSteps:
        texts, labels = zip(*path, strict=True)
        return LabelledSteps(problem, texts, labels, {**extra, "path": kind})

    steps = field(label, "steps", list, "a list of steps")
    for index, step in enumerate(steps):
        rated = _rated(index, step, neutral, notes)
        chosen, is_end = _taken(index, step, rated)
        if chosen is None:
            notes += ["step without completion: the path ends before it"] * (len(steps) - index)
            break
        rest = [pair for k, pair in enumerate(rated) if k != step.get("chosen_completion") and not (is_end and k == 0)]
        if not alternatives:
            notes += ["alternative completion left out"] * len(rest)
            rest = []
        for text, value in rest:
            if not text.strip() or value == IGNORED:
                notes.append("alternative that is blank or has no label left out")
            else:
                others.append(build([*taken, (text, value)], "alternative"))
        taken.append(chosen)
        if is_end:
            notes += ["step behind the end of the path left out"] * (len(steps) - index - 1)
            break
    return Converted((*([build(taken, "taken")] if taken else []), *others), tuple(notes))


def _rated(index: int, step: Any, neutral: Neutral, notes: list[str]) -> list[tuple[str, float]]:
    """Text and label of each completion of a step; an unrated one has label ``IGNORED``."""
    if not isinstance(step, dict):
        raise ValueError(f"field 'steps', step {index}: {step!r}, want an object")
    rated = []
    for k, completion in enumerate(step.get("completions") or []):
        where = f"step {index}, completion {k}"
        if not isinstance(completion, dict) or not isinstance(completion.get("text"), str):
            raise ValueError(f"field 'completions', {where}: {completion!r}, want an object with text and rating")
        rated.append((completion["text"], _label(where, completion.get("rating"), neutral)))
        notes += ["flagged completion: rating kept"] * (completion.get("flagged") is True)
        notes += ["unrated completion: label ignored"] * (completion.get("rating") is None)
    return rated


def _taken(index: int, step: Row, rated: list[tuple[str, float]]) -> tuple[tuple[str, float] | None, bool]:
    """The text and label the path goes on with (None: there is none), and True when the path ends with it."""
    chosen, human = step.get("chosen_completion"), step.get("human_completion")
    if chosen is not None:
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(rated):
            raise ValueError(
                f"field 'chosen_completion', step {index}: {chosen!r}, want null or the index of one of"
                f" {len(rated)} completions"
            )
        return rated[chosen], False
    if human is not None:
        if not isinstance(human, dict) or not isinstance(human.get("text"), str):
            raise ValueError(f"field 'human_completion', step {index}: {human!r}, want null or an object with text")
        return (human["text"], 1.0), False
    return (rated[0], True) if rated else (None, True)


def _label(where: str, rating: object, neutral: Neutral) -> float:
    if rating is None:
        return float(IGNORED)
    if isinstance(rating, bool) or rating not in (-1, 0, 1):
        raise ValueError(f"field 'rating', {where}: {rating!r}, want -1, 0, 1 or null")
    return NEUTRAL[neutral] if rating == 0 else float(rating == 1)

"""Solutions for a supervised start: reference solutions, a file of them, or the run's own right paths, as token ids.

Prompt and solution are encoded apart, as sampling sees them, and the end token closes every solution. What cannot teach
is left out and counted: rows too long, answers that the grader does not find right, problems of validation and test.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.errors import InputError
from common.records import FinishReason, Path, Problem, content_id
from common.runs import read_rows
from data_gen.measure import is_right
from data_gen.problems import ANSWER_FIELDS, TEXT_FIELDS
from data_gen.steps import build_paths
from data_gen.synthetic import completion, solve

SOLUTION_FIELDS = ("solution", "completion", "response", "generation")


@dataclasses.dataclass(frozen=True)
class Solution:
    """A problem's text with a solution.

    Attributes:
        problem: its text. answer: gold answer, None when the row has none: then the solution is taken unchecked.
        text: the solution, final answer included. token_ids: as sampled, end token included; () for a written one.
    """

    problem: str
    answer: str | None
    text: str
    token_ids: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class TrainingRow:
    """Token ids of a prompt and of the solution behind it; the end token is the last of the solution's."""

    prompt_ids: tuple[int, ...]
    solution_ids: tuple[int, ...]


def reference_solutions(problems: Sequence[Problem]) -> list[Solution]:
    """The built-in generator's own solutions of its problems, without wrong habits."""
    return [Solution(p.text, p.answer, completion(solve(p.text))) for p in problems]


def read_solutions(path: FilePath, count: int) -> list[Solution]:
    """Up to ``count`` solutions of a JSON Lines file, in an order drawn by their content; equal rows come once.

    Raises:
        InputError: no such file, or a row without problem or solution (file, row, field, what it has).
    """
    found = {}
    for number, row in enumerate(read_rows(path), 1):
        texts = []
        for fields in (TEXT_FIELDS, SOLUTION_FIELDS):
            value = next((row[name] for name in fields if name in row), None)
            if not isinstance(value, str) or not value.strip():
                raise InputError(
                    f"{path}, row {number}: {fields[0]!r} (or {', '.join(fields[1:])}) is {value!r}, want text; it has"
                    f" {sorted(row)}"
                )
            texts.append(value)
        answer = next((str(row[name]) for name in ANSWER_FIELDS if row.get(name) is not None), None)
        found[content_id(*texts)] = Solution(texts[0], answer, texts[1].strip())
    return [found[key] for key in sorted(found)][:count]


def right_solutions(paths: Sequence[Path], problems: Sequence[Problem], most: int) -> list[Solution]:
    """Right paths that ended by themselves and show at least one step: up to ``most`` of different text a problem.

    Which ones is drawn by the hash of the path's id.
    """
    known = {problem.id: problem for problem in problems}
    taken: Counter[str] = Counter()
    seen = set()
    chosen = []
    for path in sorted(paths, key=lambda p: (p.problem_id, content_id("solution", p.path_id))):
        if is_right(path) and path.steps and (path.problem_id, path.text) not in seen and taken[path.problem_id] < most:
            seen.add((path.problem_id, path.text))
            taken[path.problem_id] += 1
            problem = known[path.problem_id]
            chosen.append(Solution(problem.text, problem.answer, path.text, path.token_ids))
    return chosen


def training_rows(
    solutions: Sequence[Solution],
    tokenizer: Any,
    encode_prompt: Callable[[str], Sequence[int]],
    *,
    max_length: int,
    held_out: Iterable[str] = (),
    stop: Sequence[str] = (),
) -> tuple[list[TrainingRow], Counter[str]]:
    """Return the rows to train on, and how many solutions were left out by reason.

    Args:
        encode_prompt: problem text to prompt ids, the ones that sampling uses.
        max_length: most tokens of a row.
        held_out: texts of problems that must not be trained on.
        stop: strings that end a completion. With any, sampled ids may run on behind the text, so text is encoded.

    Raises:
        InputError: the tokenizer has no end token, or no row is left.
    """
    end = tokenizer.eos_token_id
    if end is None:
        raise InputError("base.model: its tokenizer has no end token, so a model could not learn to end a solution")
    avoided = {_plain(text) for text in held_out}
    left_out: Counter[str] = Counter()
    rows, golds = [], []
    for one in solutions:
        ids = (
            one.token_ids if one.token_ids and not stop else tokenizer(one.text, add_special_tokens=False)["input_ids"]
        )
        row = TrainingRow(tuple(encode_prompt(one.problem)), (*ids, *([] if ids and ids[-1] == end else [end])))
        if _plain(one.problem) in avoided:
            left_out["in validation or test"] += 1
        elif len(row.prompt_ids) + len(row.solution_ids) > max_length:
            left_out["longer than sft.max_length"] += 1
        else:
            rows.append(row)
            golds.append(Problem.create(one.problem, one.answer or "", source="solutions", topic="solutions"))
    checked = [k for k, gold in enumerate(golds) if gold.answer]
    paths = build_paths(
        [golds[k] for k in checked],
        [(rows[k].solution_ids, FinishReason.STOP) for k in checked],
        tokenizer,
        seed=0,
        indices=[0] * len(checked),
        stop=stop,
    )
    wrong = {k for k, path in zip(checked, paths, strict=True) if not is_right(path)}
    left_out["answer not found right by the grader"] = len(wrong)
    rows = [row for k, row in enumerate(rows) if k not in wrong]
    if not rows:
        raise InputError(f"sft: none of {len(solutions)} solutions can be trained on: {dict(left_out)}")
    return rows, +left_out


def _plain(text: str) -> str:
    """Text without what does not make it another problem: case and white space."""
    return " ".join(text.casefold().split())

"""From sampled ids to a `Path`: decoded text, extracted and graded answer, steps with character and token spans.

Nothing is ever encoded again: token spans are found by laying the text of each sampled token along the decoded
completion.
Axis letters: B paths, T tokens of one path, S steps of one path.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from common.records import FinishReason, Path, Problem, Step, Verdict, content_id
from data_gen.cutting import CONTROL_TOKENS, cut_spans, trimmed
from data_gen.token_spans import decode_text, piece_table, token_char_spans
from grading.equivalence import grade, grade_batch
from grading.extract import Extraction, extract

MAX_ANSWER_TOKENS = 64
"""An answer span longer than this (end token included) is not spared the KL term, so boxing early buys no free text."""


def cut_steps(text: str) -> list[Step]:
    """Cut a solution into steps by the rules of `data_gen.cutting.cut_spans`; token spans are -1."""
    return [Step(text[start:end], start, end) for start, end in cut_spans(text)]


def clean_step(text: str) -> str:
    """Return a step's text for display: line ends as newline, control tokens removed."""
    return CONTROL_TOKENS.sub("", text.replace("\r\n", "\n")).strip()


def text_end(text: str, stop: Sequence[str]) -> int:
    """Return where the text read by grader and labels ends: before the first stop string, else at the end."""
    found = [position for position in (text.find(string) for string in stop) if position >= 0]
    return min(found, default=len(text))


def locate_steps(steps: Sequence[Step], spans: Sequence[tuple[int, int]]) -> tuple[Step, ...]:
    """Give each step the span of the tokens that hold its text; `token_end - 1` is the last of them.

    A token that holds characters of two steps belongs to the first; only a step that lies wholly inside it shares
    it. A step none of whose text is in a token raises ValueError.
    """
    starts, ends = [span[0] for span in spans], [span[1] for span in spans]
    located, previous_end = [], 0
    for step in steps:
        first = bisect.bisect_right(ends, step.start)
        end = bisect.bisect_left(starts, step.end)
        while first < end and starts[first] == ends[first]:
            first += 1
        while end > first and starts[end - 1] == ends[end - 1]:
            end -= 1
        if end <= first:
            raise ValueError(f"step at characters {step.start}-{step.end} is held by no token")
        first = min(max(first, previous_end), end - 1)
        located.append(dataclasses.replace(step, token_start=first, token_end=end))
        previous_end = end
    return tuple(located)


def reasoning_steps(text: str, answer: Extraction) -> list[Step]:
    """Return the steps of a solution without its answer line.

    A piece that starts in the answer span is dropped, one that runs into an answer that stands on its own line ends
    before it.
    """
    steps = []
    for step in cut_steps(text):
        end = step.end
        if answer.answer is not None and answer.own_line and step.start < answer.start < step.end:
            end = trimmed(text, step.start, answer.start)[1]
        if end > step.start and (answer.answer is None or step.start < answer.start):
            steps.append(Step(text[step.start : end], step.start, end))
    return steps


def answer_token_start(token_ids: Sequence[int], tokenizer: Any, text: str | None = None) -> int:
    """Return the index of the first token of the answer span: tokens from there on are outside the KL term.

    The span runs from the last complete box or the start of the answer line to the end, end token included. No
    answer, or a span
    of more than `MAX_ANSWER_TOKENS` tokens: `len(token_ids)`, nothing is outside. A token that also holds text
    before the answer counts as reasoning.
    """
    text = decode_text(token_ids, tokenizer) if text is None else text
    return _answer_token_start(extract(text), text, token_char_spans(token_ids, tokenizer, text))


def _answer_token_start(answer: Extraction, text: str, spans: Sequence[tuple[int, int]]) -> int:
    if answer.answer is None:
        return len(spans)
    before = len(text[: answer.start].rstrip())  # a token that fuses white space with the answer is the answer's
    first = bisect.bisect_left([span[0] for span in spans], before)
    while first < len(spans) and (spans[first][1] <= answer.start and spans[first][1] > spans[first][0]):
        first += 1
    return first if len(spans) - first <= MAX_ANSWER_TOKENS else len(spans)


def separator_mask(token_ids: Sequence[int] | Tensor, tokenizer: Any) -> Tensor:
    """Return True for tokens that hold white space only, in the shape of `token_ids`; special tokens are False."""
    table = piece_table(tokenizer)
    ids = torch.as_tensor(token_ids)
    unique, inverse = ids.unique(return_inverse=True)
    flags = torch.tensor([table[int(i)].isspace() for i in unique], dtype=torch.bool, device=ids.device)
    return flags[inverse]


def path_from_text(problem: Problem, text: str, index: int) -> Path:
    """Build a path from a text that comes without token ids: graded and cut, token spans -1, taken as finished."""
    answer = extract(text)
    return Path(
        problem_id=problem.id,
        path_id=content_id(problem.id, "text", index),
        text=text,
        token_ids=(),
        steps=tuple(reasoning_steps(text, answer)),
        answer=answer.answer,
        verdict=grade(answer.answer, problem.answer).verdict,
        finish_reason=FinishReason.STOP,
    )


def build_path(
    problem: Problem,
    token_ids: Sequence[int],
    finish_reason: FinishReason,
    tokenizer: Any,
    *,
    seed: int,
    index: int,
    verdict: Verdict | None = None,
    stop: Sequence[str] = (),
) -> Path:
    """Build one path; see `build_paths`. `verdict` spares grading when it is known."""
    verdicts = None if verdict is None else [verdict]
    sampled = [(token_ids, finish_reason)]
    return build_paths([problem], sampled, tokenizer, seed=seed, indices=[index], verdicts=verdicts, stop=stop)[0]


def build_paths(
    problems: Sequence[Problem],
    sampled: Sequence[tuple[Sequence[int], FinishReason]],
    tokenizer: Any,
    *,
    seed: int,
    indices: Sequence[int],
    verdicts: Sequence[Verdict] | None = None,
    stop: Sequence[str] = (),
    grader: Callable[[Sequence[tuple[str | None, str]]], Sequence[Verdict]] | None = None,
) -> list[Path]:
    """Decode, extract, grade and cut a batch of completions.

    Args:
        problems, sampled, indices: for each of B paths its problem, (ids, finish reason) and index in the problem's
            group.
        seed: enters the path id, with problem and index.
        verdicts: known verdicts, B; by default the answers are graded here.
        stop: strings that end a completion; the text (not the ids) is cut before the first of them.
        grader: replaces `grading.equivalence.grade_batch`: (answer or None, gold) pairs to verdicts, one a pair.
    """
    texts = tokenizer.batch_decode(
        [list(ids) for ids, _ in sampled], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    shown = [text[: text_end(text, stop)] for text in texts]
    answers = [extract(text) for text in shown]
    if verdicts is None:
        pairs = [(answer.answer, problem.answer) for answer, problem in zip(answers, problems, strict=True)]
        verdicts = grader(pairs) if grader else [result.verdict for result in grade_batch(pairs)]
        if len(verdicts) != len(pairs):
            raise ValueError(f"the grader gave {len(verdicts)} verdicts for {len(pairs)} answers; wanted one each")
    paths = []
    for k, (problem, (ids, reason)) in enumerate(zip(problems, sampled, strict=True)):
        spans = token_char_spans(ids, tokenizer, texts[k])
        paths.append(
            Path(
                problem_id=problem.id,
                path_id=content_id(problem.id, seed, indices[k]),
                text=shown[k],
                token_ids=tuple(ids),
                steps=locate_steps(reasoning_steps(shown[k], answers[k]), spans),
                answer=answers[k].answer,
                verdict=verdicts[k],
                finish_reason=reason,
            )
        )
    return paths


if __name__ == "__main__":
    from data_gen.rows import cut_rows

    raise SystemExit(cut_rows())

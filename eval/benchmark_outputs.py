"""Outputs of a benchmark run on disk, appended as they are sampled: a killed run continues where it stopped.

FOLDER/settings.json (what outputs depend on)  outputs.jsonl (a row a problem)  verdicts.jsonl  result.json
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.errors import InputError
from common.records import FinishReason
from common.runs import write_atomic, write_rows
from data_gen.engines import Completion, Engine
from data_gen.steps import text_end
from eval.benchmark_rows import Question, Sample
from eval.benchmark_spec import Sampling

Draw = Callable[[Sequence[Question]], list[list[Sample]]]
"""Samples the outputs of some questions."""


class OutputFolder:
    """The folder of one model on one benchmark.

    Args:
        path: the folder; made when it does not exist.
        settings: everything the outputs depend on, as JSON values.

    Raises:
        InputError: the folder holds outputs of other settings (the key is named).
    """

    def __init__(self, path: FilePath, settings: Mapping[str, Any]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        place = path / "settings.json"
        wanted = json.loads(json.dumps(settings))
        if place.is_file():
            saved = json.loads(place.read_text(encoding="utf-8"))
            for key in sorted(saved.keys() | wanted.keys()):
                if saved.get(key) != wanted.get(key):
                    raise InputError(
                        f"{place}: outputs were made with {key} = {saved.get(key)!r}, now it is {wanted.get(key)!r};"
                        f" use another --output, or delete {path}"
                    )
        else:
            write_atomic(place, json.dumps(wanted, indent=1, ensure_ascii=False))

    @property
    def outputs(self) -> FilePath:
        return self.path / "outputs.jsonl"

    def read(self) -> dict[str, list[Sample]]:
        """The samples of every problem that is done. A row that a kill left half written is taken off the file."""
        if not self.outputs.is_file():
            return {}
        rows, is_whole = [], True
        lines = self.outputs.read_text(encoding="utf-8").split("\n")  # not splitlines: texts may hold U+2028
        for line in filter(None, lines):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                is_whole = False
        if not is_whole or not self.outputs.read_bytes().endswith(b"\n"):
            write_rows(self.outputs, rows)
        return {
            row["id"]: [Sample(one["text"], one["tokens"], one["is_cut"]) for one in row["samples"]] for row in rows
        }

    def append(self, questions: Sequence[Question], samples: Sequence[Sequence[Sample]]) -> None:
        """Add a row a question, and wait until it is on disk."""
        with self.outputs.open("a", encoding="utf-8") as handle:
            for question, group in zip(questions, samples, strict=True):
                problem = question.problem
                texts = [{"text": one.text, "tokens": one.tokens, "is_cut": one.is_cut} for one in group]
                row = {"id": problem.id, "problem": problem.text, "gold": problem.answer, "samples": texts}
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            handle.flush()
            os.fsync(handle.fileno())


def sample_all(
    folder: OutputFolder,
    questions: Sequence[Question],
    draw: Draw,
    chunk: int,
    announce: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, list[Sample]]:
    """Outputs of all questions: those on disk are read, the others sampled ``chunk`` at a time and kept.

    ``announce(done, of)`` is told after each chunk.
    """
    done = folder.read()
    missing = [question for question in questions if question.problem.id not in done]
    for members in chunks(missing, chunk):
        groups = draw(members)
        folder.append(members, groups)
        done.update({question.problem.id: group for question, group in zip(members, groups, strict=True)})
        announce(sum(question.problem.id in done for question in questions), len(questions))
    return {question.problem.id: done[question.problem.id] for question in questions}


def chunks(items: Sequence[Question], size: int) -> Iterator[Sequence[Question]]:
    """Consecutive pieces of ``size``, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def drawing(
    engine: Engine,
    tokenizer: Any,
    encode: Callable[[str], list[int]],
    sampling: Sampling,
    stop: Sequence[str],
    seed: int,
) -> Draw:
    """Sampling from an engine. A problem's outputs depend on its prompt and the seed, not on its neighbours."""

    def draw(members: Sequence[Question]) -> list[list[Sample]]:
        groups = engine.sample(
            [encode(question.problem.text) for question in members],
            n=sampling.samples,
            temperature=sampling.temperature,
            max_new_tokens=sampling.max_new_tokens,
            seed=seed,
            top_p=sampling.top_p,
            stop=stop,
        )
        return [[_sample(one, tokenizer, stop) for one in group] for group in groups]

    return draw


def _sample(completion: Completion, tokenizer: Any, stop: Sequence[str]) -> Sample:
    text = tokenizer.decode(list(completion.token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    is_cut = completion.finish_reason is FinishReason.LENGTH
    return Sample(text[: text_end(text, stop)], len(completion.token_ids), is_cut)

"""``python -m data_gen --show-prompt``: one example as the model gets and answers it, with its token and step spans.

Nothing is sampled and no weights are loaded. The answer shown is the reference solution of the built-in generator, the
``solution`` of the problem's row, or a stand-in in the form of ``base.separator`` and ``base.answer_format``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.config import BaseSection, Config
from common.models import load_tokenizer
from common.prompts import PromptTemplate
from common.records import FinishReason, Path, Problem
from common.runs import Run, read_rows
from data_gen.problems import TEXT_FIELDS, ProblemSource, load_problems
from data_gen.steps import answer_token_start, build_path, separator_mask
from data_gen.synthetic import completion, solve
from data_gen.token_spans import piece_table
from grading.extract import extract


def example_answer(problem: Problem, config: Config) -> tuple[str, str]:
    """A worked answer to the problem and where it comes from."""
    if config.data.source == "synthetic":
        return completion(solve(problem.text)), "reference solution of the generator"
    base = config.base
    for row in read_rows(FilePath(config.data.source)):
        texts = [row[name] for name in TEXT_FIELDS if name in row]
        if problem.text in texts and isinstance(row.get("solution"), str) and row["solution"].strip():
            text = row["solution"].strip()
            if extract(text).answer is None:
                text += base.separator + _answer_line(base, problem)
            return text, "field 'solution' of the row"
    steps = ["First, what is given: 2 + 3 = 5.", "Then what follows: 5 * 4 = 20."]
    return base.separator.join([*steps, _answer_line(base, problem)]), "stand-in: the row has no 'solution'"


def _answer_line(base: BaseSection, problem: Problem) -> str:
    return base.answer_format.replace("{answer}", extract(problem.answer).answer or problem.answer)


def token_roles(path: Path, tokenizer: Any) -> list[str]:
    """For each token of a path: ``step k``, ``step k, scored`` (its last token), ``separator``, ``answer``, ``end`` or
    ``text`` (in no step and no answer).
    """
    ids = list(path.token_ids)
    answer_start = answer_token_start(ids, tokenizer)
    is_separator = separator_mask(ids, tokenizer).tolist()
    special = set(tokenizer.all_special_ids)
    roles = ["text"] * len(ids)
    for k, token in enumerate(ids):
        if token in special:
            roles[k] = "end"
        elif k >= answer_start:
            roles[k] = "answer"
        elif is_separator[k]:
            roles[k] = "separator"
    for index, step in enumerate(path.steps):
        for k in range(step.token_start, step.token_end):
            roles[k] = f"step {index}"
        roles[step.token_end - 1] += ", scored"
    return roles


def rendered(problem: Problem, answer: str, origin: str, base: BaseSection, tokenizer: Any) -> Iterator[str]:
    """The lines that are printed: prompt, spans of the steps, then every token with its role."""
    template = PromptTemplate.from_config(base)
    prompt_ids = template.ids(problem.text, tokenizer)
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids = [*tokenizer(answer, add_special_tokens=False)["input_ids"], *end]
    path = build_path(problem, ids, FinishReason.STOP, tokenizer, seed=0, index=0, stop=base.stop)
    yield f"model {base.model}, template {base.template}, stop strings {list(base.stop)}, end token {end}"
    yield f"prompt, {len(prompt_ids)} tokens:"
    yield tokenizer.decode(prompt_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    yield f"answer, {len(ids)} tokens ({origin}):"
    yield path.text
    yield f"read: answer {path.answer!r}, gold {problem.answer!r}: {path.verdict.value}; {len(path.steps)} steps"
    yield f"{'step':>5} {'characters':>12} {'tokens':>9} {'scored at':>9}  text"
    for index, step in enumerate(path.steps):
        characters, tokens = f"{step.start}-{step.end}", f"{step.token_start}-{step.token_end}"
        yield f"{index:>5} {characters:>12} {tokens:>9} {step.token_end - 1:>9}  {step.text!r}"
    yield from token_lines(path, tokenizer)


def token_lines(path: Path, tokenizer: Any) -> Iterator[str]:
    """One line a token: position in the answer, id, text, role."""
    table = piece_table(tokenizer)
    special: Sequence[int] = tokenizer.all_special_ids
    yield f"{'token':>5} {'id':>7}  {'text':<16} role"
    for k, (token, role) in enumerate(zip(path.token_ids, token_roles(path, tokenizer), strict=True)):
        text = tokenizer.convert_ids_to_tokens(token) if token in special else repr(table[token])
        yield f"{k:>5} {token:>7}  {text:<16} {role}"


def show_prompt(config: Config, run: Run) -> None:
    """Print one rendered example of the training problems, with its token and step spans."""
    data = config.data
    source = ProblemSource(data.source, data.levels, data.kinds)
    problem = load_problems(source, "train", config.seed, 1)[0]
    tokenizer = load_tokenizer(run.start_model(config, before_sft=True))
    for line in rendered(problem, *example_answer(problem, config), config.base, tokenizer):
        print(line)

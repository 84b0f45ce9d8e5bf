"""Solutions for the study of quality (docs/quality.md), and their corruptions. Nothing here knows a measure.

Half of the steps are changed where several can be (as ROSCOE does, arXiv:2212.07919, section 4), one where one is
enough. A step is NECESSARY by something else than the measures' own reading: the exact oracle refuses the path without
it (built-in problems), or the calculator note of a later step uses its result (GSM8K). Rows without either: its new
value stands in a later step.
"""

from __future__ import annotations

import dataclasses
import random
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.errors import InputError
from common.runs import read_rows
from data_gen.claims import claims, mentioned
from data_gen.steps import cut_steps
from data_gen.synthetic import generate, judge, solve
from grading.extract import extract

_NOTE = re.compile(r"<<([^<>]*)>>")
_FIGURE = re.compile(r"(?<![\d./,\w])\d+(?![\d./,\w])")
_COMMUTED = re.compile(r"(?<![\d*/+.\-])(\d+)(\s*)([+*])(\s*)(\d+)(?=\s*=)")
FILLER = (
    "Let us stop for a moment and think about what we are doing before we go on.",
    "This is an important part of the work and we should be careful here.",
    "It is always a good idea to look at things from more than one side.",
    "Now that this has been done, we can continue with what comes after it.",
    "As one can easily see, everything is going as it should be going.",
    "We will keep this in mind for later, when it may become useful again.",
    "There is nothing that could stop us from doing it in exactly this way.",
    "Before anything else happens, it helps to be calm and to take some time.",
)
AGAIN = ("In other words, ", "That is, ", "To put it another way, ", "Again, ")


@dataclasses.dataclass(frozen=True)
class Text:
    """A solution. ``necessary``: indices of steps that cannot be left out. ``usual``: deriving steps of OTHER right
    solutions of the problem, None when there are none. ``kind``: what figures are also given by."""

    problem: str
    steps: tuple[str, ...]
    answer: str | None
    necessary: tuple[int, ...]
    usual: float | None
    kind: str


def built_in(split: str, seed: int, count: int, levels: Sequence[int], counted: Callable[..., int]) -> list[Text]:
    """Reference solutions of the built-in generator, and solutions with habits whose answer is right, in turn.

    Args:
        counted: (problem, steps) to deriving steps; the usual number is the median over 8 solutions with habits.
    """
    found = []
    for number, problem in enumerate(generate(split, seed, count, levels=levels)):
        rng = random.Random(f"{seed}|{problem.id}")
        reference = solve(problem.text)
        right = [s for s in (solve(problem.text, rng) for _ in range(9)) if s.answer == reference.answer]
        chosen = right.pop() if number % 2 and right else reference
        steps = chosen.steps
        needed = [k for k in range(len(steps)) if _is_refused(problem.text, steps[:k] + steps[k + 1 :])]
        usual = statistics.median(counted(problem.text, s.steps) for s in right) if right else problem.level
        found.append(Text(problem.text, steps, chosen.answer, tuple(needed), usual, problem.topic))
    return found


def _is_refused(problem: str, steps: Sequence[str]) -> bool:
    return judge(problem, steps).first_error is not None


def from_file(path: FilePath, count: int, seed: int) -> list[Text]:
    """Solutions of a JSON Lines file: ``problem`` and ``steps`` (kept where ``label`` is -1) or ``solution``.

    Raises:
        InputError: a row without problem or solution.
    """
    rows = list(read_rows(path))
    random.Random(seed).shuffle(rows)
    found: list[Text] = []
    for row in rows:
        if len(found) == count:
            break
        if "problem" not in row or not ("steps" in row or "solution" in row):
            raise InputError(f"{path}: want 'problem' and 'steps' or 'solution' in each row; one has {sorted(row)}")
        if row.get("label", -1) != -1:
            continue
        noted = _steps_of(row)
        steps = tuple(_NOTE.sub("", step) for step in noted)
        if len(steps) >= 3:
            answer = row.get("answer") or extract(steps[-1]).answer
            needed = _needed(row["problem"], noted)
            found.append(Text(row["problem"], steps, answer, needed, None, path.stem))
    return found


def _steps_of(row: Mapping[str, Any]) -> list[str]:
    if "steps" in row:
        return [step for step in row["steps"] if step.strip()]
    text = row["solution"].split("[asy]")[0]
    lines = [line for line in text.split("\n") if line.strip()]
    return lines if _NOTE.search(text) else [step.text for step in cut_steps(text)]


def _needed(problem: str, steps: Sequence[str]) -> tuple[int, ...]:
    notes = [_NOTE.findall(step) for step in steps]
    if any(notes):
        results = [{note.split("=")[-1] for note in found} for found in notes]
        operands = [set(re.findall(r"\d+\.?\d*", "|".join(n.split("=")[0] for n in found))) for found in notes]
        return tuple(k for k in range(len(steps) - 1) if results[k] & set().union(*operands[k + 1 :]))
    new = claims(problem, steps)
    return tuple(
        k
        for k in range(len(steps) - 1)
        if new[k].kind == "value" and any(new[k].value in mentioned(later) for later in steps[k + 1 :])
    )


def with_usual(texts: Sequence[Text], pools: Sequence[FilePath], counted: Callable[..., int]) -> list[Text]:
    """Return the texts with the median deriving steps of the right samples of their problems.

    Args:
        pools: JSON Lines files of ``problem`` and ``samples`` (each ``response`` and ``correct``).
    """
    counts: dict[str, list[int]] = {text.problem: [] for text in texts}
    for path in pools:
        for row in (row for row in read_rows(path) if row["problem"] in counts):
            for sample in row["samples"]:
                if sample["correct"]:
                    lines = [_NOTE.sub("", step.text) for step in cut_steps(sample["response"])]
                    counts[row["problem"]].append(counted(row["problem"], lines))
    usual = {problem: statistics.median(found) for problem, found in counts.items() if found}
    return [dataclasses.replace(text, usual=usual.get(text.problem)) for text in texts]


Corruption = Callable[[Text, random.Random], "tuple[str, ...] | None"]


def shuffled(text: Text, rng: random.Random) -> tuple[str, ...] | None:
    """All steps in another order."""
    order = list(range(len(text.steps)))
    for _ in range(20):
        rng.shuffle(order)
        steps = tuple(text.steps[k] for k in order)
        if steps != text.steps:
            return steps
    return None


def swapped(text: Text, rng: random.Random) -> tuple[str, ...] | None:
    """One pair of neighbours in the other order, of which the first is necessary (its result may be used next)."""
    places = [k for k in text.necessary if k + 1 < len(text.steps)]
    if not places:
        return None
    k = rng.choice(places)
    return (*text.steps[:k], text.steps[k + 1], text.steps[k], *text.steps[k + 2 :])


def deleted(text: Text, rng: random.Random) -> tuple[str, ...] | None:
    """One necessary step left out."""
    if not text.necessary or len(text.steps) < 2:
        return None
    k = rng.choice(text.necessary)
    return text.steps[:k] + text.steps[k + 1 :]


def duplicated(text: Text, rng: random.Random) -> tuple[str, ...]:
    """One step again, at a later place."""
    return _again(text, rng, lambda step: step)


def paraphrased(text: Text, rng: random.Random) -> tuple[str, ...]:
    """One step again, at a later place, with 12 as 12.0, sums and products turned round, and new first words."""

    def change(step: str) -> str:
        turned = _COMMUTED.sub(r"\5\2\3\4\1", step)
        if turned == step or rng.random() < 0.5:
            turned = _FIGURE.sub(lambda match: match.group() + ".0", turned)
        has_words = re.search(r"[A-Za-z]{3,}", step) is not None
        return rng.choice(AGAIN) + turned[0].lower() + turned[1:] if has_words else turned

    return _again(text, rng, change)


def _again(text: Text, rng: random.Random, change: Callable[[str], str]) -> tuple[str, ...]:
    k = rng.randrange(len(text.steps))
    at = rng.randint(k + 1, len(text.steps))
    return (*text.steps[:at], change(text.steps[k]), *text.steps[at:])


def filled(text: Text, rng: random.Random) -> tuple[str, ...]:
    """An empty sentence behind half of the steps."""
    places = _half(text, rng)
    return tuple(f"{step} {rng.choice(FILLER)}" if k in places else step for k, step in enumerate(text.steps))


def filler_steps(text: Text, rng: random.Random) -> tuple[str, ...]:
    """An empty step behind half of the steps."""
    places = _half(text, rng)
    pairs: Iterator[tuple[int, str]] = enumerate(text.steps)
    return tuple(one for k, step in pairs for one in ([step, rng.choice(FILLER)] if k in places else [step]))


def merged(text: Text, _: random.Random) -> tuple[str, ...]:
    """All steps in one."""
    return (". ".join(step.rstrip(". ") for step in text.steps),)


def sketched(text: Text, rng: random.Random) -> tuple[str, ...]:
    """Half of the steps left out, the last one kept."""
    gone = set(rng.sample(range(len(text.steps) - 1), len(text.steps) // 2))
    return tuple(step for k, step in enumerate(text.steps) if k not in gone)


def overdone(text: Text, rng: random.Random) -> tuple[str, ...]:
    """A true calculation about nothing behind each step."""
    found: list[str] = []
    for step in text.steps:
        a, b = rng.randint(2, 60), rng.randint(2, 60)
        found += [step, f"{a}+{b}={a + b}"]
    return tuple(found)


def _half(text: Text, rng: random.Random) -> set[int]:
    return set(rng.sample(range(len(text.steps)), max(1, len(text.steps) // 2)))


CORRUPTIONS: dict[str, Corruption] = {
    "shuffled": shuffled, "swapped": swapped, "deleted": deleted, "duplicated": duplicated, "paraphrased": paraphrased,
    "filled": filled, "filler steps": filler_steps, "merged": merged, "sketched": sketched, "overdone": overdone,
}  # fmt: skip
MEANT = {
    "completeness": ("deleted",),
    "redundancy": ("duplicated", "paraphrased"),
    "coherence": ("shuffled", "swapped"),
    "clarity": ("filled", "filler steps", "merged"),
    "detail": ("sketched", "overdone"),
}
"""Measure -> the corruptions it is meant to catch."""

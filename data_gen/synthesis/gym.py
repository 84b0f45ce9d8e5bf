"""Problems of reasoning-gym (arXiv:2505.24760), an optional source: ``pip install reasoning-gym``.

Only tasks in ``TASKS``: one exact number as answer, a text that says all there is to know. A row is taken when
reasoning-gym's own score calls its answer right, our grader reads it and tells it from a changed one, and, where
``TASKS`` has a statement for the task, SymPy derives the answer from the entry's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from common.errors import InputError
from common.records import Verdict
from data_gen.synthesis.check import Derived, Refused, derive_answer
from data_gen.synthesis.gate import Gate
from data_gen.synthesis.journal import Journal, entry, rejection
from data_gen.synthesis.made import MOST_UNITS, passed
from grading.equivalence import grade

Metadata = Mapping[str, Any]


def _expression(metadata: Metadata) -> dict[str, Any]:
    return {"kind": "value", "of": str(metadata["expression"])}


def _picked(name: str) -> Callable[[Metadata], dict[str, Any]]:
    return lambda metadata: {"kind": "value", "of": f"{name}({', '.join(map(str, metadata['numbers']))})"}


def _equation(metadata: Metadata) -> dict[str, Any]:
    return {"kind": "solve", "equations": [re.sub(rf"\b{metadata['variable']}\b", "x", metadata["equation"])]}


def _last_angle(metadata: Metadata) -> dict[str, Any]:
    known = " - ".join(str(angle) for angle in metadata["known_angles"])
    return {"kind": "value", "of": f"({metadata['n_sides']} - 2)*180 - {known}"}


TASKS: dict[str, Callable[[Metadata], dict[str, Any]] | None] = {
    "basic_arithmetic": _expression,
    "chain_sum": _expression,
    "decimal_chain_sum": _expression,
    "products": _expression,
    "gcd": _picked("gcd"),
    "lcm": _picked("lcm"),
    "simple_equations": _equation,
    "simple_geometry": _last_angle,
    "count_primes": None,
    "count_bits": None,
    "gsm_symbolic": None,
}
"""Task -> statement of an entry's metadata, None where the language has none."""


def gather_problems(journal: Journal, gate: Gate, *, count: int, seed: int, tasks: Sequence[str]) -> None:
    """Add entries of the tasks in turn until ``count`` have passed the gate.

    Raises:
        InputError: reasoning-gym is not installed, or a task is not in ``TASKS``.
    """
    names = list(tasks or TASKS)
    if unknown := [name for name in names if name not in TASKS]:
        raise InputError(f"--tasks: {unknown[0]!r}, want some of {', '.join(TASKS)}")
    try:
        import reasoning_gym
    except ImportError:
        raise InputError("reasoning-gym is not installed; want pip install -e '.[synthesis]'") from None
    most = MOST_UNITS * count
    data = {name: reasoning_gym.create_dataset(name, size=most, seed=seed) for name in names}
    gate.remember(journal.accepted())
    found = sum(1 for _ in journal.accepted())
    with tqdm(total=count, initial=found, desc="reasoning-gym", unit="problem", dynamic_ncols=True) as bar:
        for unit in range(max(journal.units, default=-1) + 1, most):
            if found >= count:
                return
            name = names[unit % len(names)]
            item = data[name][unit // len(names)]
            try:
                new = entry(unit, [taken_row(name, item, data[name].score_answer)], [])
            except Refused as error:
                new = entry(unit, [], [rejection(error.reason, error.detail, item["question"])])
            new = passed(new, gate)
            journal.add(new)
            found += len(new["accepted"])
            bar.update(len(new["accepted"]))


def taken_row(name: str, item: Mapping[str, Any], score: Callable[..., float]) -> dict[str, Any]:
    """The row of an entry.

    Raises Refused: ``own_score``, ``grader``, ``wrong_answer``, or what ``derive_answer`` says.
    """
    answer = str(item["answer"])
    if score(answer, item) < 1:
        raise Refused("own_score", f"{answer} scores {score(answer, item)}")
    changed = f"({answer}) + 1"
    if grade(answer, answer).verdict is not Verdict.CORRECT or grade(changed, answer).verdict is not Verdict.WRONG:
        raise Refused("grader", answer)
    statement = TASKS[name]
    ways: tuple[str, ...] = ("reasoning-gym",)
    formal = None if statement is None else statement(item["metadata"])
    if formal is not None:
        derived: Derived = derive_answer(formal, None, twice=False)
        if grade(answer, derived.answer).verdict is not Verdict.CORRECT:
            raise Refused("wrong_answer", f"{answer} against {derived.answer}")
        ways = (*ways, *derived.ways)
    return {
        "problem": item["question"].strip(),
        "answer": answer,
        "topic": name,
        "level": None,
        "difficulty": None,
        "source": "reasoning-gym",
        "formal": formal,
        "derived_by": list(ways),
    }

"""Problems of the templates: a stream of units, each drawn from (seed, unit) alone, derived in several processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import random
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tqdm import tqdm

from common.errors import InputError
from common.processes import end_with_parent
from common.records import content_id
from data_gen.synthesis.check import Refused, derive_answer, problem_row
from data_gen.synthesis.draft import DIFFICULTIES, TEMPLATES, draw, load_templates
from data_gen.synthesis.gate import Gate
from data_gen.synthesis.journal import Entry, Journal, entry, rejection

CHUNK = 64
"""Units a process takes at once."""
MOST_UNITS = 12
"""Units tried for each problem wanted before a run is given up: small cells run out of new problems."""

Cell = tuple[str, str]
"""Topic and difficulty."""


def cells(topics: Sequence[str] = (), difficulties: Sequence[str] = ()) -> list[Cell]:
    """The cells that the dials leave, in order. Raises InputError for unknown ones."""
    load_templates()
    known = sorted({topic for topic, _ in TEMPLATES})
    for name, given, choices in (("topic", topics, known), ("difficulty", difficulties, DIFFICULTIES)):
        if wrong := [value for value in given if value not in choices]:
            raise InputError(f"{name} {wrong[0]!r}, want one of {', '.join(choices)}")
    found = [
        c for c in sorted(TEMPLATES) if (not topics or c[0] in topics) and (not difficulties or c[1] in difficulties)
    ]
    if not found:
        raise InputError(f"no template for topics {list(topics)} and difficulties {list(difficulties)}")
    return found


def candidate(seed: int, unit: int, wanted: Sequence[Cell]) -> Entry:
    """Draw and derive the problem of a unit; it depends on nothing else."""
    topic, difficulty = wanted[unit % len(wanted)]
    draft = draw(topic, difficulty, random.Random(content_id("template", seed, unit)))
    try:
        derived = derive_answer(draft.formal, draft.also, twice=difficulty == "hard", form=draft.form)
    except Refused as error:
        return entry(unit, [], [rejection(error.reason, error.detail, draft.text)])
    row = problem_row(
        draft.text, derived, draft.formal, topic=topic, difficulty=difficulty, steps=draft.steps, source="template"
    )
    return entry(unit, [row], [])


def candidates(seed: int, units: Sequence[int], wanted: Sequence[Cell]) -> tuple[list[Entry], float]:
    """The candidates of some units, and the CPU seconds they took."""
    started = time.process_time()
    return [candidate(seed, unit, wanted) for unit in units], time.process_time() - started


def stream(
    seed: int, units: Iterator[int], wanted: Sequence[Cell], workers: int
) -> Generator[tuple[list[Entry], float], None, None]:
    """``candidates`` of the units in their order, chunk by chunk; ``workers`` processes, 0: this one."""
    chunks = iter(lambda: list(itertools.islice(units, CHUNK)), [])
    if workers == 0:
        for chunk in chunks:
            yield candidates(seed, chunk, wanted)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent) as pool:
        waiting: list[Any] = []
        try:
            for chunk in chunks:
                waiting.append(pool.submit(candidates, seed, chunk, wanted))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def make_problems(
    journal: Journal, gate: Gate, *, count: int, seed: int, wanted: Sequence[Cell], workers: int
) -> float:
    """Add units to the journal until ``count`` problems have passed the gate, or none are left to find.

    Returns: CPU seconds of all processes.
    """
    gate.remember(journal.accepted())
    found = sum(1 for _ in journal.accepted())
    first, last = max(journal.units, default=-1) + 1, MOST_UNITS * count
    started, elsewhere = time.process_time(), 0.0
    bar = tqdm(total=count, initial=found, desc="made problems", unit="problem", dynamic_ncols=True, mininterval=1.0)
    with bar, contextlib.closing(stream(seed, iter(range(first, last)), wanted, workers)) as chunks:
        while found < count and (chunk := next(chunks, None)) is not None:
            elsewhere += chunk[1] if workers else 0.0
            for new in chunk[0]:
                if found < count:
                    journal.add(passed(new, gate))
                    found += len(journal.entries[-1]["accepted"])
            bar.update(found - bar.n)
    return time.process_time() - started + elsewhere


def passed(new: Entry, gate: Gate) -> Entry:
    """The entry with what the gate refuses among the rejected."""
    accepted, rejected = [], list(new["rejected"])
    for row in new["accepted"]:
        try:
            gate.admit(row)
        except Refused as error:
            rejected.append(rejection(error.reason, error.detail, row["problem"]))
        else:
            accepted.append(row)
    return entry(new["unit"], accepted, rejected)

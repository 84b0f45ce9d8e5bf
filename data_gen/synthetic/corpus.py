"""Problems of a split, and worked solutions as training text."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping

from common.records import Problem
from data_gen.synthetic.oracle import KINDS, Solution, recognise, solve

SPLITS = ("train", "validation", "test")
SOURCE = "synthetic"
LEVELS = range(2, 17)
ANSWER_PREFIX = "Answer: "
_TRIES = 20_000


def split_of(kind: str, text: str) -> str:
    """Return the split a problem belongs to: a hash of the problem after renaming, so that splits are disjoint by
    construction. One tenth is validation, one tenth test."""
    digest = hashlib.sha256(f"{kind}|{KINDS[kind].canonical(text)}".encode()).digest()
    return {0: "validation", 1: "test"}.get(digest[0] % 10, "train")


def draw(split: str, rng: random.Random, kind: str, level: int, seen: set[str]) -> Problem:
    """Return a new problem of ``kind`` whose reference solution has ``level`` steps; ``seen`` holds the canonical
    texts drawn so far and is added to.

    Raises:
        ValueError: no new problem was found (the kind has too few at this level).
    """
    module = KINDS[kind]
    for _ in range(_TRIES):
        text = module.propose(rng, level)
        if text is None or split_of(kind, text) != split:
            continue
        key = f"{kind}|{module.canonical(text)}"
        found = recognise(text)
        if key in seen or found is None or found[0] is not module:
            continue
        solution = solve(text)
        is_modest = getattr(module, "is_modest", None)
        if len(solution.steps) != level or (is_modest and not is_modest(list(solution.steps))):
            continue
        seen.add(key)
        return Problem.create(text, solution.answer, source=SOURCE, topic=kind, level=level)
    raise ValueError(f"no new {kind} problem of level {level} in split {split} after {_TRIES} tries")


def generate(
    split: str, seed: int, count: int, levels: Iterable[int] = LEVELS, kinds: Iterable[str] | None = None
) -> list[Problem]:
    """Return ``count`` problems, kinds balanced and each kind's levels balanced, no two equal after renaming.

    A level of which a kind has no more problems is dropped for that kind; its other levels fill up.

    Args:
        split: ``train``, ``validation`` or ``test``.
        seed: equal arguments give equal problems.
        count: how many.
        levels: numbers of steps of the reference solution; a kind takes part with those of them that it has.
        kinds: names from ``KINDS``; None takes all that have one of ``levels``.

    Raises:
        ValueError: unknown split or kind, no kind has one of the levels, or a kind has too few problems there.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; wanted one of {', '.join(SPLITS)}")
    chosen = list(KINDS) if kinds is None else list(kinds)
    unknown = [kind for kind in chosen if kind not in KINDS]
    if unknown:
        raise ValueError(f"kind is {unknown[0]!r}; wanted one of {', '.join(KINDS)}")
    wanted = sorted(set(levels))
    own = {kind: [level for level in wanted if level in KINDS[kind].LEVELS] for kind in chosen}
    chosen = [kind for kind in chosen if own[kind]]
    if not chosen:
        raise ValueError(f"no kind has a level among {wanted}")
    rng = random.Random(f"{split}|{seed}")
    seen: set[str] = set()
    problems = []
    for index in range(count):
        kind = chosen[index % len(chosen)]
        while True:
            level = own[kind][index // len(chosen) % len(own[kind])]
            try:
                problems.append(draw(split, rng, kind, level, seen))
                break
            except ValueError:
                if own[kind] == [level]:
                    raise
                own[kind].remove(level)
    return problems


def completion(solution: Solution) -> str:
    """Return a solution as the model writes it: a step a line, then the answer line."""
    return "\n".join([*solution.steps, f"{ANSWER_PREFIX}{solution.answer}"])


def stream(
    seed: int,
    level_weights: Mapping[int, float],
    kind_weights: Mapping[str, float] | None = None,
    habits: Mapping[str, float] | None = None,
) -> Iterator[tuple[str, Solution]]:
    """Yield (problem text, solution with habits) of the train split without end; problems may come again.

    ``kind_weights``: relative frequency of each kind (None: equal). ``level_weights``: of each level among those that
    the kind drawn has. ``habits``: as in ``solve``.
    """
    rng = random.Random(f"corpus|{seed}")
    kinds = dict.fromkeys(KINDS, 1.0) if kind_weights is None else kind_weights
    levels = {name: [n for n in level_weights if n in module.LEVELS] for name, module in KINDS.items()}
    while True:
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        level = rng.choices(levels[kind], [level_weights[n] for n in levels[kind]])[0]
        problem = draw("train", rng, kind, level, set())
        yield problem.text, solve(problem.text, rng, habits)

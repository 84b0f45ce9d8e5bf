"""The label study on real text: keys and rules to compare, and their figures (`bench.labels`)."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path as FilePath
from typing import Any

from common.records import Problem, Verdict
from common.runs import read_rows
from data_gen.claims import arrived_at, given_values
from data_gen.steps import path_from_text
from data_gen.support import CLAIMLESS, EquationSupport, Support, SupportPool, ValueSupport

Steps = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PoolOfText:
    """One problem's sampled solutions as steps: those with the right answer, those with a wrong one."""

    problem: str
    correct: tuple[Steps, ...]
    wrong: tuple[Steps, ...]


class SetSupport:
    """Support by one key a step: its normalised words, or the last number in it."""

    def __init__(self, key: Callable[[str], object], correct: Sequence[Sequence[str]]) -> None:
        self.key = key
        self.paths_with = Counter(one for steps in correct for one in {key(step) for step in steps})

    def supports(self, steps: Sequence[str], *, is_own: bool) -> list[Support]:
        keys = [self.key(step) for step in steps]
        return [Support(self.paths_with[k] - int(is_own), 0, "none" if k is None else "key") for k in keys]


class AlwaysClaims(ValueSupport):
    """`ValueSupport` without the rule that restating claims nothing: every value needs support."""

    def supports(self, steps: Sequence[str], *, is_own: bool) -> list[Support]:
        given = given_values(self.problem)
        found = []
        for value in map(arrived_at, steps):
            count = 0 if value is None else self.paths_with[value] - int(is_own) + (value in given)
            found.append(Support(count, 0, "none" if value is None else "value"))
        return found


class DerivedSupport(ValueSupport):
    """`ValueSupport` that also lets pass what one operation makes of two supported or given values."""

    def supports(self, steps: Sequence[str], *, is_own: bool) -> list[Support]:
        found = super().supports(steps, is_own=is_own)
        least = 1 + int(is_own)
        known = given_values(self.problem) | {value for value, n in self.paths_with.items() if n >= least}
        return [
            Support(1, 0, "derived")
            if one.count <= 0 and one.key == "value" and arrived_at(step) in _one_operation(frozenset(known))
            else one
            for one, step in zip(found, steps, strict=True)
        ]


@functools.lru_cache(maxsize=256)
def _one_operation(values: frozenset[Fraction]) -> frozenset[Fraction]:
    made = set()
    for a, b in product(values, values):
        made |= {a + b, abs(a - b), a * b} | ({a / b} if b else set())
    return frozenset(made)


@dataclasses.dataclass(frozen=True)
class Key:
    """A way to find the first error: what supports a step, and which unsupported step is the error."""

    pool: Callable[[str, Sequence[Sequence[str]]], SupportPool]
    rule: Callable[[Sequence[bool]], int | None]
    min_support: int = 0
    min_correct: int = 1

    def flags(self, pool: SupportPool, steps: Sequence[str], *, is_own: bool) -> list[bool | None]:
        """For each step: unsupported, or None when it claims nothing."""
        supports = pool.supports(steps, is_own=is_own)
        return [None if one.key in CLAIMLESS else one.count <= self.min_support for one in supports]

    def first_error(self, flags: Sequence[bool | None]) -> int | None:
        """The step the rule names, counted among all steps."""
        claiming = [k for k, flag in enumerate(flags) if flag is not None]
        found = self.rule([bool(flags[k]) for k in claiming])
        return None if found is None else claiming[found]


def first(flags: Sequence[bool]) -> int | None:
    return next((k for k, flag in enumerate(flags) if flag), None)


def run_to_end(flags: Sequence[bool]) -> int | None:
    """The earliest of the unsupported run that reaches the end, None when the last one is supported."""
    k = len(flags)
    while k > 0 and flags[k - 1]:
        k -= 1
    return k if k < len(flags) else None


def two_in_a_row(flags: Sequence[bool]) -> int | None:
    """The first unsupported one whose successor is unsupported too, or that has none: two independent signals."""
    return next((k for k, flag in enumerate(flags) if flag and all(flags[k + 1 : k + 2])), None)


def _words(step: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9.+*/=-]", " ", step.lower()).split())


def _last_number(step: str) -> str | None:
    found = re.findall(r"\d+(?:\.\d+)?", step.replace(",", ""))
    return found[-1] if found else None


def _values(problem: str, correct: Sequence[Sequence[str]]) -> SupportPool:
    return ValueSupport(problem, correct)


KEYS = {
    "text": Key(lambda _, correct: SetSupport(_words, correct), first),
    "last number": Key(lambda _, correct: SetSupport(_last_number, correct), first),
    "equations": Key(lambda _, correct: EquationSupport(correct), first),
    "values, restating claims": Key(AlwaysClaims, first),
    "values": Key(_values, first),
    "values, backward": Key(_values, run_to_end),
    "values, two in a row": Key(_values, two_in_a_row),
    "values, min_support 1": Key(_values, first, min_support=1, min_correct=2),
    "values, 3 correct paths": Key(_values, first, min_correct=3),
    "values or one operation": Key(DerivedSupport, first),
}


@functools.lru_cache(maxsize=8)
def read_pools(files: tuple[FilePath, ...]) -> tuple[PoolOfText, ...]:
    """Grade and cut the samples of pool files; problems with the same text become one pool."""
    pools: dict[str, PoolOfText] = {}
    for row in (row for file in files for row in read_rows(file)):
        problem = Problem.create(row["problem"], str(row["answer"]), source="pool", topic="file")
        texts = [sample if isinstance(sample, str) else sample["response"] for sample in row["samples"]]
        paths = [path_from_text(problem, text, index) for index, text in enumerate(texts)]
        steps = {
            verdict: tuple(tuple(step.text for step in path.steps) for path in paths if path.verdict is verdict)
            for verdict in (Verdict.CORRECT, Verdict.WRONG)
        }
        before = pools.get(_same(problem.text), PoolOfText(problem.text, (), ()))
        pools[_same(problem.text)] = PoolOfText(
            problem.text, before.correct + steps[Verdict.CORRECT], before.wrong + steps[Verdict.WRONG]
        )
    return tuple(pools.values())


def _same(problem: str) -> str:
    return " ".join(problem.lower().replace("’", "'").split())


def shares_by_position(positions: Iterable[int], last: int = 4) -> list[float]:
    """Share of first errors at step 0, 1, … and from ``last`` on."""
    counts = Counter(min(position, last) for position in positions)
    return [round(counts[k] / max(counts.total(), 1), 3) for k in range(last + 1)]


def claims_before(flags: Sequence[bool | None], k: int) -> int:
    """Number of steps before step k that claim something: where k lies when setup and restatements are not counted."""
    return sum(flag is not None for flag in flags[:k])


def pool_figures(key: Key, pools: Sequence[PoolOfText]) -> dict[str, Any]:
    """Leave-one-out unsupported share of the steps of correct paths, and where first errors of wrong paths lie."""
    flags: list[bool] = []
    errors: list[int] = []
    behind: list[int] = []
    wrong = 0
    for one in pools:
        if not one.correct:
            continue
        support = key.pool(one.problem, one.correct)
        if len(one.correct) > key.min_correct:
            flags += [f is True for steps in one.correct for f in key.flags(support, steps, is_own=True)]
        if len(one.correct) >= key.min_correct:
            wrong += len(one.wrong)
            for steps in one.wrong:
                own = key.flags(support, steps, is_own=False)
                error = key.first_error(own)
                if error is not None:
                    errors.append(error)
                    behind.append(claims_before(own, error))
    return {
        "unsupported_in_correct": round(sum(flags) / max(len(flags), 1), 4),
        "steps": len(flags),
        "wrong_paths": wrong,
        "with_error": len(errors),
        "positions": shares_by_position(errors),
        "claim_positions": shares_by_position(behind),
    }


def human_figures(key: Key, rows: Sequence[Mapping[str, Any]], pools: Sequence[PoolOfText]) -> dict[str, Any]:
    """Our first errors against human ones, on rows whose problem has correct paths in the pools.

    Shares: ``exact`` (of rows with a wrong answer and a human error: same step), ``early``, ``late``, ``missed`` (no
    error found), ``unsupported_right`` (of steps before the human error, or of rows without one: unsupported).
    """
    by_problem = {_same(one.problem): one for one in pools if len(one.correct) >= key.min_correct}
    right: list[bool] = []
    human: list[int] = []
    ours: list[int | None] = []
    behind_human: list[int] = []
    for row in rows:
        one = by_problem.get(_same(row["problem"]))
        if one is None:
            continue
        flags = key.flags(key.pool(one.problem, one.correct), row["steps"], is_own=False)
        label = row["label"]
        right += [flag is True for flag in (flags[:label] if label >= 0 else flags)]
        if label >= 0 and not row["final_answer_correct"]:
            human.append(label)
            behind_human.append(claims_before(flags, label))
            ours.append(key.first_error(flags))
    pairs = [(a, b) for a, b in zip(ours, human, strict=True) if a is not None]
    count = max(len(human), 1)
    return {
        "rows": len(human),
        "exact": round(sum(a == b for a, b in pairs) / count, 4),
        "early": round(sum(a < b for a, b in pairs) / count, 4),
        "late": round(sum(a > b for a, b in pairs) / count, 4),
        "missed": round(1 - len(pairs) / count, 4),
        "positions": shares_by_position(a for a, _ in pairs),
        "human_positions": shares_by_position(human),
        "human_claim_positions": shares_by_position(behind_human),
        "unsupported_right": round(sum(right) / max(len(right), 1), 4),
        "right_steps": len(right),
    }

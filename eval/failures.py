"""Failures grouped by problem kind and wrong habit, base against policy, with paths to read.

A path is put in the first class that fits: ``cut`` (length limit), ``no answer``, ``hidden error`` (right answer, wrong
step), ``wrong step`` (with the habit the oracle recognises), ``wrong conclusion`` (every step right, answer wrong),
``unclear`` (the oracle cannot tell) or, without an oracle, ``wrong answer``. Clean right paths and paths without a
verdict on the model are no failures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from common.metrics import first_below
from common.records import Path, Problem, Verdict
from eval.collect import ModelPools
from eval.pools import Judgement, Pool, is_right, path_score
from eval.schema import SCHEMA_VERSION, Count, Share, Strict


class CaseStep(Strict):
    """One step as shown: text, PRM score (None: not scored), oracle's mark.

    ``mark``: "right", "wrong" (the first error), "after" (after it), "unknown" or "" (no oracle).
    """

    text: str
    score: Share | None
    mark: str


class Case(Strict):
    """One path to read; texts above ``MAX_TEXT`` characters are cut and end in "…"; ``tail`` follows the steps."""

    model: str
    title: str
    problem_id: str
    path_id: str
    topic: str
    level: int | None
    problem: str
    gold: str
    answer: str | None
    verdict: str
    habit: str | None
    path_score: float | None
    steps: list[CaseStep]
    tail: str


class FailureGroup(Strict):
    """Paths that failed in the same way: counts and shares (of that model's paths) with an example of each model."""

    topic: str
    failure: str
    habit: str | None
    base_count: Count
    policy_count: Count
    base_share: Share
    policy_share: Share
    base_example: Case | None
    policy_example: Case | None


class Cases(Strict):
    """``5_eval/cases.json``."""

    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    failures: list[FailureGroup]
    examples: list[Case]


MAX_TEXT = 2000
MAX_STEPS = 40
Group = tuple[str, str, str | None]


@dataclasses.dataclass(frozen=True)
class Seen:
    """One sampled path with everything known of it."""

    problem: Problem
    path: Path
    scores: list[float]
    judgement: Judgement | None
    path_score: float | None


def seen_paths(model: ModelPools, aggregate: str) -> Iterator[Seen]:
    pool: Pool = model.sampled
    for p, (problem, paths) in enumerate(zip(model.problems, pool.paths, strict=True)):
        for g, path in enumerate(paths):
            scores = [] if pool.scores is None else pool.scores[p][g]
            judgement = None if pool.judgements is None else pool.judgements[p][g]
            yield Seen(problem, path, scores, judgement, path_score(scores, aggregate))


def failure_of(path: Path, judgement: Judgement | None) -> tuple[str, str | None] | None:
    """Class and habit of a failed path; None when it did not fail or no verdict on the model exists."""
    if not path.verdict.is_judged:
        return None
    if path.is_truncated:
        return "cut", None
    if path.verdict is Verdict.UNPARSED:
        return "no answer", None
    known = judgement is not None and not judgement.unknown
    error = judgement.first_error if judgement is not None and known else None
    habit = judgement.habit if judgement is not None and error is not None else None
    if path.verdict is Verdict.CORRECT:
        return None if error is None else ("hidden error", habit)
    if judgement is None:
        return "wrong answer", None
    if not known:
        return "unclear", None
    return ("wrong step", habit) if error is not None else ("wrong conclusion", None)


def failure_groups(base: ModelPools, policy: ModelPools, *, aggregate: str = "min") -> list[FailureGroup]:
    """Groups by (problem kind, class, habit), the most frequent of the base first, then by name.

    The example of a group is the failed path that the PRM likes best, or the first one sampled without a PRM.
    """
    members: dict[str, dict[Group, list[Seen]]] = {"base": {}, "policy": {}}
    totals = {"base": 0, "policy": 0}
    for name, model in (("base", base), ("policy", policy)):
        for seen in seen_paths(model, aggregate):
            totals[name] += 1
            failure = failure_of(seen.path, seen.judgement)
            if failure is not None:
                members[name].setdefault((seen.problem.topic, *failure), []).append(seen)
    keys = sorted(
        members["base"].keys() | members["policy"].keys(),
        key=lambda key: (-len(members["base"].get(key, [])), key[0], key[1], key[2] or ""),
    )

    def example(name: str, key: Group) -> Case | None:
        found = members[name].get(key, [])
        best = max(found, key=lambda seen: -1.0 if seen.path_score is None else seen.path_score, default=None)
        return None if best is None else as_case(name, key[1], best)

    rows = []
    for key in keys:
        counts = {name: len(members[name].get(key, [])) for name in members}
        rows.append(
            FailureGroup(
                topic=key[0],
                failure=key[1],
                habit=key[2],
                base_count=counts["base"],
                policy_count=counts["policy"],
                base_share=counts["base"] / max(totals["base"], 1),
                policy_share=counts["policy"] / max(totals["policy"], 1),
                base_example=example("base", key),
                policy_example=example("policy", key),
            )
        )
    return rows


def examples(
    base: ModelPools, policy: ModelPools, *, threshold: float | None, aggregate: str = "min", limit: int = 24
) -> list[Case]:
    """Paths worth reading, at most ``limit``, an equal share for each title and model; the same ones every time.

    Titles: "PRM finds the error", "PRM misses the error", "PRM suspects a right path", "right answer, wrong step",
    "wrong answer, high score" (highest path score first), and "solved by the policy, not by the base" (greedy paths).
    """
    buckets: dict[tuple[str, str], list[Seen]] = {}
    for name, model in (("policy", policy), ("base", base)):
        for seen in seen_paths(model, aggregate):
            for title in _titles(seen, threshold):
                buckets.setdefault((title, name), []).append(seen)
    for (title, _), found in buckets.items():
        if title == HIGH_SCORE:
            found.sort(key=lambda seen: -(seen.path_score or 0.0))
    buckets |= _newly_solved(base, policy, aggregate)
    order = sorted(buckets, key=lambda key: (TITLES.index(key[0]), key[1]))
    picked: list[Case] = []
    for depth in range(limit):
        for title, name in order:
            found = buckets[title, name]
            if depth < len(found) and len(picked) < limit:
                picked.append(as_case(name, title, found[depth]))
    return sorted(picked, key=lambda case: (TITLES.index(case.title), case.model))


HIGH_SCORE = "wrong answer, high score"
SOLVED = "solved by the policy, not by the base"
TITLES = (
    HIGH_SCORE,
    "PRM finds the error",
    "PRM misses the error",
    "PRM suspects a right path",
    "right answer, wrong step",
    SOLVED,
)


def _titles(seen: Seen, threshold: float | None) -> list[str]:
    path, judgement = seen.path, seen.judgement
    titles = []
    if path.verdict is Verdict.WRONG and not path.is_truncated and seen.path_score is not None:
        titles.append(HIGH_SCORE)
    if judgement is None or judgement.unknown:
        return titles
    if path.verdict is Verdict.CORRECT and judgement.first_error is not None:
        titles.append("right answer, wrong step")
    if threshold is not None and seen.path_score is not None:
        claimed = first_below(seen.scores, threshold)
        if judgement.first_error is not None:
            titles.append("PRM finds the error" if claimed == judgement.first_error else "PRM misses the error")
        elif claimed is not None:
            titles.append("PRM suspects a right path")
    return titles


def _newly_solved(base: ModelPools, policy: ModelPools, aggregate: str) -> dict[tuple[str, str], list[Seen]]:
    """Greedy paths of both models on problems that only the policy solves, in the test set's order."""
    found: dict[tuple[str, str], list[Seen]] = {(SOLVED, "base"): [], (SOLVED, "policy"): []}
    greedy = [list(seen_paths(dataclasses.replace(model, sampled=model.greedy), aggregate)) for model in (base, policy)]
    for before, after in zip(*greedy, strict=True):
        if is_right(after.path) and before.path.verdict.is_judged and not is_right(before.path):
            found[SOLVED, "base"].append(before)
            found[SOLVED, "policy"].append(after)
    return found


def as_case(model: str, title: str, seen: Seen) -> Case:
    path, problem, judgement = seen.path, seen.problem, seen.judgement
    steps = [
        CaseStep(text=_cut(step.text), score=_shown(seen.scores, k), mark=_mark(judgement, k))
        for k, step in enumerate(path.steps[:MAX_STEPS])
    ]
    end = path.steps[-1].end if path.steps else 0
    return Case(
        model=model,
        title=title,
        problem_id=problem.id,
        path_id=path.path_id,
        topic=_cut(problem.topic),
        level=problem.level,
        problem=_cut(problem.text),
        gold=_cut(problem.answer),
        answer=None if path.answer is None else _cut(path.answer),
        verdict=str(path.verdict),
        habit=judgement.habit if judgement is not None and not judgement.unknown else None,
        path_score=seen.path_score,
        steps=steps,
        tail=_cut(path.text[end:].strip()),
    )


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")  # JSON cannot hold lone surrogates
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _shown(scores: list[float], k: int) -> float | None:
    return scores[k] if k < len(scores) and 0.0 <= scores[k] <= 1.0 else None


def _mark(judgement: Judgement | None, k: int) -> str:
    if judgement is None:
        return ""
    if judgement.unknown:
        return "unknown"
    if judgement.first_error is None or k < judgement.first_error:
        return "right"
    return "wrong" if k == judgement.first_error else "after"

"""Paths to browse in the report: the ones in which PRM, outcome and oracle disagree first, then some of the rest.

``5_eval/browser.json``; every figure of an evaluation is in ``metrics.json``, this file only holds paths to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from common.metrics import first_below
from common.records import Verdict
from eval.collect import ModelPools
from eval.failures import Case, Seen, as_case, failure_of, seen_paths
from eval.pools import is_right
from eval.schema import SCHEMA_VERSION, Count, Share, Strict

PATHS = 240
"""Paths of a model that are kept."""
SHARES = (0.4, 0.2, 0.2)
"""Of ``PATHS``: wrong answers by falling path score; right ones by rising score; PRM and oracle name another first
error. What is left over is taken evenly from all paths."""


class BrowsedCase(Case):
    """A path to read; ``count`` sampled paths of the model on its problem have the same text."""

    count: Annotated[int, Field(gt=0)]


class PathShelf(Strict):
    """Paths to browse.

    Attributes:
        threshold: a step with a lower PRM score is called wrong, None without a PRM.
        aggregate: how step scores become a path score.
        sampled: paths of each model that these were taken from.
        cases: ``title`` is the class of failure, "right" without one, "not judged" without a verdict on the model.
    """

    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    threshold: Share | None
    aggregate: str
    sampled: dict[str, Count]
    cases: list[BrowsedCase]


def shelf(base: ModelPools, policy: ModelPools, *, threshold: float | None, aggregate: str = "min") -> PathShelf:
    """At most ``PATHS`` different sampled paths of each model; the same ones every time."""
    cases, sampled = [], {}
    for name, model in (("policy", policy), ("base", base)):
        everything = list(seen_paths(model, aggregate))
        sampled[name] = len(everything)
        counts = Counter((seen.problem.id, seen.path.text) for seen in everything)
        found = list({(seen.problem.id, seen.path.text): seen for seen in reversed(everything)}.values())[::-1]
        for seen in (found[index] for index in chosen(found, threshold)):
            count = counts[seen.problem.id, seen.path.text]
            cases.append(BrowsedCase(**as_case(name, _title(seen), seen).model_dump(), count=count))
    return PathShelf(threshold=threshold, aggregate=aggregate, sampled=sampled, cases=cases)


def chosen(found: Sequence[Seen], threshold: float | None, limit: int = PATHS) -> list[int]:
    """Indices of at most ``limit`` paths, by ``SHARES``; in that order."""
    scored = [index for index, seen in enumerate(found) if seen.path_score is not None]
    wrong = [index for index in scored if found[index].path.verdict is Verdict.WRONG]
    right = [index for index in scored if is_right(found[index].path)]
    by_score: Callable[[int], float] = lambda index: found[index].path_score or 0.0  # noqa: E731
    ranked = [
        sorted(wrong, key=by_score, reverse=True),
        sorted(right, key=by_score),
        [index for index in scored if _is_disputed(found[index], threshold)],
    ]
    picked: dict[int, None] = {}
    for share, group in zip(SHARES, ranked, strict=True):
        room = [index for index in group if index not in picked][: int(share * limit)]
        picked |= dict.fromkeys(room)
    rest = [index for index in range(len(found)) if index not in picked]
    room_left = min(limit - len(picked), len(rest))
    picked |= dict.fromkeys(rest[position * len(rest) // room_left] for position in range(room_left))
    return list(picked)


def _is_disputed(seen: Seen, threshold: float | None) -> bool:
    """True when PRM and oracle name another step as the first wrong one, or only one of them names any."""
    if threshold is None or seen.judgement is None or seen.judgement.unknown:
        return False
    return first_below(seen.scores, threshold) != seen.judgement.first_error


def _title(seen: Seen) -> str:
    failure = failure_of(seen.path, seen.judgement)
    if failure is not None:
        return failure[0]
    return "right" if seen.path.verdict.is_judged else "not judged"

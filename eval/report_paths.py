"""The report's browser of paths as plain values: small, cut and cleaned, for a script that only ever sets text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.browse import BrowsedCase
from eval.failures import Case, Cases
from eval.run_folder import RoundData
from eval.shown_text import plain_text


def browsed_paths(rounds: Sequence[RoundData], *, text_limit: int, most: int) -> list[dict[str, Any]]:
    """Paths of every evaluated round, the newest round first.

    A round that was evaluated by an older version has the paths of ``cases.json`` alone.

    Args:
        text_limit: characters of a text that are shown.
        most: paths of all rounds together; each round has the same share, its first ones are taken.
    """
    evaluated = [data for data in reversed(rounds) if data.shelf is not None or data.cases is not None]
    share = most // max(len(evaluated), 1)
    return [_round(data, text_limit, share) for data in evaluated]


def _round(data: RoundData, text_limit: int, most: int) -> dict[str, Any]:
    if data.shelf is not None:
        cases, threshold = list[Case](data.shelf.cases), data.shelf.threshold
        sampled = sum(data.shelf.sampled.values())
    else:
        cases = _of_cases(data.cases) if data.cases else []
        threshold, sampled = (data.metrics.prm.threshold if data.metrics else None), 0
    by_model = [[case for case in cases if case.model == model] for model in ("policy", "base")]
    taken = [case for group in by_model for case in group[: most // 2]]
    return {
        "round": data.index,
        "threshold": threshold,
        "sampled": sampled,
        "paths": [_path(case, text_limit) for case in taken],
    }


def _of_cases(cases: Cases) -> list[Case]:
    """Every path of ``cases.json`` once."""
    grouped = [case for group in cases.failures for case in (group.policy_example, group.base_example) if case]
    return list({(case.model, case.path_id): case for case in [*cases.examples, *grouped]}.values())


def _path(case: Case, text_limit: int) -> dict[str, Any]:
    def cut(value: object) -> str:
        return plain_text(value, text_limit)

    return {
        "model": case.model,
        "verdict": case.verdict,
        "kind": cut(case.topic),
        "level": case.level,
        "problem": cut(case.problem),
        "gold": cut(case.gold),
        "answer": None if case.answer is None else cut(case.answer),
        "habit": None if case.habit is None else cut(case.habit),
        "score": case.path_score,
        "steps": [[cut(step.text), step.score, step.mark] for step in case.steps],
        "tail": cut(case.tail),
        "count": case.count if isinstance(case, BrowsedCase) else 1,
    }

"""Mined paths as negatives of a PRM, and what a PRM pays for those it was never shown.

Clusters are taught and held out in turn, the largest first; problems are halved by the hash that chooses held-out ones.
Taught are the taught clusters on the second half; both kinds are measured on the first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from common.records import IGNORED, FinishReason, LabelledPath, Path, Verdict
from data_gen.labels import LabelSettings, label_paths
from data_gen.measure import is_right
from policy.attack_cases import Attacked, Case, attack_rollouts
from policy.attack_mined import Mined, is_high, process_total
from policy.attack_rewards import VIEWS, Wins, count_wins, path_values, probability_inputs
from policy.options import PolicySettings
from policy.rollouts import Score
from prm.attacks import Attack
from prm.training_set import stable_hash

GROUPS = ("taught", "held_out")
"""What becomes of a cluster: cluster k is of group k modulo 2."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Mined paths by use; each text of a problem once.

    Attributes:
        teach: paths of taught clusters on the second half of the problems.
        measure: group -> paths of its clusters on the first half.
    """

    teach: tuple[Mined, ...]
    measure: Mapping[str, tuple[Mined, ...]]


def split_mined(mined: Sequence[Mined], seed: int, apart: Set[str]) -> Split:
    """Split mined paths; ``apart``: ids of the problems held out for the PRM's own measures, which are never taught."""
    once = list({(one.path.problem_id, one.path.text): one for one in mined}.values())
    problems = sorted({one.path.problem_id for one in once}, key=lambda one: stable_hash(seed, one))
    measured = set(problems[: (len(problems) + 1) // 2])
    groups = {name: [one for one in once if one.cluster % 2 == index] for index, name in enumerate(GROUPS)}
    return Split(
        tuple(one for one in groups["taught"] if one.path.problem_id not in measured | apart),
        {name: tuple(one for one in found if one.path.problem_id in measured) for name, found in groups.items()},
    )


def mined_labels(
    paths: Sequence[Path],
    sampled: Mapping[str, Sequence[Path]],
    texts: Mapping[str, str],
    settings: LabelSettings | None,
) -> tuple[list[LabelledPath], dict[str, int]]:
    """Label wrong paths by what the project knows of them; return them and how many had their label from where.

    ``labeller``: the first error by ``data_gen.labels``, from the right sampled paths of the problem; a path without
    an answer, or cut, is asked as a wrong one. ``last_step``: where it finds none, the outcome says that the last step
    does not arrive at the answer: it is 0, and the steps before it are ignored, since nothing vouches for them.
    ``left_out``: all steps as in the beginning of a right path: the PRM would be told that the same step is right
    and wrong.

    Args:
        sampled: problem id -> its sampled paths. texts: problem id -> its text.
        settings: None where the round's labels came from no text (completions alone).
    """
    labelled: list[LabelledPath] = []
    counts = {"labeller": 0, "last_step": 0, "left_out": 0}
    for path in paths:
        right = [one for one in sampled.get(path.problem_id, ()) if is_right(one)]
        asked = dataclasses.replace(path, verdict=Verdict.WRONG, finish_reason=FinishReason.STOP)
        rows = label_paths([*right, asked], settings, texts)[0] if settings else []
        steps = [step.text for step in path.steps]
        if rows and rows[-1].path is asked:
            labelled.append(dataclasses.replace(rows[-1], path=path))
            counts["labeller"] += 1
        elif any(steps == [step.text for step in one.steps[: len(steps)]] for one in right):
            counts["left_out"] += 1
        else:
            count = len(steps)
            labels = (IGNORED,) * (count - 1) + (0,)
            labelled.append(LabelledPath(path, labels, None, (0,) * count, ("outcome",) * count, "learned:last_step"))
            counts["last_step"] += 1
    return labelled, counts


def best_right_rewards(cases: Sequence[Case], score: Score, settings: PolicySettings) -> dict[str, float]:
    """Return problem id -> the largest process reward of its right sampled paths; NaN scores count as none."""
    rows = [(case, path) for case in cases for path in case.sampled if is_right(path) and path.steps]
    scores = score([case.prompt_ids for case, _ in rows], [path for _, path in rows])
    best: dict[str, float] = {}
    for (_, path), one in zip(rows, scores, strict=True):
        total = process_total(one, settings)
        if math.isfinite(total):
            best[path.problem_id] = max(total, best.get(path.problem_id, total))
    return best


def measure_mined(
    split: Split,
    cases: Sequence[Case],
    prompts: Mapping[str, Sequence[int]],
    score: Score,
    threshold: float,
    settings: PolicySettings,
    tokenizer: Any,
) -> dict[str, dict[str, Any]]:
    """Return for each group what a PRM makes of its measured paths.

    ``of``: paths; ``high``: how many of them are high (``policy.attack_mined``); ``believed``: how many at every step;
    ``trained``, ``reward``: wins over the honest path under ``settings``, as for the families, of the paths whose
    problem has a case.

    Args:
        cases: of ``policy.attack_cases.load_cases``. prompts: problem id -> prompt ids. threshold: of this PRM.
        settings: of the round's own ppo.
    """
    measured = {one.path.problem_id for name in GROUPS for one in split.measure[name]}
    used = [case for case in cases if case.problem.id in measured]
    best = best_right_rewards(used, score, settings)
    wins = _wins(split, used, score, settings, tokenizer)
    rows = {}
    for name in GROUPS:
        paths = [one.path for one in split.measure[name]]
        scores = score([prompts[path.problem_id] for path in paths], paths)
        found = [
            is_high(one, threshold, best.get(path.problem_id), settings)
            for one, path in zip(scores, paths, strict=True)
        ]
        rows[name] = {
            "of": len(paths),
            "high": sum(believed or bool(paid) for believed, paid in found),
            "believed": sum(believed for believed, _ in found),
            **{view: dataclasses.asdict(wins[view].get(name, Wins.count([]))) for view in VIEWS},
        }
    return rows


def _wins(
    split: Split, cases: Sequence[Case], score: Score, settings: PolicySettings, tokenizer: Any
) -> dict[str, dict[str, Wins]]:
    """Wins by view and group; empty where no case is left to compare with."""
    place = {case.problem.id: index for index, case in enumerate(cases)}
    found = [
        Attacked(place[one.path.problem_id], name, Attack(one.path.text), one.path)
        for name in GROUPS
        for one in split.measure[name]
        if one.path.problem_id in place
    ]
    if not found:
        return {view: {} for view in VIEWS}
    rollouts = attack_rollouts(cases, found, settings, score)
    paths, sampled = (probability_inputs(one, settings, tokenizer) for one in rollouts)
    honest_of = {len(cases) + row: one.case for row, one in enumerate(found)}
    family_of = {len(cases) + row: one.family for row, one in enumerate(found)}
    return {view: count_wins(of, honest_of, family_of) for view, of in path_values(paths, sampled, settings).items()}

"""What a learned attack found: wrong paths that the PRM scores high, clustered by pattern. Pure functions.

A path is high when the PRM believes every step of it, or pays it more than every right path of its problem:

    believed   p_k >= threshold for k = 1..K, the threshold being the PRM's own
    paid       R > max over right sampled paths of the problem of their R, by more than ``MARGIN``; R = r_1 + ... + r_K
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from scipy import stats

from common.metrics import first_below
from common.records import Path, Problem, Verdict
from policy.attack_patterns import cluster_patterns, path_pattern
from policy.attack_rewards import MARGIN
from policy.options import PolicySettings
from prm.credit import step_rewards

WRONG = (Verdict.WRONG, Verdict.UNPARSED)


@dataclasses.dataclass(frozen=True)
class Scored:
    """A path sampled by the run.

    Attributes:
        batch: index of its generation batch. path: graded, at least one step.
        scores: PRM probability of each step.
    """

    batch: int
    path: Path
    scores: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class LearnedRun:
    """What a run on the process reward alone left.

    Attributes:
        scored: the paths that count and have a step, in the order sampled.
        sampled: all sampled paths.
        rows: logged rows, one a batch or an evaluation.
    """

    scored: tuple[Scored, ...]
    sampled: int
    rows: tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Mined:
    """One wrong path that the PRM scores high.

    Attributes:
        batch: generation batch it was sampled in. path: the path. scores: PRM probability of each step.
        reward: R, its process reward. believed, paid: why it is here; ``paid`` is None where no right path of the
            problem was sampled before the run.
        cluster: number of its cluster, 0 the largest.
    """

    batch: int
    path: Path
    scores: tuple[float, ...]
    reward: float
    believed: bool
    paid: bool | None
    cluster: int = -1

    def to_row(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"path": self.path.to_row()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Mined:
        return cls(**{**row, "path": Path.from_row(row["path"]), "scores": tuple(row["scores"])})


def process_total(scores: Sequence[float], settings: PolicySettings) -> float:
    """Return R of a path: the sum of its step rewards under the configured credit rule, NaN for a non-finite score.

    Every flow has this total: ``to_go`` and ``whole`` in the first step's return, ``immediate`` in the sum of all.
    """
    probs_BS = torch.tensor([list(scores)], dtype=torch.float64)
    is_step_BS = torch.ones(probs_BS.shape, dtype=torch.bool)
    return float(step_rewards(probs_BS, is_step_BS, settings.credit, settings.softmin_temperature).sum())


def is_high(
    scores: Sequence[float], threshold: float, best_right: float | None, settings: PolicySettings
) -> tuple[bool, bool | None]:
    """Return (believed, paid) of a path with at least one step; ``best_right`` None: no right path to compare with."""
    believed = first_below(scores, threshold) is None
    paid = None if best_right is None else process_total(scores, settings) > best_right + MARGIN
    return believed, paid


def mine(
    scored: Sequence[Scored], threshold: float, best_right: Mapping[str, float], settings: PolicySettings
) -> list[Mined]:
    """Return the wrong paths among ``scored`` that are high, with their clusters, in the order sampled.

    Args:
        best_right: problem id -> largest R of its right paths sampled before the run.
    """
    found = []
    for one in scored:
        if one.path.verdict not in WRONG:
            continue
        believed, paid = is_high(one.scores, threshold, best_right.get(one.path.problem_id), settings)
        if believed or paid:
            reward = process_total(one.scores, settings)
            found.append(Mined(one.batch, one.path, one.scores, reward, believed, paid))
    clusters = cluster_patterns([path_pattern(one.path) for one in found])
    number = {row: index for index, cluster in enumerate(clusters) for row in cluster.rows}
    return [dataclasses.replace(one, cluster=number[row]) for row, one in enumerate(found)]


def report_row(run: LearnedRun, mined: Sequence[Mined], problems: Mapping[str, Problem]) -> dict[str, Any]:
    """Return the figures of a learned attack.

    Shares are of all sampled paths; ``low`` and ``high`` bound the share of high wrong paths (95 %, Wilson).
    ``batches`` has one entry a generation batch: high wrong, wrong and scored paths.
    """
    batches = range(max((one.batch for one in run.scored), default=-1) + 1)
    interval = stats.binomtest(len(mined), run.sampled).proportion_ci(method="wilson")
    return {
        "sampled": run.sampled,
        "scored": len(run.scored),
        "wrong": sum(one.path.verdict in WRONG for one in run.scored),
        "high_wrong": len(mined),
        "share": len(mined) / run.sampled,
        "low": float(interval.low),
        "high": float(interval.high),
        "batches": [
            {
                "high_wrong": sum(one.batch == batch for one in mined),
                "wrong": sum(one.batch == batch and one.path.verdict in WRONG for one in run.scored),
                "scored": sum(one.batch == batch for one in run.scored),
            }
            for batch in batches
        ],
        "no_step": sum(row.get("rollout/no_step", 0.0) for row in run.rows),
        "accuracy": [row["eval_accuracy"] for row in run.rows if "eval_accuracy" in row],
        "mean_score": [row["prm/mean_score"] for row in run.rows if "prm/mean_score" in row],
        "kl": [row["kl/reference"] for row in run.rows if "kl/reference" in row],
        "clusters": [
            _cluster_row([one for one in mined if one.cluster == number], run.sampled, len(batches), problems)
            for number in range(max((one.cluster for one in mined), default=-1) + 1)
        ],
    }


def _cluster_row(
    members: Sequence[Mined], sampled: int, batches: int, problems: Mapping[str, Problem]
) -> dict[str, Any]:
    """Figures of one cluster; its example is the path with the highest last score, the first sampled among equals."""
    counts = Counter(path_pattern(one.path) for one in members)
    commonest = max(sorted(counts), key=lambda pattern: counts[pattern])
    example = max(members, key=lambda one: one.scores[-1])
    return {
        "size": len(members),
        "share": len(members) / sampled,
        "pattern": list(commonest),
        "problems": len({one.path.problem_id for one in members}),
        "texts": len({(one.path.problem_id, one.path.text) for one in members}),
        "mean_score": sum(one.scores[-1] for one in members) / len(members),
        "mean_reward": sum(one.reward for one in members) / len(members),
        "believed": sum(one.believed for one in members),
        "paid": sum(bool(one.paid) for one in members),
        "batches": [sum(one.batch == batch for one in members) for batch in range(batches)],
        "example": {
            "problem": problems[example.path.problem_id].text,
            "path": example.path.text,
            "scores": list(example.scores),
        },
    }

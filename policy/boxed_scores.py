"""PRM scores in a black box: what the PRM read and gave for a rank's whole generation batch, and the PRM itself."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForTokenClassification

from common.models import tensor_bytes
from policy.rollouts import Rollout, Score
from prm.inputs import PRMInput, path_input
from prm.model import Calibration
from prm.score import PRMScorer


def bad_score(rollout: Rollout) -> str | None:
    """Where the first score that is not finite stands, None when all are finite."""
    for path, scores in zip(rollout.paths, rollout.scores, strict=True):
        for step, score in enumerate(scores):
            if not math.isfinite(score):
                return f"path {path.path_id}, step {step}: {score}"
    return None


def scorer_of(score: Score | None) -> PRMScorer | None:
    """The PRM whose ``score`` method the trainer calls; None for another callable, which no box can hold."""
    owner = getattr(score, "__self__", None)
    return owner if isinstance(owner, PRMScorer) else None


def prm_bytes(score: Score | None) -> int:
    """Bytes of the PRM's weights, 0 where there is none to keep."""
    scorer = scorer_of(score)
    return tensor_bytes(scorer.model.state_dict()) if scorer else 0


def boxed_scores(rollout: Rollout, score: Score | None) -> dict[str, Any]:
    """What was scored, in its order: the PRM's inputs, the scores, whose they are."""
    scorer = scorer_of(score)
    rows = [row for row, scores in enumerate(rollout.scores) if scores]
    inputs = [path_input(rollout.prompt_ids[row], rollout.paths[row]) for row in rows]
    return {
        "path_ids": [rollout.paths[row].path_id for row in rows],
        "scores": [[float(score) for score in rollout.scores[row]] for row in rows],
        "inputs": [(list(one.token_ids), list(one.step_positions), one.prompt_length) for one in inputs],
        "max_batch_tokens": scorer.max_batch_tokens if scorer else None,
    }


def keep_prm(score: Score | None, path: pathlib.Path) -> None:
    """Write the PRM as it is in memory, calibration included, to one file; nothing for another callable.

    ``save_pretrained`` would write nothing on a rank that is not the main one.
    """
    scorer = scorer_of(score)
    if scorer is not None:
        facts = {"config": scorer.model.config.to_dict(), "calibration": dataclasses.asdict(scorer.calibration)}
        torch.save(facts | {"weights": scorer.model.state_dict()}, path)


def load_kept(path: pathlib.Path, boxed: Mapping[str, Any]) -> tuple[PRMScorer, list[PRMInput]] | None:
    """The PRM that ``keep_prm`` wrote and the inputs of ``boxed_scores``; None when there is no PRM in the box."""
    if not path.is_file():
        return None
    kept = torch.load(path, weights_only=True)
    model = AutoModelForTokenClassification.from_config(AutoConfig.for_model(**kept["config"]))
    dtype = next(t.dtype for t in kept["weights"].values() if t.is_floating_point())
    model.to(dtype).load_state_dict(kept["weights"])
    scorer = PRMScorer(model, Calibration(**kept["calibration"]), max_batch_tokens=boxed["max_batch_tokens"])
    inputs = [PRMInput(tuple(ids), tuple(ends), prompt_length=start) for ids, ends, start in boxed["inputs"]]
    return scorer, inputs


def first_bad_score(boxed: Mapping[str, Any]) -> dict[str, Any] | None:
    """``{"name", "path_id"}`` of the first boxed score that is not finite."""
    for path_id, scores in zip(boxed["path_ids"], boxed["scores"], strict=True):
        step = next((step for step, score in enumerate(scores) if not math.isfinite(score)), None)
        if step is not None:
            return {"name": f"PRM score of step {step}", "path_id": path_id}
    return None


def same_scores(one: Iterable[Iterable[float]], other: Iterable[Iterable[float]], tolerance: float) -> bool:
    """True when all scores differ by at most ``tolerance``, NaN equal to NaN."""
    pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=True)]
    return all(abs(a - b) <= tolerance or (math.isnan(a) and math.isnan(b)) for a, b in pairs)

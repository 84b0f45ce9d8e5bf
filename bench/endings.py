"""How a run ended, reduced to what must be equal when it was cut and resumed, or run again with the same seed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bench.differences import flat
from common.models import load_policy, weights_hash
from common.runs import Run
from prm.model import load_prm

FILES = {
    "sample": ("paths.jsonl", "problems_train.jsonl", "problems_validation.jsonl", "problems_test.jsonl"),
    "label": ("paths.jsonl",),
    "eval": ("cases.json",),
}
"""Files of a stage that are compared byte by byte."""


def ending(root: Path, round_index: int = 0) -> dict[str, Any]:
    """Return, by dotted name, every figure of ``5_eval/metrics.json`` (seconds and the folder's name left out), every
    figure of the PRM's report, every row of PPO's log, the hash of the weights of PRM and policy, and the SHA-256 of
    the sampled and the labelled paths.

    Raises:
        InputError: a stage is not finished, or its payload was damaged since.
    """
    run = Run(root, round_index)
    stages = {name: run.require(name) for name in ("sample", "label", "prm", "ppo", "eval")}
    metrics = json.loads(stages["eval"].file("metrics.json").read_text(encoding="utf-8"))
    fitted = json.loads(stages["prm"].file("metrics.json").read_text(encoding="utf-8"))
    found = {f"metrics.{name}": value for name, value in flat(metrics).items() if name != "run"}
    found |= {f"prm.{name}": value for name, value in flat(fitted).items()}
    log = flat(dict(enumerate(stages["ppo"].metrics())))
    found |= {f"ppo_log.{k}": v.replace(str(root), "RUN") if isinstance(v, str) else v for k, v in log.items()}
    found["weights.prm"] = weights_hash(load_prm(stages["prm"].file("prm"))[0])
    found["weights.policy"] = weights_hash(load_policy(str(stages["ppo"].file("policy"))))
    for stage, names in FILES.items():
        for name in names:
            found[f"{stage}.{name}"] = hashlib.sha256(stages[stage].file(name).read_bytes()).hexdigest()
    return found

"""Memory of policy, reference and PRM: the policy alone, all three over one copy of the base, and each on its own.

``python -m bench.lora --model DIR [--rank 16]``: each arrangement loads its models in a process of its own and makes a
pass of each over 4 paths; the last line is one JSON object with parameter bytes (shared tensors counted once) and peak
resident memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from common.adapters import FOLDER, distinct_bytes, save_adapter, with_adapter
from common.cli import seed_everything
from common.config import Config, LoraSection
from common.models import load_policy
from prm.adapted import adapted_prm, shared_scorer
from prm.inputs import PRMInput
from prm.model import CALIBRATION_FILE, build_prm
from prm.score import PRMScorer

ARRANGEMENTS = ("policy", "shared", "separate")
TOKENS = 128


def build(model: str, arrangement: str, settings: LoraSection, prm_folder: str) -> tuple[list[Any], PRMScorer | None]:
    """Return the causal models (the policy first) and the scorer of an arrangement.

    ``policy``: the policy with its adapter, nothing else; ``shared``: that, reference by the adapter off, PRM over the
    same tensors; ``separate``: policy trained in full, a reference and a PRM with weights of their own.
    """
    base = load_policy(model)
    if arrangement == "separate":
        base.requires_grad_(True)
        return [base, load_policy(model)], PRMScorer(build_prm(model))
    scorer = shared_scorer(prm_folder, base, settings) if arrangement == "shared" else None
    return [with_adapter(base, settings, "CAUSAL_LM", seed=0)], scorer


def measure(model: str, arrangement: str, settings: LoraSection, prm_folder: str) -> dict[str, int]:
    """Bytes of distinct parameters, and peak resident bytes after one pass of each model."""
    models, scorer = build(model, arrangement, settings, prm_folder)
    ids = torch.arange(4 * TOKENS).reshape(4, TOKENS) % models[0].config.vocab_size
    with torch.no_grad():
        for one in models:
            one(input_ids=ids, logits_to_keep=1)
        if arrangement == "shared":
            with models[0].disable_adapter():
                models[0](input_ids=ids, logits_to_keep=1)
    if scorer is not None:
        ends = tuple(range(15, TOKENS, 16))
        scorer.score_inputs([PRMInput(tuple(row), ends, prompt_length=8) for row in ids.tolist()])
    held = distinct_bytes(*models, *([scorer.model] if scorer else []))
    return {"parameter_bytes": held, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lora", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of a causal language model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--only", choices=ARRANGEMENTS, help="measure one arrangement in this process")
    parser.add_argument("--prm", help="folder of a PRM with an adapter; made when not given")
    options = parser.parse_args(argv)
    seed_everything(Config())
    settings = LoraSection(rank=options.rank)
    if options.only:
        print(json.dumps(measure(options.model, options.only, settings, options.prm or "")))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        prm = adapted_prm(load_policy(options.model), settings, surprise=True)
        save_adapter(prm, Path(folder, FOLDER))
        prm.get_base_model().config.save_pretrained(folder)
        Path(folder, CALIBRATION_FILE).write_text(json.dumps({"temperature": 1.0, "threshold": 0.5}))
        command = [sys.executable, "-m", "bench.lora", "--model", options.model, "--rank", str(options.rank)]
        found = {}
        for name in ARRANGEMENTS:
            done = subprocess.run([*command, "--only", name, "--prm", folder], stdout=subprocess.PIPE, check=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
    alone = found["policy"]["parameter_bytes"]
    ratios = {f"{name}_ratio": round(row["parameter_bytes"] / alone, 3) for name, row in found.items()}
    print(json.dumps({"rank": options.rank, **found, **ratios}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

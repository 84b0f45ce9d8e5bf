"""Where the time of a PPO batch goes: ``python -m bench.speed --config … [--batches N]`` prints one JSON line.

A fresh PRM of the base model's size scores the paths; seconds are medians over the batches after the first one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common.cli import seed_everything
from common.config import load_config
from common.models import locate
from data_gen.problems import ProblemSource, load_problems
from policy.train import build_trainer
from prm.model import build_prm
from prm.score import PRMScorer

PARTS = ("sampling", "grading", "logprobs", "prm", "update")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml")
    parser.add_argument("--batches", type=int, default=4, help="generation batches, the first one is not counted")
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    options = parser.parse_args(argv)
    if options.batches < 2:
        parser.error("--batches must be 2 or more")
    quiet = [f"ppo.batches={options.batches}", f"ppo.eval_every={options.batches}", "ppo.difficulty_bands=1"]
    config = load_config(options.config, [*options.overrides, *quiet])
    seed_everything(config)
    source = ProblemSource(config.data.source, config.data.levels, config.data.kinds)
    start = locate(config.base.model)
    with tempfile.TemporaryDirectory() as folder:
        trainer, _ = build_trainer(
            config,
            start=start,
            problems=load_problems(source, "train", config.seed, config.ppo.problems * options.batches),
            checked=load_problems(source, "validation", config.seed, 8),
            score=None if config.ppo.reward == "signals" else PRMScorer(build_prm(start)).score,
            process_weight=config.ppo.process_weight,
            folder=Path(folder),
        )
        trainer.train()
    rows = [row for row in trainer.state.log_history if "seconds/update" in row][1:]
    seconds = {part: round(statistics.median(row[f"seconds/{part}"] for row in rows), 3) for part in PARTS}
    total = sum(seconds.values())
    tokens = statistics.median(row["rollout/tokens"] for row in rows)
    result = {
        "seconds": seconds,
        "batch_seconds": round(total, 3),
        "prm_share": round(seconds["prm"] / total, 4),
        "paths": config.ppo.problems * config.ppo.paths,
        "tokens_a_path": round(tokens, 1),
        "updates": config.ppo.epochs * config.ppo.minibatches,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Where process reward can pay: exact oracle as process reward against outcome-only, on levels of the generator.

``python -m bench.headroom --levels 2 4 --levels 8 10 --seeds 0 1`` prints one JSON line a run: validation accuracy
after each evaluation. A level on which even the exact process reward brings nothing cannot show what a PRM is worth.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path as FilePath

from common.cli import seed_everything
from common.config import Config, load_config
from common.models import load_tokenizer, locate
from common.prompts import PromptTemplate
from common.records import Path, Problem
from data_gen.synthetic import generate, judge
from policy.rollouts import Score
from policy.train import build_trainer

ARMS = {"outcome": 0.0, "oracle": 0.7}
"""Arm -> process weight; the oracle's probability is 1 before the first wrong step and 0 from it on."""


def oracle_score(config: Config, problems: Sequence[Problem]) -> Score:
    """The exact oracle in the place of a PRM; steps it cannot judge get 0.5."""
    tokenizer = load_tokenizer(locate(config.base.model))
    template = PromptTemplate.from_config(config.base)
    texts = {tuple(template.ids(problem.text, tokenizer)): problem.text for problem in problems}

    def score(prompt_ids: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[list[float]]:
        scores = []
        for prompt, path in zip(prompt_ids, paths, strict=True):
            found = judge(texts[tuple(prompt)], [step.text for step in path.steps])
            first = len(path.steps) if found.first_error is None else found.first_error
            good = 0.5 if found.unknown else 1.0
            scores.append([good if k < first else 0.0 for k in range(len(path.steps))])
        return scores

    return score


def run_arm(config: Config, arm: str, levels: tuple[int, int]) -> dict[str, object]:
    """Train one arm; return its validation curve and cost."""
    seed_everything(config)
    span = range(levels[0], levels[1] + 1)
    problems = generate("train", config.seed, config.data.pool, levels=span, kinds=config.data.kinds or None)
    random.Random(config.seed).shuffle(problems)
    checked = generate("validation", 10_000, config.data.validation, levels=span, kinds=config.data.kinds or None)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trainer, _ = build_trainer(
            config,
            start=locate(config.base.model),
            problems=problems,
            checked=checked,
            score=oracle_score(config, problems) if ARMS[arm] else None,
            process_weight=ARMS[arm],
            folder=FilePath(folder),
        )
        trainer.evaluate()
        trainer.train()
    evaluations = [row for row in trainer.state.log_history if "eval_accuracy" in row]
    per_batch = config.ppo.epochs * config.ppo.minibatches
    return {
        "arm": arm,
        "levels": levels,
        "seed": config.seed,
        "batch": [row["step"] // per_batch for row in evaluations],
        "greedy": [round(row["eval_greedy"], 4) for row in evaluations],
        "sampled": [round(row["eval_sampled"], 4) for row in evaluations],
        "seconds": round(time.perf_counter() - started),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.headroom", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml")
    parser.add_argument("--levels", nargs=2, type=int, action="append", required=True, metavar=("LOW", "HIGH"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    options = parser.parse_args(argv)
    for low, high in options.levels:
        for seed in options.seeds:
            for arm in options.arms:
                config = load_config(options.config, [*options.overrides, f"seed={seed}", "ppo.difficulty_bands=1"])
                print(json.dumps(run_arm(config, arm, (low, high))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A batch of PPO here against a batch of TRL's ``GRPOTrainer``: ``python -m bench.speed_trl --config …``.

Both trainers get the same recorded paths, model, KL coefficient, epochs and updates; ours also scores every step with a
PRM of the base model's size. They train in turn in one process. A batch is what lies between the first update's start
and the last one's end, sampling left out: handing out recorded paths costs nothing. One JSON line: medians over the
batches after each trainer's first, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from bench.ablation_trl import build_trl_trainer
from common.cli import seed_everything
from common.config import Config, load_config
from common.models import load_policy, load_tokenizer, locate
from common.progress import StageBar
from common.prompts import PromptTemplate
from common.records import Problem
from data_gen.engines import Completion, make_engine
from data_gen.problems import ProblemSource, load_problems
from policy.options import updates_per_generation
from policy.train import build_trainer
from prm.model import build_prm
from prm.score import PRMScorer

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Recorded:
    """Hands out paths that were sampled before, by prompt."""

    def __init__(self, groups: dict[tuple[int, ...], list[Completion]]) -> None:
        self.groups = groups

    def sample(self, prompts: Sequence[Sequence[int]], *, n: int, **_: Any) -> list[list[Completion]]:
        """See ``data_gen.engines.Engine.sample``.

        Raises:
            KeyError: a prompt was not recorded. ValueError: another number of paths was.
        """
        found = [self.groups[tuple(prompt)] for prompt in prompts]
        if any(len(group) != n for group in found):
            raise ValueError(f"recorded groups of {sorted({len(group) for group in found})} paths; wanted {n}")
        return found


class BatchSeconds(TrainerCallback):
    """Seconds of every generation batch, by clock."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.seconds: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        self._started: dict[str, float] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.updates == 0:
            self._started = {clock: now() for clock, now in CLOCKS.items()}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.updates == 0:
            for clock, now in CLOCKS.items():
                self.seconds[clock].append(now() - self._started[clock])


def record(config: Config, start: str, problems: Sequence[Problem]) -> Recorded:
    """Sample the paths of all problems from the start model."""
    tokenizer = load_tokenizer(start)
    engine = make_engine("transformers", model=load_policy(start, config.base.dtype), tokenizer=tokenizer)
    template = PromptTemplate.from_config(config.base)
    prompts = [template.ids(problem.text, tokenizer) for problem in problems]
    groups = engine.sample(
        prompts,
        n=config.ppo.paths,
        temperature=config.ppo.temperature,
        max_new_tokens=config.data.max_new_tokens,
        seed=config.seed,
        stop=config.base.stop,
    )
    return Recorded({tuple(prompt): group for prompt, group in zip(prompts, groups, strict=True)})


def seconds_of(trainer: Any) -> dict[str, list[float]]:
    """Train to the end; seconds of the batches, the first left out."""
    meter = BatchSeconds(updates_per_generation(trainer.args))
    trainer.add_callback(meter)
    StageBar.attach(trainer, "batches", {}, {}, is_quiet=True)
    trainer.train()
    return {clock: values[1:] for clock, values in meter.seconds.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.speed_trl", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml")
    parser.add_argument("--batches", type=int, default=3, help="generation batches a turn, the first is not counted")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each trainer")
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    options = parser.parse_args(argv)
    if options.batches < 2 or options.repeats < 1:
        parser.error("--batches must be 2 or more, --repeats 1 or more")
    same = [f"ppo.batches={options.batches}", f"ppo.eval_every={options.batches}", "ppo.difficulty_bands=1"]
    config = load_config(options.config, [*options.overrides, *same])
    seed_everything(config)
    start = locate(config.base.model)
    source = ProblemSource(config.data.source, config.data.levels, config.data.kinds)
    problems = load_problems(source, "train", config.seed, config.ppo.problems * options.batches)
    recorded, scorer = record(config, start, problems), PRMScorer(build_prm(start))
    seconds: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in ("ppo", "trl")}
    prm: list[float] = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            ours, _tokenizer = build_trainer(
                config,
                start=start,
                problems=problems,
                checked=problems[:1],
                score=scorer.score,
                process_weight=config.ppo.process_weight,
                folder=Path(folder),
            )
            ours.sampler, ours.args.eval_strategy, ours.args.save_strategy = recorded, "no", "no"
            ours.args.load_best_model_at_end = False
            theirs, *_ = build_trl_trainer(
                config, start=start, problems=problems, folder=Path(folder), own_generate=False, recorded=recorded
            )
            for name, trainer in (("ppo", ours), ("trl", theirs)):
                for clock, values in seconds_of(trainer).items():
                    seconds[name][clock] += values
            prm += [row["seconds/prm"] for row in ours.state.log_history if "seconds/prm" in row][1:]
    medians = {name: {clock: statistics.median(v) for clock, v in found.items()} for name, found in seconds.items()}
    result = {
        "batch_seconds": {n: {c: round(value, 3) for c, value in found.items()} for n, found in medians.items()},
        "ratio": {clock: round(medians["ppo"][clock] / medians["trl"][clock], 3) for clock in CLOCKS},
        "prm_seconds": round(statistics.median(prm), 3),
        "paths": config.ppo.problems * config.ppo.paths,
        "updates": config.ppo.epochs * config.ppo.minibatches,
        "batches_counted": len(seconds["ppo"]["wall"]),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""One job of an ablation: train one arm with one seed, validate on the way, test at its milestones.

``python -m bench.ablation_job SPEC.json`` is started by ``bench.ablation``. A job that was killed continues: PPO from
its last checkpoint, bit for bit; TRL's own trainer, which cannot resume exactly, from the start.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from bench.ablation_meter import Meter
from bench.ablation_results import TRACES, JobResult
from bench.ablation_spec import JobSpec, job_settings
from bench.ablation_trl import build_trl_trainer
from bench.arms import Arm, load_arms
from bench.oracle import oracle_score
from common.cli import seed_everything
from common.config import Config
from common.errors import InputError
from common.models import locate
from common.progress import StageBar
from common.prompts import PromptTemplate
from common.records import Problem
from common.runs import Run, read_records, write_atomic
from data_gen.engines import make_engine
from data_gen.measure import SampleSettings, pass_rate, sample_paths
from policy.options import updates_per_generation
from policy.train import EVAL_TEMPERATURE, build_trainer, process_reward, training_problems, validation
from policy.trainer import last_complete_checkpoint

PARTS = ("sampling", "grading", "logprobs", "prm", "update")


class MeterCallback(TrainerCallback):
    """Tells a ``Meter`` what the trainer does; the stopwatch runs during updates (sampling is part of the first)."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.meter.watch.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.meter.watch.stop()
        batch, rest = divmod(state.global_step, self.meter.updates)
        if not rest and self.meter.batch_ended(batch):
            control.should_training_stop = True
            control.should_evaluate = control.should_save = self.meter.validate is None

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> None:
        found = {"greedy": metrics["eval_greedy"], "sampled": metrics["eval_sampled"]}
        self.meter.evaluated(state.global_step // self.meter.updates, found)


def tester(config: Config, problems: Sequence[Problem], model: Any, tokenizer: Any, samples: int) -> Callable[[], Any]:
    """The function that scores the policy on the test problems; the same draws for every arm of a seed."""
    template = PromptTemplate.from_config(config.base)
    engine = make_engine("transformers", model=model, tokenizer=tokenizer, max_rows=config.data.max_batch_rows)

    def rates(n: int, temperature: float) -> tuple[float | None, ...]:
        settings = SampleSettings(temperature, config.data.max_new_tokens, stop=config.base.stop)
        render = functools.partial(_render, template, tokenizer)
        groups = sample_paths(engine, problems, tokenizer, render, n=n, seed=config.seed, settings=settings)
        return tuple(pass_rate(group) for group in groups)

    return undisturbed(model, lambda: (rates(1, 0.0), rates(samples, EVAL_TEMPERATURE)))


def _render(template: PromptTemplate, tokenizer: Any, problem: Problem) -> list[int]:
    return template.ids(problem.text, tokenizer)


def undisturbed(model: Any, measure: Callable[[], Any]) -> Callable[[], Any]:
    """``measure`` on a model in evaluation mode; random state and mode are afterwards as before."""

    def run() -> Any:
        was_training = model.training
        model.eval()
        devices = [next(model.parameters()).device] if next(model.parameters()).is_cuda else []
        with torch.random.fork_rng(devices), torch.no_grad():
            found = measure()
        model.train(was_training)
        return found

    return run


def trainer_of(spec: JobSpec, arm: Arm, config: Config) -> tuple[Any, Any, Callable[[], dict[str, float]] | None]:
    """The trainer of an arm, its tokenizer, and the validation function where the trainer has none of its own."""
    run, is_base = Run(Path(spec.stages)), arm.start == "base" or not config.sft.is_on
    start = locate(run.start_model(config, before_sft=is_base))
    problems = training_problems(config, run)
    checked = read_records(run.require("sample").file("problems_validation.jsonl"), Problem.from_row)
    folder = Path(spec.folder) / "checkpoints"
    if arm.trainer != "ppo":
        trainer, sampler, grade = build_trl_trainer(
            config,
            start=start,
            problems=problems,
            folder=folder,
            own_generate=arm.trainer == "trl_generate",
            is_first_round=is_base,
        )
        tokenizer = trainer.processing_class
        encode = functools.partial(PromptTemplate.from_config(config.base).ids, tokenizer=tokenizer)
        measure = functools.partial(validation(config, checked, sampler, encode, grade), None)
        return trainer, tokenizer, undisturbed(trainer.model, measure)
    score, weight = None, 0.0
    if arm.process == "oracle":
        score, weight = oracle_score(config, problems), config.ppo.process_weight
    elif arm.process == "prm":
        scorer, weight = process_reward(config, run)
        score = scorer.score if scorer else None
    trainer, tokenizer = build_trainer(
        config,
        start=start,
        problems=problems,
        checked=checked,
        score=score,
        process_weight=weight,
        folder=folder,
        is_first_round=is_base,
    )
    return trainer, tokenizer, None


def run_job(spec: JobSpec) -> JobResult:
    """Train, validate and test; write ``result.json`` and return it."""
    config, arm, folder = spec.load(), load_arms()[spec.arm], Path(spec.folder)
    seed_everything(config)
    trainer, tokenizer, validate = trainer_of(spec, arm, config)
    StageBar.attach(trainer, spec.arm, {}, {}, is_quiet=True)
    problems = read_records(Run(Path(spec.stages)).require("sample").file("problems_test.jsonl"), Problem.from_row)
    updates = updates_per_generation(trainer.args)
    model = trainer.accelerator.unwrap_model(trainer.model)
    meter = Meter(
        folder,
        updates=updates,
        last_batch=config.ppo.batches,
        eval_every=config.ppo.eval_every,
        milestones=spec.milestones,
        validate=validate,
        test=tester(config, problems, model, tokenizer, spec.samples),
        stopped_by=lambda: getattr(trainer, "stopped_by", None),
    )
    trainer.add_callback(MeterCallback(meter))
    checkpoint = last_complete_checkpoint(folder / "checkpoints") if validate is None else None
    if checkpoint:
        step = int(checkpoint.rsplit("-", 1)[1])
        print(f"{spec.arm}: continues after batch {step // updates}")
        meter.continue_from(step // updates)
    else:
        meter.start_anew()
        if validate is None:
            trainer.evaluate()
        else:
            meter.record(0, validate())
        meter.look(0)
    if meter.pending:
        trainer.train(resume_from_checkpoint=checkpoint)
    history = trainer.state.log_history
    if checkpoint and not trainer.state.global_step:  # every milestone had been tested before the kill
        history = json.loads((Path(checkpoint) / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    result = result_of(spec, config, meter, history)
    write_atomic(folder / "result.json", result.to_json())
    return result


def result_of(spec: JobSpec, config: Config, meter: Meter, log_history: Sequence[dict[str, Any]]) -> JobResult:
    """Put the result of a finished job together."""
    rows = [row for row in log_history if "seconds/update" in row]
    rollouts = config.ppo.problems * config.ppo.paths
    traces = {name: tuple(row.get(name, 0.0) for row in rows) for name in TRACES if rows}
    if rows:
        traces["verdict/CORRECT"] = tuple(count / rollouts for count in traces["verdict/CORRECT"])
    parts = {part: statistics.fmean(row[f"seconds/{part}"] for row in rows) for part in PARTS} if rows else {}
    return JobResult(
        arm=spec.arm,
        seed=spec.seed,
        learning_rate=config.ppo.learning_rate,
        curve=tuple(meter.curve),
        tests=meter.tests(),
        parts=parts,
        rollouts_a_batch=rollouts,
        settings=job_settings(config, spec.samples),
        traces=traces,
    )


def main(argv: Sequence[str] | None = None) -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        run_job(JobSpec.read(Path((argv or sys.argv[1:])[0])))
    except InputError as error:
        print(f"ablation_job: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

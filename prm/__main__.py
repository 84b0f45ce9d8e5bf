"""Stage ``prm``: fit the process reward model on labelled paths, calibrate it, freeze it.

labelled paths of this round (and kept ones of earlier rounds)
  -> inputs -> held-out problems apart -> two-stage fit -> calibration -> taken, or the round before's PRM stays
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from typing import Any

from common.cli import stage_main
from common.config import Config
from common.errors import InputError
from common.models import load_tokenizer, locate
from common.progress import SaveSeconds
from common.prompts import PromptTemplate
from common.ranks import is_main, start_ranks, wait_for_all, world_size
from common.records import LabelledPath, Problem
from common.runs import Run, StageFolder, read_records, write_atomic
from prm.adapted import save_fitted, start_prm
from prm.inputs import InputCounts, PRMInput, labelled_inputs
from prm.model import load_prm, policy_lm_head
from prm.score import PRMQuality, measure_quality, score_paths
from prm.train import FitReport, FitSettings, fit_prm, split_by_problem


def fit_settings(config: Config) -> FitSettings:
    """The one place that turns the ``prm`` section into settings of a fit; ``prm.batch_paths`` is over all processes.

    Raises:
        InputError: an update's paths do not divide over the processes.
    """
    prm, ranks = config.prm, world_size()
    if prm.batch_paths % ranks:
        raise InputError(f"prm.batch_paths = {prm.batch_paths}: want a multiple of the {ranks} processes")
    return FitSettings(
        head_epochs=prm.head_epochs,
        head_learning_rate=prm.head_learning_rate,
        epochs=prm.epochs,
        learning_rate=prm.learning_rate,
        batch_paths=prm.batch_paths // ranks,
        weight_decay=prm.weight_decay,
        lm_weight=prm.lm_weight,
        steps_after_error=prm.steps_after_error,
        seed=config.seed,
        max_eval_tokens=prm.max_batch_tokens,
    )


def training_inputs(config: Config, run: Run, tokenizer: Any) -> tuple[list[PRMInput], InputCounts]:
    """Inputs from this round's labelled paths and a share of those of every earlier round."""
    template = PromptTemplate.from_config(config.base)
    labelled: list[LabelledPath] = []
    prompts: dict[str, list[int]] = {}
    for index in range(run.round + 1):
        earlier = run.at(index)
        rows = read_records(earlier.require("label").file("paths.jsonl"), LabelledPath.from_row)
        if index < run.round:
            chooser = random.Random(f"{config.seed}/{index}/{run.round}")
            rows = [row for row in rows if chooser.random() < config.rounds.keep_paths]
        problems = read_records(earlier.require("sample").file("problems_train.jsonl"), Problem.from_row)
        prompts |= {problem.id: template.ids(problem.text, tokenizer) for problem in problems}
        labelled += rows
    try:
        return labelled_inputs(labelled, prompts, max_length=config.prm.max_length)
    except (ValueError, KeyError) as error:
        raise InputError(f"{run.folder}: {error}") from error


def fit_stage(config: Config, run: Run) -> None:
    """Fit, calibrate, decide and write ``3_prm/prm``."""
    start_ranks()
    run.require("label")
    stage = run.stage("prm")
    timer = stage.begin(config)
    if stage.is_done:
        print(f"prm: {stage.path} is finished")
        shutil.rmtree(stage.file("fit"), ignore_errors=True)  # a kill right after DONE leaves it
        return
    start = locate(run.start_model(config))
    tokenizer = load_tokenizer(start)
    inputs, counts = training_inputs(config, run, tokenizer)
    train, held_out = split_by_problem(inputs, config.prm.holdout, seed=config.seed)
    print(f"prm: {len(train)} paths train, {len(held_out)} held out; {counts}")
    before = run.at(run.round - 1).require("prm").file("prm") if run.round else None
    pad_id = tokenizer.pad_token_id
    fitted, report = fit_prm(
        start_prm(config, run, start),
        train,
        held_out,
        fit_settings(config),
        stage.file("fit"),
        lm_head_VH=None if config.prm.surprise else policy_lm_head(start),
        pad_id=pad_id,
        show_progress=True,
        callbacks=[SaveSeconds(timer)],
        say=stage.say,
    )
    if not is_main():
        wait_for_all()  # for what the main process writes
        return
    quality = report.quality["calibrated"]
    previous = quality_of(before, held_out, config, pad_id) if before else None
    if before is None or previous is None or is_taken(quality, previous, config.rounds.f1_tolerance):
        accepted, chosen = True, quality
        save_fitted(fitted, stage.file("prm"), report.calibration, config)
    else:
        accepted, chosen = False, previous
        shutil.copytree(before, stage.file("prm"), dirs_exist_ok=True)
        save_fitted(fitted, stage.file("rejected"), report.calibration, config)
        print(f"prm: refit rejected, held-out F1 {quality.first_error.f1:.3f} < {previous.first_error.f1:.3f}")
    tokenizer.save_pretrained(stage.file("prm"))
    write_report(stage, report, counts, previous, accepted)
    timer.finish(
        "prm",
        "metrics.json",
        first_error_f1=chosen.first_error.f1,
        brier=chosen.brier,
        threshold=chosen.threshold,
        accepted=accepted,
        train_paths=len(train),
        held_out_paths=len(held_out),
    )
    shutil.rmtree(stage.file("fit"), ignore_errors=True)  # after DONE: half a folder of checkpoints misleads a resume
    print(
        f"prm: held-out first-error F1 {chosen.first_error.f1:.3f} (wrong {chosen.first_error.accuracy_wrong:.3f},"
        f" right {chosen.first_error.accuracy_right:.3f}), Brier {chosen.brier:.4f}, {timer.seconds:.0f} s"
    )
    wait_for_all()


def is_taken(refit: PRMQuality, previous: PRMQuality, tolerance: float) -> bool:
    """A refitted PRM is taken only if its held-out first-error F1 does not fall by more than ``tolerance``."""
    return refit.first_error.f1 >= previous.first_error.f1 - tolerance


def quality_of(folder: Any, held_out: list[PRMInput], config: Config, pad_id: int) -> PRMQuality:
    """Quality of a saved PRM on held-out paths; like the refit's, its threshold is the best one on these paths."""
    model, calibration = load_prm(folder)
    scores = score_paths(
        model, held_out, config.prm.max_batch_tokens, temperature=calibration.temperature, pad_id=pad_id
    )
    return measure_quality(scores, held_out)


def write_report(
    stage: StageFolder, report: FitReport, counts: InputCounts, previous: PRMQuality | None, accepted: bool
) -> None:
    """Write ``metrics.json``: held-out quality before, between and after the stages, counts, history of the fit."""
    row = {
        "quality": {name: dataclasses.asdict(quality) for name, quality in report.quality.items()},
        "previous_prm": dataclasses.asdict(previous) if previous else None,
        "accepted": accepted,
        "calibration": dataclasses.asdict(report.calibration),
        "inputs": dataclasses.asdict(counts),
        "history": list(report.history),
    }
    write_atomic(stage.file("metrics.json"), json.dumps(row, indent=1, allow_nan=False))


if __name__ == "__main__":
    raise SystemExit(stage_main("prm", fit_stage.__doc__ or "", ("base", "lora", "data", "prm", "rounds"), fit_stage))

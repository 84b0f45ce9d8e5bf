"""Fit a PRM on a file of labelled solutions, without a run (docs/migrating.md, docs/formats.md):

``python -m prm.fit --model DIR_OR_HUB_ID --input rows.jsonl --format trl --output DIR [prm.key=value …]``

rows -> inputs (``prm.inputs.text_input``) -> held-out problems apart -> two-stage fit -> calibration -> DIR, which
``prm.score.PRMScorer.load`` reads. A fit that was killed goes on when started again.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.cli import seed_everything
from common.config import Config, describe, load_config
from common.errors import InputError
from common.models import PROJECT, load_tokenizer, locate
from common.prompts import PromptTemplate
from common.records import IGNORED
from common.runs import StageFolder, write_atomic
from data_gen.formats import READERS, load_steps
from data_gen.prm800k import NEUTRAL
from data_gen.stepwise import LabelledSteps
from prm.__main__ import fit_settings, write_report
from prm.inputs import InputCounts, PRMInput, keep_labelled, text_input
from prm.model import CALIBRATION_FILE, build_prm, policy_lm_head, save_prm
from prm.train import fit_prm, split_by_problem


def solution_inputs(
    solutions: Sequence[LabelledSteps],
    tokenizer: Any,
    template: PromptTemplate,
    *,
    separator: str = "\n",
    max_length: int | None = None,
) -> tuple[list[PRMInput], InputCounts]:
    """Return the training inputs of labelled solutions, and what was lost; equal problems share their ``problem_id``.

    Raises:
        InputError: no label is left, or the tokenizer has no character offsets or no token for a step.
    """
    inputs: list[PRMInput] = []
    try:
        for one in solutions:
            inputs.append(
                text_input(
                    tokenizer,
                    template.ids(one.problem, tokenizer),
                    one.steps,
                    separator=separator,
                    max_length=max_length,
                    labels=one.labels,
                    problem_id=one.problem_id,
                )
            )
    except ValueError as error:
        raise InputError(f"solution {len(inputs) + 1} of {len(solutions)}: {error}") from error
    try:
        return keep_labelled(inputs)
    except ValueError as error:
        raise InputError(str(error)) from error


def last_step_only(one: PRMInput) -> PRMInput:
    """Ignore every label but that of the solution's last step; a solution whose last step was cut keeps none."""
    labels = one.labels or ()
    last = labels[-1:] if not one.dropped_steps else (float(IGNORED),) * len(labels[-1:])
    return dataclasses.replace(one, labels=(float(IGNORED),) * (len(labels) - len(last)) + last)


def fit_file(options: argparse.Namespace, config: Config) -> None:
    """Read, fit, calibrate and write the PRM, its tokenizer and ``metrics.json`` to ``options.output``."""
    folder = StageFolder(options.output, "prm")
    _begin(folder, options, config)
    seed_everything(config)
    start = locate(options.model)
    tokenizer = load_tokenizer(start)
    solutions, counts = load_steps(options.input, options.format, neutral=options.neutral, bad_rows=options.bad_rows)
    inputs, kept = solution_inputs(
        solutions,
        tokenizer,
        PromptTemplate.from_config(config.base),
        separator=options.separator,
        max_length=config.prm.max_length,
    )
    train, held_out = split_by_problem(inputs, config.prm.holdout, seed=config.seed)
    if options.last_step_only:
        train = [last_step_only(one) for one in train]
    print(f"prm.fit: {len(train)} solutions train, {len(held_out)} held out; {dict(counts)}; {kept}")
    settings = dataclasses.replace(
        fit_settings(config),
        accumulate=options.accumulate,
        lora_rank=options.lora_rank,
        bf16=config.base.dtype == "bfloat16",
    )
    fitted, report = fit_prm(
        build_prm(start, surprise=config.prm.surprise, seed=config.seed),
        train,
        held_out,
        settings,
        folder.file("fit"),
        lm_head_VH=None if config.prm.surprise else policy_lm_head(start),
        pad_id=tokenizer.pad_token_id,
        show_progress=True,
    )
    tokenizer.save_pretrained(folder.path)
    write_report(folder, report, kept, None, True)
    save_prm(fitted, folder.path, report.calibration)
    shutil.rmtree(folder.file("fit"), ignore_errors=True)
    quality = report.quality["calibrated"]
    row = {"first_error_f1": quality.first_error.f1, "brier": quality.brier, "threshold": quality.threshold}
    print(json.dumps({**row, "train": len(train), "held_out": len(held_out), **counts}, ensure_ascii=False))


def _begin(folder: StageFolder, options: argparse.Namespace, config: Config) -> None:
    """Make the folder and note what is asked; a finished PRM, or another fit begun there, is never written over."""
    if not options.input.is_file():
        raise InputError(f"{options.input}: no such file")
    if folder.file(CALIBRATION_FILE).exists():
        raise InputError(f"{folder.path}: holds a PRM already; give another --output")
    asked = {name: str(value) for name, value in vars(options).items() if name not in ("output", "overrides", "config")}
    asked |= {"rows": hashlib.sha256(options.input.read_bytes()).hexdigest()}
    asked |= {"settings": config.model_dump_json(include={"seed", "base", "prm"})}
    note = folder.file("fit.json")
    begun = json.loads(note.read_text()) if note.is_file() else asked
    changed = sorted(name for name in asked if begun.get(name) != asked[name])
    if changed:
        raise InputError(f"{note}: another fit was begun here ({', '.join(changed)} differ); give another --output")
    folder.path.mkdir(parents=True, exist_ok=True)
    write_atomic(note, json.dumps(asked, indent=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit a PRM on a file of labelled solutions; return the exit code (2: bad input, nothing written over)."""
    parser = argparse.ArgumentParser(
        prog="python -m prm.fit",
        description=main.__doc__,
        epilog="settings, with their defaults (override with section.key=value):\n" + describe("base", "prm"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="directory or hub id of the causal language model to start from")
    parser.add_argument("--input", type=Path, required=True, help="JSON Lines of labelled solutions")
    parser.add_argument("--format", choices=tuple(READERS), required=True, help="what the rows are (docs/formats.md)")
    parser.add_argument("--output", type=Path, required=True, help="folder of the PRM")
    parser.add_argument("--neutral", choices=tuple(NEUTRAL), default="right", help="prm800k: label of rating 0")
    parser.add_argument("--bad-rows", choices=("stop", "drop"), default="stop", help="rows that cannot be read")
    parser.add_argument("--separator", default="\n", help="text between steps; that of the paths the PRM will score")
    parser.add_argument("--last-step-only", action="store_true", help="train on the last step's label only")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of prm.batch_paths an update")
    parser.add_argument("--lora-rank", type=int, default=0, help="0 trains all weights, else LoRA of this rank")
    parser.add_argument("--config", default=str(PROJECT / "configs" / "tiny.yaml"), help="YAML file of the settings")
    parser.add_argument("overrides", nargs="*", help="section.key=value, e.g. prm.learning_rate=1e-5")
    options = parser.parse_args(arguments)
    try:
        fit_file(options, load_config(options.config, options.overrides))
    except InputError as error:
        print(f"prm.fit: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What do our labels cost the PRM? ``python -m bench.oracle_labels --run RUN`` on a finished run.

paths of RUN's label stage -> labels of the exact oracle -> the same PRM fitted on them (RUN/oracle-labels)
  -> first-error F1 of both PRMs on the base model's own test paths, which RUN's evaluation has kept

One JSON object; exit code 1 when ours has less than ``--share`` of the other's F1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path as FilePath

from common.cli import seed_everything
from common.config import Config, load_config
from common.errors import InputError
from common.models import load_tokenizer
from common.records import IGNORED, LabelledPath, Problem
from common.runs import Run, read_records, write_rows
from data_gen.synthetic import judge
from eval.__main__ import pools_of, step_scores
from eval.base_paths import FOLDER
from eval.prm_quality import PRMSettings, prm_figures
from prm.__main__ import fit_stage


def relabelled(labelled: LabelledPath, text: str, after_error: str) -> LabelledPath:
    """The path with the oracle's labels: 1 before the first wrong step, 0 at it, behind it 0 or ignored, as ours; all
    ignored where the oracle cannot judge.
    """
    found, count = judge(text, [step.text for step in labelled.path.steps]), len(labelled.path.steps)
    if found.unknown:
        return dataclasses.replace(labelled, labels=(IGNORED,) * count, first_error=None, source="oracle")
    first = count if found.first_error is None else found.first_error
    behind = IGNORED if after_error == "ignore" else 0.0
    labels = tuple(1.0 if k < first else 0.0 if k == first else behind for k in range(count))
    return dataclasses.replace(labelled, labels=labels, first_error=found.first_error, source="oracle")


def with_oracle_labels(config: Config, run: Run) -> Run:
    """Copy the run's paths, label them by the oracle and fit its PRM on them.

    Raises:
        InputError: the problems are not the built-in generator's.
    """
    if config.data.source != "synthetic":
        raise InputError(f"oracle labels: data.source = {config.data.source!r} has no exact judge; want 'synthetic'")
    forked = Run(run.root / "oracle-labels", run.round)
    if not forked.stage("label").is_done:
        shutil.copytree(run.require("sample").path, forked.stage("sample").path, dirs_exist_ok=True)
        problems = read_records(run.require("sample").file("problems_train.jsonl"), Problem.from_row)
        texts = {problem.id: problem.text for problem in problems}
        stage = forked.stage("label")
        timer = stage.begin(config)
        ours = read_records(run.require("label").file("paths.jsonl"), LabelledPath.from_row)
        rows = [relabelled(one, texts[one.path.problem_id], config.data.after_error).to_row() for one in ours]
        write_rows(stage.file("paths.jsonl"), rows)
        timer.finish("paths.jsonl", labelled=len(rows))
    fit_stage(config, forked)
    if (run.root / FOLDER).is_dir():
        shutil.copytree(run.root / FOLDER, forked.root / FOLDER, dirs_exist_ok=True)
    return forked


def first_error_f1(config: Config, run: Run) -> dict[str, float | None]:
    """First-error F1, with its two accuracies, of the run's PRM on the base model's sampled test paths."""
    score, threshold = step_scores(config, run, load_tokenizer(config.base.model))
    pools = pools_of("base", config.base.model, config, run, score)
    settings = PRMSettings(
        threshold=threshold,
        aggregate=config.eval.aggregate,
        after_error=config.data.after_error,
        resamples=config.eval.resamples,
        seed=config.seed,
    )
    figures = prm_figures(pools.sampled, settings)
    names = ("first_error_f1", "accuracy_on_wrong", "accuracy_on_right")
    return {name: getattr(figures, name).value for name in names}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.oracle_labels", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.yaml")
    parser.add_argument("--run", type=FilePath, required=True, help="finished run folder")
    parser.add_argument("--share", type=float, default=0.9, help="least share of the F1 of oracle labels")
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    options = parser.parse_args(argv)
    config = load_config(options.config, options.overrides)
    seed_everything(config)
    run = Run(options.run)
    ours = first_error_f1(config, run)
    seed_everything(config)
    oracle = first_error_f1(config, with_oracle_labels(config, run))
    share = (ours["first_error_f1"] or 0.0) / (oracle["first_error_f1"] or 1.0)
    print(json.dumps({"our_labels": ours, "oracle_labels": oracle, "share": round(share, 4)}, indent=1))
    return 0 if share >= options.share else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""How good is a process reward model? ProcessBench F1 on labelled solutions, best-of-N on pools, calibration.

``python -m eval.prm_bench --prm DIR --input rows.jsonl [more files]``; ``--scorer arithmetic`` or ``--scorer
constant:K`` in place of ``--prm`` needs no model. Rows are described in ``eval.bench_rows``. A table is printed, and as
the LAST line one JSON object (``eval.bench_figures.BenchReport``) with ``f1``, ``acc_wrong``, ``acc_right``. Exit code
2 and one line for bad input.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

from common.config import BaseSection, PrmSection
from common.errors import InputError
from common.metrics import choose_threshold
from common.prompts import PromptTemplate
from common.runs import write_rows
from eval.bench_figures import (
    BenchReport,
    BenchSettings,
    PoolFigures,
    Scored,
    calibration_figures,
    first_error_figures,
    pool_figures,
)
from eval.bench_rows import PoolRow, StepRow, read_bench_file, refuse_overlap
from eval.bench_scorers import Question, SavedPRM, Scorer, is_bad, load_saved_prm, symbolic_scorer
from eval.pools import AGGREGATES
from eval.schema import Figure
from eval.table import shown_interval, shown_value


def parser() -> argparse.ArgumentParser:
    """The command line; prompt settings default to those of the ``base`` section."""
    base, prm = BaseSection(), PrmSection()
    line = argparse.ArgumentParser(prog="python -m eval.prm_bench", description=__doc__.split("\n\n")[0])
    what = line.add_mutually_exclusive_group(required=True)
    what.add_argument("--prm", help="folder written by the prm stage")
    what.add_argument("--scorer", help="arithmetic (exact check of equations), constant:-1 or constant:K")
    line.add_argument("--input", type=FilePath, nargs="+", required=True, help="JSON Lines: step rows or pool rows")
    line.add_argument("--limit", type=int, help="read only the first N rows of each file")
    line.add_argument("--subset-by", choices=("auto", "file", "subset", "id"), default="auto", help="auto: field, file")
    line.add_argument("--threshold", type=float, help="a step below it is called wrong; default: the PRM's own")
    line.add_argument("--threshold-from", type=FilePath, help="step rows of OTHER problems: take the best F1 there")
    line.add_argument("--aggregate", choices=AGGREGATES, default="min", help="path score for votes and AUC")
    line.add_argument(
        "--template", choices=("plain", "chat"), default=base.template, help="prompt, as in base.template"
    )
    line.add_argument("--instruction", default=base.instruction, help="text in front of the problem")
    line.add_argument("--separator", default=base.separator, help="what stood between steps when the PRM was fitted")
    line.add_argument("--max-length", type=int, help="longest input, tokens; default: what the PRM's positions allow")
    line.add_argument("--max-batch-tokens", type=int, default=prm.max_batch_tokens, help="tokens of a scoring batch")
    line.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    line.add_argument("--resamples", type=int, default=2000, help="of the bootstrap behind the 95 %% intervals")
    line.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    line.add_argument("--output", type=FilePath, help="write step scores and prediction of every row here")
    return line


def checked(options: Any) -> Any:
    """Raise InputError for values that make no sense."""
    for name in ("limit", "max_length", "max_batch_tokens", "resamples"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: want 1 or more")
    if options.threshold is not None and not 0 <= options.threshold <= 1:
        raise InputError(f"--threshold {options.threshold}: want 0 to 1")
    if options.threshold is not None and options.threshold_from is not None:
        raise InputError("--threshold and --threshold-from: want one of them")
    if options.scorer and (options.threshold is not None or options.threshold_from is not None):
        raise InputError(f"--scorer {options.scorer} has no threshold; --threshold needs --prm")
    return options


def make_scorer(options: Any, measured: Sequence[StepRow]) -> Scorer:
    """The scorer with its threshold settled."""
    if options.scorer:
        return symbolic_scorer(options.scorer)
    validation: list[StepRow] = []
    if options.threshold_from is not None:
        validation, _ = read_bench_file(options.threshold_from, options.threshold_from.stem)
        refuse_overlap(measured, validation, options.threshold_from)
    prm = load_saved_prm(
        options.prm,
        PromptTemplate(options.template, options.instruction),
        separator=options.separator,
        device=options.device,
        max_length=options.max_length,
        max_batch_tokens=options.max_batch_tokens,
    )
    if options.threshold is not None:
        prm.threshold, prm.threshold_rule = options.threshold, "given on the command line"
    if options.threshold_from is not None:
        settle_threshold(prm, validation, options.threshold_from)
    return prm


def settle_threshold(prm: SavedPRM, rows: Sequence[StepRow], path: FilePath) -> None:
    """Take the threshold with the best first-error F1 on ``rows``; rows with a bad score are left out and counted."""
    scores = prm.score([_question(row) for row in rows])
    usable = [(one, row.first_error) for one, row in zip(scores, rows, strict=True) if one and not is_bad(one)]
    if len({error is None for _, error in usable}) < 2:
        raise InputError(f"{path}: want scored solutions with and without a wrong step to choose a threshold on")
    prm.threshold, found = choose_threshold([one for one, _ in usable], [error for _, error in usable])
    left_out = f", {len(rows) - len(usable)} without usable scores left out" if len(usable) < len(rows) else ""
    prm.threshold_rule = f"best F1 ({found.f1:.3f}) on {len(usable)} rows of {path.name}{left_out}"


def _question(row: StepRow) -> Question:
    return Question(row.problem, row.steps, row.place)


def score_steps(scorer: Scorer, rows: Sequence[StepRow]) -> list[Scored]:
    """Scores and prediction of every step row."""
    scores = scorer.score([_question(row) for row in rows])
    return [Scored(row, one, scorer.predict(one)) for row, one in zip(rows, scores, strict=True)]


def score_pool(scorer: Scorer, rows: Sequence[PoolRow]) -> list[list[list[float]]]:
    """Step scores of every sample of every row; an empty list for a sample without a step."""
    found = []
    for row in rows:
        texts = [[step.text for step in path.steps] for path in row.paths]
        asked = [k for k, steps in enumerate(texts) if steps]
        scores: list[list[float]] = [[] for _ in texts]
        answers = scorer.score([Question(row.problem.text, texts[k], f"{row.place}, sample {k}") for k in asked])
        for k, one in zip(asked, answers, strict=True):
            scores[k] = one
        found.append(scores)
    return found


def names(paths: Sequence[FilePath]) -> dict[str, FilePath]:
    """A short name for each file: its stem, or its path where two files share a stem."""
    if len(set(paths)) < len(paths):
        raise InputError(f"--input {' '.join(map(str, paths))}: a file is given twice")
    stems = [path.stem for path in paths]
    return {path.stem if stems.count(path.stem) == 1 else str(path): path for path in paths}


def run(options: Any, console: Console) -> BenchReport:
    """Read, score, measure, print the tables; return the report."""
    settings = BenchSettings(options.aggregate, options.resamples, options.seed)
    files = {
        name: read_bench_file(path, name, subset_by=options.subset_by, limit=options.limit)
        for name, path in names(options.input).items()
    }
    steps = [row for rows, _ in files.values() for row in rows]
    scorer = make_scorer(options, steps)
    scored = score_steps(scorer, steps)
    pools = {name: rows for name, (_, rows) in files.items() if rows}
    pool_scores = {name: score_pool(scorer, rows) for name, rows in pools.items()}
    mean, subsets = first_error_figures(scored, settings) if scored else (None, {})
    report = BenchReport(
        f1=mean.f1.value if mean else None,
        acc_wrong=mean.acc_wrong.value if mean else None,
        acc_right=mean.acc_right.value if mean else None,
        scorer=scorer.name,
        threshold=scorer.threshold,
        threshold_rule=scorer.threshold_rule,
        aggregate=options.aggregate,
        template=options.template,
        instruction=options.instruction,
        mean=mean,
        subsets=subsets,
        calibration=calibration_figures(scored, settings) if scored and options.prm else None,
        best_of_n={
            name: pool_figures([list(row.paths) for row in rows], pool_scores[name], settings)
            for name, rows in pools.items()
        },
    )
    if options.output:
        write_rows(options.output, [*_score_rows(scored), *_pool_rows(pools, pool_scores)])
    print_report(report, console)
    return report


def _plain(scores: Sequence[float]) -> list[float | None]:
    """JSON has no NaN: None stands for a score that is not finite."""
    return [score if math.isfinite(score) else None for score in scores]


def _score_rows(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    return [
        {
            "file": one.row.place.rsplit(", row ", 1)[0],
            "row": one.row.number,
            "id": one.row.id,
            "subset": one.row.subset,
            "label": -1 if one.row.first_error is None else one.row.first_error,
            "prediction": -1 if one.predicted is None else one.predicted,
            "scores": _plain(one.scores),
        }
        for one in scored
    ]


def _pool_rows(pools: dict[str, list[PoolRow]], scores: dict[str, list[list[list[float]]]]) -> list[dict[str, Any]]:
    return [
        {
            "file": row.place.rsplit(", row ", 1)[0],
            "row": row.number,
            "verdicts": [path.verdict.value for path in row.paths],
            "answers": [path.answer for path in row.paths],
            "scores": [_plain(one) for one in found],
        }
        for name, rows in pools.items()
        for row, found in zip(rows, scores[name], strict=True)
    ]


def print_report(report: BenchReport, console: Console) -> None:
    """Tables of what was measured: first errors, best of N, calibration."""
    if report.mean:
        console.print(first_error_table(report))
    for name, figures in report.best_of_n.items():
        console.print(pool_table(name, figures, report.aggregate))
    if report.calibration:
        one = report.calibration
        error = "–" if one.calibration_error is None else f"{one.calibration_error:.3f}"
        brier = f"{shown_value(one.brier, 'score')} {shown_interval(one.brier, 'score')}"
        console.print(f"calibration on {one.steps} labelled steps: Brier {brier}, ECE {error}", highlight=False)


def _cell(figure: Figure) -> str:
    return f"{shown_value(figure, 'share')}\n{shown_interval(figure, 'share')}".strip()


def first_error_table(report: BenchReport) -> Table:
    """F1 and accuracies a subset, with 95 % intervals, in percent."""
    rule = f"threshold {report.threshold:.3g}: " if report.threshold is not None else ""
    table = Table(title=f"first wrong step, {report.scorer}", caption=f"percent; {rule}{report.threshold_rule}")
    for name in ("subset", "rows", "F1", "on wrong", "on right", "fired", "reached", "exact"):
        table.add_column(name, justify="left" if name == "subset" else "right")
    rows = dict(report.subsets)
    if report.mean and len(rows) > 1:
        rows["mean over subsets"] = report.mean
    for name, one in rows.items():
        notes = [f"{count} {what}" for count, what in ((one.bad_rows, "bad"), (one.cut_rows, "cut")) if count]
        cells = [_cell(one.f1), _cell(one.acc_wrong), _cell(one.acc_right), str(one.fired)]
        cells += [shown_value(one.reached, "share"), shown_value(one.exact, "share")]
        table.add_row(name, " ".join([str(one.rows), *(f"({note})" for note in notes)]), *cells)
    return table


def pool_table(name: str, figures: PoolFigures, aggregate: str) -> Table:
    """Best of N a rule, with 95 % intervals, in percent."""
    lost = [
        f"{count} {what}"
        for count, what in (
            (figures.bad_samples, "with bad scores"),
            (figures.unscored_samples, "without scores"),
            (figures.unjudged_samples, "not judged"),
        )
        if count
    ]
    auc = shown_value(figures.outcome_auc, "score")
    caption = f"percent; AUC of path score ({aggregate}) against outcome: {auc}"
    title = f"best of N, {name}: {figures.samples} samples" + (f" ({', '.join(lost)})" if lost else "")
    table = Table(title=title, caption=caption)
    table.add_column("N")
    for k, count in figures.problems.items():
        table.add_column(f"{k}\n{count} problems", justify="right")
    rows = {"pass@N (oracle)": figures.oracle, "majority": figures.majority, f"vote by {aggregate}": figures.vote}
    rows |= {f"best by {rule}": by_k for rule, by_k in figures.best.items()}
    for label, by_k in rows.items():
        table.add_row(label, *map(_cell, by_k.values()))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        report = run(checked(parser().parse_args(arguments)), Console())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report.model_dump_json())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

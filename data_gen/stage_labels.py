"""The labelling half of the data stage: labels from the sources of the configuration, their quality where there is an
oracle, in this process or on a cluster.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from common.config import Config
from common.errors import InputError
from common.models import load_tokenizer
from common.prompts import PromptTemplate
from common.records import LabelledPath, Path, Problem
from common.runs import SUMS, Run, StageTimer, read_records, write_atomic, write_rows
from data_gen.completion_store import StoredCompletions
from data_gen.completions import CompletionSampler, label_by_completions
from data_gen.label_quality import QualityCounts
from data_gen.labels import LabelSettings, LabelSummary, can_be_labelled, label_paths, refusal
from data_gen.monte_carlo import MonteCarloSettings, consensus
from data_gen.ray_cluster import RayCluster, build_sampler
from data_gen.settings import derived_seed, engine_of, sample_settings, sampled_model, text_settings
from data_gen.stream_labels import cut_label_chunks, label_missing, labelled_rows, oracle_quality


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Counts of the labelled paths that were written.

    Attributes:
        paths, labelled: paths given and labelled. judged: those that `can_be_labelled`.
        source: of the labels, as records carry it. row: what each source counted and cost, for metrics.json.
        quality, unknown: against the oracle; paths that it cannot judge.
    """

    paths: int
    labelled: int
    judged: int
    source: str
    row: dict[str, Any]
    quality: QualityCounts
    unknown: int


def label_stage(config: Config, run: Run) -> None:
    """Write the labelled paths of ``2_label``, what was left out, and label quality where there is an oracle."""
    run.require("sample")
    stage = run.stage("label")
    timer = stage.begin(config)
    if stage.is_done:
        print(f"data: {stage.path} is finished")
        return
    data = config.data
    is_spread = data.cluster == "ray" and "monte_carlo" not in data.label_sources
    done = (_label_on_cluster if is_spread else _label_here)(config, run, timer)
    coverage = done.labelled / max(done.judged, 1)
    quality = quality_row(done, coverage) if data.source == "synthetic" else None
    row = {"settings": done.source, **done.row, "coverage": coverage, "quality": quality}
    write_atomic(stage.file("metrics.json"), json.dumps(row, indent=1, allow_nan=False))
    timer.finish("paths.jsonl", "metrics.json", labelled=done.labelled, coverage=coverage)
    print(f"data: labelled {done.labelled} of {done.paths} paths, coverage {coverage:.3f}")
    if quality:
        print(
            f"data: labels against the oracle: first error exact {quality['first_error_exact']:.3f}, negative"
            f" precision {quality['negative_precision']:.3f}, recall {quality['negative_recall']:.3f}, correct paths"
            f" that hide a wrong step {quality['hidden_errors']:.3f}"
        )


def _label_here(config: Config, run: Run, timer: StageTimer) -> Labelled:
    stage, sampled = run.stage("label"), run.stage("sample")
    paths = read_records(sampled.file("paths.jsonl"), Path.from_row)
    problems = read_records(sampled.file("problems_train.jsonl"), Problem.from_row)
    labelled, row = labels_of(config, run, paths, problems, timer.save)
    if not labelled:
        raise InputError(f"{stage.path}: no path could be labelled; {row}")
    write_rows(stage.file("paths.jsonl"), (one.to_row() for one in labelled))
    quality, unknown = QualityCounts(), 0
    if config.data.source == "synthetic":
        quality, unknown = oracle_quality(labelled, {problem.id: problem.text for problem in problems})
    judged = sum(can_be_labelled(path) for path in paths)
    return Labelled(len(paths), len(labelled), judged, labelled[0].source, row, quality, unknown)


def _label_on_cluster(config: Config, run: Run, timer: StageTimer) -> Labelled:
    """What `_label_here` writes, without a pool in memory."""
    stage, sampled, data = run.stage("label"), run.stage("sample"), config.data
    settings, has_oracle = text_settings(config, data.label_sources), data.source == "synthetic"
    files = (sampled.file("paths.jsonl"), sampled.file("problems_train.jsonl"))
    identity = (sampled.summary.get(SUMS), settings, has_oracle)
    chunks = cut_label_chunks(*files, stage.file("chunks"), data.chunk, *identity)
    cluster = RayCluster(data.workers, functools.partial(build_sampler, config, sampled_model(config, run)))
    label = functools.partial(cluster.label, settings=settings, has_oracle=has_oracle)
    totals = label_missing(chunks, label, stage.say, timer.save)
    row = {"summary": _believed(totals.summary, settings, config).to_row()}
    if not totals.summary.labelled:
        raise InputError(f"{stage.path}: no path could be labelled; {row}")
    write_rows(stage.file("paths.jsonl"), labelled_rows(chunks, stage.say))
    summary = totals.summary
    return Labelled(summary.paths, summary.labelled, totals.judged, settings.name, row, totals.quality, totals.unknown)


def labels_of(
    config: Config,
    run: Run,
    paths: Sequence[Path],
    problems: Sequence[Problem],
    on_chunk: Callable[[], None] = lambda: None,
) -> tuple[list[LabelledPath], dict[str, Any]]:
    """Label paths by the sources of the configuration.

    Returns the labelled paths and, for metrics.json, what each source counted and cost.

    Raises:
        InputError: support is a source, the problems are real, and the pool shows that support cannot be believed.
    """
    data = config.data
    by_text = tuple(source for source in data.label_sources if source != "monte_carlo")
    labelled: list[LabelledPath] = []
    row: dict[str, Any] = {}
    if by_text:
        settings = text_settings(config, by_text)
        labelled, summary = label_paths(paths, settings, {problem.id: problem.text for problem in problems})
        row["summary"] = _believed(summary, settings, config).to_row()
    if len(by_text) < len(data.label_sources):
        by_completions, row["monte_carlo"] = monte_carlo_labels(config, run, paths, problems, on_chunk)
        if by_text:
            labelled, row["consensus"] = consensus(labelled, by_completions)
        else:
            labelled = by_completions
    return labelled, row


def _believed(summary: LabelSummary, settings: LabelSettings, config: Config) -> LabelSummary:
    """The summary, where its support can be believed."""
    data = config.data
    reason = refusal(summary, settings, data.max_unsupported) if data.source != "synthetic" else None
    if reason:
        raise InputError(f"data.max_unsupported: {reason}")
    return summary


def monte_carlo_labels(
    config: Config, run: Run, paths: Sequence[Path], problems: Sequence[Problem], on_chunk: Callable[[], None]
) -> tuple[list[LabelledPath], dict[str, Any]]:
    """Labels by completions of the policy that sampled the paths, and what they cost."""
    data = config.data
    model = sampled_model(config, run)
    tokenizer = load_tokenizer(model)
    template = PromptTemplate.from_config(config.base)
    sampler = CompletionSampler(
        engine_of(config, model, tokenizer),
        tokenizer,
        lambda problem: template.ids(problem.text, tokenizer),
        {problem.id: problem for problem in problems},
        sample_settings(config),
        seed=derived_seed(config, run) + 1,
    )
    settings = MonteCarloSettings(
        data.mc_completions, data.mc_form, data.mc_search, data.mc_threshold, data.after_error
    )
    stage = run.stage("label")
    memory = StoredCompletions(sampler, stage.file("completions"), stage.say, on_chunk)
    labelled, left_out, cost = label_by_completions(memory, paths, settings)
    print(f"data: {cost.completions} completions from {cost.prefixes} prefixes, {cost.seconds:.0f} s")
    return labelled, {"settings": settings.name, "left_out": left_out, "cost": cost.to_row()}


def quality_row(done: Labelled, coverage: float) -> dict[str, Any]:
    """Quality of the labels as metrics.json holds it."""
    found = done.quality.shares()
    return {
        "first_error_exact": found["first_error_exact"],
        "negative_precision": found["negative_precision"],
        "negative_recall": found["negative_recall"],
        "coverage": coverage,
        "hidden_errors": found["hidden_wrong_in_correct"],
        "paths": done.quality.paths,
        "unknown_paths": done.unknown,
        "label_accuracy": found["label_accuracy"],
        "correct_paths": done.quality.correct,
    }

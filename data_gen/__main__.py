"""Stage ``data``: measured problems, sampled paths, labelled steps.

pool of problems -> pass rates -> those solved 20-80 % of the time -> 16 paths each   (1_sample)
paths -> step labels from their sources -> summary, quality against the oracle   (2_label)
"""

from __future__ import annotations

import functools
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from common.cli import stage_main
from common.config import Config
from common.errors import InputError
from common.models import load_policy, load_tokenizer, locate, sampling_device
from common.prompts import PromptTemplate
from common.records import LabelledPath, Path, Problem, Verdict
from common.runs import Run, read_records, write_atomic, write_rows
from data_gen.completion_store import StoredCompletions
from data_gen.completions import CompletionSampler, label_by_completions
from data_gen.engines import Engine, make_engine
from data_gen.labels import LabelSettings, can_be_labelled, label_paths, label_quality, refusal
from data_gen.measure import SampleSettings
from data_gen.monte_carlo import MonteCarloSettings, consensus
from data_gen.problems import ProblemSource, load_problems
from data_gen.sample import PoolSettings, make_pool
from data_gen.sampling_workers import SamplingWorkers
from data_gen.show_prompt import show_prompt
from data_gen.synthetic import judge


def problems_of(config: Config, split: str, seed: int, count: int) -> list[Problem]:
    """Problems of one split; validation and test have their own levels and do not depend on seed or round."""
    data = config.data
    levels = data.levels if split == "train" or data.test_levels is None else data.test_levels
    return load_problems(ProblemSource(data.source, levels, data.kinds), split, seed, count)


def engine_of(config: Config, model: str, tokenizer: Any) -> Engine:
    """The sampling engine of the data stage."""
    if config.data.engine == "vllm":
        return vllm_engine(model, config.base.dtype, config.data.max_batch_rows)
    policy = load_policy(model, config.base.dtype).to(sampling_device())
    return make_engine("transformers", policy, tokenizer, max_rows=config.data.max_batch_rows)


@functools.lru_cache(maxsize=1)
def vllm_engine(model: str, dtype: str, max_rows: int) -> Engine:
    """The vLLM engine of this process: sampling and labelling share it, as a second one would find no memory."""
    return make_engine("vllm", model, load_tokenizer(model), max_rows=max_rows, dtype=dtype)


def derived_seed(config: Config, run: Run) -> int:
    """A seed that differs for every run seed and round."""
    return zlib.crc32(f"data/{config.seed}/{run.round}".encode())


def sampled_model(config: Config, run: Run) -> str:
    """The model whose paths are sampled: where a supervised start learns from those paths, the one before it."""
    return locate(run.start_model(config, before_sft=config.sft.source == "right_paths"))


def sample_stage(config: Config, run: Run) -> None:
    """Write problems_{train,validation,test}.jsonl and paths.jsonl of ``1_sample``."""
    model = sampled_model(config, run)
    stage = run.stage("sample")
    timer = stage.begin(config)
    if stage.is_done:
        print(f"data: {stage.path} is finished")
        return
    data, seed = config.data, derived_seed(config, run)
    for split, count in (("validation", data.validation), ("test", data.test)):
        rows = problems_of(config, split, 0, count)
        write_rows(stage.file(f"problems_{split}.jsonl"), (problem.to_row() for problem in rows))
    tokenizer = load_tokenizer(model)
    template = PromptTemplate.from_config(config.base)
    workers = data.workers if data.engine == "transformers" else 0
    with SamplingWorkers(workers, model, config.base.dtype, data.max_batch_rows) if workers > 1 else nullcontext() as w:
        pool = make_pool(
            engine_of(config, model, tokenizer),
            problems_of(config, "train", seed, data.pool),
            tokenizer,
            lambda problem: template.ids(problem.text, tokenizer),
            stage.file("chunks"),
            PoolSettings(
                measure_paths=data.measure_paths,
                paths=data.paths,
                pass_low=data.pass_low,
                pass_high=data.pass_high,
                chunk=data.chunk,
                label_measured=data.label_measured,
                seed=seed,
            ),
            SampleSettings(data.temperature, data.max_new_tokens, stop=config.base.stop),
            workers=w,
            say=stage.say,
            on_chunk=timer.save,
        )
    if not pool.problems:
        raise InputError(
            f"none of {len(pool.measured)} problems has a pass rate in [{data.pass_low}, {data.pass_high}]; choose"
            " other problems, other levels or a wider band"
        )
    write_rows(stage.file("problems_train.jsonl"), (problem.to_row() for problem in pool.measured))
    write_rows(stage.file("paths.jsonl"), (path.to_row() for path in pool.paths))
    rates = [problem.difficulty for problem in pool.measured if problem.difficulty is not None]
    summary = {
        "pool": len(pool.measured),
        "pool_pass_rate": sum(rates) / max(len(rates), 1),
        "kept": len(pool.problems),
        "kept_by_topic": dict(pool.kept_by_topic),
        "others": len(pool.others),
        "paths": len(pool.paths),
    }
    write_atomic(stage.file("metrics.json"), json.dumps(summary, indent=1))
    timer.finish("paths.jsonl", *(f"problems_{split}.jsonl" for split in ("train", "validation", "test")), **summary)
    print(
        f"data: kept {len(pool.problems)} of {len(pool.measured)} problems (mean pass rate"
        f" {summary['pool_pass_rate']:.3f}), {len(pool.paths)} paths, {timer.seconds:.0f} s"
    )


def label_stage(config: Config, run: Run) -> None:
    """Write the labelled paths of ``2_label``, what was left out, and label quality where there is an oracle."""
    sampled = run.require("sample")
    stage = run.stage("label")
    timer = stage.begin(config)
    if stage.is_done:
        print(f"data: {stage.path} is finished")
        return
    data = config.data
    paths = read_records(sampled.file("paths.jsonl"), Path.from_row)
    problems = read_records(sampled.file("problems_train.jsonl"), Problem.from_row)
    labelled, row = labels_of(config, run, paths, problems, timer.save)
    if not labelled:
        raise InputError(f"{stage.path}: no path could be labelled; {row}")
    write_rows(stage.file("paths.jsonl"), (one.to_row() for one in labelled))
    coverage = len(labelled) / max(sum(can_be_labelled(path) for path in paths), 1)
    quality = quality_row(labelled, problems, coverage) if data.source == "synthetic" else None
    row = {"settings": labelled[0].source, **row, "coverage": coverage, "quality": quality}
    write_atomic(stage.file("metrics.json"), json.dumps(row, indent=1, allow_nan=False))
    timer.finish("paths.jsonl", "metrics.json", labelled=len(labelled), coverage=coverage)
    print(f"data: labelled {len(labelled)} of {len(paths)} paths, coverage {coverage:.3f}")
    if quality:
        print(
            f"data: labels against the oracle: first error exact {quality['first_error_exact']:.3f}, negative"
            f" precision {quality['negative_precision']:.3f}, recall {quality['negative_recall']:.3f}, correct paths"
            f" that hide a wrong step {quality['hidden_errors']:.3f}"
        )


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
        reason = refusal(summary, settings, data.max_unsupported) if data.source != "synthetic" else None
        if reason:
            raise InputError(f"data.max_unsupported: {reason}")
        row["summary"] = summary.to_row()
    if len(by_text) < len(data.label_sources):
        by_completions, row["monte_carlo"] = monte_carlo_labels(config, run, paths, problems, on_chunk)
        if by_text:
            labelled, row["consensus"] = consensus(labelled, by_completions)
        else:
            labelled = by_completions
    return labelled, row


def text_settings(config: Config, sources: tuple[str, ...]) -> LabelSettings:
    """The settings of the sources that read the sampled paths alone."""
    data = config.data
    keys = data.label_keys
    if keys == "auto":
        keys = "equations" if data.source == "synthetic" else "values"
    return LabelSettings(
        rule=data.label_rule,
        sources=sources,
        min_support=data.min_support,
        after_error=data.after_error,
        false_in_correct=data.false_in_correct,
        min_share=data.min_share,
        keys=keys,
    )


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
        SampleSettings(data.temperature, data.max_new_tokens, stop=config.base.stop),
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


def quality_row(labelled: Sequence[LabelledPath], problems: Sequence[Problem], coverage: float) -> dict[str, Any]:
    """Quality of the labels against the exact oracle; paths it cannot judge are left out and counted."""
    texts = {problem.id: problem.text for problem in problems}
    truths = [judge(texts[row.path.problem_id], [step.text for step in row.path.steps]) for row in labelled]
    known = [(row, truth.first_error) for row, truth in zip(labelled, truths, strict=True) if not truth.unknown]
    found = label_quality([row for row, _ in known], [error for _, error in known])
    correct = sum(row.path.verdict is Verdict.CORRECT for row, _ in known)
    return {
        "first_error_exact": found["first_error_exact"],
        "negative_precision": found["negative_precision"],
        "negative_recall": found["negative_recall"],
        "coverage": coverage,
        "hidden_errors": found["hidden_wrong_in_correct"],
        "paths": len(known),
        "unknown_paths": len(labelled) - len(known),
        "label_accuracy": found["label_accuracy"],
        "correct_paths": correct,
    }


def data_stage(config: Config, run: Run) -> None:
    """Pick problems the model solves 20-80 % of the time, sample their paths, label every step."""
    sample_stage(config, run)
    label_stage(config, run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage, or with ``--show-prompt`` print one example; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    purpose = (
        data_stage.__doc__ or ""
    ) + "\n\n--show-prompt: print one example with its token and step spans, and stop."
    if "--show-prompt" in arguments:
        arguments.remove("--show-prompt")
        return stage_main("data_gen --show-prompt", show_prompt.__doc__ or "", ("base", "data"), show_prompt, arguments)
    return stage_main("data_gen", purpose, ("base", "data", "sft"), data_stage, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

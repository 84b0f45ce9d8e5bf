"""Stage ``data``: measured problems, sampled paths, labelled steps.

pool of problems -> pass rates -> those solved 20-80 % of the time -> 16 paths each   (1_sample)
paths -> step labels from their sources -> summary, quality against the oracle   (2_label, `data_gen.stage_labels`)
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from common.cli import stage_main
from common.config import Config
from common.errors import InputError
from common.models import load_tokenizer
from common.prompts import PromptTemplate
from common.runs import Run, StageTimer, write_atomic, write_rows
from data_gen.problems import stream_problems
from data_gen.ray_cluster import RayCluster, build_sampler
from data_gen.sample import make_pool
from data_gen.sampling_workers import SamplingWorkers
from data_gen.settings import (
    derived_seed,
    engine_of,
    pool_settings,
    problems_of,
    sample_settings,
    sampled_model,
    source_of,
)
from data_gen.show_prompt import show_prompt
from data_gen.stage_labels import label_stage
from data_gen.stream_pool import PoolCounts, stream_pool


def sample_stage(config: Config, run: Run) -> None:
    """Write problems_{train,validation,test}.jsonl and paths.jsonl of ``1_sample``."""
    stage = run.stage("sample")
    model = sampled_model(config, run)
    timer = stage.begin(config)
    if stage.is_done:
        print(f"data: {stage.path} is finished")
        return
    data = config.data
    for split, count in (("validation", data.validation), ("test", data.test)):
        rows = stream_problems(source_of(config, split), split, 0, count)
        write_rows(stage.file(f"problems_{split}.jsonl"), (problem.to_row() for problem in rows))
    counts = (_sample_on_cluster if data.cluster == "ray" else _sample_here)(config, run, model, timer)
    if not counts.kept:
        raise InputError(
            f"none of {counts.measured} problems has a pass rate in [{data.pass_low}, {data.pass_high}]; choose"
            " other problems, other levels or a wider band"
        )
    summary = {
        "pool": counts.measured,
        "pool_pass_rate": counts.mean_pass_rate,
        "kept": counts.kept,
        "kept_by_topic": dict(counts.kept_by_topic),
        "others": counts.others,
        "paths": counts.paths,
    }
    write_atomic(stage.file("metrics.json"), json.dumps(summary, indent=1))
    timer.finish("paths.jsonl", *(f"problems_{split}.jsonl" for split in ("train", "validation", "test")), **summary)
    print(
        f"data: kept {counts.kept} of {counts.measured} problems (mean pass rate"
        f" {summary['pool_pass_rate']:.3f}), {counts.paths} paths, {timer.seconds:.0f} s"
    )


def _sample_here(config: Config, run: Run, model: str, timer: StageTimer) -> PoolCounts:
    stage, data, seed = run.stage("sample"), config.data, derived_seed(config, run)
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
            pool_settings(config, seed),
            sample_settings(config),
            workers=w,
            say=stage.say,
            on_chunk=timer.save,
        )
    rates = [problem.difficulty for problem in pool.measured if problem.difficulty is not None]
    if pool.problems:
        write_rows(stage.file("problems_train.jsonl"), (problem.to_row() for problem in pool.measured))
        write_rows(stage.file("paths.jsonl"), (path.to_row() for path in pool.paths))
    return PoolCounts(
        measured=len(pool.measured),
        mean_pass_rate=sum(rates) / max(len(rates), 1),
        kept=len(pool.problems),
        kept_by_topic=pool.kept_by_topic,
        others=len(pool.others),
        paths=len(pool.paths),
    )


def _sample_on_cluster(config: Config, run: Run, model: str, timer: StageTimer) -> PoolCounts:
    """What `_sample_here` writes, without a pool in memory."""
    stage, data, seed = run.stage("sample"), config.data, derived_seed(config, run)
    cluster = RayCluster(data.workers, functools.partial(build_sampler, config, model))
    return stream_pool(
        stream_problems(source_of(config, "train"), "train", seed, data.pool),
        stage.file("chunks"),
        pool_settings(config, seed),
        sample_settings(config),
        cluster.fill,
        problems_file=stage.file("problems_train.jsonl"),
        paths_file=stage.file("paths.jsonl"),
        say=stage.say,
        on_chunk=timer.save,
    )


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

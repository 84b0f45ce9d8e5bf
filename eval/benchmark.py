"""``python -m eval --benchmark NAME|FILE --model DIR``: one model on one benchmark, with intervals; outputs are kept.

rows (hub or file) -> prompts -> outputs.jsonl (resumable) -> verdicts.jsonl -> result.json, and one JSON line

How each benchmark is asked, sampled and graded stands in ``eval/benchmarks.yaml``. ``--recorded FILE`` grades outputs
that were made elsewhere. Bad input: one line, exit code 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from common.config import BaseSection, load_config
from common.errors import InputError
from common.models import load_policy, load_tokenizer, locate, sampling_device
from common.runs import write_rows
from eval.benchmark_figures import BenchmarkReport, Graded, figures, grade_sample, verdict_rows
from eval.benchmark_outputs import OutputFolder, drawing, sample_all
from eval.benchmark_prompt import BenchmarkPrompt, template_kind
from eval.benchmark_rows import Question, Sample, questions, recorded, rows_of, worked_examples
from eval.benchmark_spec import Benchmark, Sampling, find_benchmark, grading_settings
from eval.benchmark_table import registry_table, report_table
from eval.schema import write_record
from grading.settings import GradingSettings


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given comes from the registry."""
    line = argparse.ArgumentParser(prog="python -m eval --benchmark", description=(__doc__ or "").split("\n\n")[0])
    line.add_argument("--benchmark", nargs="?", help="name in eval/benchmarks.yaml, or a JSON Lines file; none: list")
    what = line.add_mutually_exclusive_group()
    what.add_argument("--model", help="directory or hub id of the model")
    what.add_argument("--recorded", type=FilePath, help="JSON Lines of problems with 'samples': grade these outputs")
    line.add_argument("--only", nargs="*", default=[], metavar="FIELD=VALUE", help="recorded samples with these fields")
    line.add_argument("--rows", type=FilePath, help="local rows in place of the hub's, read by the benchmark's policy")
    line.add_argument("--limit", type=int, help="the first N problems only")
    line.add_argument(
        "--config", type=FilePath, help="ask as this configuration's base section does, not as registered"
    )
    line.add_argument(
        "--template", choices=("auto", "chat", "plain"), default="auto", help="auto: chat where there is one"
    )
    line.add_argument("--shots", type=int, default=0, help="worked examples in front of the problem")
    line.add_argument("--shot-rows", type=FilePath, help="rows the worked examples are taken from")
    line.add_argument("--samples", type=int, help="outputs a problem")
    line.add_argument("--temperature", type=float, help="0: greedy")
    line.add_argument("--top-p", type=float)
    line.add_argument("--max-new-tokens", type=int, help="length limit of an output, tokens")
    line.add_argument("--grading", nargs="*", default=[], metavar="SETTING=VALUE", help="see docs/grading.md")
    line.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    line.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="of the weights; default: --config's; bfloat16 on cuda"
    )
    line.add_argument("--device", help="of engine transformers; default: cuda where there is one")
    line.add_argument("--threads", type=int, default=0, help="torch CPU threads; 0: as many as there are cores")
    line.add_argument("--chunk", type=int, default=16, help="problems between two saves")
    line.add_argument("--max-rows", type=int, default=256, help="outputs sampled at once")
    line.add_argument("--seed", type=int, default=0, help="of sampling and of the bootstrap")
    line.add_argument("--resamples", type=int, default=2000, help="of the bootstrap behind the 95 %% intervals")
    line.add_argument("--output", type=FilePath, help="default: runs/benchmarks/<benchmark>/<model>")
    line.add_argument("--show-prompt", action="store_true", help="print the prompt of the first problem, and stop")
    return line


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """``name=value`` arguments as a dictionary. Raises InputError for one without ``=``."""
    for value in values:
        if "=" not in value:
            raise InputError(f"{option} {value!r}: want name=value")
    return {name: value for name, _, value in (value.partition("=") for value in values)}


def checked(options: Any) -> Any:
    """Raise InputError for options that make no sense together."""
    for name in ("limit", "samples", "max_new_tokens", "chunk", "max_rows", "resamples"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: want 1 or more")
    if options.shots < 0:
        raise InputError(f"--shots {options.shots}: want 0 or more")
    if options.temperature is not None and options.temperature < 0:
        raise InputError(f"--temperature {options.temperature}: want 0 or more")
    if options.top_p is not None and not 0 < options.top_p <= 1:
        raise InputError(f"--top-p {options.top_p}: want above 0, at most 1")
    if options.config is not None and (options.shots or options.template != "auto"):
        raise InputError("--config: the prompt is the configuration's; --shots and --template do not go with it")
    if options.only and options.recorded is None:
        raise InputError("--only: wants --recorded")
    if options.model is None and options.recorded is None:
        raise InputError("want --model DIR, or --recorded FILE")
    return options


def sampling_of(benchmark: Benchmark, options: Any) -> Sampling:
    """The registry's sampling with what the command line changes.

    Raises:
        InputError: several samples at temperature 0, which are all the same.
    """
    names = ("samples", "temperature", "top_p", "max_new_tokens")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    sampling = benchmark.sampling.model_copy(update=given)
    if sampling.temperature == 0 and sampling.samples > 1:
        raise InputError(f"--samples {sampling.samples} at temperature 0: all are the same; want --temperature above 0")
    return sampling


def policy_of(benchmark: Benchmark, options: Any) -> tuple[dict[str, Any], GradingSettings]:
    """The grading policy, as it differs from the default and as settings."""
    given = OmegaConf.to_container(
        OmegaConf.from_dotlist([f"{k}={v}" for k, v in pairs(options.grading, "--grading").items()])
    )
    values = {**benchmark.grading, **given}  # type: ignore[dict-item]
    return values, grading_settings(values)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a run is about: questions, where they come from, and their outputs."""

    questions: list[Question]
    where: str
    samples: list[list[Sample]]
    settings: dict[str, Any]
    seconds: float = 0.0
    sampled_tokens: int = 0


def from_model(benchmark: Benchmark, options: Any, folder: FilePath) -> Asked:
    """Sample what is not on disk yet."""
    rows, where = rows_of(benchmark, options.rows)
    asked = questions(rows, benchmark, where)[: options.limit]
    base = load_config(options.config).base if options.config else None
    sampling = sampling_of(benchmark, options)
    tokenizer = load_tokenizer(options.model)
    prompt = prompt_of(benchmark, options, base, tokenizer)
    is_cuda = (options.device or sampling_device().type).startswith("cuda")
    dtype = options.dtype or (base.dtype if base else "bfloat16" if is_cuda else "float32")
    settings = {
        "model": options.model,
        "dtype": dtype,
        "engine": options.engine,
        "template": prompt.kind,
        "prompt": prompt.text("{problem}", tokenizer),
        "shots": options.shots,
        "stop": list(prompt.stop),
        **sampling.model_dump(),
        "seed": options.seed,
    }
    outputs = OutputFolder(folder, settings)
    started = time.perf_counter()
    known = outputs.read()
    missing = [question for question in asked if question.problem.id not in known]
    sampled_tokens = 0
    if missing:
        engine = engine_of(options, dtype, tokenizer)
        encode = functools.partial(prompt.ids, tokenizer=tokenizer)
        refuse_too_long(engine, max(len(encode(one.problem.text)) for one in missing), sampling.max_new_tokens)
        draw = drawing(engine, tokenizer, encode, sampling, prompt.stop, options.seed)
        found = sample_all(outputs, asked, draw, options.chunk, _announce(benchmark.name))
        sampled_tokens = engine.stats.sampled_tokens
    else:
        found = known
    samples = [found[question.problem.id] for question in asked]
    return Asked(asked, where, samples, settings, time.perf_counter() - started, sampled_tokens)


def prompt_of(benchmark: Benchmark, options: Any, base: BaseSection | None, tokenizer: Any) -> BenchmarkPrompt:
    """The configuration's prompt where one is given, else the registry's."""
    if base is not None:
        return BenchmarkPrompt.of_training(base)
    examples = worked_examples(benchmark.shots, options.shots, options.shot_rows, benchmark.name)
    return BenchmarkPrompt.of_benchmark(benchmark.prompt, template_kind(options.template, tokenizer), examples)


def engine_of(options: Any, dtype: str, tokenizer: Any) -> Any:
    """The sampling engine."""
    import torch

    from data_gen.engines import make_engine

    if options.threads:
        torch.set_num_threads(options.threads)
    if options.engine == "vllm":
        return make_engine("vllm", locate(options.model), tokenizer, max_rows=options.max_rows, dtype=dtype)
    model = load_policy(options.model, dtype).to(options.device or sampling_device())
    return make_engine("transformers", model, tokenizer, max_rows=options.max_rows)


def refuse_too_long(engine: Any, longest_prompt: int, max_new_tokens: int) -> None:
    """Raise InputError where prompt and output together do not fit the positions of the model."""
    config = getattr(getattr(engine, "model", None), "config", None)
    room = getattr(config, "max_position_embeddings", None)
    if room is not None and longest_prompt + max_new_tokens > room:
        raise InputError(
            f"prompts of up to {longest_prompt} tokens and --max-new-tokens {max_new_tokens} do not fit the {room}"
            f" positions of the model; want --max-new-tokens {max(room - longest_prompt, 0)} or less"
        )


def from_record(benchmark: Benchmark, options: Any) -> Asked:
    """Take outputs that were recorded elsewhere."""
    only = pairs(options.only, "--only")
    asked, samples = recorded(options.recorded, benchmark, only, options.limit)
    settings = {"recorded": options.recorded.name, "only": only}
    return Asked(asked, str(options.recorded), [samples[one.problem.id] for one in asked], settings)


def _announce(name: str) -> Any:
    return lambda done, of: print(f"{name}: {done} of {of} problems", file=sys.stderr, flush=True)


def default_output(benchmark: str, model: str) -> FilePath:
    """``runs/benchmarks/<benchmark>/<model>``; a path's or hub id's separators become dashes."""
    return FilePath("runs/benchmarks") / benchmark / (re.sub(r"[^\w.]+", "-", model).strip("-") or "model")


def run(options: Any, console: Console) -> BenchmarkReport:
    """Sample or read, grade, measure, write, print; return the report."""
    benchmark = find_benchmark(options.benchmark)
    if options.rows is None and FilePath(options.benchmark).is_file() and benchmark.source is None:
        options.rows = FilePath(options.benchmark)
    name = options.model or "-".join([options.recorded.stem, *pairs(options.only, "--only").values()])
    folder = options.output or default_output(benchmark.name, name)
    values, settings = policy_of(benchmark, options)
    asked = from_record(benchmark, options) if options.recorded else from_model(benchmark, options, folder)
    graded = [
        [grade_sample(one, question, settings) for one in group]
        for question, group in zip(asked.questions, asked.samples, strict=True)
    ]
    report = BenchmarkReport(
        benchmark=benchmark.name,
        model=name,
        source=asked.where,
        problems_published=benchmark.source.problems if benchmark.source else None,
        settings=asked.settings,
        grading=values,
        seconds=asked.seconds,
        sampled_tokens=asked.sampled_tokens,
        **figures(asked.questions, graded, resamples=options.resamples, seed=options.seed),
    )
    write_results(folder, report, asked.questions, graded)
    console.print(report_table(report))
    console.print(f"{folder}/result.json", highlight=False, soft_wrap=True)
    return report


def write_results(
    folder: FilePath, report: BenchmarkReport, asked: Sequence[Question], graded: Sequence[Sequence[Graded]]
) -> None:
    """Write verdicts and figures."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "verdicts.jsonl", verdict_rows(asked, graded))
    write_record(folder / "result.json", report)


def show_prompt(options: Any) -> None:
    """Print the prompt of the first problem with its ids' number and the stop strings."""
    benchmark = find_benchmark(options.benchmark)
    if options.rows is None and benchmark.source is None:
        options.rows = FilePath(options.benchmark)
    rows, where = rows_of(benchmark, options.rows)
    question = questions(rows[:1], benchmark, where)[0]
    tokenizer = load_tokenizer(options.model)
    base = load_config(options.config).base if options.config else None
    prompt = prompt_of(benchmark, options, base, tokenizer)
    print(prompt.text(question.problem.text, tokenizer))
    print(f"--- {len(prompt.ids(question.problem.text, tokenizer))} tokens, {prompt.kind}, stop {list(prompt.stop)}")
    print(f"--- gold {question.problem.answer!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    options = parser().parse_args(arguments)
    if options.benchmark is None:
        Console().print(registry_table())
        return 0
    try:
        checked(options)
        if options.show_prompt:
            show_prompt(options)
            return 0
        report = run(options, Console())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.model_dump(mode="json"), ensure_ascii=False))
    return 0

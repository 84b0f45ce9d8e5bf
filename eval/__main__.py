"""Stage ``eval``: base and policy side by side on the test problems, the PRM on both, one table, one report.

base, policy -> sampled, scored and judged pools -> figures with intervals -> metrics.json, cases.json, report.html

``python -m eval --benchmark …`` measures one model on one public benchmark instead: ``eval.benchmark``.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from typing import Any

from common.cli import stage_main
from common.config import Config
from common.models import load_policy, load_tokenizer, sampling_device, weights_hash
from common.prompts import PromptTemplate
from common.records import Path, Problem
from common.runs import ALL_FOLDERS, Run, StageTimer, read_records
from data_gen.engines import make_engine
from data_gen.steps import build_paths
from data_gen.synthetic import judge
from eval.accuracy import compare
from eval.base_paths import FOLDER, saved
from eval.benchmark import main as benchmark_main
from eval.browse import shelf
from eval.collect import EvalSettings, Judge, ModelPools, Score, collect
from eval.failures import Cases, examples, failure_groups
from eval.path_quality import with_qualities
from eval.prm_quality import PRMSettings, prm_figures, prm_report
from eval.report import build_report
from eval.schema import LabelFigures, Metrics, PPOFigures, StageSeconds, write_record
from eval.table import print_table
from prm.score import PRMScorer


def eval_settings(config: Config) -> EvalSettings:
    """The one place that turns the ``eval`` section into settings of an evaluation."""
    section = config.eval
    return EvalSettings(
        samples=section.samples,
        temperatures=section.temperatures,
        temperature_samples=section.temperature_samples,
        aggregate=section.aggregate,
        resamples=section.resamples,
        seed=config.seed,
    )


def step_scores(config: Config, run: Run, tokenizer: Any) -> tuple[Score | None, float | None]:
    """The frozen PRM of this round as a scoring function, and its threshold; None where ``prm`` was not run."""
    stage = run.stage("prm")
    if not stage.is_done:
        return None, None
    scorer = PRMScorer.load(
        str(stage.file("prm")), device=sampling_device(), max_batch_tokens=config.prm.max_batch_tokens
    )
    template = PromptTemplate.from_config(config.base)

    def score(problems: Sequence[Problem], paths: Sequence[Path]) -> list[list[float]]:
        prompts = {problem.id: template.ids(problem.text, tokenizer) for problem in problems}
        return scorer.score([prompts[path.problem_id] for path in paths], paths)

    return score, scorer.calibration.threshold


def oracle(config: Config) -> Judge | None:
    """The exact step oracle of the built-in generator; other problems have none."""
    if config.data.source != "synthetic":
        return None
    return lambda problem, path: judge(problem.text, [step.text for step in path.steps])


def pools_of(
    name: str, model: str, config: Config, run: Run, score: Score | None, timer: StageTimer | None = None
) -> ModelPools:
    """Sample, score and judge what one model answers to the test and validation problems."""
    tokenizer = load_tokenizer(model)
    policy = load_policy(model, config.base.dtype).to(sampling_device())
    engine = make_engine("transformers", model=policy, tokenizer=tokenizer, max_rows=config.data.max_batch_rows)
    encode = functools.partial(PromptTemplate.from_config(config.base).ids, tokenizer=tokenizer)

    def sample(problems: Sequence[Problem], n: int, temperature: float, seed: int) -> list[list[Path]]:
        groups = engine.sample(
            [encode(problem.text) for problem in problems],
            n=n,
            temperature=temperature,
            max_new_tokens=config.data.max_new_tokens,
            seed=seed,
            stop=config.base.stop,
        )
        paths = build_paths(
            [problem for problem in problems for _ in range(n)],
            [(one.token_ids, one.finish_reason) for group in groups for one in group],
            tokenizer,
            seed=seed,
            indices=list(range(n)) * len(problems),
            stop=config.base.stop,
        )
        return [paths[start : start + n] for start in range(0, len(paths), n)]

    problems, stage = run.require("sample"), run.stage("eval")
    is_base = name == "base"
    return collect(
        name,
        read_records(problems.file("problems_test.jsonl"), Problem.from_row),
        read_records(problems.file("problems_validation.jsonl"), Problem.from_row),
        saved(
            sample,
            config,
            run.root / FOLDER if is_base else stage.file("paths"),
            model="" if is_base else weights_hash(policy),
            say=lambda line: stage.say(f"{name}: {line}"),
            on_saved=timer.save if timer else lambda: None,
        ),
        eval_settings(config),
        score=score,
        judge=oracle(config),
        announce=lambda line: print(f"eval: {line}", flush=True),
    )


def eval_stage(config: Config, run: Run) -> None:
    """Measure base and policy, print the table, write metrics, cases and report.

    Public benchmarks (gsm8k, math500, aime24, …): python -m eval --benchmark --help
    """
    trained = run.require("ppo")
    stage = run.stage("eval")
    timer = stage.begin(config)
    if stage.is_done:
        print(f"eval: {stage.path} is finished")
        page = run.root / "report.html"
        if not page.is_file() or page.stat().st_mtime < stage.file("DONE").stat().st_mtime:  # a kill right after DONE
            print(f"report: {build_report(run.root)}")
        return
    settings = eval_settings(config)
    score, threshold = step_scores(config, run, load_tokenizer(config.base.model))
    base = pools_of("base", config.base.model, config, run, score, timer)
    policy = pools_of("policy", str(trained.file("policy")), config, run, score, timer)
    base, policy = with_qualities(base, policy, config)
    base_report, policy_report, difference = compare(base, policy, settings)
    reading = PRMSettings(
        threshold=threshold,
        aggregate=config.eval.aggregate,
        after_error=config.data.after_error,
        resamples=settings.resamples,
        seed=config.seed,
    )
    metrics = Metrics(
        run=run.root.name,
        round=run.round,
        seed=config.seed,
        settings=config.model_dump(mode="json"),
        base=base_report,
        policy=policy_report,
        difference=difference,
        labels=label_figures(run),
        prm=prm_report(prm_figures(base.sampled, reading), prm_figures(policy.sampled, reading)),
        ppo=ppo_figures(run),
        seconds=stage_seconds(run, timer),
    )
    write_record(stage.file("metrics.json"), metrics)
    cases = Cases(
        failures=failure_groups(base, policy, aggregate=config.eval.aggregate),
        examples=examples(
            base, policy, threshold=threshold, aggregate=config.eval.aggregate, limit=config.eval.examples
        ),
    )
    write_record(stage.file("cases.json"), cases)
    browsed = shelf(base, policy, threshold=threshold, aggregate=config.eval.aggregate)
    write_record(stage.file("browser.json"), browsed)
    timer.finish(
        "metrics.json",
        "cases.json",
        base_greedy=base_report.pass1_greedy.value,
        policy_greedy=policy_report.pass1_greedy.value,
        base_sampled=base_report.pass1_sampled.value,
        policy_sampled=policy_report.pass1_sampled.value,
    )
    print_table(metrics)
    print(f"report: {build_report(run.root)}")


def label_figures(run: Run) -> LabelFigures:
    """Quality of the labels of this round, as the label stage measured it."""
    path = run.require("label").file("metrics.json")
    quality = json.loads(path.read_text(encoding="utf-8")).get("quality")
    if not quality:
        return LabelFigures.absent("no oracle for these problems")
    return LabelFigures(**{name: quality[name] for name in LabelFigures.model_fields if name in quality})


def ppo_figures(run: Run) -> PPOFigures:
    """What the ppo stage said of itself."""
    summary = run.require("ppo").summary
    return PPOFigures.model_validate({name: summary.get(name) for name in PPOFigures.model_fields})


def stage_seconds(run: Run, timer: StageTimer) -> StageSeconds:
    """Seconds of every stage of this round, this one up to now."""
    done = {name: run.stage(name) for name in ALL_FOLDERS if name != "eval"}
    seconds = {name: float(stage.summary["seconds"]) if stage.is_done else None for name, stage in done.items()}
    return StageSeconds(**seconds, eval=timer.seconds)


if __name__ == "__main__":
    if any(argument.partition("=")[0] == "--benchmark" for argument in sys.argv[1:]):
        raise SystemExit(benchmark_main())
    sections = ("base", "lora", "data", "prm", "ppo", "eval", "rounds")
    raise SystemExit(stage_main("eval", eval_stage.__doc__ or "", sections, eval_stage))

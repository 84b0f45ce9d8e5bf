"""The label study (docs/labels.md): every source and rule against truth, JSON Lines to standard output.

``python -m bench.labels generator --folder DIR``: paths of the built-in base on generated problems, sampled once into
DIR, against the exact oracle, by paths a problem and by pass rate.
``python -m bench.labels pools FILE …``: sample pools of real text (`problem`, `answer`, `samples`), no truth needed:
unsupported steps of correct paths and positions of first errors.
``python -m bench.labels human --rows FILE --pools FILE …``: step rows with human labels (`problem`, `steps`, `label`,
`final_answer_correct`) whose problems occur in the pools: our first error against the human one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from bench.label_text import KEYS, human_figures, pool_figures, read_pools
from common.config import Config, load_config
from common.models import load_policy, load_tokenizer, locate
from common.prompts import PromptTemplate
from common.records import IGNORED, LabelledPath, Path, Problem
from common.runs import read_records, read_rows, write_rows
from data_gen.completions import CompletionCost, CompletionSampler, PrefixKey, label_by_completions
from data_gen.engines import make_engine
from data_gen.label_quality import label_quality
from data_gen.labels import LabelSettings, can_be_labelled, label_paths
from data_gen.measure import SampleSettings, pass_rate, sample_paths
from data_gen.monte_carlo import MonteCarloSettings, consensus
from data_gen.synthetic import generate, judge

TEXT_ARMS = {
    "frequency forward": LabelSettings(sources=("frequency",)),
    "frequency backward": LabelSettings("backward", ("frequency",)),
    "frequency forward, min_share 0": LabelSettings(sources=("frequency",), min_share=0.0),
    "frequency forward, min_support 1": LabelSettings(sources=("frequency",), min_support=1),
    "frequency forward, keys values": LabelSettings(sources=("frequency",), keys="values"),
    "arithmetic": LabelSettings(sources=("arithmetic",)),
    "frequency+arithmetic forward": LabelSettings(),
    "frequency+arithmetic backward": LabelSettings("backward"),
}
COMPLETION_ARMS = {
    "monte_carlo 8": MonteCarloSettings(8),
    "monte_carlo 4": MonteCarloSettings(4),
    "monte_carlo 2": MonteCarloSettings(2),
    "monte_carlo 8, threshold 0.2": MonteCarloSettings(8, threshold=0.2),
    "monte_carlo 8 soft": MonteCarloSettings(8, "soft"),
    "monte_carlo 8 binary": MonteCarloSettings(8, search="binary"),
    "monte_carlo 4 binary": MonteCarloSettings(4, search="binary"),
}
BANDS = {"all": (0.0, 1.0), "(0, 0.2)": (1e-9, 0.1999), "[0.2, 0.5)": (0.2, 0.4999), "[0.5, 0.8)": (0.5, 0.7999)}
"""Name -> lowest and highest pass rate over all paths of the problem."""


@dataclasses.dataclass(frozen=True)
class RememberingSampler(CompletionSampler):
    """Samples ``most`` completions of a prefix once; fewer are the first of them. Costs count as if it forgot."""

    most: int = 8
    memory: dict[PrefixKey, list[bool]] = dataclasses.field(default_factory=dict)

    def outcomes(self, keys: Sequence[PrefixKey], n: int, cost: CompletionCost) -> dict[PrefixKey, list[bool]]:
        fresh = [key for key in keys if key not in self.memory]
        if fresh:
            self.memory.update(super().outcomes(fresh, self.most, CompletionCost()))
        cost.prefixes += len(keys)
        cost.completions += n * len(keys)
        return {key: self.memory[key][:n] for key in keys}


def base_of(config: Config) -> tuple[Any, Any, Any]:
    """Engine, tokenizer and prompt renderer of the configuration's base."""
    model = locate(config.base.model)
    tokenizer = load_tokenizer(model)
    template = PromptTemplate.from_config(config.base)
    engine = make_engine("transformers", load_policy(model, config.base.dtype), tokenizer, max_rows=512)
    return engine, tokenizer, lambda problem: template.ids(problem.text, tokenizer)


def sampled(folder: FilePath, options: Any, base: tuple[Any, Any, Any]) -> tuple[list[Problem], list[Path]]:
    """Problems and paths of the study, sampled into ``folder`` when they are not there."""
    problems_file, paths_file = folder / "problems.jsonl", folder / "paths.jsonl"
    if not paths_file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        levels = range(options.levels[0], options.levels[1] + 1)
        problems = generate("train", options.seed, options.problems, levels=levels)
        engine, tokenizer, render = base
        settings = SampleSettings()
        groups = sample_paths(engine, problems, tokenizer, render, n=options.paths, seed=11, settings=settings)
        write_rows(problems_file, (problem.to_row() for problem in problems))
        write_rows(paths_file, (path.to_row() for group in groups for path in group))
    return read_records(problems_file, Problem.from_row), read_records(paths_file, Path.from_row)


def generator_rows(options: Any) -> Iterator[dict[str, Any]]:
    """Figures of every arm for each number of paths a problem and each band of pass rates."""
    config = load_config(options.config, options.overrides)
    base = base_of(config)
    problems, paths = sampled(options.folder, options, base)
    texts = {problem.id: problem.text for problem in problems}
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.problem_id, []).append(path)
    rates = {name: pass_rate(group) or 0.0 for name, group in groups.items()}
    judged = {path.path_id: judge(texts[path.problem_id], [step.text for step in path.steps]) for path in paths}
    truth = {name: found.first_error for name, found in judged.items() if not found.unknown}
    few = {problem.id for problem in problems[: options.completion_problems]}
    by_id = {problem.id: problem for problem in problems}
    sampler = RememberingSampler(*base, problems=by_id, sampling=SampleSettings(), seed=12)
    for count in options.counts:
        chosen = [path for group in groups.values() for path in group[:count]]
        costly = [path for path in chosen if path.problem_id in few]
        arms: dict[str, tuple[list[LabelledPath], int]] = {
            name: (label_paths(chosen, settings, texts)[0], 0) for name, settings in TEXT_ARMS.items()
        }
        support = label_paths(costly, LabelSettings())[0]
        arms["frequency+arithmetic forward, fewer problems"] = (support, 0)
        for name, settings in COMPLETION_ARMS.items() if few else ():
            labelled, _, cost = label_by_completions(sampler, costly, settings)
            arms[name] = (labelled, cost.completions)
            if name in ("monte_carlo 8", "monte_carlo 8 binary"):
                arms[f"frequency+arithmetic forward & {name}"] = (consensus(support, labelled)[0], cost.completions)
        for name, (labelled, completions) in arms.items():
            is_few = name not in TEXT_ARMS
            pool = costly if is_few else chosen
            for band, (low, high) in BANDS.items():
                members = {p for p, rate in rates.items() if low <= rate <= high and (not is_few or p in few)}
                row = figures(labelled, pool, members, truth)
                extra = completions / max(len(few), 1) if is_few and band == "all" else None
                yield {"arm": name, "paths": count, "band": band, "completions_a_problem": extra, **row}


def figures(
    labelled: Sequence[LabelledPath], pool: Sequence[Path], members: set[str], truth: Mapping[str, int | None]
) -> dict[str, Any]:
    """Label quality on the paths of ``members`` that the oracle can judge."""
    rows = [one for one in labelled if one.path.problem_id in members and one.path.path_id in truth]
    possible = sum(can_be_labelled(path) for path in pool if path.problem_id in members and path.path_id in truth)
    quality = label_quality(rows, [truth[one.path.path_id] for one in rows])
    names = ("first_error_exact", "negative_precision", "negative_recall", "label_accuracy", "hidden_wrong_in_correct")
    return {
        "problems": len(members),
        **{name: round(quality[name], 4) for name in names},
        "wrong_paths": quality["wrong_paths"],
        "labelled": len(rows),
        "ignored": round(sum(one.labels.count(IGNORED) for one in rows) / max(sum(map(_steps, rows)), 1), 4),
        "coverage": round(len(rows) / max(possible, 1), 4),
    }


def _steps(one: LabelledPath) -> int:
    return len(one.labels)


def text_rows(options: Any) -> Iterator[dict[str, Any]]:
    """Figures of every key and rule on real text."""
    for name in options.keys:
        if options.mode == "pools":
            for file in options.files:
                yield {"keys": name, "file": file.parent.name, **pool_figures(KEYS[name], read_pools((file,)))}
        else:
            rows = [row for file in options.rows for row in read_rows(file)]
            yield {"keys": name, **human_figures(KEYS[name], rows, read_pools(tuple(options.pools)))}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.labels", description=(__doc__ or "").splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    generator = modes.add_parser("generator")
    generator.add_argument("--folder", type=FilePath, required=True, help="where problems and paths are kept")
    generator.add_argument("--config", default="configs/tiny.yaml")
    generator.add_argument("--problems", type=int, default=150)
    generator.add_argument("--paths", type=int, default=32)
    generator.add_argument("--levels", nargs=2, type=int, default=(2, 6), metavar=("LOW", "HIGH"))
    generator.add_argument("--seed", type=int, default=1000)
    generator.add_argument("--counts", nargs="+", type=int, default=[4, 8, 16, 32], help="paths a problem")
    generator.add_argument("--completion-problems", type=int, default=150, help="problems of the monte_carlo arms")
    generator.add_argument("overrides", nargs="*", help="section.key=value")
    pools = modes.add_parser("pools")
    pools.add_argument("files", nargs="+", type=FilePath)
    human = modes.add_parser("human")
    human.add_argument("--rows", nargs="+", type=FilePath, required=True)
    human.add_argument("--pools", nargs="+", type=FilePath, required=True)
    for mode in (pools, human):
        mode.add_argument("--keys", nargs="+", choices=list(KEYS), default=list(KEYS))
    options = parser.parse_args(argv)
    for row in generator_rows(options) if options.mode == "generator" else text_rows(options):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

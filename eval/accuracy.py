"""How often a model is right, and how: one model on a test set, then base against policy.

    pools = collect("base", test, validation, sample, settings, score=…, judge=…)
    base, policy, difference = compare(pools_of_base, pools_of_policy, settings)

The model, the PRM and the oracle come in as callables, so nothing here knows an engine or a device.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from common.records import Path, Problem, Verdict
from eval import pools
from eval.intervals import Array, Resampler, per_problem
from eval.pools import AnswerKey, Judgement, Pool
from eval.schema import AnswerFigures, Difference, Figure, ModelReport, ProcessFigures, SampledFigures

Sample = Callable[[Sequence[Problem], int, float, int], list[list[Path]]]
"""``sample(problems, n, temperature, seed)``: n graded paths for each problem."""
Score = Callable[[Sequence[Problem], Sequence[Path]], list[list[float]]]
"""``score(problems, paths)``: for path i of problem i, the probability of being right of each of its steps."""
Judge = Callable[[Problem, Path], Judgement]


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """What is measured.

    Attributes:
        samples: paths a problem in the sampled pool and in the pool at the best temperature.
        temperature: of the sampled pool.
        ks: numbers of paths for pass@k, majority, best-of-k; the largest is the "8" of majority8.
        temperatures: candidates for a model's own best temperature, tried on validation problems.
        temperature_samples: paths a validation problem for each candidate above 0.
        aggregate: path score behind ``prm_best`` and ``prm_vote`` (min, last, mean, product).
        ngram: length of the n-grams whose repetition is counted, tokens.
        resamples: bootstrap resamples.
        seed: of sampling and resampling.
    """

    samples: int = 8
    temperature: float = 1.0
    ks: tuple[int, ...] = (1, 2, 4, 8)
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    temperature_samples: int = 2
    aggregate: str = "min"
    ngram: int = 4
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperatures or not self.ks:
            raise ValueError("temperatures and ks must not be empty")
        if self.aggregate not in pools.AGGREGATES:
            raise ValueError(f"aggregate {self.aggregate!r}: want one of {', '.join(pools.AGGREGATES)}")


@dataclasses.dataclass(frozen=True)
class ModelPools:
    """Everything that was sampled from one model.

    Attributes:
        name: "base" or "policy".
        problems: the test set.
        greedy: one path a problem.
        sampled: ``samples`` paths a problem at ``temperature``.
        best: ``samples`` paths a problem at the model's own best temperature.
        validation: pass@1 on validation of each candidate temperature.
    """

    name: str
    problems: list[Problem]
    greedy: Pool
    sampled: Pool
    best: Pool
    validation: dict[float, Figure]
    answer_key: AnswerKey = pools.plain_answer_key


def collect(
    name: str,
    problems: Sequence[Problem],
    validation: Sequence[Problem],
    sample: Sample,
    settings: EvalSettings,
    *,
    score: Score | None = None,
    judge: Judge | None = None,
    answer_key: AnswerKey = pools.plain_answer_key,
    announce: Callable[[str], None] = lambda _: None,
) -> ModelPools:
    """Sample, score and judge one model's paths; ``announce`` is told in a line what comes next.

    Raises:
        ValueError: no problem, or ``sample`` or ``score`` returns another number of rows than it was asked for.
    """
    if not problems or not validation:
        raise ValueError(f"{len(problems)} test and {len(validation)} validation problems: want at least 1 of each")

    def draw(what: Sequence[Problem], n: int, temperature: float) -> list[list[Path]]:
        paths = sample(what, n, temperature, settings.seed)
        if len(paths) != len(what) or any(len(group) != n for group in paths):
            raise ValueError(f"sample: asked for {n} paths for each of {len(what)} problems, got another number")
        return paths

    def complete(temperature: float, paths: list[list[Path]]) -> Pool:
        return Pool(temperature, paths, _scores(problems, paths, score), _judgements(problems, paths, judge))

    figures = {}
    for temperature in sorted(set(settings.temperatures)):
        announce(f"{name}: {len(validation)} validation problems at temperature {temperature:g}")
        paths = draw(validation, settings.temperature_samples if temperature > 0 else 1, temperature)
        figures[temperature] = _pass1(paths, settings)
    announce(f"{name}: {len(problems)} test problems, greedy")
    greedy = complete(0.0, draw(problems, 1, 0.0))
    announce(f"{name}: {len(problems)} test problems x {settings.samples} at temperature {settings.temperature:g}")
    sampled = complete(settings.temperature, draw(problems, settings.samples, settings.temperature))
    best_temperature = choose_temperature(figures)
    announce(f"{name}: {len(problems)} test problems at its best temperature {best_temperature:g}")
    if best_temperature == 0.0:
        best = _repeated(greedy, settings.samples)
    elif best_temperature == settings.temperature:
        best = sampled
    else:
        best = complete(best_temperature, draw(problems, settings.samples, best_temperature))
    return ModelPools(name, list(problems), greedy, sampled, best, figures, answer_key)


def choose_temperature(validation: dict[float, Figure]) -> float:
    """The temperature with the highest pass@1 on validation; the lowest one wins a tie."""
    return max(sorted(validation), key=lambda t: -1.0 if validation[t].value is None else float(validation[t].value))


def _pass1(paths: list[list[Path]], settings: EvalSettings) -> Figure:
    components = pools.accuracy_components(Pool(0.0, paths), ks=(1,), aggregate=settings.aggregate)["pass1"]
    resampler = Resampler.create(len(paths), num_resamples=settings.resamples, seed=settings.seed)
    return resampler.figure(components, absent="no path with a verdict on the model")


def _repeated(greedy: Pool, n: int) -> Pool:
    """The pool that n samples at temperature 0 give: n times the greedy path."""
    return Pool(
        0.0,
        [group * n for group in greedy.paths],
        None if greedy.scores is None else [group * n for group in greedy.scores],
        None if greedy.judgements is None else [group * n for group in greedy.judgements],
    )


def _scores(
    problems: Sequence[Problem], paths: list[list[Path]], score: Score | None
) -> list[list[list[float]]] | None:
    if score is None:
        return None
    flat = [(problem, path) for problem, group in zip(problems, paths, strict=True) for path in group]
    scores = score([problem for problem, _ in flat], [path for _, path in flat])
    if len(scores) != len(flat):
        raise ValueError(f"score: asked for {len(flat)} paths, got {len(scores)}")
    rows = iter(scores)
    return [[[float(value) for value in next(rows)] for _ in group] for group in paths]


def _judgements(
    problems: Sequence[Problem], paths: list[list[Path]], judge: Judge | None
) -> list[list[Judgement]] | None:
    if judge is None:
        return None
    return [[judge(problem, path) for path in group] for problem, group in zip(problems, paths, strict=True)]


def components(model: ModelPools, settings: EvalSettings) -> dict[str, Array]:
    """Per-problem components of every figure of a model, by the figure's dotted place in ``AnswerFigures``."""
    options = {"ks": settings.ks, "aggregate": settings.aggregate, "answer_key": model.answer_key}
    greedy = pools.accuracy_components(model.greedy, **{**options, "ks": (1,)})  # type: ignore[arg-type]
    found = {"pass1_greedy": greedy["pass1"]}
    for place, pool in (("sampled", model.sampled), ("best_temperature", model.best)):
        accuracy = pools.accuracy_components(pool, **options)  # type: ignore[arg-type]
        found |= {f"{place}.{name}": column for name, column in accuracy.items()}
    style = pools.style_components(model.sampled, ngram=settings.ngram)
    return found | style | {f"process.{name}": c for name, c in pools.process_components(model.sampled).items()}


def _absent(name: str, model: ModelPools) -> str:
    """Why a figure does not exist."""
    if "prm_" in name and model.sampled.scores is None:
        return "no PRM scores"
    if name.startswith("process.") and model.sampled.judgements is None:
        return "no oracle for these problems"
    if name == "process.hidden_errors":
        return "no right path that the oracle can judge"
    if name.startswith("process."):
        return "no path that the oracle can judge"
    if name[-1].isdigit() or "prm_" in name:
        return f"no problem with {name.rsplit('.')[-1] if name[-1].isdigit() else 'enough'} judged paths"
    return "no path with a verdict on the model"


def answer_figures(
    model: ModelPools, parts: dict[str, Array], rows: Sequence[int], settings: EvalSettings
) -> AnswerFigures:
    """All figures of a model on the problems ``rows``, from the components of the whole test set."""
    resampler = Resampler.create(len(rows), num_resamples=settings.resamples, seed=settings.seed)
    index = np.asarray(rows, int)
    figures = {name: resampler.figure(column[index], absent=_absent(name, model)) for name, column in parts.items()}
    sampled = _sampled_figures("sampled", model.sampled, figures)
    best = _sampled_figures("best_temperature", model.best, figures)
    kept = [path for row in rows for path in model.sampled.paths[row]]
    verdicts = Counter(str(path.verdict) for path in kept)
    unscored = [
        pools.path_score(scores, settings.aggregate) is None
        for row in rows
        for scores in (model.sampled.scores[row] if model.sampled.scores is not None else ())
    ]
    eight, missing = str(8), Figure.absent(f"ks = {settings.ks} without 8")
    return AnswerFigures(
        problems=len(rows),
        problems_left_out=sum(not any(p.verdict.is_judged for p in model.sampled.paths[row]) for row in rows),
        pass1_greedy=figures["pass1_greedy"],
        pass1_sampled=sampled.pass1,
        pass1_best_temperature=best.pass1,
        majority8=sampled.majority.get(eight, missing),
        prm_best8=sampled.prm_best.get(eight, missing),
        sampled=sampled,
        best_temperature=best,
        process=ProcessFigures(**{name: figures[f"process.{name}"] for name in ProcessFigures.model_fields}),
        verdicts={str(verdict): verdicts[str(verdict)] for verdict in Verdict},
        paths_without_score=sum(unscored),
        **{name: figures[name] for name in STYLE},
    )


STYLE = ("format_rate", "mean_steps", "mean_tokens", "truncated_share", "repeated_ngrams")


def _sampled_figures(place: str, pool: Pool, figures: dict[str, Figure]) -> SampledFigures:
    def family(name: str) -> dict[str, Figure]:
        prefix = f"{place}.{name}."
        return {key.removeprefix(prefix): figure for key, figure in figures.items() if key.startswith(prefix)}

    return SampledFigures(
        temperature=pool.temperature,
        pass1=figures[f"{place}.pass1"],
        pass_at=family("pass_at"),
        majority=family("majority"),
        prm_best=family("prm_best"),
        prm_best_by=family("prm_best_by"),
        prm_vote=figures[f"{place}.prm_vote"],
    )


def model_report(model: ModelPools, settings: EvalSettings) -> ModelReport:
    """All figures of one model on the whole test set and on each topic and level."""
    parts = components(model, settings)

    def sliced(key: Callable[[Problem], str]) -> dict[str, AnswerFigures]:
        groups = pools.problems_by(model.problems, key)
        return {name: answer_figures(model, parts, rows, settings) for name, rows in groups.items()}

    whole = answer_figures(model, parts, range(len(model.problems)), settings)
    return ModelReport(
        **{name: getattr(whole, name) for name in AnswerFigures.model_fields},
        validation_by_temperature={str(t): figure for t, figure in model.validation.items()},
        by_topic=sliced(topic_of),
        by_level=sliced(level_of),
    )


def topic_of(problem: Problem) -> str:
    return problem.topic


def level_of(problem: Problem) -> str:
    return "unknown" if problem.level is None else str(problem.level)


DIFFERENCES = {
    "pass1_greedy": "pass1_greedy",
    "pass1_sampled": "sampled.pass1",
    "pass1_best_temperature": "best_temperature.pass1",
    "majority8": "sampled.majority.8",
    "prm_best8": "sampled.prm_best.8",
    "pass8": "sampled.pass_at.8",
    "prm_vote8": "sampled.prm_vote",
    **{name: name for name in STYLE},
    "clean_paths": "process.clean_paths",
    "hidden_errors": "process.hidden_errors",
    "right_steps": "process.right_steps",
}
"""Field of ``Difference`` → name of its components."""


def difference(base: ModelPools, policy: ModelPools, settings: EvalSettings) -> Difference:
    """Policy minus base with paired intervals: the same problems are drawn for both in every resample.

    ``by_topic`` and ``by_level`` are differences of sampled pass@1.

    Raises:
        ValueError: the two models were not measured on the same problems in the same order.
    """
    if [p.id for p in base.problems] != [p.id for p in policy.problems]:
        raise ValueError("base and policy were measured on different problems; a paired comparison needs the same")
    base_parts, policy_parts = components(base, settings), components(policy, settings)
    nothing = per_problem([None] * len(base.problems))

    def paired(name: str, rows: Sequence[int]) -> Figure:
        resampler = Resampler.create(len(rows), num_resamples=settings.resamples, seed=settings.seed)
        index = np.asarray(rows, int)
        pair = [parts.get(name, nothing)[index] for parts in (base_parts, policy_parts)]
        return resampler.difference(*pair, absent=f"base or policy: {_absent(name, base)}")

    def sliced(key: Callable[[Problem], str]) -> dict[str, Figure]:
        groups = pools.problems_by(base.problems, key)
        return {name: paired("sampled.pass1", rows) for name, rows in groups.items()}

    everything = range(len(base.problems))
    return Difference(
        **{field: paired(name, everything) for field, name in DIFFERENCES.items()},
        by_topic=sliced(topic_of),
        by_level=sliced(level_of),
    )


def compare(
    base: ModelPools, policy: ModelPools, settings: EvalSettings
) -> tuple[ModelReport, ModelReport, Difference]:
    """Reports of both models and their paired difference."""
    return model_report(base, settings), model_report(policy, settings), difference(base, policy, settings)

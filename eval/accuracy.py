"""How often a model is right, and how: one model on a test set, then base against policy.

base_pools = collect("base", test, validation, sample, settings, score=…, judge=…)    # eval.collect
base, policy, difference = compare(base_pools, policy_pools, settings)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from common.quality_settings import MEASURES
from common.records import Problem, Verdict
from eval import pools
from eval.collect import EvalSettings, ModelPools
from eval.intervals import Array, Resampler, per_problem
from eval.pools import Pool
from eval.schema import AnswerFigures, Difference, Figure, ModelReport, ProcessFigures, QualityFigures, SampledFigures

STYLE = ("format_rate", "mean_steps", "mean_tokens", "truncated_share", "repeated_ngrams")


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
    missing = Figure.absent(f"ks = {settings.ks} without 8")
    return AnswerFigures(
        problems=len(rows),
        problems_left_out=sum(not any(p.verdict.is_judged for p in model.sampled.paths[row]) for row in rows),
        pass1_greedy=figures["pass1_greedy"],
        pass1_sampled=sampled.pass1,
        pass1_best_temperature=best.pass1,
        majority8=sampled.majority.get("8", missing),
        prm_best8=sampled.prm_best.get("8", missing),
        sampled=sampled,
        best_temperature=best,
        process=ProcessFigures(**{name: figures[f"process.{name}"] for name in ProcessFigures.model_fields}),
        verdicts={str(verdict): verdicts[str(verdict)] for verdict in Verdict},
        paths_without_score=sum(unscored),
        **{name: figures[name] for name in STYLE},
    )


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
        quality=_quality_figures(model, settings),
    )


def quality_components(model: ModelPools) -> dict[str, Array]:
    """Per-problem components of the measures of quality; (0, 0) where nothing can be said."""
    found = model.qualities if model.qualities is not None else [None] * len(model.problems)
    return {
        name: per_problem([None if quality is None else quality.value(name) for quality in found]) for name in MEASURES
    }


def _quality_figures(model: ModelPools, settings: EvalSettings, against: ModelPools | None = None) -> QualityFigures:
    """Figures of one model, or of ``against`` minus it, paired over problems."""
    resampler = Resampler.create(len(model.problems), num_resamples=settings.resamples, seed=settings.seed)
    absent = "not measured" if model.qualities is None else "no greedy path of which it can be said"
    parts, others = quality_components(model), None if against is None else quality_components(against)
    if others is None:
        return QualityFigures(**{name: resampler.figure(parts[name], absent=absent) for name in MEASURES})
    return QualityFigures(**{name: resampler.difference(parts[name], others[name], absent=absent) for name in MEASURES})


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
        quality=_quality_figures(base, settings, policy),
    )


def compare(
    base: ModelPools, policy: ModelPools, settings: EvalSettings
) -> tuple[ModelReport, ModelReport, Difference]:
    """Reports of both models and their paired difference."""
    return model_report(base, settings), model_report(policy, settings), difference(base, policy, settings)

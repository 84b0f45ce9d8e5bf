"""Sample, score and judge what an evaluation needs from one model.

The model, the PRM and the oracle come in as callables, so nothing here knows an engine or a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from common.records import Path, Problem
from eval import pools
from eval.intervals import Resampler
from eval.pools import AnswerKey, Judgement, Pool
from eval.schema import Figure
from grading.equivalence import vote_key
from prm.quality.measures import Quality

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
        qualities: of the greedy path of each problem, None for one not looked at; None: not measured.
    """

    name: str
    problems: list[Problem]
    greedy: Pool
    sampled: Pool
    best: Pool
    validation: dict[float, Figure]
    answer_key: AnswerKey = vote_key
    qualities: Sequence[Quality | None] | None = None


def collect(
    name: str,
    problems: Sequence[Problem],
    validation: Sequence[Problem],
    sample: Sample,
    settings: EvalSettings,
    *,
    score: Score | None = None,
    judge: Judge | None = None,
    answer_key: AnswerKey = vote_key,
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
    accuracies = {t: -1.0 if figure.value is None else figure.value for t, figure in validation.items()}
    return max(sorted(accuracies), key=accuracies.__getitem__)


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

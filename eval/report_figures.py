"""Figures of an evaluation as the report shows them: tables of figures, and charts."""

from __future__ import annotations

from collections.abc import Sequence

from eval.charts import Chart, Series, line_chart
from eval.run_folder import RoundData
from eval.schema import Figure, Metrics, PRMFigures, SampledFigures


def slices(metrics: Metrics) -> list[tuple[str, list[tuple[str, int, Figure, Figure, Figure]]]]:
    """Sampled pass@1 by topic and level: (name, problems, base, policy, difference)."""
    tables = []
    for title, attribute in (("kind of problem", "by_topic"), ("steps of the reference solution", "by_level")):
        base, policy = getattr(metrics.base, attribute), getattr(metrics.policy, attribute)
        differences = getattr(metrics.difference, attribute)
        rows = [
            (key, base[key].problems, base[key].pass1_sampled, policy[key].pass1_sampled, differences[key])
            for key in base
            if key in policy and key in differences
        ]
        tables.append((title, rows))
    return tables


def _curve(name: str, style: str, figures: dict[str, Figure]) -> Series:
    """A curve over the number of paths, with its interval."""
    known = [(int(k), f) for k, f in figures.items() if k.isdigit() and f.value is not None]
    known.sort(key=lambda pair: pair[0])
    band = [(float(k), f.ci95[0] * 100, f.ci95[1] * 100) for k, f in known if f.ci95 is not None]
    return Series(name, style, [(float(k), float(f.value or 0.0) * 100) for k, f in known], band)


def best_of_charts(metrics: Metrics) -> list[Chart]:
    """Accuracy against the number of paths, for each model at T = 1 and at its own best temperature.

    A best temperature of 0 (all paths equal, a flat line) or 1 (the same pool) gets no chart of its own.
    """
    charts = []
    for name, model in (("base", metrics.base), ("policy", metrics.policy)):
        skipped = (0.0, model.sampled.temperature)
        best = [] if model.best_temperature.temperature in skipped else [model.best_temperature]
        for pool in (model.sampled, *best):
            chart = line_chart(
                f"{name}, temperature {pool.temperature:g}",
                _pool_curves(pool),
                x_label="paths a problem (N)",
                note="percent of problems solved",
                y_range=(0.0, 100.0),
                x_values=[float(k) for k in pool.pass_at if k.isdigit()],
            )
            charts += [chart] if chart else []
    return charts


def _pool_curves(pool: SampledFigures) -> list[Series]:
    return [
        _curve("oracle (pass@N)", "oracle", pool.pass_at),
        _curve("best of N by PRM", "prm", pool.prm_best),
        _curve("majority of N", "majority", pool.majority),
    ]


def rule_rows(metrics: Metrics) -> list[tuple[str, list[Figure]]]:
    """Best-of-N by each way of turning step scores into a path score: base and policy at T = 1 and best temperature."""
    pools = [pool for model in (metrics.base, metrics.policy) for pool in (model.sampled, model.best_temperature)]
    rules = list(pools[0].prm_best_by)
    return [
        (rule, [pool.prm_best_by[rule] for pool in pools])
        for rule in rules
        if all(rule in p.prm_best_by for p in pools)
    ]


def temperature_chart(metrics: Metrics) -> Chart | None:
    series = []
    for name, model in (("base", metrics.base), ("policy", metrics.policy)):
        known = sorted((float(t), f) for t, f in model.validation_by_temperature.items() if f.value is not None)
        band = [(t, f.ci95[0] * 100, f.ci95[1] * 100) for t, f in known if f.ci95 is not None]
        series.append(Series(name, name, [(t, float(f.value or 0.0) * 100) for t, f in known], band))
    return line_chart(
        "pass@1 on validation against temperature",
        series,
        x_label="sampling temperature",
        note="percent; the highest one is the model's own best temperature",
        y_range=(0.0, 100.0),
        x_values=sorted({float(t) for t in metrics.base.validation_by_temperature}),
    )


def prm_rows(metrics: Metrics) -> list[tuple[str, Figure, Figure]]:
    """PRM figures on base's and policy's test paths."""
    names = {
        "first-error F1": "first_error_f1",
        "accuracy on paths with a wrong step": "accuracy_on_wrong",
        "accuracy on paths without one": "accuracy_on_right",
        "Brier score of steps (0 is best)": "brier",
        "calibration error": "calibration_error",
        "AUC of the path score against the outcome": "outcome_auc",
    }
    prm = metrics.prm
    return [(label, getattr(prm, name), getattr(prm.on_policy, name)) for label, name in names.items()]


def calibration(metrics: Metrics) -> Chart | None:
    def points(figures: PRMFigures) -> list[tuple[float, float]]:
        return [(b.mean_probability, b.share_right) for b in figures.reliability]

    drawn = [Series("base", "base", points(metrics.prm)), Series("policy", "policy", points(metrics.prm.on_policy))]
    if not any(series.points for series in drawn):
        return None
    return line_chart(
        "Calibration of step scores",
        [Series("perfect", "ideal", [(0.0, 0.0), (1.0, 1.0)]), *drawn],
        x_label="PRM probability that the step is right",
        note="share of right steps; on the diagonal a score means what it says",
        y_range=(0.0, 1.0),
    )


def rounds_chart(evaluated: Sequence[RoundData]) -> Chart | None:
    """Accuracies of the base and of each round's policy; None with fewer than two rounds."""
    measured = [(data.index, data.metrics) for data in evaluated if data.metrics is not None]
    if len(measured) < 2:
        return None
    first = measured[0][1].base
    series = []
    for name, style, field in (
        ("greedy", "policy", "pass1_greedy"),
        ("sampled, T = 1", "base", "pass1_sampled"),
        ("majority of 8", "majority", "majority8"),
        ("best of 8 by PRM", "oracle", "prm_best8"),
    ):
        figures = [(-1.0, getattr(first, field))]
        figures += [(float(index), getattr(metrics.policy, field)) for index, metrics in measured]
        known = [(x, figure) for x, figure in figures if figure.value is not None]
        band = [(x, figure.ci95[0] * 100, figure.ci95[1] * 100) for x, figure in known if figure.ci95 is not None]
        series.append(Series(name, style, [(x, 100 * figure.value) for x, figure in known], band))
    return line_chart(
        "Accuracy over rounds",
        series,
        x_label="round",
        note="percent of test problems, the same ones in every round; shaded: 95 % interval",
        x_values=[-1.0, *(float(index) for index, _ in measured)],
        x_names={-1.0: "base"},
    )

"""``report.html``: one self-contained page on a run, readable offline, on a desk and on a phone.

The page holds one script, named by its hash in the content-security policy, so that no other can run; it sets text and
never markup. Texts of models are escaped, stripped of control characters and isolated in direction. Built from whatever
the run folder holds so far; ``--watch`` builds it again while the run goes on.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from common.errors import InputError
from common.runs import write_atomic
from eval import table
from eval.charts import Chart, Series, line_chart, shown_number
from eval.failures import Cases
from eval.monitor_charts import alarm_groups, alarm_list, alarm_timeline, monitor_charts
from eval.report_live import newest_change, stage_states, watch
from eval.report_paths import browsed_paths
from eval.run_folder import RoundData, read_rounds
from eval.schema import Figure, Metrics, PRMFigures, SampledFigures
from eval.shown_text import plain_text

MAX_BYTES = 3_000_000
FITS = ((1500, 600, 9), (400, 480, 1), (100, 200, 1), (30, 60, 0))
"""(characters of a model's text, paths to browse, rounds with charts of what is not watched) that are shown: the first
row under which the page fits ``MAX_BYTES`` is taken."""
MAX_GROUPS = 24
MAX_EXAMPLES = 40
TEMPLATES = Path(__file__).parent / "templates"


def build_report(run_dir: Path, refresh: float | None = None) -> Path:
    """Write ``<run_dir>/report.html`` by rename and return its path.

    Args:
        refresh: seconds after which the page reads itself again while a stage is not finished; None: never.

    Raises:
        InputError: no such run folder, or no round in it.
    """
    rounds = read_rounds(run_dir)
    target = run_dir / "report.html"
    write_atomic(target, render(run_dir.name, rounds, newest=newest_change(run_dir), refresh=refresh))
    return target


def render(name: str, rounds: Sequence[RoundData], *, newest: float = 0.0, refresh: float | None = None) -> str:
    """The page as text, at most ``MAX_BYTES`` long in UTF-8 by showing less.

    newest: when a file of the run was last written, seconds since 1970. refresh: see ``build_report``.
    """
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    view = report_view(name, rounds) | {"newest": round(newest, 1), "script": script, "script_hash": digest}
    view["refresh"] = refresh if view["is_unfinished"] else None
    page = ""
    for limit, most, further in FITS:
        view["paths"] = browsed_paths(rounds, text_limit=limit, most=most)
        view["trainings"] = [
            training | ({} if place < further else {"further": []}) for place, training in enumerate(view["trainings"])
        ]
        page = _environment(limit).get_template("report.html.j2").render(view)
        page = page.encode("utf-8", "replace").decode("utf-8")
        if len(page.encode("utf-8")) <= MAX_BYTES:
            break
    return page


@lru_cache(maxsize=len(FITS))
def _environment(limit: int) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["text"] = lambda value: plain_text(value, limit)
    environment.filters["number"] = shown_number
    environment.globals.update(shown_value=table.shown_value, shown_interval=table.shown_interval)
    return environment


def report_view(name: str, rounds: Sequence[RoundData]) -> dict[str, Any]:
    """Everything the template shows, as plain values, figures and charts."""
    evaluated = [data for data in rounds if data.metrics is not None]
    latest = evaluated[-1] if evaluated else None
    metrics = latest.metrics if latest else None
    cases = latest.cases if latest else None
    return {
        "name": name,
        "notes": [note for data in rounds for note in data.notes],
        "stages": [{"index": data.index, "states": stage_states(data)} for data in rounds],
        "is_unfinished": any(state["state"] != "done" for data in rounds for state in stage_states(data)),
        "has_paths": any(data.shelf or data.cases for data in rounds),
        "latest": latest.index if latest else None,
        "metrics": metrics,
        "headline": table.headline_rows(metrics) if metrics else [],
        "slices": _slices(metrics) if metrics else [],
        "temperatures": _temperature_chart(metrics) if metrics else None,
        "best_of": _best_of_charts(metrics) if metrics else [],
        "rules": _rule_rows(metrics) if metrics else [],
        "prm_rows": _prm_rows(metrics) if metrics else [],
        "calibration": _calibration(metrics) if metrics else None,
        "trainings": [training for data in reversed(rounds) if (training := _training(data))],
        "rounds": [_round_row(data) for data in rounds],
        "rounds_chart": _rounds_chart(evaluated),
        "failures": cases.failures[:MAX_GROUPS] if cases else [],
        "failures_left_out": max(len(cases.failures) - MAX_GROUPS, 0) if cases else 0,
        "examples": _by_title(cases) if cases else [],
        "seconds": [(data.index, data.seconds) for data in rounds],
        "config": _config_rows(rounds),
    }


def _training(data: RoundData) -> dict[str, Any] | None:
    """Monitors of one round's PPO and the history of its PRM fit; None when neither was logged."""
    rows = data.logs.get("ppo", [])
    alarms = alarm_list(rows)
    stopped = data.done.get("ppo", {}).get("stopped_by")
    if stopped and not any(text.startswith("stopped: ") for _, text in alarms):
        alarms.append((None, f"stopped: {stopped}"))
    groups = alarm_groups(alarms, f"alarm-{data.index}")
    watched, further = monitor_charts(rows, data.config, groups)
    history = data.payload.get("prm", {}).get("history")
    history = _joined([row for row in history if isinstance(row, dict)] if isinstance(history, list) else [])
    fit = monitor_charts(data.logs.get("prm", []) or history, {})
    if not watched and not further and not any(fit) and not groups:
        return None
    return {
        "index": data.index,
        "watched": watched,
        "further": further,
        "fit": fit[0] + fit[1],
        "groups": groups,
        "count": len(alarms),
        "timeline": alarm_timeline(groups, rows),
    }


def _joined(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a fit, each of which counts its steps from the start, one after the other."""
    rows, offset, last, part = [], 0.0, 0.0, None
    for row in history:
        if row.get("part") != part:
            offset, part = last, row.get("part")
        step = row.get("step")
        last = offset + step if isinstance(step, int | float) else last
        rows.append(row | {"step": last})
    return rows


def _slices(metrics: Metrics) -> list[tuple[str, list[tuple[str, int, Figure, Figure, Figure]]]]:
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


def _best_of_charts(metrics: Metrics) -> list[Chart]:
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


def _rule_rows(metrics: Metrics) -> list[tuple[str, list[Figure]]]:
    """Best-of-N by each way of turning step scores into a path score: base and policy at T = 1 and best temperature."""
    pools = [pool for model in (metrics.base, metrics.policy) for pool in (model.sampled, model.best_temperature)]
    rules = list(pools[0].prm_best_by)
    return [
        (rule, [pool.prm_best_by[rule] for pool in pools])
        for rule in rules
        if all(rule in p.prm_best_by for p in pools)
    ]


def _temperature_chart(metrics: Metrics) -> Chart | None:
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


def _prm_rows(metrics: Metrics) -> list[tuple[str, Figure, Figure]]:
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


def _calibration(metrics: Metrics) -> Chart | None:
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


def _round_row(data: RoundData) -> dict[str, Any]:
    """One line of the table over rounds; None where a stage has not finished."""
    done, metrics = data.done, data.metrics
    return {
        "index": data.index,
        "pool_pass_rate": done.get("sample", {}).get("pool_pass_rate"),
        "prm_f1": done.get("prm", {}).get("first_error_f1"),
        "prm_accepted": done.get("prm", {}).get("accepted"),
        "metrics": metrics,
        "seconds": sum(value for value in data.seconds.values() if value is not None),
    }


def _rounds_chart(evaluated: Sequence[RoundData]) -> Chart | None:
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


def _by_title(cases: Cases) -> list[tuple[str, list[Any]]]:
    titles = list(dict.fromkeys(case.title for case in cases.examples))
    shown = cases.examples[:MAX_EXAMPLES]
    return [(title, [case for case in shown if case.title == title]) for title in titles]


def _config_rows(rounds: Sequence[RoundData]) -> list[tuple[str, str]]:
    config = next((data.config for data in reversed(rounds) if data.config), {})
    return [(key, str(value)) for key, value in sorted(config.items())]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.report", description=__doc__)
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="write the page again while the run goes on")
    options = parser.parse_args(argv)
    try:
        if options.watch is None:
            print(f"report: {build_report(options.run)}")
        elif not options.watch >= 1:
            raise InputError(f"--watch {options.watch:g}: must be 1 or more seconds")
        else:
            watch(options.run, lambda refresh: build_report(options.run, refresh), options.watch)
    except InputError as error:
        print(f"eval.report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

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
from eval.ablation import Ablation, ablation_view, is_clear, shown_ablations
from eval.charts import shown_number
from eval.failures import Cases
from eval.monitor_charts import alarm_groups, alarm_list, alarm_timeline, monitor_charts
from eval.report_figures import (
    best_of_charts,
    calibration,
    prm_rows,
    rounds_chart,
    rule_rows,
    slices,
    temperature_chart,
)
from eval.report_live import newest_change, stage_states, watch
from eval.report_paths import browsed_paths
from eval.run_folder import RoundData, read_rounds
from eval.shown_text import plain_text

MAX_BYTES = 3_000_000
FITS = ((1500, 600, 9), (400, 480, 1), (100, 200, 1), (30, 60, 0))
"""(characters of a model's text, paths to browse, rounds with charts of what is not watched) that are shown: the first
row under which the page fits ``MAX_BYTES`` is taken."""
MAX_GROUPS = 24
MAX_EXAMPLES = 40
TEMPLATES = Path(__file__).parent / "templates"


def build_report(run_dir: Path, refresh: float | None = None, ablations: Sequence[Path] = ()) -> Path:
    """Write ``<run_dir>/report.html`` by rename and return its path.

    Args:
        ablations: results of ``bench.ablation`` to show beside those that lie in the folder; a folder that holds one
            needs no round.
        refresh: seconds after which the page reads itself again while a stage is not finished; None: never.

    Raises:
        InputError: no such run folder, or no round in it; an ablation that cannot be read.
    """
    found, notes = shown_ablations(run_dir, ablations)
    rounds = [] if found and not any(run_dir.glob("round-*")) else read_rounds(run_dir)
    target = run_dir / "report.html"
    page = render(run_dir.name, rounds, newest=newest_change(run_dir), refresh=refresh, ablations=found, notes=notes)
    write_atomic(target, page)
    return target


def render(
    name: str,
    rounds: Sequence[RoundData],
    *,
    newest: float = 0.0,
    refresh: float | None = None,
    ablations: Sequence[tuple[str, Ablation]] = (),
    notes: Sequence[str] = (),
) -> str:
    """The page as text, at most ``MAX_BYTES`` long in UTF-8 by showing less.

    newest: when a file of the run was last written, seconds since 1970. refresh: see ``build_report``. ablations: name
    and result. notes: what else is not shown.
    """
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    view = report_view(name, rounds) | {"newest": round(newest, 1), "script": script, "script_hash": digest}
    view["refresh"] = refresh if view["is_unfinished"] else None
    view["notes"] += notes
    view["ablations"] = [ablation_view(*one) for one in ablations]
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
    environment.globals.update(shown_value=table.shown_value, shown_interval=table.shown_interval, is_clear=is_clear)
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
        "slices": slices(metrics) if metrics else [],
        "temperatures": temperature_chart(metrics) if metrics else None,
        "best_of": best_of_charts(metrics) if metrics else [],
        "rules": rule_rows(metrics) if metrics else [],
        "prm_rows": prm_rows(metrics) if metrics else [],
        "calibration": calibration(metrics) if metrics else None,
        "trainings": [training for data in reversed(rounds) if (training := _training(data))],
        "rounds": [_round_row(data) for data in rounds],
        "rounds_chart": rounds_chart(evaluated),
        "failures": cases.failures[:MAX_GROUPS] if cases else [],
        "failures_left_out": max(len(cases.failures) - MAX_GROUPS, 0) if cases else 0,
        "examples": _by_title(cases) if cases else [],
        "seconds": [(data.index, data.seconds) for data in rounds],
        "stage_names": list(dict.fromkeys(stage for data in rounds for stage in data.stages)),
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
    raised = [group for group in groups if group.style != "end"]
    watched, further = monitor_charts(rows, data.config, raised)
    history = data.payload.get("prm", {}).get("history")
    history = _joined([row for row in history if isinstance(row, dict)] if isinstance(history, list) else [])
    fit = monitor_charts(data.logs.get("prm", []) or history, {}, prefix="history.")
    if not watched and not further and not any(fit) and not groups:
        return None
    return {
        "index": data.index,
        "watched": watched,
        "further": further,
        "fit": fit[0] + fit[1],
        "groups": groups,
        "count": sum(len(group.events) for group in raised),
        "timeline": alarm_timeline(raised, rows),
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


def _start_accuracy(done: dict[str, Any]) -> tuple[float, float] | None:
    """Validation accuracy before and after the supervised start, None without one."""
    sides = [done.get(when) for when in ("before", "after")]
    found = [side.get("accuracy") if isinstance(side, dict) else None for side in sides]
    numbers = [float(value) for value in found if isinstance(value, int | float)]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None


def _round_row(data: RoundData) -> dict[str, Any]:
    """One line of the table over rounds; None where a stage has not finished."""
    done, metrics = data.done, data.metrics
    return {
        "index": data.index,
        "pool_pass_rate": done.get("sample", {}).get("pool_pass_rate"),
        "start": _start_accuracy(done.get("sft", {})),
        "prm_f1": done.get("prm", {}).get("first_error_f1"),
        "prm_accepted": done.get("prm", {}).get("accepted"),
        "metrics": metrics,
        "seconds": sum(value for value in data.seconds.values() if value is not None),
    }


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
    parser.add_argument(
        "--ablation",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="ablation.json of bench.ablation; those in the run folder are shown anyway",
    )
    options = parser.parse_args(argv)
    try:
        if options.watch is None:
            print(f"report: {build_report(options.run, ablations=options.ablation)}")
        elif not options.watch >= 1:
            raise InputError(f"--watch {options.watch:g}: must be 1 or more seconds")
        else:
            watch(options.run, lambda refresh: build_report(options.run, refresh, options.ablation), options.watch)
    except InputError as error:
        print(f"eval.report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

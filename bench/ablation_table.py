"""The result of an ablation as one JSON and as a table in Markdown."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import json
import platform
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.ablation_results import TRACES, Clock, JobResult, StageCost, TestScores
from bench.ablation_summary import Comparison, Cost, Reach, compare, cost, reach
from bench.arms import Arm
from common.config import Config
from common.runs import code_state
from eval.ablation import TITLES
from eval.schema import Figure
from eval.table import shown_interval, shown_value

TRACE_PARTS = 6
"""Parts of the training that the table of monitors has."""
PACKAGES = ("torch", "transformers", "trl", "accelerate", "numpy")


@dataclasses.dataclass(frozen=True)
class ArmReport:
    """An arm's row: comparison by budget, cost, rollouts to the reference's accuracy, learning rate and its search."""

    about: str
    overrides: tuple[str, ...]
    comparisons: dict[str, Comparison]
    cost: Cost
    reach: Reach
    learning_rate: float
    screen: dict[float, float]

    @property
    def is_rate_at_edge(self) -> bool:
        """True when the best learning rate is the highest or lowest that was tried."""
        return len(self.screen) > 1 and self.learning_rate in (min(self.screen), max(self.screen))


@dataclasses.dataclass(frozen=True)
class Report:
    """A whole ablation: ``head`` says where it comes from, ``rows`` hold the arms, ``jobs`` every result."""

    head: dict[str, Any]
    reference: str
    base: dict[str, float | None]
    rows: dict[str, ArmReport]
    jobs: dict[str, list[JobResult]]
    costs: dict[str, dict[int, StageCost]]

    def to_json(self) -> str:
        row = {
            "head": self.head,
            "reference": self.reference,
            "base": self.base,
            "arms": {name: _plain(arm) for name, arm in self.rows.items()},
            "stage_costs": {name: _plain(found) for name, found in self.costs.items()},
            "jobs": {name: [dataclasses.asdict(job) for job in found] for name, found in self.jobs.items()},
            "notes": notes(self),
        }
        return json.dumps(row, allow_nan=False, ensure_ascii=False)

    @property
    def markdown(self) -> str:
        return render(self)


def _plain(value: Any) -> Any:
    if isinstance(value, Figure):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def versions() -> dict[str, str]:
    """Versions of what computes the figures, and the commit; ``+ changes`` when the checkout differs from it."""
    commit, _, diff = code_state().partition("\n")
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"code": commit + (" + changes" if diff else ""), "python": platform.python_version(), **found}


def build_report(
    config: Config,
    *,
    arms: Sequence[Arm],
    reference: str,
    pacer: str,
    jobs: Mapping[str, list[JobResult]],
    costs: Mapping[str, Mapping[int, StageCost]],
    screens: Mapping[str, dict[float, float]],
    budgets: Sequence[str],
    clock: Clock,
    head: Mapping[str, Any],
) -> Report:
    """Compare every arm with the reference at every budget. ``jobs``: results by arm, in the order of the seeds.

    ``pacer``: the arm whose seconds at equal rollouts are the budget in seconds; its result is the same at both.
    """
    budget_names = [name for name in ("rollouts", "seconds", "training_seconds") if name.split("_")[-1] in budgets]
    base = compare({job.seed: job.tests["base"] for job in jobs[reference]}, None, num_resamples=1).value
    charged = [arm for arm in arms if any(one.rollouts for one in costs[arm.name].values())]
    sharing = Counter(str(arm.stage_overrides) for arm in charged)
    fitting = Counter(str(arm.stage_overrides) for arm in charged if arm.process == "prm")

    def tests(arm: str, budget: str) -> dict[int, TestScores]:
        return {job.seed: job.tests["rollouts" if arm == pacer else budget] for job in jobs[arm]}

    rows = {}
    for arm in arms:
        results = jobs[arm.name]
        comparisons = {
            name: compare(
                tests(arm.name, name),
                None if arm.name == reference else tests(reference, name),
                num_resamples=config.eval.resamples,
            )
            for name in budget_names
        }
        stages = str(arm.stage_overrides)
        price = cost(
            results,
            costs[arm.name],
            sharing=sharing[stages],
            fitting=fitting[stages],
            batches=config.ppo.batches,
        )
        rows[arm.name] = ArmReport(
            about=arm.about,
            overrides=arm.overrides,
            comparisons=comparisons,
            cost=price,
            reach=reach(results, jobs[reference], batches=config.ppo.batches, label_rollouts=price.label_rollouts),
            learning_rate=results[0].learning_rate,
            screen=screens[arm.name],
        )
    facts = {
        "seeds": [job.seed for job in jobs[reference]],
        "test_problems": len(next(iter(tests(reference, "rollouts").values())).greedy),
        "seconds_of": pacer,
        "batches": config.ppo.batches,
        "rollouts": config.ppo.batches * config.ppo.problems * config.ppo.paths,
        "clock": clock,
    }
    found = {name: dict(by_seed) for name, by_seed in costs.items()}
    return Report({**head, **facts}, reference, base, rows, dict(jobs), found)


def render(report: Report) -> str:
    """The tables: one for each budget, costs, and what a reader must know."""
    head = report.head
    seeds = ", ".join(map(str, head["seeds"]))
    lines = [
        f"# Ablation: {head['config']}, seeds {seeds}",
        "",
        f"`{head['command']}`",
        "",
        f"{head['test_problems']} test problems, the same for every arm and seed; greedy, and mean of {head['samples']}"
        f" paths at temperature 1, in percent. `{report.reference}` before training:"
        f" {_percent(report.base['greedy'])} /"
        f" {_percent(report.base['sampled'])}. Budget: {head['batches']} batches = {head['rollouts']} rollouts of"
        f" `{report.reference}`, the reference, or the seconds ({head['clock']}) that `{head['seconds_of']}` takes for"
        " them. Differences in points with 95 %"
        " intervals over seeds and problems; bold: excludes 0. Ahead: seeds in which the sampled accuracy is higher.",
    ]
    for budget in next(iter(report.rows.values())).comparisons:
        lines += ["", f"## {TITLES[budget]}", "", *_comparison_rows(report, budget)]
    lines += ["", "## Cost of a seed", "", *_cost_rows(report), ""]
    if any(job.traces for jobs in report.jobs.values() for job in jobs):
        lines += ["## In training", "", *_trace_rows(report), ""]
    lines += [f"- {note}" for note in notes(report)]
    return "\n".join(lines) + "\n"


def _comparison_rows(report: Report, budget: str) -> list[str]:
    lines = [
        "| arm | greedy | difference | sampled | difference | ahead | batches |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in report.rows.items():
        found = row.comparisons[budget]
        cells = [name]
        for metric in ("greedy", "sampled"):
            cells += [_percent(found.value[metric]), _difference(found, metric)]
        ahead = "reference" if found.difference is None else f"{found.ahead}/{found.seeds}"
        lines.append(f"| {' | '.join([*cells, ahead, f'{found.batches:.1f}'])} |")
    return lines


def _cost_rows(report: Report) -> list[str]:
    clock = report.head["clock"]
    lines = [
        f"| arm | learning rate | training, s wall / CPU | data and PRM (fit), s {clock} | amortised, s {clock}"
        f" | label rollouts | a batch, s {clock} | PRM share | rollouts to reference | with label rollouts |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in report.rows.items():
        price, goal = row.cost, row.reach
        has_stages = price.stages["wall"] > 0
        cells = [
            name,
            f"{row.learning_rate:g}" + (" (edge)" if row.is_rate_at_edge else ""),
            f"{price.train['wall']:.0f} / {price.train['cpu']:.0f}",
            f"{price.stages[clock]:.0f} ({price.fit[clock]:.0f})" if has_stages else "–",
            f"{price.amortised[clock]:.0f}",
            f"{price.label_rollouts:.0f}" if has_stages else "–",
            f"{price.batch[clock]:.2f}",
            "–" if price.prm_share is None else f"{100 * price.prm_share:.1f} %",
            _reached(goal),
            "–" if goal.charged_share is None else f"{100 * goal.charged_share:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _trace_rows(report: Report) -> list[str]:
    """Monitors in parts of the training: mean over a part's batches and the seeds."""
    num_batches = report.head["batches"]
    edges = sorted({round(num_batches * part / TRACE_PARTS) for part in range(TRACE_PARTS + 1)})
    spans = list(itertools.pairwise(edges))
    titles = [f"{low + 1}-{high}" if high > low + 1 else f"{high}" for low, high in spans]
    lines = [f"| arm | batches | {' | '.join(titles)} |", f"|---|---|{'---:|' * len(spans)}"]
    for name in report.rows:
        for key, title in TRACES.items():
            series = [job.traces[key] for job in report.jobs[name] if key in job.traces]
            parts = [[value for one in series for value in one[low:high]] for low, high in spans]
            if any(any(part) for part in parts):
                shown = [f"{statistics.fmean(part):.2f}" if part else "–" for part in parts]
                lines.append(f"| {name} | {title} | {' | '.join(shown)} |")
    return lines


def _reached(goal: Reach) -> str:
    if goal.rollouts is None or goal.share is None:
        return "not reached" if goal.has_gain else "–"
    return f"{goal.rollouts:.0f} ({100 * goal.share:.0f} %)"


def notes(report: Report) -> list[str]:
    """What a reader must know beside the numbers."""
    found = []
    if len(report.head["seeds"]) == 1:
        found.append("One seed: intervals are over problems alone and say nothing about another seed.")
    elif len(report.head["seeds"]) < 5:
        found.append(f"{len(report.head['seeds'])} seeds: a bootstrap over so few makes intervals too narrow.")
    if not report.rows[report.reference].reach.has_gain:
        found.append(f"{report.reference} gained nothing on validation: there is no accuracy to reach.")
    for name, row in report.rows.items():
        for budget, one in row.comparisons.items():
            for seed, reason in one.ended_by.items():
                found.append(f"{name}, seed {seed}, {TITLES[budget].lower()}: ended by {reason}.")
            if one.batches == 0:
                found.append(f"{name}, {TITLES[budget].lower()}: its stages use up the budget; it was not trained.")
            if one.left_out:
                found.append(
                    f"{name}, {TITLES[budget].lower()}: {one.left_out} problems without a judged path left out."
                )
        if row.is_rate_at_edge:
            found.append(f"{name}: the best learning rate is at the edge of the search; widen it.")
        if not row.cost.is_whole:
            found.append(f"{name}: a stage was killed; its seconds before that are missing from the charge.")
    if any(row.screen for row in report.rows.values()):
        tried = sorted(next(row.screen for row in report.rows.values() if row.screen))
        shown = ", ".join(f"{rate:g}" for rate in tried)
        seed = report.head["seeds"][0]
        found.append(
            f"Learning rates {shown} were tried for every arm on seed {seed}; the best final validation accuracy chose."
        )
    return found


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _difference(found: Comparison, metric: str) -> str:
    if found.difference is None:
        return "–"
    figure = found.difference[metric]
    text = f"{shown_value(figure, 'share', signed=True)} {shown_interval(figure, 'share', signed=True)}".strip()
    is_clear = figure.ci95 is not None and (figure.ci95[0] > 0 or figure.ci95[1] < 0)
    return f"**{text}**" if is_clear else text

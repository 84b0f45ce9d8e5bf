"""Base | policy | difference: the rows of the headline table, and the table as printed in a terminal."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval.schema import Figure, Metrics

Kind = Literal["share", "number", "score"]
QUALITY = {
    "completeness": "quality: no step missing",
    "redundancy": "quality: no step redundant",
    "coherence": "quality: coherent neighbours",
    "clarity": "quality: clarity",
    "detail": "quality: usual detail",
}
"""Measure of quality -> its row; greedy paths, see docs/quality.md."""
_SCALE_DIGITS = {"share": (100.0, 1), "number": (1.0, 2), "score": (1.0, 3)}


@dataclasses.dataclass(frozen=True)
class Row:
    """One compared quantity.

    Attributes:
        label: what it is.
        base, policy, difference: figures; the difference is paired over problems.
        kind: "share" is shown in percent (differences in points), "number" and "score" as they are.
        better: direction of improvement, 0 when neither direction is good in itself.
    """

    label: str
    base: Figure
    policy: Figure
    difference: Figure
    kind: Kind = "share"
    better: Literal[-1, 0, 1] = 1

    @property
    def is_clear(self) -> bool:
        """True when the interval of the difference excludes 0."""
        ci95 = self.difference.ci95
        return ci95 is not None and (ci95[0] > 0 or ci95[1] < 0)

    @property
    def verdict(self) -> Literal["better", "worse", "changed", "unclear"]:
        """What the interval of the difference says."""
        if not self.is_clear or self.difference.value is None:
            return "unclear"
        if self.better == 0:
            return "changed"
        return "better" if self.difference.value * self.better > 0 else "worse"


def headline_rows(metrics: Metrics) -> list[Row]:
    """Rows of the headline table, accuracy first, then process, then form."""
    base, policy, diff = metrics.base, metrics.policy, metrics.difference

    best = f"base {base.best_temperature.temperature:g}, policy {policy.best_temperature.temperature:g}"
    rows = [
        Row("pass@1, greedy", base.pass1_greedy, policy.pass1_greedy, diff.pass1_greedy),
        Row(
            f"pass@1, sampled (T = {base.sampled.temperature:g})",
            base.pass1_sampled,
            policy.pass1_sampled,
            diff.pass1_sampled,
        ),
        Row(
            f"pass@1, own best temperature ({best})",
            base.pass1_best_temperature,
            policy.pass1_best_temperature,
            diff.pass1_best_temperature,
        ),
        Row("majority of 8", base.majority8, policy.majority8, diff.majority8),
        Row("best of 8 by PRM", base.prm_best8, policy.prm_best8, diff.prm_best8),
        Row("PRM-weighted vote of 8", base.sampled.prm_vote, policy.sampled.prm_vote, diff.prm_vote8),
    ]
    if "8" in base.sampled.pass_at and "8" in policy.sampled.pass_at:
        rows.append(Row("pass@8", base.sampled.pass_at["8"], policy.sampled.pass_at["8"], diff.pass8))
    process_base, process_policy = base.process, policy.process
    return [
        *rows,
        Row("paths without a wrong step", process_base.clean_paths, process_policy.clean_paths, diff.clean_paths),
        Row("right steps", process_base.right_steps, process_policy.right_steps, diff.right_steps),
        Row(
            "right answers that hide a wrong step",
            process_base.hidden_errors,
            process_policy.hidden_errors,
            diff.hidden_errors,
            better=-1,
        ),
        Row("well-formed answers", base.format_rate, policy.format_rate, diff.format_rate),
        Row("cut at the length limit", base.truncated_share, policy.truncated_share, diff.truncated_share, better=-1),
        Row("repeated 4-grams", base.repeated_ngrams, policy.repeated_ngrams, diff.repeated_ngrams, better=-1),
        *(
            Row(label, getattr(base.quality, name), getattr(policy.quality, name), getattr(diff.quality, name))
            for name, label in QUALITY.items()
            if getattr(base.quality, name).value is not None
        ),
        Row("steps a path", base.mean_steps, policy.mean_steps, diff.mean_steps, "number", 0),
        Row("tokens a path", base.mean_tokens, policy.mean_tokens, diff.mean_tokens, "number", 0),
    ]


def shown_value(figure: Figure, kind: Kind, *, signed: bool = False) -> str:
    """Value as text: percent with one decimal, a number with two, a score with three; "–" when absent."""
    if figure.value is None:
        return "–"
    return _number(figure.value, kind, signed)


def shown_interval(figure: Figure, kind: Kind, *, signed: bool = False) -> str:
    """Interval as text "[low, high]", empty when there is none."""
    if figure.ci95 is None:
        return ""
    low, high = (_number(end, kind, signed) for end in figure.ci95)
    return f"[{low}, {high}]"


def _number(value: float, kind: Kind, signed: bool) -> str:
    scale, digits = _SCALE_DIGITS[kind]
    number = round(value * scale, digits) + 0.0  # no "-0.0"
    return f"{number:+.{digits}f}" if signed else f"{number:.{digits}f}"


def comparison_table(metrics: Metrics) -> Table:
    """The headline table for a terminal; differences whose interval excludes 0 are bold."""
    title = f"{metrics.run}, round {metrics.round}: {metrics.base.problems} test problems, 95 % intervals"
    table = Table(title=Text(title), caption="percent; differences in points, paired over problems; bold: excludes 0")
    table.add_column("")
    for name in ("base", "policy", "difference"):
        table.add_column(name, justify="right")
    for row in headline_rows(metrics):
        cells = [
            Text(f"{shown_value(figure, row.kind)} {shown_interval(figure, row.kind)}".strip())
            for figure in (row.base, row.policy)
        ]
        change = shown_value(row.difference, row.kind, signed=True)
        change += " " + shown_interval(row.difference, row.kind, signed=True)
        table.add_row(Text(row.label), *cells, Text(change.strip(), "bold" if row.is_clear else ""))
    return table


def print_table(metrics: Metrics, console: Console | None = None) -> None:
    """Print the headline table."""
    (console or Console()).print(comparison_table(metrics))

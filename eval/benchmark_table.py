"""Benchmarks in a terminal: the figures of one run, and the registry."""

from __future__ import annotations

from rich.table import Table

from eval.benchmark_figures import BenchmarkReport
from eval.benchmark_spec import load_registry
from eval.schema import Figure
from eval.table import shown_interval, shown_value


def report_table(report: BenchmarkReport) -> Table:
    """The figures as a table, in percent."""
    of = "" if report.problems_published in (None, report.problems) else f" of {report.problems_published}"
    table = Table(title=f"{report.benchmark}: {report.model}", caption="percent, 95 % intervals over problems")
    table.add_column(f"{report.problems}{of} problems, {report.samples} samples")
    for name in ("", "95 %"):
        table.add_column(name, justify="right")
    rows: dict[str, Figure] = {f"avg@{report.samples}" if report.samples > 1 else "pass@1": report.avg}
    if report.samples > 1:
        top = str(report.samples)
        rows |= {f"pass@{top}": report.pass_at[top], f"majority of {top}": report.majority[top]}
    rows |= {"states an answer": report.answered, "cut at the length limit": report.cut}
    if report.recorded is not None:
        rows["by the recorded verdicts"] = report.recorded.recorded_avg
    for label, figure in rows.items():
        table.add_row(label, shown_value(figure, "share"), shown_interval(figure, "share"))
    table.add_row("tokens", shown_value(report.tokens, "number"), shown_interval(report.tokens, "number"))
    table.add_row("verdicts", " ".join(f"{name} {count}" for name, count in sorted(report.verdicts.items())), "")
    if report.recorded is not None:
        one = report.recorded
        table.add_row("verdicts as recorded", f"{one.equal} of {one.samples}", "")
    return table


def registry_table() -> Table:
    """What ``--benchmark`` alone prints."""
    table = Table(title="python -m eval --benchmark NAME --model DIR")
    for name in ("benchmark", "rows", "problems", "samples", "temperature", "top_p", "tokens", "grading"):
        table.add_column(name, no_wrap=name == "benchmark")
    for name, one in load_registry().items():
        place = f"{one.source.hub} {one.source.config or ''}".strip() if one.source else "a JSON Lines file"
        count = str(one.source.problems) if one.source else ""
        how = one.sampling
        cells = [str(how.samples), f"{how.temperature:g}", f"{how.top_p:g}", str(how.max_new_tokens)]
        table.add_row(name, place, count, *cells, ", ".join(f"{k} {v:g}" for k, v in one.grading.items()) or "default")
    return table

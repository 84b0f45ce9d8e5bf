"""Every key that a run writes: unit, formula, healthy range, what to do outside of it. The source of docs/metrics.md.

The table is ``eval/metrics.yaml``. Levels in it are taken from the limits in force without a configuration, and from
the runs of docs/results/runs.jsonl, so that no number is written twice. ``python -m eval.metric_table`` writes the page
again, ``python -m eval.metric_table KEY`` explains one key.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from common.config import Config
from common.errors import InputError
from common.files import write_atomic

TABLE = Path(__file__).parent / "metrics.yaml"
ROOT = TABLE.parent.parent
PAGE, RUNS = ROOT / "docs" / "metrics.md", ROOT / "docs" / "results" / "runs.jsonl"
HEAD = """# Metrics

Every key that a run writes. Made from `eval/metrics.yaml` by `python -m eval.metric_table`; tests compare it with what
runs write, in both directions. `python -m eval.metric_table kl/reference` prints one line of it.

*Healthy* is a limit that a rule in the code watches, at its default, or, where it says so, what the runs of
docs/results/runs.jsonl reached; empty means that nothing watches the key and no range was measured. Names in `code`
are rules of docs/doctor.md. Limits move with the settings: the report (docs/report.md) draws those of your run.
"""


@dataclasses.dataclass(frozen=True)
class Metric:
    """One key, or a family of keys with ``<name>`` in the place of what varies.

    Attributes:
        key: as in the file; parts of nested objects are joined by dots, list indices are left out.
        unit: "1" for a plain number.
        formula, healthy, otherwise: what it is, its range, what to do outside of it; "" where there is nothing to say.
    """

    key: str
    unit: str
    formula: str
    healthy: str
    otherwise: str

    def matches(self, key: str) -> bool:
        return _pattern(self.key).fullmatch(key) is not None


@dataclasses.dataclass(frozen=True)
class Group:
    """Metrics that share prefixes; each ``Metric.key`` is without them, and no prefix is one empty text."""

    prefixes: tuple[str, ...]
    metrics: tuple[Metric, ...]

    def find(self, key: str) -> Metric | None:
        """The metric that a full key belongs to, exact names before families."""
        shorts = [key[len(found[0]) :] for prefix in self.prefixes if (found := _pattern(prefix).match(key))]
        hits = [metric for short in shorts for metric in self.metrics if metric.matches(short)]
        return min(hits, key=lambda metric: "<" in metric.key, default=None)


@dataclasses.dataclass(frozen=True)
class Section:
    """The keys of one kind of row. ``place`` names it for the tests."""

    title: str
    place: str
    about: str
    groups: tuple[Group, ...]


@lru_cache(maxsize=256)
def _pattern(key: str) -> re.Pattern[str]:
    """Family names stand for one part of a key; only a temperature and the words of a reason have a dot in them."""
    parts = re.split(r"(<[a-z]+>)", key)
    names = {"<temperature>": r"\d+\.\d+", "<reason>": r"[^/]+"}
    return re.compile("".join(names.get(one, r"[^./]+") if one[:1] == "<" else re.escape(one) for one in parts))


class _Ranges:
    """``runs[path]`` in the table: least and largest value of a figure over the shipped runs; an installation without
    docs/ names their file.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __getitem__(self, path: str) -> str:
        values = []
        for row in self._rows:
            value: Any = row
            for part in path.split("."):
                value = value[part]
            values.append(float(value))
        if not values:
            return RUNS.name
        low, high = (f"{value:.2g}" for value in (min(values), max(values)))
        return f"{low} to {high}"


def levels() -> dict[str, Any]:
    """What ``{…}`` in the table may name: settings and limits of the default configuration, ranges of shipped runs."""
    from policy.arguments import monitor_limits  # which reads TRL: seconds that the report does not need

    config = Config()
    limits = monitor_limits(config)
    rows = (
        [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines() if line] if RUNS.is_file() else []
    )
    sections = {name: getattr(config, name) for name in ("data", "prm", "ppo")}
    return {"limits": limits, "rules": {rule.name: rule for rule in limits.rules}, "runs": _Ranges(rows), **sections}


@lru_cache(maxsize=2)
def sections(is_filled: bool) -> tuple[Section, ...]:
    """The table; ``is_filled`` False leaves ``{…}`` as it stands, for who wants unit and formula alone."""
    known = levels() if is_filled else None
    found = []
    rows: Any = OmegaConf.to_container(OmegaConf.load(TABLE))
    for row in rows:
        blocks = [{"prefixes": [], "keys": row["keys"]}, *row.get("blocks", [])]
        groups = [
            Group(
                prefixes=tuple(f"{prefix}." for prefix in block["prefixes"]) or ("",),
                metrics=tuple(_metric(key, cells, known) for key, cells in block["keys"].items()),
            )
            for block in blocks
        ]
        found.append(Section(row["title"], row["place"], row.get("about", ""), tuple(groups)))
    return tuple(found)


def _metric(key: str, cells: Sequence[Any], known: Mapping[str, Any] | None) -> Metric:
    unit, formula, healthy, otherwise = (str(cell) for cell in cells)
    return Metric(str(key), unit, formula, healthy if known is None else healthy.format_map(known), otherwise)


def find(key: str, place: str | None = None, is_filled: bool = True) -> Metric | None:
    """The line of a key; None when the table has none. ``place``: look in these sections only."""
    groups = (group for one in sections(is_filled) if place in (None, one.place) for group in one.groups)
    hits = [metric for group in groups if (metric := group.find(key))]
    return min(hits, key=lambda metric: "<" in metric.key, default=None)


def flat_keys(value: Any, prefix: str = "") -> Iterator[str]:
    """Keys of nested objects that hold a value, joined by dots, list indices left out; a figure is one key."""
    if isinstance(value, dict) and "ci95" not in value:
        for name, item in value.items():
            yield from flat_keys(item, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list):
        for item in value:
            yield from flat_keys(item, prefix)
    elif value is not None:
        yield prefix


def page() -> str:
    """docs/metrics.md."""
    lines = [HEAD]
    for one in sections(True):
        lines += [f"## {one.title}", ""] + ([one.about, ""] if one.about else [])
        for group in one.groups:
            if not group.metrics:
                continue
            if group.prefixes != ("",):
                lines += ["After " + ", ".join(f"`{prefix}`" for prefix in group.prefixes) + ":", ""]
            lines += ["| key | unit | formula | healthy | else |", "|---|---|---|---|---|"]
            lines += [_row(metric) for metric in group.metrics]
            lines.append("")
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    cells = (metric.unit, metric.formula, metric.healthy, metric.otherwise)
    return " | ".join([f"| `{metric.key}`", *(cell.replace("|", "\\|") for cell in cells)]) + " |"


def main(argv: Sequence[str]) -> int:
    """Write the page, or explain the keys given."""
    try:
        if not argv:
            write_atomic(PAGE, page())
            print(f"metrics: {PAGE}")
        for key in argv:
            metric = find(key)
            if metric is None:
                raise InputError(f"{key}: no run writes this key; docs/metrics.md lists all")
            print(f"{key} [{metric.unit}]: {metric.formula}")
            print(f"  healthy: {metric.healthy or 'nothing watches it'}")
            print(f"  else:    {metric.otherwise or '-'}")
    except InputError as error:
        print(f"eval.metric_table: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

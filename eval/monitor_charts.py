"""Charts of a training log: the monitors that are watched, with the limits that stop or alarm, then everything else."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from eval.charts import Chart, EventChart, EventRow, Series, event_chart, line_chart
from eval.metric_table import find
from eval.monitor_table import FACT_KEYS, MONITORS, is_number, limits_of
from policy.actions import RULES
from policy.monitors import BatchFacts, Limits, batch_alarms

Row = Mapping[str, Any]
X_KEYS = ("step", "global_step", "batch", "update")
MAX_FURTHER = 40
END = "stopped: max_steps"
"""What a run says that made all its updates: no alarm."""
RULE_NAMES = {rule.name for rule in RULES}


def monitor_charts(
    rows: Sequence[Row], config: Mapping[str, Any], groups: Sequence[AlarmGroup] = (), prefix: str = ""
) -> tuple[list[Chart], list[Chart]]:
    """Charts of the watched quantities that the log holds, and of at most ``MAX_FURTHER`` others by name.

    groups: alarms to mark on the time lines. prefix: of the rows' keys in the table of metrics, which explains the
    others.
    """
    names = _numeric_keys(rows)
    alarms = [(x, text, group.anchor) for group in groups for x, text in group.events if x is not None]
    watched, used = [], set()
    for monitor in MONITORS:
        key = next((names[short] for short in monitor.keys if short in names), None)
        if key is None:
            continue
        used.add(key)
        points = _points(rows, key)
        chart = line_chart(
            monitor.title,
            [Series(monitor.title, "policy", points)],
            note=monitor.note,
            x_label="update",
            limits=limits_of(monitor, config, points),
            alarms=alarms,
        )
        watched += [chart] if chart else []
    further = [key for key in set(names.values()) if key not in used and key not in X_KEYS]
    charts = [
        line_chart(
            key[:60], [Series(key[:60], "policy", _points(rows, key))], x_label="update", note=_meaning(prefix + key)
        )
        for key in sorted(further)[:MAX_FURTHER]
    ]
    return watched, [chart for chart in charts if chart]


def _meaning(key: str) -> str:
    """Unit and formula of a key; nothing for one that no run of this version writes."""
    metric = find(key, is_filled=False)
    return f"{metric.unit}: {metric.formula}" if metric else ""


@dataclasses.dataclass(frozen=True)
class AlarmGroup:
    """Alarms of one kind.

    Attributes:
        name: of the rule, or the message without its numbers.
        style: "stop" ended the run, "act" changed something, "alarm" was logged and nothing more, "end": all updates
            are made.
        anchor: place on the page that lists them.
        events: (update or None, message), in the log's order.
    """

    name: str
    style: str
    anchor: str
    events: list[tuple[float | None, str]]


def alarm_groups(alarms: Sequence[tuple[float | None, str]], prefix: str) -> list[AlarmGroup]:
    """Alarms by kind, the kinds in the order of their first event; anchors are ``<prefix>-<number>``."""
    found: dict[str, list[tuple[float | None, str]]] = {}
    for x, text in alarms:
        found.setdefault(_kind(text), []).append((x, text))
    return [
        AlarmGroup(kind, _style(events), f"{prefix}-{number}", events)
        for number, (kind, events) in enumerate(found.items())
    ]


def alarm_timeline(groups: Sequence[AlarmGroup], rows: Sequence[Row]) -> EventChart | None:
    """Every kind of alarm as a row over the updates of the log; None without an alarm that has an update."""
    updates = [x for index, row in enumerate(rows) if (x := _x(row, index)) is not None]
    events = [
        EventRow(
            group.name if len(group.name) <= 56 else group.name[:55] + "…",
            group.style,
            group.anchor,
            [x for x, _ in group.events if x is not None],
        )
        for group in groups
    ]
    events = [row for row in events if row.at]
    return event_chart(events, (min(updates), max(updates))) if events else None


def _kind(text: str) -> str:
    name = text.partition(":")[0]
    if name in RULE_NAMES or name == "stopped":
        return name
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?\s?%?", "…", text)[:120]


def _style(events: Sequence[tuple[float | None, str]]) -> str:
    texts = [text for _, text in events]
    if texts == [END]:
        return "end"
    if any(text.startswith("stopped: ") for text in texts):
        return "stop"
    acted = any(("action: " in text and "(log only)" not in text) or text.startswith("kl_coef ") for text in texts)
    return "act" if acted else "alarm"


def alarm_list(rows: Sequence[Row]) -> list[tuple[float | None, str]]:
    """(update, message) of every alarm and stop, in the log's order.

    Alarms come from the rows' ``alarms``; a log without any is put through the monitors' own alarm rules again. A
    number that was logged as text because it is not finite is an alarm as well.
    """
    logged = any(row.get("alarms") for row in rows)
    replayed = {} if logged else replayed_alarms(rows)
    found: list[tuple[float | None, str]] = []
    for index, row in enumerate(rows):
        messages = row.get("alarms") or []
        texts = [str(text) for text in (messages if isinstance(messages, list) else [messages])]
        texts += replayed.get(index, [])
        texts += [f"{key} is {value}" for key, value in row.items() if value in ("nan", "inf", "-inf")]
        if row.get("stopped_by"):
            texts.append(f"stopped: {row['stopped_by']}")
        found += [(_x(row, index), text) for text in texts]
    return found


def replayed_alarms(rows: Sequence[Row], limits: Limits | None = None) -> dict[int, list[str]]:
    """Row number → alarms that ``policy.monitors`` raises on the rows that hold a generation batch."""
    batches: list[BatchFacts] = []
    found: dict[int, list[str]] = {}
    for index, row in enumerate(rows):
        facts = {field: row.get(key, 0.0 if field == "kl" else None) for field, key in FACT_KEYS.items()}
        if all(is_number(value) for value in facts.values()):
            batches.append(BatchFacts(**{field: float(value) for field, value in facts.items()}))  # type: ignore[arg-type]
            alarms = batch_alarms(batches, limits or Limits())
            if alarms:
                found[index] = alarms
    return found


def _numeric_keys(rows: Sequence[Row]) -> dict[str, str]:
    """Name → key for every key that holds a number in some row, by full and by short name (after the last "/").

    The first key wins a short name.
    """
    names: dict[str, str] = {}
    for row in rows:
        for key, value in row.items():
            if is_number(value):
                names[key] = key
                names.setdefault(key.split("/")[-1], key)
    return names


def _points(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    points = [(_x(row, index), row[key]) for index, row in enumerate(rows) if is_number(row.get(key))]
    return [(float(x), float(y)) for x, y in points if x is not None]


def _x(row: Row, index: int) -> float | None:
    value = next((row[key] for key in X_KEYS if is_number(row.get(key))), index)
    return float(value)

"""Charts of a training log: the monitors that are watched, with the limits that stop or alarm, then everything else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from eval.charts import Chart, Series, line_chart
from policy.monitors import BatchFacts, Limits, batch_alarms

Row = Mapping[str, Any]
X_KEYS = ("step", "global_step", "batch", "update")
MAX_FURTHER = 40


@dataclasses.dataclass(frozen=True)
class Monitor:
    """One watched quantity.

    Attributes:
        title: with unit.
        keys: names it may have in a log row, with or without a prefix up to "/"; the first present one is drawn.
        note: what a healthy run looks like.
        limits: (setting that holds the limit, what happens there).
        limit_is: the setting is the limit itself (``absolute``), or it is multiplied with (``share``) or added to
            (``rise``) the mean of the first window of batches, as the stop rules do.
    """

    title: str
    keys: tuple[str, ...]
    note: str
    limits: tuple[tuple[str, str], ...] = ()
    limit_is: Literal["absolute", "share", "rise"] = "absolute"


MONITORS = (
    Monitor(
        "Validation accuracy",
        ("validation_accuracy", "eval_accuracy", "accuracy"),
        "should rise; the run stops when it stays flat",
    ),
    Monitor("Validation accuracy, greedy", ("eval_greedy", "validation_greedy"), "should rise"),
    Monitor("Validation accuracy, sampled", ("validation_sampled", "eval_sampled", "sampled_accuracy"), "should rise"),
    Monitor(
        "KL to the reference, nats a token",
        ("kl/reference", "kl", "kl_reference", "kl_round"),
        "grows slowly",
        (("ppo.kl_cap", "stop"), ("ppo.kl_high", "more KL weight")),
    ),
    Monitor("KL to the base model, nats a token", ("kl/base", "kl_base", "kl_to_base"), "grows slowly"),
    Monitor(
        "Steps a path",
        ("mean_steps", "steps"),
        "stays; a fall without a gain is reward hacking",
        (("ppo.steps_floor", "stop"),),
        limit_is="share",
    ),
    Monitor(
        "Repeated 4-grams, share",
        ("repeated_ngrams",),
        "stays near its start",
        (("ppo.repeat_limit", "stop"),),
        limit_is="rise",
    ),
    Monitor(
        "Outcome reward", ("reward/outcome", "reward_outcome", "outcome_reward", "reward_mean", "reward"), "should rise"
    ),
    Monitor("Mean PRM score of a step", ("prm/mean_score", "process_reward"), "rises with the outcome, not alone"),
    Monitor("Realised process share", ("process_share", "realised_process_share"), "near its weight in the mix"),
    Monitor("Clip fraction", ("clip_fraction", "clip_ratio"), "below about 0.3"),
    Monitor("Entropy, nats a token", ("entropy",), "falls slowly, not to 0"),
    Monitor("Gradient norm", ("grad_norm",), "no spikes", (("ppo.max_grad_norm", "clipped"),)),
    Monitor("PRM fallbacks, share of paths", ("fallback_share", "fallbacks", "fallback"), "0"),
    Monitor("Truncated paths, share", ("truncated_share", "truncated", "clipped_ratio"), "low"),
    Monitor("Unparsed answers, share", ("unparsed_share", "unparsed"), "falls"),
    Monitor(
        "Groups with equal rewards, share", ("equal_group_share", "equal_groups", "frac_reward_zero_std"), "not near 1"
    ),
    Monitor("Updates skipped as not finite", ("update/skipped", "skipped"), "0"),
)


def monitor_charts(rows: Sequence[Row], config: Mapping[str, Any]) -> tuple[list[Chart], list[Chart]]:
    """Charts of the watched quantities that the log holds, and of at most ``MAX_FURTHER`` others by name."""
    names = _numeric_keys(rows)
    alarms = [(x, message) for x, message in alarm_list(rows) if x is not None]
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
            limits=_limits(monitor, config, points),
            alarms=alarms,
        )
        watched += [chart] if chart else []
    further = [key for key in set(names.values()) if key not in used and key not in X_KEYS]
    charts = [
        line_chart(key[:60], [Series(key[:60], "policy", _points(rows, key))], x_label="update")
        for key in sorted(further)[:MAX_FURTHER]
    ]
    return watched, [chart for chart in charts if chart]


FACT_KEYS = {
    "kl": "kl/reference",
    "repeated_ngrams": "rollout/repeated_ngrams",
    "mean_steps": "rollout/steps",
    "fallback_share": "rollout/fallback_share",
    "truncated_share": "rollout/truncated",
    "unparsed_share": "rollout/unparsed",
    "reward_mean": "reward/outcome",
    "equal_group_share": "rollout/equal_groups",
}
"""Field of the monitors' ``BatchFacts`` → key in a log row."""


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
        if all(_is_number(value) for value in facts.values()):
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
            if _is_number(value):
                names[key] = key
                names.setdefault(key.split("/")[-1], key)
    return names


def _points(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    points = [(_x(row, index), row[key]) for index, row in enumerate(rows) if _is_number(row.get(key))]
    return [(float(x), float(y)) for x, y in points if x is not None]


def _x(row: Row, index: int) -> float | None:
    value = next((row[key] for key in X_KEYS if _is_number(row.get(key))), index)
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _limits(
    monitor: Monitor, config: Mapping[str, Any], points: Sequence[tuple[float, float]]
) -> list[tuple[float, str]]:
    limits = []
    for setting, effect in monitor.limits:
        value = config.get(setting)
        if _is_number(value) and points:
            first = [y for _, y in points[: Limits().window]]
            start, level = sum(first) / len(first), float(value)  # type: ignore[arg-type]
            level = {"absolute": level, "share": level * start, "rise": level + start}[monitor.limit_is]
            limits.append((level, f"{effect} {level:.3g}"))
    return limits

"""The quantities of training that are watched: their keys in the log, what is healthy, and where rules stop or act."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

from policy.actions import RULES, Action, Rule, Shape, tuned
from policy.monitors import Limits

Points = Sequence[tuple[float, float]]


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
        fact: field of ``policy.monitors.BatchFacts`` whose alarms and rules are drawn.
    """

    title: str
    keys: tuple[str, ...]
    note: str
    limits: tuple[tuple[str, str], ...] = ()
    limit_is: Literal["absolute", "share", "rise"] = "absolute"
    fact: str = ""


MONITORS = (
    Monitor(
        "Validation accuracy",
        ("validation_accuracy", "eval_accuracy", "accuracy"),
        "should rise; the run stops when it stays flat",
    ),
    Monitor("Validation accuracy, greedy", ("eval_greedy", "validation_greedy"), "should rise"),
    Monitor("Validation accuracy, sampled", ("validation_sampled", "eval_sampled", "sampled_accuracy"), "should rise"),
    Monitor(
        "Outcome reward",
        ("reward/outcome", "reward_outcome", "outcome_reward", "reward_mean", "reward"),
        "should rise",
        fact="reward_mean",
    ),
    Monitor("Mean PRM score of a step", ("prm/mean_score", "process_reward"), "rises with the outcome, not alone"),
    Monitor(
        "AUC of the PRM on the outcome",
        ("prm/auc",),
        "near 1; at 0.5 the PRM does not know right from wrong",
        fact="prm_auc",
    ),
    Monitor(
        "KL to the reference, nats a token",
        ("kl/reference", "kl", "kl_reference", "kl_round"),
        "grows slowly",
        (("ppo.kl_cap", "stop"), ("ppo.kl_high", "more KL weight")),
        fact="kl",
    ),
    Monitor("KL to the base model, nats a token", ("kl/base", "kl_base", "kl_to_base"), "grows slowly"),
    Monitor("Entropy, nats a token", ("entropy",), "falls slowly, not to 0", fact="entropy"),
    Monitor(
        "Steps a path",
        ("rollout/steps", "mean_steps", "steps"),
        "stays; a fall without a gain is reward hacking",
        (("ppo.steps_floor", "stop"),),
        limit_is="share",
        fact="mean_steps",
    ),
    Monitor("Tokens a step", ("rollout/step_tokens", "step_tokens"), "stays near its start", fact="step_tokens"),
    Monitor(
        "Repeated 4-grams, share",
        ("repeated_ngrams",),
        "stays near its start",
        (("ppo.repeat_limit", "stop"),),
        limit_is="rise",
    ),
    Monitor("Repeated steps, share", ("duplicate_steps",), "stays near its start", fact="duplicate_steps"),
    Monitor("Steps of one pattern, share", ("same_pattern",), "stays near its start", fact="same_pattern"),
    Monitor("Separator tokens, share", ("separators",), "stays near its start", fact="separators"),
    Monitor("Truncated paths, share", ("truncated_share", "truncated", "clipped_ratio"), "low", fact="truncated_share"),
    Monitor("Unparsed answers, share", ("unparsed_share", "unparsed"), "falls", fact="unparsed_share"),
    Monitor(
        "Groups with equal rewards, share",
        ("equal_group_share", "equal_groups", "frac_reward_zero_std"),
        "not near 1",
        fact="equal_group_share",
    ),
    Monitor("PRM fallbacks, share of paths", ("fallback_share", "fallbacks", "fallback"), "0", fact="fallback_share"),
    Monitor("Paths that count, share", ("rollout/counted_share", "counted_share"), "near 1"),
    Monitor("Realised process share", ("process_share", "realised_process_share"), "near its weight in the mix"),
    Monitor("Process weight left by alarms, share", ("reward/process_factor",), "1; an alarm halves it"),
    Monitor("KL weight in force", ("kl/coef", "kl_coef", "beta"), "changes by alarms alone"),
    Monitor("Clip fraction", ("clip_fraction", "clip_ratio"), "below about 0.3"),
    Monitor("Gradient norm", ("grad_norm",), "no spikes", (("ppo.max_grad_norm", "clipped"),)),
    Monitor(
        "Outcome foreseen by the critic, share",
        ("critic/explained_variance_outcome",),
        "above 0 after the warm-up",
        fact="explained_variance",
    ),
    Monitor(
        "Log-prob difference of engine and trainer, nats a token",
        ("sampling/logp_difference",),
        "near 0; a jump is an engine with old weights",
        fact="logp_difference",
    ),
    Monitor("Updates skipped as not finite", ("update/skipped", "skipped"), "0"),
)

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
"""Field of the monitors' ``BatchFacts`` → key in a log row; what ``batch_alarms`` cannot do without."""

ALARMS = {
    "fallback_share": Limits.fallbacks,
    "truncated_share": Limits.truncated,
    "equal_group_share": Limits.equal_groups,
    "explained_variance": Limits.explained_variance,
}
"""Limits of the alarms that are logged and nothing more."""

DOES = {
    Action.OUTCOME_ONLY: "outcome only",
    Action.HALVE_PROCESS_WEIGHT: "half process weight",
    Action.RAISE_KL_COEF: "more KL weight",
    Action.ROLLBACK: "roll back",
}


def rules_in_force(config: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The alarms that act, with the limits of a flat configuration (``policy.arguments.monitor_limits``)."""
    settings = {
        "kl_spike": ("ppo.kl_cap", 3.0),
        "prm_misleads": ("ppo.prm_auc_floor", 1.0),
        "entropy_collapse": ("ppo.entropy_floor", 1.0),
        "sampler_mismatch": ("ppo.logp_difference_limit", 1.0),
    }
    limits = {
        name: factor * float(config[key]) for name, (key, factor) in settings.items() if is_number(config.get(key))
    }
    bands = config.get("ppo.difficulty_bands")
    return tuned(RULES, limits, int(bands) if is_number(bands) else 1)


def limits_of(monitor: Monitor, config: Mapping[str, Any], points: Points) -> list[tuple[float, str]]:
    """(level, label) of every limit of a monitor, given its points so far; none while there is no point."""
    if not points:
        return []
    values = [y for _, y in points]
    first = values[: Limits().window]
    start = sum(first) / len(first)
    found = []
    for setting, effect in monitor.limits:
        value = config.get(setting)
        if is_number(value):
            level = {"absolute": value, "share": value * start, "rise": value + start}[monitor.limit_is]
            found.append((float(level), f"{effect} {level:.3g}"))
    acts = config.get("ppo.alarm_actions", True)
    if not monitor.fact:
        return found
    if monitor.fact in ALARMS:
        found.append((ALARMS[monitor.fact], f"alarm {ALARMS[monitor.fact]:.3g}"))
    for rule in rules_in_force(config):
        at = _level(rule, values) if rule.fact == monitor.fact else None
        if at is not None:
            found.append((at, f"{DOES[rule.action] if acts else 'alarm'} {at:.3g}"))
    return found


def _level(rule: Rule, values: Sequence[float]) -> float | None:
    """Where a rule would fire now, in the fact's unit; None while it has no window to compare with."""
    if rule.shape in (Shape.ABOVE, Shape.BELOW):
        return rule.limit
    size = rule.window
    if len(values) < size:
        return None
    means = [sum(values[i : i + size]) / size for i in range(len(values) - size + 1)]
    if rule.shape is Shape.RISEN:
        return means[0] + rule.limit
    if rule.shape is Shape.JUMPED:
        return max(rule.floor, rule.limit * max(values[:-size] or values))
    return rule.limit * (max(means) if rule.shape is Shape.DROPPED else means[0])


def is_number(value: Any) -> TypeGuard[float]:
    """True for a finite number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

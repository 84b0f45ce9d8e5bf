"""Alarms that act: a table of rules over the batches of a run, each with a window, a limit and one of four actions.

Pure: facts in, firings out. What a firing changes (weights of the mix, kl_coef, the end of the run) is in ``Monitors``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any


class Action(enum.StrEnum):
    """What an alarm does; a closed set.

    ``OUTCOME_ONLY``: the next batches learn from the outcome alone, the PRM is not asked. ``HALVE_PROCESS_WEIGHT``: the
    process weight is halved for the rest of the run. ``RAISE_KL_COEF``: kl_coef is multiplied with ``kl_factor``.
    ``ROLLBACK``: weights of the last checkpoint before the alarm's window, end of the run.
    """

    OUTCOME_ONLY = "outcome_only"
    HALVE_PROCESS_WEIGHT = "halve_process_weight"
    RAISE_KL_COEF = "raise_kl_coef"
    ROLLBACK = "rollback"


class Shape(enum.StrEnum):
    """How the values of a window x are compared with the limit L; "first" is the mean of the run's first window.

    ``ABOVE``: every x > L. ``BELOW``: every x < L. ``RISEN``: mean x > first + L. ``GROWN``: mean x > L * first.
    ``FALLEN``: mean x < L * first. ``DROPPED``: mean x < L * the best mean of a window before. ``JUMPED``: every x >
    L * the largest value of any batch before, and above the rule's ``floor``.
    """

    ABOVE = "above"
    BELOW = "below"
    RISEN = "risen by more than"
    GROWN = "grown by more than the factor"
    FALLEN = "below this share of its start:"
    DROPPED = "below this share of its best:"
    JUMPED = "above its largest before, times"


ABSOLUTE = (Shape.ABOVE, Shape.BELOW)


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        name: of the rule. what: the fact in words. fact: field of ``BatchFacts``; a batch without it does not count.
        shape, limit: the condition, in the fact's unit (or a share, see ``Shape``).
        window: batches it looks at; after a firing it waits for as many new ones.
        action: what is done.
        floor: values up to here are never a jump (``JUMPED``), in the fact's unit.
    """

    name: str
    what: str
    fact: str
    shape: Shape
    limit: float
    window: int
    action: Action
    floor: float = 0.0


RULES = (
    Rule("extraction_failure", "share of paths without an answer", "unparsed_share", Shape.ABOVE, 0.999, 3,
         Action.ROLLBACK),
    Rule("kl_spike", "KL to the reference", "kl", Shape.ABOVE, 3.0, 2, Action.ROLLBACK),
    Rule("kl_jump", "KL to the reference", "kl", Shape.JUMPED, 5.0, 2, Action.ROLLBACK, floor=0.1),
    Rule("reward_collapse", "share of right answers", "reward_mean", Shape.DROPPED, 0.25, 3, Action.ROLLBACK),
    Rule("prm_unscored", "share of paths without PRM scores", "fallback_share", Shape.ABOVE, 0.5, 2,
         Action.OUTCOME_ONLY),
    Rule("prm_misleads", "AUC of the PRM on the outcome", "prm_auc", Shape.BELOW, 0.5, 3, Action.OUTCOME_ONLY),
    Rule("prm_weak", "AUC of the PRM on the outcome", "prm_auc", Shape.BELOW, 0.6, 3, Action.HALVE_PROCESS_WEIGHT),
    Rule("duplicate_steps", "share of repeated steps", "duplicate_steps", Shape.RISEN, 0.2, 3, Action.OUTCOME_ONLY),
    Rule("truncation", "share of truncated paths", "truncated_share", Shape.RISEN, 0.3, 3, Action.OUTCOME_ONLY),
    Rule("same_pattern", "share of steps of a repeated pattern", "same_pattern", Shape.RISEN, 0.3, 3,
         Action.HALVE_PROCESS_WEIGHT),
    Rule("separators", "share of separator tokens", "separators", Shape.RISEN, 0.15, 3, Action.HALVE_PROCESS_WEIGHT),
    Rule("more_steps", "steps a path", "mean_steps", Shape.GROWN, 2.0, 3, Action.HALVE_PROCESS_WEIGHT),
    Rule("fewer_steps", "steps a path", "mean_steps", Shape.FALLEN, 0.5, 3, Action.HALVE_PROCESS_WEIGHT),
    Rule("longer_steps", "tokens a step", "step_tokens", Shape.GROWN, 2.0, 3, Action.HALVE_PROCESS_WEIGHT),
    Rule("entropy_collapse", "entropy", "entropy", Shape.FALLEN, 0.1, 5, Action.RAISE_KL_COEF),
    Rule("equal_groups", "share of groups of equal rewards", "equal_group_share", Shape.ABOVE, 0.95, 5,
         Action.RAISE_KL_COEF),
    Rule("sampler_mismatch", "log-prob difference of engine and trainer", "logp_difference", Shape.ABOVE, 0.1, 2,
         Action.ROLLBACK),
)  # fmt: skip
"""The shipped table. Sound runs of the embedded model reached: entropy at 0.2 of its start and 0.85 equal groups (both
with 0.9 right), steps within 0.85-1.2 and right answers within 0.7-2.4 of their start, KL 0.05 nats a token at most."""


def tuned(rules: Sequence[Rule], limits: dict[str, float], least_window: int = 1) -> tuple[Rule, ...]:
    """Return the table with the ``limits`` of the named rules.

    ``least_window``: rules that compare with another time of the run look at no fewer batches, so that batches of
    different difficulty (bands that rotate) are all in a window.
    """
    return tuple(
        dataclasses.replace(
            rule,
            limit=limits.get(rule.name, rule.limit),
            window=rule.window if rule.shape in ABSOLUTE else max(rule.window, least_window),
        )
        for rule in rules
    )


def firing(rule: Rule, values: Sequence[float | None], start: int = 0) -> str | None:
    """Return what is wrong in words when the last window of ``values`` meets the rule's condition, else None.

    Args:
        values: the fact in each batch of the run, None where it has none (then the rule waits).
        start: batches before this one are no part of the last window.
    """
    size = rule.window
    now = [value for value in values[start:] if value is not None][-size:]
    if not values or values[-1] is None or len(now) < size:
        return None
    known = [value for value in values if value is not None]
    before, mean = known[:-size], sum(now) / size
    if rule.shape not in ABSOLUTE and len(before) < size:
        return None
    first = sum(before[:size]) / size if len(before) >= size else 0.0
    best = max((sum(before[i : i + size]) / size for i in range(len(before) - size + 1)), default=0.0)
    most = max(before, default=0.0)
    is_met = {
        Shape.ABOVE: min(now) > rule.limit,
        Shape.BELOW: max(now) < rule.limit,
        Shape.RISEN: mean > first + rule.limit,
        Shape.GROWN: mean > rule.limit * first > 0,
        Shape.FALLEN: mean < rule.limit * first,
        Shape.DROPPED: mean < rule.limit * best,
        Shape.JUMPED: min(now) > max(rule.floor, rule.limit * most),
    }[rule.shape]
    if not is_met:
        return None
    compared = {Shape.DROPPED: best, Shape.JUMPED: most}.get(rule.shape, first)
    reference = "" if rule.shape in ABSOLUTE else f" ({compared:.3g})"
    return f"{rule.what} {mean:.3g} over {size} batches, {rule.shape.value} {rule.limit:g}{reference}"


def firings(rules: Sequence[Rule], batches: Sequence[Any], starts: dict[str, int]) -> list[tuple[Rule, str]]:
    """Return (rule, reason) of every rule that fires on the last batch; ``starts``: see ``firing``, by rule name."""
    found = []
    for rule in rules:
        reason = firing(rule, [getattr(batch, rule.fact) for batch in batches], starts.get(rule.name, 0))
        if reason:
            found.append((rule, reason))
    return found

"""Monitors of a PPO run: pure rules over windows of batches and evaluations, each giving a reason in words or None.

Stop rules end the run and their reason becomes ``stopped_by``; alarms are logged, and those of ``policy.actions`` act.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from policy.actions import RULES, Action, Rule, firings


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of the monitors; None switches a stop rule off.

    Attributes:
        flat_evaluations: stop when validation accuracy has not gained ``min_gain`` for this many evaluations.
        min_gain: smallest gain of validation accuracy that counts, as a fraction.
        kl_cap: stop when the mean KL to the reference over ``window`` batches is above this, nats a token.
        kl_high, kl_low: outside these for ``kl_batches`` batches in a row kl_coef changes, nats a token.
        kl_batches: batches in a row before kl_coef changes.
        kl_factor: kl_coef is multiplied with this when KL is too high, divided by it when too low.
        repeated_ngrams: stop when the mean share of repeated 4-grams over ``window`` batches is this much above that of
            the first window: sound long derivations repeat themselves too (0.16 at 8-10 embedded steps).
        steps_kept: stop when mean steps over ``window`` batches are below this share of the start without a gain.
        window: batches a window rule looks at.
        fallbacks: alarm above this share of fallbacks in a batch.
        truncated: alarm above this share of truncated paths over ``alarm_batches`` batches in a row.
        alarm_batches: batches in a row with all rewards 0 (or too many truncated) before an alarm.
        equal_groups: alarm above this share of groups whose rewards are all equal.
        explained_variance: of the outcome by the critic; alarm below this for ``alarm_batches`` batches in a row.
        negative_kl: alarm when the mean of log pi - log pi_ref over tokens that pi has just sampled is this many of its
            standard errors below 0, and below -``kl_low``.
        rules: alarms that act. outcome_only_batches: batches of the action of that name.
        acts: False = what would be done is logged and not done.
    """

    flat_evaluations: int | None = 5
    min_gain: float = 0.0
    kl_cap: float | None = 1.0
    kl_high: float = 0.2
    kl_low: float = 1e-4
    kl_batches: int = 20
    kl_factor: float = 1.5
    repeated_ngrams: float | None = 0.1
    steps_kept: float | None = 0.7
    window: int = 5
    fallbacks: float = 0.01
    truncated: float = 0.5
    alarm_batches: int = 3
    equal_groups: float = 0.6
    explained_variance: float = -0.1
    negative_kl: float = 4.0
    rules: tuple[Rule, ...] = RULES
    outcome_only_batches: int = 5
    acts: bool = True


@dataclasses.dataclass(frozen=True)
class BatchFacts:
    """What the monitors look at after a generation batch; all shares in [0, 1], over all ranks.

    Attributes:
        kl: KL to the reference on reasoning tokens, nats a token (mean over the updates of the batch).
        repeated_ngrams: mean share of repeated 4-grams. mean_steps: steps a path.
        fallback_share, truncated_share, unparsed_share: of all paths. reward_mean: outcome without penalties.
        equal_group_share: groups whose rewards are all equal.
        prm_auc: probability that a right path's least step score is above a wrong path's; None without both.
        step_tokens: tokens a step. separators: share of the sampled tokens that part steps.
        duplicate_steps, same_pattern: steps whose text, or sentence pattern, an earlier step of the path has.
        entropy: of the next token, nats (mean over the updates of the batch).
        explained_variance: of the outcome by the critic, 1 at best; None in its warm-up.
        logp_difference: mean of abs(log pi - log pi of the sampler), nats a token; None where both are one module.
        kl_k1: mean of log pi - log pi_ref over the tokens of the batch's first update, nats; kl_k1_error: its standard
            error (tokens given what stands before them are uncorrelated but for the KL itself).
        counted_share: paths that have a gradient.
        From prm_auc on all are None where they were not measured.
    """

    kl: float
    repeated_ngrams: float
    mean_steps: float
    fallback_share: float
    truncated_share: float
    unparsed_share: float
    reward_mean: float
    equal_group_share: float
    prm_auc: float | None = None
    step_tokens: float | None = None
    separators: float | None = None
    duplicate_steps: float | None = None
    same_pattern: float | None = None
    entropy: float | None = None
    explained_variance: float | None = None
    logp_difference: float | None = None
    kl_k1: float | None = None
    kl_k1_error: float | None = None
    counted_share: float | None = None

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, float], kl: float, entropy: float | None) -> Self:
        """Take the facts from the metrics that the trainer logs for a batch."""
        return cls(
            kl=kl,
            repeated_ngrams=metrics["rollout/repeated_ngrams"],
            mean_steps=metrics["rollout/steps"],
            fallback_share=metrics["rollout/fallback_share"],
            truncated_share=metrics["rollout/truncated"],
            unparsed_share=metrics["rollout/unparsed"],
            reward_mean=metrics["reward/outcome"],
            equal_group_share=metrics["rollout/equal_groups"],
            prm_auc=metrics.get("prm/auc"),
            step_tokens=metrics["rollout/step_tokens"],
            separators=metrics["rollout/separators"],
            duplicate_steps=metrics["rollout/duplicate_steps"],
            same_pattern=metrics["rollout/same_pattern"],
            entropy=entropy,
            explained_variance=metrics.get("critic/explained_variance_outcome"),
            logp_difference=metrics.get("sampling/logp_difference"),
            kl_k1=metrics.get("kl/fresh_k1"),
            kl_k1_error=metrics.get("kl/fresh_k1_error"),
            counted_share=metrics["rollout/counted_share"],
        )


def flat_accuracy(accuracies: Sequence[float], num_evaluations: int, min_gain: float = 0.0) -> str | None:
    """Reason when the best of the last ``num_evaluations`` is not more than ``min_gain`` above the best before them."""
    if len(accuracies) <= num_evaluations:
        return None
    before, last = max(accuracies[:-num_evaluations]), max(accuracies[-num_evaluations:])
    if last > before + min_gain:
        return None
    return f"validation accuracy flat for {num_evaluations} evaluations (best {before:.3f}, then {last:.3f})"


def above(values: Sequence[float], window: int, limit: float, what: str) -> str | None:
    """Reason when the mean of the last ``window`` values is above the limit; None while there are fewer values."""
    if len(values) < window:
        return None
    mean = sum(values[-window:]) / window
    return f"{what} {mean:.3g} above {limit:g} over {window} batches" if mean > limit else None


def risen(values: Sequence[float], window: int, limit: float, what: str) -> str | None:
    """Reason when the mean of the last ``window`` values is more than ``limit`` above that of the first ``window``."""
    if len(values) <= window:
        return None
    start, now = sum(values[:window]) / window, sum(values[-window:]) / window
    if now <= start + limit:
        return None
    return f"{what} rose from {start:.3g} to {now:.3g} over {window} batches (limit: {limit:g} more)"


def lost_steps(steps: Sequence[float], accuracies: Sequence[float], window: int, kept: float) -> str | None:
    """Reason when mean steps of the last window are below ``kept`` times those of the first, without a gain.

    A gain is a last validation accuracy above the first one; with fewer than two evaluations there is none.
    """
    if len(steps) < 2 * window:
        return None
    start, now = sum(steps[:window]) / window, sum(steps[-window:]) / window
    has_gain = len(accuracies) >= 2 and accuracies[-1] > accuracies[0]
    if now >= kept * start or has_gain:
        return None
    return f"steps a path fell from {start:.2f} to {now:.2f} (below {kept:.0%}) without a gain in accuracy"


def adapted_kl_coef(kls: Sequence[float], kl_coef: float, limits: Limits) -> float:
    """Return kl_coef * factor when the last ``kl_batches`` KLs are all above ``kl_high``, / factor when below low."""
    last = kls[-limits.kl_batches :]
    if len(last) < limits.kl_batches:
        return kl_coef
    if all(kl > limits.kl_high for kl in last):
        return kl_coef * limits.kl_factor
    if all(kl < limits.kl_low for kl in last):
        return kl_coef / limits.kl_factor
    return kl_coef


def below_zero(k1: float | None, error: float | None, limits: Limits) -> str | None:
    """Reason when a KL estimate is further below 0 than sampling makes it: no policy is that far from itself (L47)."""
    if k1 is None or error is None or k1 >= -max(limits.kl_low, limits.negative_kl * error):
        return None
    return (
        f"KL to the reference {k1:.3g} nats a token, {-k1 / error:.1f} standard errors below 0: the log-probs are those"
        " of other tokens (masks, padding), or of other sampling settings"
    )


def batch_alarms(batches: Sequence[BatchFacts], limits: Limits) -> list[str]:
    """Return the alarms that the last batch (and the run of batches that ends in it) raises."""
    last, run = batches[-1], batches[-limits.alarm_batches :]
    alarms = []
    if last.fallback_share > limits.fallbacks:
        alarms.append(f"PRM scores not finite for {last.fallback_share:.1%} of a batch (limit {limits.fallbacks:.1%})")
    if last.counted_share == 0:
        alarms.append("no path of the batch counts (verdicts not about the model, or truncated): nothing is learnt")
    if below := below_zero(last.kl_k1, last.kl_k1_error, limits):
        alarms.append(below)
    if last.unparsed_share >= 1:
        alarms.append("no answer could be extracted from any path of the batch")
    if last.equal_group_share > limits.equal_groups:
        alarms.append(f"{last.equal_group_share:.0%} of the groups have equal rewards and teach nothing")
    if len(run) == limits.alarm_batches:
        if all(batch.truncated_share > limits.truncated for batch in run):
            alarms.append(f"more than {limits.truncated:.0%} of the paths truncated for {len(run)} batches")
        if all(batch.reward_mean == 0 for batch in run):
            alarms.append(f"all outcome rewards 0 for {len(run)} batches")
        explained = [batch.explained_variance for batch in run if batch.explained_variance is not None]
        if len(explained) == len(run) and max(explained) < limits.explained_variance:
            alarms.append(
                f"the critic foresees the outcome worse than a constant would (explained variance {explained[-1]:.2f})"
                f" for {len(run)} batches"
            )
    return alarms


class Monitors:
    """History of a run and the rules over it; its state goes into every checkpoint.

    ``kl_coef`` is the coefficient in force: the trainer reads it before every batch, as ``is_outcome_only`` (True = the
    next batch learns from the outcome alone) and ``process_factor`` (times the process weight).

    ``rollback_before``: set by a rollback; the number of batches before the window that raised it.
    """

    def __init__(self, limits: Limits, kl_coef: float) -> None:
        self.limits = limits
        self.kl_coef = kl_coef
        self.stopped_by: str | None = None
        self.process_factor = 1.0
        self.rollback_before: int | None = None
        self._outcome_only_left = 0
        self._starts: dict[str, int] = {}
        self._stage_start = 0  # batches before the curriculum's stage: rules compare batches of one stage only
        self._batches: list[BatchFacts] = []
        self._kls: list[float] = []
        self._accuracies: list[float] = []

    @property
    def is_outcome_only(self) -> bool:
        return self._outcome_only_left > 0

    def observe_batch(self, facts: BatchFacts) -> list[str]:
        """Take in a batch; return its alarms, the actions taken and any change of kl_coef. Sets ``stopped_by``."""
        limits = self.limits
        self._outcome_only_left = max(0, self._outcome_only_left - 1)
        self._batches.append(facts)
        self._kls.append(facts.kl)
        notes = batch_alarms(self._batches, limits)
        kl_coef = adapted_kl_coef(self._kls, self.kl_coef, limits)
        if kl_coef != self.kl_coef:
            notes.append(f"kl_coef {self.kl_coef:.3g} -> {kl_coef:.3g} (KL {facts.kl:.3g} nats a token)")
            self.kl_coef, self._kls = kl_coef, []
        notes += self._act()
        reasons = []
        if limits.kl_cap is not None:
            kls = [batch.kl for batch in self._batches]
            reasons.append(above(kls, limits.window, limits.kl_cap, "KL to the reference"))
        own = self._batches[self._stage_start :]
        if limits.repeated_ngrams is not None:
            ngrams = [batch.repeated_ngrams for batch in own]
            reasons.append(risen(ngrams, limits.window, limits.repeated_ngrams, "share of repeated n-grams"))
        if limits.steps_kept is not None:
            steps = [batch.mean_steps for batch in own]
            reasons.append(lost_steps(steps, self._accuracies, limits.window, limits.steps_kept))
        self._stop(reasons)
        return notes

    def _act(self) -> list[str]:
        """Take the action of every rule that fires, each action once; return a line for each rule."""
        notes, done = [], set()
        starts = {name: max(0, start - self._stage_start) for name, start in self._starts.items()}
        for rule, reason in firings(self.limits.rules, self._batches[self._stage_start :], starts):
            self._starts[rule.name] = len(self._batches)
            notes.append(
                f"{rule.name}: {reason}; action: {rule.action.value if self.limits.acts else 'none (log only)'}"
            )
            if not self.limits.acts or rule.action in done:
                continue
            done.add(rule.action)
            if rule.action is Action.OUTCOME_ONLY:
                self._outcome_only_left = self.limits.outcome_only_batches
                notes[-1] += f" for {self._outcome_only_left} batches"
            elif rule.action is Action.HALVE_PROCESS_WEIGHT:
                self.process_factor /= 2
                notes[-1] += f", now {self.process_factor:g} of the setting"
            elif rule.action is Action.RAISE_KL_COEF:
                notes[-1] += f" {self.kl_coef:.3g} -> {self.kl_coef * self.limits.kl_factor:.3g}"
                self.kl_coef, self._kls = self.kl_coef * self.limits.kl_factor, []
            else:
                self.rollback_before = len(self._batches) - rule.window
                self._stop([f"{rule.name}: {reason}"])
        return notes

    def begin_stage(self) -> None:
        """From here on the problems are others: what a rule compares with begins anew."""
        self._stage_start = len(self._batches)

    def observe_evaluation(self, accuracy: float) -> None:
        """Take in a validation accuracy in [0, 1]. Sets ``stopped_by``."""
        self._accuracies.append(accuracy)
        if self.limits.flat_evaluations is not None:
            self._stop([flat_accuracy(self._accuracies, self.limits.flat_evaluations, self.limits.min_gain)])

    def _stop(self, reasons: Sequence[str | None]) -> None:
        self.stopped_by = self.stopped_by or next((reason for reason in reasons if reason), None)

    def state_dict(self) -> dict[str, Any]:
        return {
            "kl_coef": self.kl_coef,
            "stopped_by": self.stopped_by,
            "process_factor": self.process_factor,
            "outcome_only_left": self._outcome_only_left,
            "rollback_before": self.rollback_before,
            "starts": dict(self._starts),
            "stage_start": self._stage_start,
            "batches": [dataclasses.asdict(batch) for batch in self._batches],
            "kls": list(self._kls),
            "accuracies": list(self._accuracies),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kl_coef, self.stopped_by = state["kl_coef"], state["stopped_by"]
        self.process_factor, self._outcome_only_left = state["process_factor"], state["outcome_only_left"]
        self.rollback_before, self._starts = state["rollback_before"], dict(state["starts"])
        self._stage_start = state.get("stage_start", 0)
        self._batches = [BatchFacts(**batch) for batch in state["batches"]]
        self._kls, self._accuracies = list(state["kls"]), list(state["accuracies"])

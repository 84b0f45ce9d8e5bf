"""What can be wrong with a run, read from its log: one pure function a symptom, over the rows that the stages wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from eval.run_folder import RoundData

LOG, LABELS, SAMPLE, PRM = "4_ppo/metrics.jsonl", "2_label/metrics.json", "1_sample/metrics.json", "3_prm/DONE"
GAIN = 0.02
"""Smallest change of a share of right answers that counts as one."""


@dataclasses.dataclass(frozen=True)
class History:
    """One round as the rules see it.

    Attributes:
        batches: log rows of generation batches, in order; numbers that were not finite are texts.
        accuracies: validation accuracies, the start's first, in [0, 1].
        alarms: (update, line) of every alarm that acted.
        window: batches a mean is taken over; all difficulty bands are in it.
        data: the round.
    """

    batches: list[dict[str, Any]]
    accuracies: list[float]
    alarms: list[tuple[int, str]]
    window: int
    data: RoundData

    @classmethod
    def of(cls, data: RoundData) -> History:
        rows = data.logs.get("ppo", [])
        said = [(row.get("step", 0), str(row["alarms"])) for row in rows if row.get("alarms")]
        return cls(
            batches=[row for row in rows if "reward/outcome" in row],
            accuracies=[float(row["eval_accuracy"]) for row in rows if _is_number(row.get("eval_accuracy"))],
            alarms=[(step, line) for step, line in said if "action: " in line and "(log only)" not in line],
            window=max(3, int(data.config.get("ppo.difficulty_bands") or 1)),
            data=data,
        )

    def values(self, name: str) -> list[float]:
        return [float(row[name]) for row in self.batches if _is_number(row.get(name))]

    def last(self, name: str) -> float | None:
        """Mean over the last window; None while there are fewer batches."""
        found = self.values(name)
        return mean(found[-self.window :]) if len(found) >= self.window else None

    def ends(self, name: str) -> tuple[float, float] | None:
        """Means of the first and the last window; None while they would overlap."""
        found = self.values(name)
        return (mean(found[: self.window]), mean(found[-self.window :])) if len(found) >= 2 * self.window else None

    @property
    def gain(self) -> float | None:
        """Best validation accuracy after the start, less the start's; None with fewer than two."""
        return max(self.accuracies[1:]) - self.accuracies[0] if len(self.accuracies) > 1 else None


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


Seen = tuple[str, str] | None
"""(what the user sees, the numbers with their file), None when the run does not show it."""


def nan_scores(run: History) -> Seen:
    worst = max(run.values("rollout/fallback_share"), default=0.0)
    texts = sorted({key for row in run.batches for key, value in row.items() if value in ("nan", "inf", "-inf")})
    if worst <= 0.01 and not texts:
        return None
    odd = f"; not finite: {', '.join(texts)}" if texts else ""
    return "scores or losses that are no numbers", f"up to {worst:.1%} of a batch without PRM scores{odd} ({LOG})"


def skipped_updates(run: History) -> Seen:
    count = max(run.values("update/skipped"), default=0)
    return ("updates were skipped", f"update/skipped reaches {count:g} ({LOG})") if count else None


def low_coverage(run: History) -> Seen:
    coverage = run.data.payload.get("label", {}).get("coverage")
    if not _is_number(coverage) or coverage >= 0.6:
        return None
    return "few paths have step labels", f"coverage {coverage:.2f}, want 0.6 ({LABELS})"


def weak_prm(run: History) -> Seen:
    f1 = run.data.done.get("prm", {}).get("first_error_f1")
    agreement = run.last("prm/auc")
    seen = []
    if _is_number(f1) and f1 < 0.5:
        seen.append(f"held-out first-error F1 {f1:.2f}, want 0.5 ({PRM})")
    if agreement is not None and agreement < 0.6:
        seen.append(f"AUC on the outcome {agreement:.2f} over {run.window} batches, want 0.6 ({LOG})")
    return ("the PRM does not know right from wrong", "; ".join(seen)) if seen else None


def empty_band(run: History) -> Seen:
    sample = run.data.payload.get("sample", {})
    kept, pool = sample.get("kept"), sample.get("pool")
    if not _is_number(kept) or not _is_number(pool) or not pool:
        return None
    wanted = 2 * int(run.data.config.get("ppo.problems") or 0)
    if kept >= 0.1 * pool and kept >= wanted:
        return None
    rate = sample.get("pool_pass_rate")
    measured = f", pass rate of the pool {rate:.2f}" if _is_number(rate) else ""
    return "few problems of the right difficulty", f"{kept} of {pool} problems kept{measured} ({SAMPLE})"


def no_answers(run: History) -> Seen:
    share = run.last("rollout/unparsed")
    if share is None or share <= 0.5:
        return None
    return "answers cannot be read", f"{share:.0%} of the last {run.window} batches' paths without one ({LOG})"


def collapse(run: History) -> Seen:
    reward, size = run.values("reward/outcome"), run.window
    for at in range(size, len(reward) - size + 1):
        before, after = mean(reward[at - size : at]), mean(reward[at : at + size])
        if after < 0.5 * before and before - after > 0.15:
            step = run.batches[at].get("step")
            return "sudden collapse", f"right answers {before:.2f} -> {after:.2f} around update {step} ({LOG})"
    for before, after in zip(run.accuracies, run.accuracies[1:], strict=False):
        if after < 0.5 * before and before - after > 0.15:
            return "sudden collapse", f"validation accuracy {before:.2f} -> {after:.2f} ({LOG})"
    return None


def acted(run: History) -> Seen:
    if not run.alarms:
        return None
    step, line = run.alarms[-1]
    return "alarms acted during the run", f"{len(run.alarms)}, the last at update {step}: {line} ({LOG})"


def high_kl(run: History) -> Seen:
    kl, limit = run.last("kl/reference"), float(run.data.config.get("ppo.kl_high") or 0.2)
    if kl is None or kl <= limit:
        return None
    return "the policy runs from its reference", f"KL {kl:.3g} nats a token, want {limit:g} ({LOG})"


def gamed(run: History) -> Seen:
    rewards = (
        ("prm/mean_score", "PRM score"),
        ("signals/total", "signals reward"),
        ("reward/outcome", "right answers in training"),
    )
    for name, what in rewards:
        ends = run.ends(name)
        if ends and ends[1] > ends[0] + 0.05 and run.gain is not None and len(run.accuracies) > 2 and run.gain < GAIN:
            seen = f"{what} {ends[0]:.2f} -> {ends[1]:.2f}, best validation gain {run.gain:+.3f} ({LOG})"
            return "validation flat while reward climbs", seen
    return None


def fewer_steps(run: History) -> Seen:
    ends = run.ends("rollout/steps")
    if ends is None or ends[1] >= 0.7 * ends[0] or (ends[1] >= 0.5 * ends[0] and (run.gain or 0) > GAIN):
        return None
    return "steps a path collapse", f"{ends[0]:.2f} -> {ends[1]:.2f} ({LOG})"


def repetition(run: History) -> Seen:
    for name, what, limit in (
        ("rollout/repeated_ngrams", "repeated 4-grams", 0.1),
        ("rollout/duplicate_steps", "repeated steps", 0.2),
        ("rollout/same_pattern", "steps of a repeated pattern", 0.3),
    ):
        ends = run.ends(name)
        if ends and ends[1] > ends[0] + limit:
            return "repetition", f"share of {what} {ends[0]:.2f} -> {ends[1]:.2f} ({LOG})"
    return None


def padding(run: History) -> Seen:
    for name, what in (("rollout/steps", "steps a path"), ("rollout/step_tokens", "tokens a step")):
        ends = run.ends(name)
        if ends and ends[1] > 2 * ends[0] > 0:
            return "padding", f"{what} {ends[0]:.1f} -> {ends[1]:.1f} ({LOG})"
    ends = run.ends("rollout/separators")
    if ends and ends[1] > ends[0] + 0.15:
        return "padding", f"share of separator tokens {ends[0]:.2f} -> {ends[1]:.2f} ({LOG})"
    return None


def invented_theorems(run: History) -> Seen:
    ends = run.ends("rollout/invented_theorems")
    if ends is None or ends[1] <= ends[0] + 0.02:
        return None
    seen = f"{ends[0]:.1%} -> {ends[1]:.1%} of the paths name a theorem that no right path names ({LOG})"
    return "invented theorems", seen


def truncation(run: History) -> Seen:
    share = run.last("rollout/truncated")
    if share is None or share <= 0.2:
        return None
    return "paths are cut at the length limit", f"{share:.0%} of the last {run.window} batches' paths ({LOG})"


def entropy_collapse(run: History) -> Seen:
    ends = run.ends("entropy")
    if ends is None or ends[1] >= 0.15 * ends[0]:
        return None
    return "entropy collapses", f"{ends[0]:.3g} -> {ends[1]:.3g} nats a token ({LOG})"


def equal_groups(run: History) -> Seen:
    share = run.last("rollout/equal_groups")
    if share is None or share <= 0.6:
        return None
    seen = (
        f"{share:.0%} of the last {run.window} batches' groups, right answers {run.last('reward/outcome'):.2f} ({LOG})"
    )
    return "most groups have equal rewards", seen


def zero_kl(run: History) -> Seen:
    kl = run.last("kl/reference")
    if kl is None or len(run.values("kl/reference")) < 10 or kl >= 1e-4:
        return None
    return "KL stays near 0", f"{kl:.2g} nats a token after {len(run.batches)} batches ({LOG})"


def flat_reward(run: History) -> Seen:
    reward = run.values("reward/outcome")
    third = len(reward) // 3
    if third < run.window or mean(reward[:third]) > 0.9:
        return None
    before, after = mean(reward[:third]), mean(reward[-third:])
    if after - before >= GAIN or (run.gain or 0) >= GAIN:
        return None
    validation = "" if run.gain is None else f", best validation gain {run.gain:+.3f}"
    return "reward flat", f"right answers {before:.3f} -> {after:.3f} over {len(reward)} batches{validation} ({LOG})"


def worse_policy(run: History) -> Seen:
    if run.data.metrics is None:
        return None
    figure = run.data.metrics.difference.pass1_greedy
    if figure.value is None or figure.ci95 is None or figure.ci95[1] >= 0:
        return None
    seen = f"greedy pass@1 {figure.value:+.3f} [{figure.ci95[0]:+.3f}, {figure.ci95[1]:+.3f}] (5_eval/metrics.json)"
    return "the policy is worse than the base", seen


@dataclasses.dataclass(frozen=True)
class Rule:
    """A symptom, its likely cause and what to change. ``look`` is the rule; ``name`` is its own."""

    look: Callable[[History], Seen]
    cause: str
    change: str

    @property
    def name(self) -> str:
        return self.look.__name__


RULES = (
    Rule(nan_scores, "PRM weights or learning rates that diverged", "lower prm.learning_rate, refit the PRM"),
    Rule(no_answers, "prompt or answer format the model does not follow", "base.template, base.instruction, base.stop"),
    Rule(low_coverage, "too few paths a problem, or keys too strict", "raise data.paths; other data.label_sources"),
    Rule(weak_prm, "too few or wrong labels, PRM off its distribution",
         "raise data.pool or prm.epochs; prm.below_floor: scale; another round (rounds.count)"),
    Rule(empty_band, "problems too easy or too hard for this model",
         "data.levels or another data.source; raise data.pool; widen data.pass_low / pass_high"),
    Rule(skipped_updates, "non-finite loss or gradient", "lower ppo.learning_rate; ppo.max_grad_norm"),
    Rule(collapse, "steps too large for the policy", "lower ppo.learning_rate; raise ppo.kl_coef; fewer ppo.epochs"),
    Rule(high_kl, "learning rate too high, or KL too cheap", "raise ppo.kl_coef; lower ppo.learning_rate"),
    Rule(acted, "see the line of the alarm", "docs/doctor.md names the rule; ppo.alarm_actions: false only logs"),
    Rule(gamed, "the policy learns the PRM's errors",
         "lower ppo.process_weight; raise ppo.anchor_fraction; ppo.credit: delta; another round (rounds.count)"),
    Rule(fewer_steps, "the credit rule pays for few steps", "ppo.credit: delta; ppo.penalty_short; ppo.process_weight"),
    Rule(repetition, "the credit rule pays for safe steps said twice", "ppo.penalty_repeat, ppo.penalty_pattern"),
    Rule(padding, "the credit rule pays for each step", "ppo.credit: delta (not sum); lower ppo.process_weight"),
    Rule(invented_theorems, "the PRM trusts names", "ppo.penalty_theorem; another round (rounds.count)"),
    Rule(truncation, "paths longer than the limit, or no end learnt", "raise data.max_new_tokens; ppo.penalty_repeat"),
    Rule(entropy_collapse, "the policy has settled on one path", "raise ppo.kl_coef, ppo.temperature"),
    Rule(equal_groups, "problems too easy or too hard by now, or paths all alike",
         "ppo.pass_low / ppo.pass_high; raise ppo.temperature, ppo.paths; another round"),
    Rule(zero_kl, "the policy does not move", "raise ppo.learning_rate; lower ppo.kl_coef"),
    Rule(flat_reward, "no signal reaches the policy: see the findings above, else the learning rate",
         "raise ppo.learning_rate, ppo.batches; ppo.outcome_weight"),
    Rule(worse_policy, "one of the findings above, or too short a run", "ppo.eval_every, ppo.patience, ppo.batches"),
)  # fmt: skip
"""In order of suspicion: what spoils everything after it comes first, what is mostly a consequence last."""

"""From the rows of a generation batch to graded paths, and from graded paths to the tensors of the advantages."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from common.records import FinishReason, Path, Problem, Verdict
from data_gen.measure import is_right
from data_gen.steps import answer_token_start, separator_mask
from policy.advantages import AdvantageInputs, is_anchor
from policy.gae import Segments, segment_starts
from policy.options import PolicySettings
from policy.quality import JudgeCoherence, with_quality
from policy.rewards import (
    OutcomeReward,
    invented_theorems,
    outcome_rewards,
    repeated_words,
    repeats,
    sentence_pattern,
    theorem_names,
)
from policy.signals import Signals, group_signals
from prm.credit import default_flow, flow_returns, step_rewards
from prm.quality.measures import Quality


class Sampled(Protocol):
    """One completion as an engine returns it: the ids as sampled, end token included when it was sampled."""

    token_ids: Sequence[int]
    finish_reason: FinishReason
    logprobs: Sequence[float] | None


class Sampler(Protocol):
    """The part of ``data_gen.engines.Engine`` that the trainer uses; result[i][j] is path j of prompt i."""

    def sample(
        self, prompts: Sequence[Sequence[int]], *, n: int, temperature: float, max_new_tokens: int, seed: int
    ) -> list[list[Any]]: ...


class Grade(Protocol):
    """Decodes, cuts and grades completions: ``data_gen.steps.build_paths`` bound to a tokenizer."""

    def __call__(
        self,
        problems: Sequence[Problem],
        sampled: Sequence[tuple[Sequence[int], FinishReason]],
        *,
        seed: int,
        indices: Sequence[int],
    ) -> list[Path]: ...


class Score(Protocol):
    """PRM probabilities in [0, 1], one list a path with one entry a step: ``prm.score.PRMScorer.score``."""

    def __call__(self, prompt_ids: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[list[float]]: ...


@dataclasses.dataclass
class Rollout:
    """One local generation batch; the B paths stand group by group.

    Attributes:
        problems, paths, rewards, is_anchor: one entry a path.
        prompt_ids, completion_ids: ids as given to and as returned by the sampler. An empty completion is carried as
            one end token that no mask counts (``is_empty``).
        sampling_logprobs: the sampler's log-prob of each id of ``completion_ids``, nats (0 for the stand-in of an empty
            completion); None when the sampler is the trainer's own module.
        num_paths: paths of a problem, G.
        scores: PRM probabilities of each path's steps, [] for a path that was not scored.
        signals: of each path in a run on the signals reward, None for a path that does not count; else empty.
        qualities: of each path in a run with weights of quality, None for a path that is not right; else empty.
        seconds: wall seconds of each part.
    """

    problems: list[Problem]
    paths: list[Path]
    rewards: list[OutcomeReward]
    is_anchor: list[bool]
    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    is_empty: list[bool]
    num_paths: int
    sampling_logprobs: list[list[float]] | None = None
    scores: list[list[float]] = dataclasses.field(default_factory=list)
    signals: list[Signals | None] = dataclasses.field(default_factory=list)
    qualities: list[Quality | None] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def group(self) -> Tensor:
        """Explicit group id of each path, (B,)."""
        return torch.arange(len(self.paths)) // self.num_paths


def collect_rollout(
    problems: Sequence[Problem],
    prompt_ids: Sequence[Sequence[int]],
    *,
    sampler: Sampler,
    grade: Grade,
    settings: PolicySettings,
    num_paths: int,
    temperature: float,
    max_new_tokens: int,
    seed: int,
    run_seed: int,
    generation: int,
    known_theorems: set[str],
    end_id: int,
    judge_coherence: JudgeCoherence | None = None,
) -> Rollout:
    """Sample and grade ``num_paths`` paths of each problem; adds to ``known_theorems``.

    Args:
        problems, prompt_ids: one entry a path, every problem ``num_paths`` times in a row.
        seed: of the sampling, different for every generation batch. run_seed, generation: choose the anchors.
        end_id: stands for an empty completion.
        judge_coherence: see ``policy.quality``; asked when coherence has a weight.

    Raises:
        ValueError: problems that do not stand in whole groups, or a result of the wrong size.
    """
    leaders = problems[::num_paths]
    if [problem.id for problem in problems] != [problem.id for problem in leaders for _ in range(num_paths)]:
        raise ValueError(f"a generation batch must hold each problem {num_paths} times in a row, in whole groups")
    started = time.perf_counter()
    prompts = [list(ids) for ids in prompt_ids[::num_paths]]
    groups = sampler.sample(prompts, n=num_paths, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed)
    sampled = [(list(one.token_ids), one.finish_reason) for group in groups for one in group]
    if len(sampled) != len(problems):
        raise ValueError(f"the sampler returned {len(sampled)} completions for {len(problems)} paths")
    graded_from = time.perf_counter()
    indices = [index for _ in leaders for index in range(num_paths)]
    paths = grade(problems, sampled, seed=seed, indices=indices)
    if any(tuple(path.token_ids) != tuple(ids) for path, (ids, _) in zip(paths, sampled, strict=True)):
        raise ValueError("the grader changed token ids; the sampled ids must flow unchanged to the loss")
    rewards = _rewards(leaders, paths, settings, known_theorems)
    signals = _signals(leaders, paths, rewards, settings, max_new_tokens)
    rewards, qualities = with_quality(leaders, prompts, paths, rewards, settings.quality, judge_coherence)
    done = time.perf_counter()
    return Rollout(
        problems=list(problems),
        paths=paths,
        rewards=rewards,
        is_anchor=[is_anchor(run_seed, problem.id, generation, settings.anchor_fraction) for problem in problems],
        prompt_ids=[prompt for prompt in prompts for _ in range(num_paths)],
        completion_ids=[ids or [end_id] for ids, _ in sampled],
        is_empty=[not ids for ids, _ in sampled],
        num_paths=num_paths,
        sampling_logprobs=_sampling_logprobs([one for group in groups for one in group]),
        signals=signals,
        qualities=qualities,
        seconds={"sampling": graded_from - started, "grading": done - graded_from},
    )


def _sampling_logprobs(sampled: Sequence[Sampled]) -> list[list[float]] | None:
    """Return the log-probs that came with the completions, None when none did.

    Raises:
        ValueError: some completions have them and some have not, or a number of them that is not that of the ids.
    """
    known = [one for one in sampled if one.logprobs is not None]
    if not known:
        return None
    if len(known) < len(sampled) or any(len(one.logprobs or ()) != len(one.token_ids) for one in sampled):
        raise ValueError("the sampler must return one log-prob for each sampled id of every path, or none at all")
    return [list(one.logprobs or ()) or [0.0] for one in sampled]


def _rewards(
    leaders: Sequence[Problem], paths: Sequence[Path], settings: PolicySettings, known_theorems: set[str]
) -> list[OutcomeReward]:
    """Return the outcome reward of each path; the paths stand group by group, one group for each of ``leaders``."""
    if settings.penalties.unknown_theorem:
        known_theorems.update(*(theorem_names(path.text) for path in paths if path.verdict is Verdict.CORRECT))
    num_paths = len(paths) // len(leaders)
    rewards = []
    for start, problem in zip(range(0, len(paths), num_paths), leaders, strict=True):
        rewards += outcome_rewards(
            paths[start : start + num_paths],
            weights=settings.penalties,
            level=problem.level,
            train_on_truncated=settings.train_on_truncated,
            min_steps=settings.min_steps,
            known_theorems=known_theorems,
        )
    return rewards


def _signals(
    leaders: Sequence[Problem],
    paths: Sequence[Path],
    rewards: Sequence[OutcomeReward],
    settings: PolicySettings,
    max_tokens: int,
) -> list[Signals | None]:
    """Return the signals of each path, [] when another reward trains; paths as in ``_rewards``."""
    if settings.signals is None:
        return []
    num_paths = len(paths) // len(leaders)
    signals: list[Signals | None] = []
    for start, problem in zip(range(0, len(paths), num_paths), leaders, strict=True):
        group = slice(start, start + num_paths)
        signals += group_signals(problem, paths[group], rewards[group], settings.signals, max_tokens)
    return signals


def score_rollout(rollout: Rollout, score: Score | None) -> None:
    """Fill ``rollout.scores``; only paths that count and have a step are scored.

    Raises:
        ValueError: a path did not get one score for each of its steps.
    """
    started = time.perf_counter()
    rollout.scores = [[] for _ in rollout.paths]
    if score is not None:
        rows = [row for row, path in enumerate(rollout.paths) if path.steps and rollout.rewards[row].is_counted]
        found = score([rollout.prompt_ids[row] for row in rows], [rollout.paths[row] for row in rows]) if rows else []
        for row, scores in zip(rows, found, strict=True):
            if len(scores) != len(rollout.paths[row].steps):
                raise ValueError(f"{len(scores)} PRM scores for {len(rollout.paths[row].steps)} steps; they must match")
            rollout.scores[row] = list(scores)
    rollout.seconds["prm"] = time.perf_counter() - started


def advantage_inputs(rollout: Rollout, settings: PolicySettings, tokenizer: Any, width: int) -> AdvantageInputs:
    """Return the tensors of the advantages, on the CPU; ``width`` is T, the padded length of the completions.

    A path without scores that should have some (outcome-only run) is an anchor path.
    """
    paths, num_steps = rollout.paths, max((len(path.steps) for path in rollout.paths), default=0)
    probs_BS = torch.zeros(len(paths), max(num_steps, 1))
    is_step_BS = torch.zeros(probs_BS.shape, dtype=torch.bool)
    step_of_token_BT = torch.full((len(paths), width), -1, dtype=torch.long)
    is_separator_BT = torch.zeros(len(paths), width, dtype=torch.bool)
    for row, path in enumerate(paths):
        scores = rollout.scores[row]
        is_step_BS[row, : len(path.steps)] = True
        floor = settings.correct_floor if is_right(path) else 0.0
        probs_BS[row, : len(scores)] = torch.tensor(scores).clamp(min=floor)
        for index, step in enumerate(path.steps):
            step_of_token_BT[row, step.token_start : step.token_end] = index
        is_separator_BT[row, : len(path.token_ids)] = _edge_separators(path, tokenizer)
    lengths = torch.tensor([len(path.token_ids) for path in paths])
    rewards_BS = step_rewards(probs_BS, is_step_BS, settings.credit, settings.softmin_temperature)
    flow = settings.flow or default_flow(settings.credit)
    has_no_scores = torch.tensor([bool(path.steps) and not rollout.scores[row] for row, path in enumerate(paths)])
    return AdvantageInputs(
        returns_BS=flow_returns(rewards_BS, is_step_BS, flow),
        is_step_BS=is_step_BS,
        outcome_B=torch.tensor([reward.reward for reward in rollout.rewards]),
        is_counted_B=torch.tensor([reward.is_counted for reward in rollout.rewards]),
        is_anchor_B=torch.tensor(rollout.is_anchor) | has_no_scores,
        group_B=rollout.group,
        step_of_token_BT=step_of_token_BT,
        is_separator_BT=is_separator_BT,
        is_completion_BT=torch.arange(width)[None, :] < lengths[:, None],
        segments=_segments(paths, rewards_BS) if settings.baseline == "gae" else None,
    )


def _segments(paths: Sequence[Path], rewards_BS: Tensor) -> Segments:
    """Return the critic's states: one more column than there are steps."""
    starts_BN = torch.zeros(len(paths), rewards_BS.shape[1] + 1, dtype=torch.long)
    is_segment_BN = torch.zeros(starts_BN.shape, dtype=torch.bool)
    for row, path in enumerate(paths):
        starts = segment_starts([(step.token_start, step.token_end) for step in path.steps], len(path.token_ids))
        starts_BN[row, : len(starts)] = torch.tensor(starts)
        is_segment_BN[row, : len(starts)] = True
    return Segments(rewards_BS, starts_BN, is_segment_BN)


def _edge_separators(path: Path, tokenizer: Any) -> Tensor:
    """True for white-space-only tokens at the edges of a step: they part steps. A space inside a step is the step's."""
    is_space_T = separator_mask(path.token_ids, tokenizer) if path.token_ids else torch.zeros(0, dtype=torch.bool)
    is_inner_T = torch.zeros_like(is_space_T)
    for step in path.steps:
        words = (~is_space_T[step.token_start : step.token_end]).nonzero()
        if len(words):
            is_inner_T[step.token_start + int(words[0]) : step.token_start + int(words[-1]) + 1] = True
    return is_space_T & ~is_inner_T


def reasoning_mask(rollout: Rollout, settings: PolicySettings, tokenizer: Any, width: int) -> Tensor:
    """Return (B, T), True = the token is in the KL: a sampled token before the answer span, on a path that counts."""
    ends = []
    for path, reward in zip(rollout.paths, rollout.rewards, strict=True):
        if not reward.is_counted:
            ends.append(0)
        elif settings.mask_answer_kl and path.token_ids:
            ends.append(answer_token_start(path.token_ids, tokenizer))
        else:
            ends.append(len(path.token_ids))
    return torch.arange(width)[None, :] < torch.tensor(ends)[:, None]


def agreement_pairs(rollout: Rollout) -> list[tuple[float, bool]]:
    """Return (least step score, True = right answer) of each path that counts and whose scores are all finite."""
    return [
        (min(scores), reward.outcome == 1)
        for scores, reward in zip(rollout.scores, rollout.rewards, strict=True)
        if reward.is_counted and scores and all(math.isfinite(p) for p in scores)
    ]


def rollout_sums(rollout: Rollout) -> dict[str, float]:
    """Return sums over the local paths (``paths`` counts them), to be added over ranks.

    Steps, tokens and repetitions are summed over the paths that count (``counted``): a path without a gradient is in no
    statistic of what is learnt from. Truncations, verdicts and invented theorems are summed over all paths.
    """
    paths, counted = rollout.paths, [reward for reward in rollout.rewards if reward.is_counted]
    judged = [path for path, reward in zip(paths, rollout.rewards, strict=True) if reward.is_counted]
    probs = [p for scores in rollout.scores for p in scores if p == p]
    verdicts = Counter(path.verdict for path in paths)
    sums = {
        "paths": len(paths),
        "counted": len(counted),
        "no_step": sum(r.is_counted and not path.steps for r, path in zip(rollout.rewards, paths, strict=True)),
        "outcome": sum(reward.outcome for reward in counted),
        "penalty": sum(reward.penalty for reward in counted),
        "steps": sum(len(path.steps) for path in judged),
        "step_tokens": sum(step.token_end - step.token_start for path in judged for step in path.steps),
        "duplicate_steps": sum(repeats([step.text for step in path.steps]) for path in judged),
        "same_pattern": sum(repeats([sentence_pattern(step.text) for step in path.steps]) for path in judged),
        "invented_theorems": invented_theorems(paths),
        "tokens": sum(len(path.token_ids) for path in judged),
        "truncated": sum(path.is_truncated for path in paths),
        "repeated_ngrams": sum(repeated_words(path.text) for path in judged),
        "prm_sum": sum(probs),
        "prm_count": len(probs),
    }
    return {name: float(value) for name, value in sums.items()} | {
        f"verdict/{verdict.value}": float(verdicts[verdict]) for verdict in Verdict
    }

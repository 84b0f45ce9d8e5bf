"""Completions from the prefixes of sampled paths, through a sampling engine: the driver of `data_gen.monte_carlo`.

A prefix is the prompt's ids and the path's own ids up to the last token of a step: nothing is encoded again. Prefixes
that several paths share are sampled once. All paths are served side by side, so that a round of the search is one
batch; the engine derives every completion's randomness from (seed, prefix, index), so neither batching nor
neighbours change a label.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from common.records import FinishReason, LabelledPath, Path, Problem, Verdict
from data_gen.engines import Engine
from data_gen.measure import Grader, RenderPrompt, SampleSettings
from data_gen.monte_carlo import MonteCarloSettings, label_from_shares, next_prefixes
from data_gen.steps import text_end
from grading.equivalence import grade_batch
from grading.extract import extract

PrefixKey = tuple[str, tuple[int, ...]]
"""Problem id, and the ids of a path up to the last token of a step."""


@dataclasses.dataclass
class CompletionCost:
    """What the completions cost: distinct prefixes, completions, sampled tokens, wall seconds with grading."""

    prefixes: int = 0
    completions: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def to_row(self) -> dict[str, float]:
        return dataclasses.asdict(self)


class Outcomes(Protocol):
    """What ``label_by_completions`` asks: ``CompletionSampler``, or one with a memory."""

    def outcomes(self, keys: Sequence[PrefixKey], n: int, cost: CompletionCost) -> dict[PrefixKey, list[bool]]: ...


@dataclasses.dataclass(frozen=True)
class CompletionSampler:
    """Samples and grades completions of prefixes.

    Attributes:
        engine, tokenizer, render_prompt: as for `data_gen.measure.sample_paths`.
        problems: problem id -> problem.
        sampling: ``max_new_tokens`` is of a completion, without its prefix.
        seed: with prompt, prefix and index it decides every completion.
        grader: replaces `grading.equivalence.grade_batch`.
    """

    engine: Engine
    tokenizer: Any
    render_prompt: RenderPrompt
    problems: Mapping[str, Problem]
    sampling: SampleSettings
    seed: int
    grader: Grader | None = None

    def outcomes(self, keys: Sequence[PrefixKey], n: int, cost: CompletionCost) -> dict[PrefixKey, list[bool]]:
        """Return for each prefix which of its ``n`` completions end by themselves with the gold answer; add to
        ``cost``.
        """
        sampled = self.engine.sample(
            [(*self.render_prompt(self.problems[problem_id]), *prefix) for problem_id, prefix in keys],
            n=n,
            temperature=self.sampling.temperature,
            max_new_tokens=self.sampling.max_new_tokens,
            seed=self.seed,
            top_p=self.sampling.top_p,
            top_k=self.sampling.top_k,
            stop=self.sampling.stop,
        )
        rows = [(key, completion) for key, group in zip(keys, sampled, strict=True) for completion in group]
        texts = self.tokenizer.batch_decode(
            [[*key[1], *completion.token_ids] for key, completion in rows],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        answers = [extract(text[: text_end(text, self.sampling.stop)]).answer for text in texts]
        pairs = [(answer, self.problems[key[0]].answer) for answer, (key, _) in zip(answers, rows, strict=True)]
        verdicts = self.grader(pairs) if self.grader else [result.verdict for result in grade_batch(pairs)]
        right: dict[PrefixKey, list[bool]] = {key: [] for key in keys}
        for (key, completion), verdict in zip(rows, verdicts, strict=True):
            right[key].append(verdict is Verdict.CORRECT and completion.finish_reason is FinishReason.STOP)
        cost.prefixes += len(keys)
        cost.completions += len(rows)
        cost.tokens += sum(len(completion.token_ids) for _, completion in rows)
        return right


def label_by_completions(
    sampler: Outcomes, paths: Sequence[Path], settings: MonteCarloSettings
) -> tuple[list[LabelledPath], dict[str, int], CompletionCost]:
    """Label paths by completions from their prefixes; CORRECT paths need none for hard labels.

    Returns:
        labelled paths in the order given; paths left out by reason (as `data_gen.labels.LabelSummary.left_out`, and
        ``no_token_ids``); the cost.
    """
    started = time.perf_counter()
    cost = CompletionCost()
    reasons = [_left_out(path) for path in paths]
    left_out = Counter(reason for reason in reasons if reason)
    usable = [path for path, reason in zip(paths, reasons, strict=True) if reason is None]
    known: dict[PrefixKey, float] = {}
    shares: dict[str, dict[int, float]] = {path.path_id: {} for path in usable}
    searching = [path for path in usable if settings.form == "soft" or path.verdict is Verdict.WRONG]
    while wanted := [(path, k) for path in searching for k in _next(path, shares[path.path_id], settings)]:
        fresh = [key for key in dict.fromkeys(_key(path, k) for path, k in wanted) if key not in known]
        if fresh:
            outcomes = sampler.outcomes(fresh, settings.completions, cost)
            known |= {key: sum(right) / len(right) for key, right in outcomes.items()}
        for path, k in wanted:
            shares[path.path_id][k] = known[_key(path, k)]
    labelled = []
    for path in usable:
        result = label_from_shares(path, shares[path.path_id], settings)
        if isinstance(result, str):
            left_out[result] += 1
        else:
            labelled.append(result)
    cost.seconds = time.perf_counter() - started
    return labelled, dict(sorted(left_out.items())), cost


def _next(path: Path, shares: Mapping[int, float], settings: MonteCarloSettings) -> list[int]:
    is_right = {k: share > settings.threshold for k, share in shares.items()}
    return next_prefixes(is_right, len(path.steps), settings.search)


def _key(path: Path, k: int) -> PrefixKey:
    return path.problem_id, path.token_ids[: path.steps[k].token_end]


def _left_out(path: Path) -> str | None:
    if path.verdict not in (Verdict.CORRECT, Verdict.WRONG):
        return path.verdict.value
    if path.is_truncated:
        return "truncated"
    if not path.steps:
        return "no_steps"
    return None if path.token_ids else "no_token_ids"

"""Figures of one pool: the paths that one model sampled at one temperature, G a problem. Pure.

Every figure comes as per-problem components (numerator, denominator), shape (P, 2), for ``eval.intervals``. A problem
that has nothing to say about a figure contributes (0, 0).

A path is *right* when its verdict is CORRECT and it was not cut at the length limit. Paths whose verdict is TIMEOUT,
TOO_LONG or NO_GOLD are the checker's or the data's fault and enter no accuracy. Unparsed and cut paths cast no vote.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import numpy as np

from common.metrics import majority_vote, pass_at_k, repeated_ngram_share
from common.records import Path, Problem, Verdict
from eval.intervals import Array, per_problem
from grading.equivalence import vote_key

AGGREGATES = ("min", "last", "mean", "product")
MAX_SUBSETS = 256
"""Majority over k of n paths is averaged over all subsets up to this many, else over the n // k disjoint blocks."""

AnswerKey = Callable[[str], Hashable]


class Judgement(Protocol):
    """What an oracle says of a path's steps: index of the first wrong one (None: none), or that it cannot tell."""

    @property
    def first_error(self) -> int | None: ...
    @property
    def unknown(self) -> bool: ...
    @property
    def habit(self) -> str | None: ...


@dataclasses.dataclass(frozen=True)
class Pool:
    """Sampled paths with what PRM and oracle say of them; rows are problems, in the test set's order.

    Attributes:
        temperature: 0 is greedy.
        paths: G paths for each of P problems.
        scores: probability of being right for each step of each path; None without a PRM.
        judgements: the oracle's word on each path; None without an oracle.
    """

    temperature: float
    paths: list[list[Path]]
    scores: list[list[list[float]]] | None = None
    judgements: list[list[Judgement]] | None = None


def is_right(path: Path) -> bool:
    """True for a finished path with a right answer."""
    return path.verdict is Verdict.CORRECT and not path.is_truncated


def path_score(step_scores: Sequence[float], aggregate: str) -> float | None:
    """Score of a path from its step scores p_1..p_K: ``min``, ``last`` (p_K), ``mean`` or ``product``.

    None for a path without steps or with a non-finite score: nothing can be said of it.

    Raises:
        ValueError: unknown aggregate.
    """
    if aggregate not in AGGREGATES:
        raise ValueError(f"aggregate {aggregate!r}: want one of {', '.join(AGGREGATES)}")
    if not step_scores or not all(math.isfinite(score) for score in step_scores):
        return None
    rules: dict[str, Callable[[Sequence[float]], float]] = {
        "min": min,
        "last": lambda scores: scores[-1],
        "mean": lambda scores: math.fsum(scores) / len(scores),
        "product": math.prod,
    }
    return float(rules[aggregate](step_scores))


def best_of(rights: Sequence[bool], scores: Sequence[float | None], k: int) -> float:
    """P(the best-scored of k random paths is right), exact over all subsets of the n paths.

    With paths sorted by score (None last, ties in sampling order) and r = 0 for the best, path r is the best of a
    random subset with probability ``C(n-1-r, k-1) / C(n, k)``.
    """
    n = len(rights)
    ranked: list[float] = [-math.inf if score is None else score for score in scores]
    order = sorted(range(n), key=ranked.__getitem__, reverse=True)
    chosen = sum(math.comb(n - 1 - rank, k - 1) for rank, i in enumerate(order) if rights[i])
    return chosen / math.comb(n, k)


def majority_of(
    answers: Sequence[Hashable | None], rights: Sequence[bool], k: int, weights: Sequence[float] | None = None
) -> float:
    """P(the majority answer of k random paths is right); ties go to the answer sampled first, no vote is wrong.

    weights: one non-negative weight a path, e.g. its PRM score; default 1 each.

    Exact over all subsets up to ``MAX_SUBSETS`` of them, else the mean over disjoint blocks in sampling order.
    """
    n = len(answers)
    if math.comb(n, k) <= MAX_SUBSETS:
        groups = list(itertools.combinations(range(n), k))
    else:
        groups = [tuple(range(start, start + k)) for start in range(0, n - k + 1, k)]
    wins = [
        _vote_is_right(
            [answers[i] for i in group], [rights[i] for i in group], [weights[i] for i in group] if weights else None
        )
        for group in groups
    ]
    return sum(wins) / len(wins)


def _vote_is_right(
    answers: Sequence[Hashable | None], rights: Sequence[bool], weights: Sequence[float] | None = None
) -> bool:
    winner = majority_vote(answers, weights)
    return winner is not None and rights[list(answers).index(winner)]


@dataclasses.dataclass(frozen=True)
class JudgedGroup:
    """The judged paths of one problem, reduced to what accuracy needs.

    Attributes:
        rights: is each path right?
        answers: what each path votes for, None for no vote.
        scores: path scores for each of ``AGGREGATES``, None where there is none; empty lists without a PRM.
    """

    rights: list[bool]
    answers: list[Hashable | None]
    scores: dict[str, list[float | None]]


def judged_groups(pool: Pool, answer_key: AnswerKey = vote_key) -> list[JudgedGroup]:
    """The judged paths of each problem, in sampling order."""
    groups = []
    for p, paths in enumerate(pool.paths):
        kept = [g for g, path in enumerate(paths) if path.verdict.is_judged]
        voters = [
            None if paths[g].answer is None or paths[g].is_truncated else answer_key(str(paths[g].answer)) for g in kept
        ]
        scores = {
            name: [path_score(pool.scores[p][g], name) for g in kept] if pool.scores is not None else []
            for name in AGGREGATES
        }
        groups.append(JudgedGroup([is_right(paths[g]) for g in kept], voters, scores))
    return groups


def accuracy_components(
    pool: Pool, *, ks: Sequence[int], aggregate: str, answer_key: AnswerKey = vote_key
) -> dict[str, Array]:
    """Components of every accuracy of a pool, named ``pass1``, ``pass_at.k``, ``majority.k``, ``prm_best.k``,
    ``prm_best_by.rule`` and ``prm_vote``; each is a mean over problems.

    A problem with fewer than k judged paths is left out of the figures at k; those over the whole group (``prm_vote``,
    ``prm_best_by``) need max(ks) judged paths and use the first max(ks) of them.
    """
    groups, has_prm = judged_groups(pool, answer_key), pool.scores is not None
    top = max(ks)
    values: dict[str, list[float | None]] = {
        "pass1": [sum(g.rights) / len(g.rights) if g.rights else None for g in groups]
    }
    for k in ks:
        enough = [len(g.rights) >= k for g in groups]
        pairs = list(zip(groups, enough, strict=True))
        values[f"pass_at.{k}"] = [pass_at_k(len(g.rights), sum(g.rights), k) if ok else None for g, ok in pairs]
        values[f"majority.{k}"] = [majority_of(g.answers, g.rights, k) if ok else None for g, ok in pairs]
        values[f"prm_best.{k}"] = [
            best_of(g.rights, g.scores[aggregate], k) if ok and has_prm else None for g, ok in pairs
        ]
    for rule in AGGREGATES:
        values[f"prm_best_by.{rule}"] = [
            best_of(g.rights[:top], g.scores[rule][:top], top) if len(g.rights) >= top and has_prm else None
            for g in groups
        ]
    values["prm_vote"] = [
        float(_vote_is_right(g.answers[:top], g.rights[:top], [score or 0.0 for score in g.scores[aggregate][:top]]))
        if len(g.rights) >= top and has_prm
        else None
        for g in groups
    ]
    return {name: per_problem(column) for name, column in values.items()}


def style_components(pool: Pool, *, ngram: int = 4) -> dict[str, Array]:
    """Components over all paths of the pool: shares of paths and means a path.

    ``format_rate``: finished with an extractable answer; ``mean_steps`` (steps a path); ``mean_tokens`` (tokens a path,
    end token included); ``truncated_share``: cut at the length limit; ``repeated_ngrams``: share of token n-grams seen
    before in the same path.
    """

    def over_paths(measure: Callable[[Path], float]) -> Array:
        return np.array([(sum(map(measure, paths)), len(paths)) for paths in pool.paths], np.float64).reshape(-1, 2)

    return {
        "format_rate": over_paths(lambda path: path.answer is not None and not path.is_truncated),
        "mean_steps": over_paths(lambda path: len(path.steps)),
        "mean_tokens": over_paths(lambda path: len(path.token_ids)),
        "truncated_share": over_paths(lambda path: path.is_truncated),
        "repeated_ngrams": over_paths(lambda path: repeated_ngram_share(path.token_ids, ngram)),
    }


def process_components(pool: Pool) -> dict[str, Array]:
    """Components of process correctness; all (0, 0) without an oracle.

    Over the paths that the oracle can judge: ``clean_paths`` (without a wrong step), ``hidden_errors`` (of the right
    paths, those with a wrong step), ``right_steps`` (of all steps, those before their path's first error). Over all
    paths: ``unknown_share``.
    """
    names = ("clean_paths", "hidden_errors", "right_steps", "unknown_share")
    rows = {name: np.zeros((len(pool.paths), 2)) for name in names}
    for p, paths in enumerate(pool.paths):
        for g, path in enumerate(paths if pool.judgements is not None else ()):
            judgement = pool.judgements[p][g]  # type: ignore[index]
            rows["unknown_share"][p] += (judgement.unknown, 1)
            if judgement.unknown:
                continue
            error, steps = judgement.first_error, len(path.steps)
            rows["clean_paths"][p] += (error is None, 1)
            rows["right_steps"][p] += (steps if error is None else min(error, steps), steps)
            if is_right(path):
                rows["hidden_errors"][p] += (error is not None, 1)
    return rows


def problems_by(problems: Sequence[Problem], key: Callable[[Problem], str]) -> dict[str, list[int]]:
    """Row numbers of the problems for each value of ``key``, keys sorted (numbers by size)."""
    rows: dict[str, list[int]] = {}
    for row, problem in enumerate(problems):
        rows.setdefault(key(problem), []).append(row)
    return dict(sorted(rows.items(), key=lambda item: (len(item[0]) if item[0].isdigit() else 99, item[0])))

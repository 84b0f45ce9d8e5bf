"""Outcome reward of a path and the penalties on the outcome side. Pure functions of records.

reward = o - sum_i weight_i * penalty_i,    o in {0, 1}, every penalty_i in [0, 1], every weight a switch (0 = off)

``policy.quality`` may add what the quality of a right path earns.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Sequence, Set

from common.metrics import repeated_ngram_share
from common.records import Path, Verdict

STEP_FLOOR = 5
"""Fewer steps than this (or than the problem's typical number, if smaller) count as too few."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"\w+|[^\w\s]")
_THEOREM = re.compile(
    r"\b((?:[A-Z][\w'’-]*\s+(?:(?:of|and|the|for)\s+)?)+?)"
    r"(theorem|lemma|law|rule|inequality|identity|formula|conjecture|principle)\b",
    re.IGNORECASE,
)
_KIND = re.compile(r"\b(?:theorem|lemma|law|rule|inequality|identity|formula|conjecture|principle)\b", re.IGNORECASE)
NAME_LETTERS = 60
"""Letters before the word "theorem" in which its name is looked for; bounds the time on text such as "the the the"."""
_ARTICLES = re.compile(r"^(?:(?:by|using|the|a|an|apply|from|use|with)\s+)+", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class PenaltyWeights:
    """How much each penalty takes from the outcome reward; 0 switches it off.

    Attributes:
        repeated_ngrams: times the share of 4-grams of words that repeat an earlier one.
        same_pattern: when every step (at least 3) is the same sentence up to its numbers.
        few_steps: times the missing share of the step floor.
        bad_format: when no answer could be extracted.
        unknown_theorem: when a theorem is named that no CORRECT path has named.
    """

    repeated_ngrams: float = 0.0
    same_pattern: float = 0.0
    few_steps: float = 0.0
    bad_format: float = 0.0
    unknown_theorem: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not 0 <= getattr(self, field.name) <= 1:
                raise ValueError(f"penalty {field.name} must be in [0, 1], got {getattr(self, field.name)}")


@dataclasses.dataclass(frozen=True)
class OutcomeReward:
    """Reward of one path.

    Attributes:
        outcome: 1.0 for a counted CORRECT answer behind steps enough, else 0.0.
        penalty: what the penalties take, >= 0.
        is_counted: False = no gradient and no statistic.
        quality: what the quality of a right path earns, >= 0; 0 for a wrong one.
    """

    outcome: float
    penalty: float
    is_counted: bool
    quality: float = 0.0

    @property
    def reward(self) -> float:
        return self.outcome - self.penalty + self.quality


def outcome_of(path: Path, train_on_truncated: bool = True, min_steps: int = 0) -> tuple[float, bool]:
    """Return (outcome, is_counted): CORRECT 1; WRONG and UNPARSED 0; other verdicts do not count.

    A completion cut at the length limit has outcome 0 whatever its verdict; with ``train_on_truncated`` False it does
    not count instead. A right answer behind fewer than ``min_steps`` steps has outcome 0: its reasoning was not shown.
    """
    if not path.verdict.is_judged:
        return 0.0, False
    if path.is_truncated:
        return 0.0, train_on_truncated
    return float(path.verdict is Verdict.CORRECT and len(path.steps) >= min_steps), True


def repeated_words(text: str, n: int = 4) -> float:
    """Return the share in [0, 1] of n-grams of words and punctuation marks that occurred before in the text.

    Words and not tokens: with a character tokenizer half of the token 4-grams of sound arithmetic repeat.
    """
    return repeated_ngram_share(_WORD.findall(text), n)


def sentence_pattern(text: str) -> str:
    """Return the text in lower case with every number as ``#`` and single spaces."""
    return " ".join(_NUMBER.sub("#", text.lower()).split())


def has_one_pattern(step_texts: Sequence[str]) -> bool:
    """True when there are at least 3 steps and all have the same ``sentence_pattern``."""
    return len(step_texts) >= 3 and len({sentence_pattern(text) for text in step_texts}) == 1


def repeats(texts: Sequence[str]) -> int:
    """Return how many of the texts an earlier one equals."""
    return len(texts) - len(set(texts))


def missing_steps(num_steps: int, typical_steps: float | None) -> float:
    """Return max(0, floor - num_steps) / floor, floor = min(``STEP_FLOOR``, the problem's typical number of steps)."""
    floor = STEP_FLOOR if typical_steps is None else min(STEP_FLOOR, typical_steps)
    return max(0.0, (floor - num_steps) / floor) if floor > 0 else 0.0


def typical_steps(paths: Sequence[Path], level: int | None) -> float | None:
    """Return the median number of steps of the CORRECT paths of a problem; without any its level, or None."""
    counts = [len(path.steps) for path in paths if path.verdict is Verdict.CORRECT]
    return float(statistics.median(counts)) if counts else level


def theorem_names(text: str) -> set[str]:
    """Return the theorems named in a text, lower case and without article, e.g. ``{"fermat's little theorem"}``."""
    names, end = set(), 0
    for found in _KIND.finditer(text):
        start, end = max(end, found.start() - NAME_LETTERS), found.end()
        name = _THEOREM.search(text[start:end])
        if name is None:
            continue
        head, kind = name.groups()
        head = " ".join(_ARTICLES.sub("", head).lower().split())
        if head:
            names.add(f"{head} {kind.lower()}")
    return names


def invented_theorems(paths: Sequence[Path]) -> int:
    """Return how many paths that are not CORRECT name a theorem that no CORRECT path among these names."""
    names = [theorem_names(path.text) for path in paths]
    known = set().union(*(found for found, path in zip(names, paths, strict=True) if path.verdict is Verdict.CORRECT))
    return sum(
        bool(found - known) for found, path in zip(names, paths, strict=True) if path.verdict is not Verdict.CORRECT
    )


def penalty_of(
    path: Path, weights: PenaltyWeights, *, typical: float | None, known_theorems: Set[str] = frozenset()
) -> float:
    """Return the weighted sum of the penalties of a path, >= 0.

    Args:
        typical: the problem's typical number of steps (``typical_steps``).
        known_theorems: names seen in CORRECT paths so far, this batch included.
    """
    total = 0.0
    if weights.repeated_ngrams:
        total += weights.repeated_ngrams * repeated_words(path.text)
    if weights.same_pattern and has_one_pattern([step.text for step in path.steps]):
        total += weights.same_pattern
    if weights.few_steps:
        total += weights.few_steps * missing_steps(len(path.steps), typical)
    if weights.bad_format and path.verdict is Verdict.UNPARSED:
        total += weights.bad_format
    if weights.unknown_theorem and path.verdict is not Verdict.CORRECT:
        total += weights.unknown_theorem * bool(theorem_names(path.text) - known_theorems)
    return total


def outcome_rewards(
    paths: Sequence[Path],
    *,
    weights: PenaltyWeights,
    level: int | None = None,
    train_on_truncated: bool = True,
    min_steps: int = 0,
    known_theorems: Set[str] = frozenset(),
) -> list[OutcomeReward]:
    """Return the reward of each path of ONE problem."""
    typical = typical_steps(paths, level)
    rewards = []
    for path in paths:
        outcome, is_counted = outcome_of(path, train_on_truncated, min_steps)
        penalty = penalty_of(path, weights, typical=typical, known_theorems=known_theorems) if is_counted else 0.0
        rewards.append(OutcomeReward(outcome, penalty, is_counted))
    return rewards

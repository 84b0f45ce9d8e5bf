"""Groups paths by what they look like once their numbers are masked. Pure functions of records and text.

A path's pattern is the kind of each of its steps and of its end. A kind is the step's text with every number as ``#``
and every variable as ``v``, or ``(empty)`` for a step without a letter or digit, or ``(again)`` for one whose text an
earlier step has. Two patterns are as similar as the longest matching blocks of their words and signs say
(``difflib.SequenceMatcher``: 2 M / T, M matched and T all words and signs of both).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from common.records import Path
from policy.rewards import sentence_pattern

EMPTY, AGAIN = "(empty)", "(again)"
ANSWER, NO_ANSWER, CUT = "(answer)", "(no answer)", "(cut)"
SIMILAR = 0.8
"""Patterns at least this similar to a cluster's first one belong to it."""
MAX_SIGNS = 400
"""Words and signs of a pattern that are compared: bounds the time on long paths."""
_VARIABLE = re.compile(r"(?<![a-z])[a-z](?![a-z])")
_SIGN = re.compile(r"\([a-z ]+\)|\w+|[^\w\s]|\n")

Pattern = tuple[str, ...]
"""Kind of each step, then of the end."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Paths of like pattern.

    Attributes:
        pattern: the most frequent one among them, which all others were compared with.
        rows: indices of its paths, ascending.
    """

    pattern: Pattern
    rows: tuple[int, ...]


def step_kinds(step_texts: Sequence[str]) -> tuple[str, ...]:
    """Return the kind of each step."""
    kinds: list[str] = []
    for index, text in enumerate(step_texts):
        if not any(character.isalnum() for character in text):
            kinds.append(EMPTY)
        elif text in step_texts[:index]:
            kinds.append(AGAIN)
        else:
            kinds.append(_VARIABLE.sub("v", sentence_pattern(text)))
    return tuple(kinds)


def path_pattern(path: Path) -> Pattern:
    """Return the kinds of the steps and of the end: an answer, none, or cut at the length limit."""
    end = CUT if path.is_truncated else NO_ANSWER if path.answer is None else ANSWER
    return (*step_kinds([step.text for step in path.steps]), end)


def cluster_patterns(patterns: Sequence[Pattern], similar: float = SIMILAR) -> list[Cluster]:
    """Group paths greedily: a pattern joins the most similar cluster, or founds one; frequent patterns come first.

    Args:
        patterns: one a path.
        similar: least similarity to a cluster's founder, in [0, 1]; 1: equal words and signs only.

    Returns:
        The clusters, largest first; the order of the paths changes nothing but indices.
    """
    counts = Counter(patterns)
    founders: list[tuple[Pattern, list[str]]] = []
    home: dict[Pattern, int] = {}
    for pattern in sorted(counts, key=lambda one: (-counts[one], one)):
        signs = _signs(pattern)
        best, place = 0.0, len(founders)
        for index, (_, other) in enumerate(founders):
            found = _similarity(signs, other, max(best, similar))
            if found > best:
                best, place = found, index
        if place == len(founders):
            founders.append((pattern, signs))
        home[pattern] = place
    rows: list[list[int]] = [[] for _ in founders]
    for row, pattern in enumerate(patterns):
        rows[home[pattern]].append(row)
    clusters = [Cluster(pattern, tuple(members)) for (pattern, _), members in zip(founders, rows, strict=True)]
    return sorted(clusters, key=lambda one: (-len(one.rows), one.pattern))


def _signs(pattern: Pattern) -> list[str]:
    return _SIGN.findall("\n".join(pattern))[:MAX_SIGNS]


def _similarity(first: Sequence[str], second: Sequence[str], least: float) -> float:
    """Return the similarity in [0, 1], or 0.0 when a cheap upper bound or the value itself is below ``least``."""
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return 0.0
    found = matcher.ratio()
    return found if found >= least else 0.0

"""Overlap with given test problems, by the rules of two published models.

On words, numbers and LaTeX commands in lower case, punctuation left out, a problem is contaminated by a test problem if

1. they share 13 tokens in a row (GPT-3, arXiv:2005.14165, appendix C); of a test problem with fewer than 13 tokens the
   problem holds all in a row; or
2. their longest common subsequence has at least 13 tokens and at least 0.6 of the shorter one's (Qwen2.5,
   arXiv:2412.15115).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from common.errors import InputError
from common.runs import read_rows
from data_gen.problems import TEXT_FIELDS

RUN, SHARE = 13, 0.6
_TOKEN = re.compile(r"\\[a-z]+|[a-z]+|\d+(?:\.\d+)?")


def tokens(text: str) -> list[str]:
    """Words, numbers and LaTeX commands in lower case."""
    return _TOKEN.findall(re.sub(r"(?<=\d),(?=\d{3})", "", text.lower()))


class TestSets:
    """Test problems, indexed."""

    __test__ = False

    def __init__(self, texts: Iterable[str]) -> None:
        self.problems = [found for text in texts if (found := tokens(text))]
        self._runs = {tuple(p[k : k + RUN]) for p in self.problems for k in range(len(p) - RUN + 1)}
        self._short = {tuple(p) for p in self.problems if len(p) < RUN}
        self._short_lengths = sorted({len(p) for p in self._short})
        self._column = {word: k for k, word in enumerate(sorted({word for p in self.problems for word in p}))}
        self._counts = np.zeros((len(self.problems), len(self._column)), dtype=np.int16)
        for row, problem in enumerate(self.problems):
            for word, count in Counter(problem).items():
                self._counts[row, self._column[word]] = count
        self._lengths = np.array([len(p) for p in self.problems])
        self._places = [_places(p) for p in self.problems]

    @classmethod
    def read(cls, paths: Sequence[Path]) -> TestSets:
        """Read JSON Lines. Raises InputError for a row without a problem's text."""
        texts = []
        for path in paths:
            for number, row in enumerate(read_rows(path), 1):
                name = next((n for n in TEXT_FIELDS if isinstance(row.get(n), str)), None)
                if name is None:
                    raise InputError(f"{path}, row {number}: no field {', '.join(TEXT_FIELDS)} with text")
                texts.append(row[name])
        return cls(texts)

    def rule_met(self, text: str) -> str | None:
        """Return which rule calls a problem contaminated (``run``, ``whole`` or ``subsequence``), None for none."""
        words = tokens(text)
        if any(tuple(words[k : k + RUN]) in self._runs for k in range(len(words) - RUN + 1)):
            return "run"
        for size in self._short_lengths:
            if any(tuple(words[k : k + size]) in self._short for k in range(len(words) - size + 1)):
                return "whole"
        return "subsequence" if len(words) >= RUN and self._shares_subsequence(words) else None

    def _shares_subsequence(self, words: list[str]) -> bool:
        known = [(self._column[word], count) for word, count in Counter(words).items() if word in self._column]
        if not known:
            return False
        columns, counts = (np.array(x) for x in zip(*known, strict=True))
        # no common subsequence is longer than the words two texts have in common
        bound = np.minimum(self._counts[:, columns], counts).sum(axis=1)
        wanted = np.maximum(RUN, SHARE * np.minimum(self._lengths, len(words)))
        return any(subsequence_length(self._places[k], words) >= wanted[k] for k in np.flatnonzero(bound >= wanted))


def _places(words: Sequence[str]) -> dict[str, int]:
    """Word -> bits of the places where it stands."""
    places: dict[str, int] = {}
    for k, word in enumerate(words):
        places[word] = places.get(word, 0) | (1 << k)
    return places


def subsequence_length(places: dict[str, int], words: Sequence[str]) -> int:
    """Length of the longest common subsequence, bit-parallel (Hyyro 2004): a 0 bit is a step of its length."""
    width = sum(bits.bit_count() for bits in places.values())
    full = (1 << width) - 1
    row = full
    for word in words:
        match = row & places.get(word, 0)
        row = ((row + match) | (row - match)) & full
    return width - row.bit_count()

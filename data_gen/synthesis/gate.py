"""The last gate: no duplicate and no test problem passes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from data_gen.synthesis.check import Refused
from data_gen.synthesis.contamination import TestSets
from data_gen.synthesis.statement import canonical

_NAME = re.compile(r"(?<![.?!:]\s)(?<!^)\b[A-Z][a-z]+\b")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def text_key(text: str) -> str:
    """A text without what does not change a problem: case, spaces, dollar signs, LaTeX spacing, final punctuation."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"\\(?:left|right|displaystyle|[,;!: ])|\$|\\[()\[\]]", "", text)
    return re.sub(r"\s+", "", text).rstrip(".?!")


def skeleton(text: str) -> str:
    """``text_key`` with every number and every name in the middle of a sentence replaced: problems that differ in
    them only have one skeleton.
    """
    return text_key(_NUMBER.sub("#", _NAME.sub("@", text)))


class Gate:
    """Remembers what has passed."""

    def __init__(self, tests: TestSets, most_alike: int = 0) -> None:
        """Take the test problems, and how many problems may differ in numbers and names only; 0: any number."""
        self.tests, self.most_alike = tests, most_alike
        self.texts: set[str] = set()
        self.statements: set[tuple[str, str]] = set()
        self.skeletons: Counter[str] = Counter()

    def remember(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Let rows of an earlier part of the run count as passed."""
        for row in rows:
            self.texts.add(text_key(row["problem"]))
            self.skeletons[skeleton(row["problem"])] += 1
            if row.get("formal") is not None:
                self.statements.add((row["topic"], canonical(row["formal"])))

    def admit(self, row: Mapping[str, Any]) -> None:
        """Let a row pass, or raise Refused with ``duplicate_text``, ``duplicate_statement``, ``alike`` or
        ``contaminated``.
        """
        text = row["problem"]
        if text_key(text) in self.texts:
            raise Refused("duplicate_text")
        if row.get("formal") is not None and (row["topic"], canonical(row["formal"])) in self.statements:
            raise Refused("duplicate_statement", "the same but for letters or story")
        if self.most_alike and self.skeletons[skeleton(text)] >= self.most_alike:
            raise Refused("alike", "differs in numbers and names only")
        if rule := self.tests.rule_met(text):
            raise Refused("contaminated", rule)
        self.remember([row])

"""The records that stages exchange; every one is frozen and knows how to become a JSON row and back.

Axis letters used in the whole project: P problem, G path in a group, B = P * G path, S step, T token.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self


class Verdict(StrEnum):
    """What the grader says of a final answer.

    ``WRONG`` and ``UNPARSED`` are the model's fault (outcome 0, counted apart). ``TIMEOUT``, ``TOO_LONG`` and
    ``NO_GOLD`` are the checker's or the data's fault: no gradient, no statistic, counted.
    """

    CORRECT = "CORRECT"
    WRONG = "WRONG"
    UNPARSED = "UNPARSED"
    TIMEOUT = "TIMEOUT"
    TOO_LONG = "TOO_LONG"
    NO_GOLD = "NO_GOLD"

    @property
    def is_judged(self) -> bool:
        """True when the verdict says something about the model (it enters statistics and gradients)."""
        return self in (Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSED)


class FinishReason(StrEnum):
    """Why sampling of a path ended: an end token or stop string, or the length limit."""

    STOP = "stop"
    LENGTH = "length"


def content_id(*parts: object) -> str:
    """Return 16 hex digits that depend on ``parts`` only, so that reruns and shards agree."""
    packed = json.dumps([str(part) for part in parts], ensure_ascii=False).encode()
    return hashlib.sha256(packed).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem with a checkable answer.

    Attributes:
        id: content hash of (source, text, answer).
        text: what the model is asked, without prompt template.
        answer: gold answer as text.
        source: where it comes from, e.g. ``synthetic`` or a file's name.
        topic: kind of problem, e.g. ``chain`` or ``equation``; problem kinds are balanced by it.
        level: number of steps of the reference solution, None when unknown.
        difficulty: pass rate of the newest policy in [0, 1], None until measured.
    """

    id: str
    text: str
    answer: str
    source: str
    topic: str
    level: int | None = None
    difficulty: float | None = None

    @classmethod
    def create(cls, text: str, answer: str, *, source: str, topic: str, level: int | None = None) -> Self:
        """Build a problem whose id is the hash of its content."""
        return cls(content_id(source, text, answer), text, answer, source, topic, level)

    def to_row(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        return cls(**row)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a path.

    Attributes:
        text: the step's text, equal to ``path.text[start:end]``.
        start, end: character span in the completion text, end exclusive.
        token_start, token_end: token span in ``Path.token_ids``, end exclusive; the step is scored at
            ``token_end - 1``. Both are -1 when the path carries no token ids.
    """

    text: str
    start: int
    end: int
    token_start: int = -1
    token_end: int = -1


@dataclasses.dataclass(frozen=True)
class Path:
    """One sampled solution.

    Attributes:
        problem_id, path_id: content hashes; ``path_id`` depends on the problem, the seed and the index in the group.
        text: the completion as decoded text, without end token.
        token_ids: the sampled ids, unchanged, end token included when it was sampled.
        steps: the reasoning steps in order; the answer line is not a step.
        answer: extracted final answer, None when there is none.
        verdict: the grader's word on ``answer``.
        finish_reason: ``stop`` or ``length``.
    """

    problem_id: str
    path_id: str
    text: str
    token_ids: tuple[int, ...]
    steps: tuple[Step, ...]
    answer: str | None
    verdict: Verdict
    finish_reason: FinishReason

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason is FinishReason.LENGTH

    def to_row(self) -> dict[str, Any]:
        row = dataclasses.asdict(self)
        row["token_ids"] = list(self.token_ids)
        row["steps"] = [dataclasses.asdict(step) for step in self.steps]
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        fields = dict(row)
        fields["token_ids"] = tuple(fields["token_ids"])
        fields["steps"] = tuple(Step(**step) for step in fields["steps"])
        fields["verdict"] = Verdict(fields["verdict"])
        fields["finish_reason"] = FinishReason(fields["finish_reason"])
        return cls(**fields)


IGNORED = -100
"""Label of a step that enters no loss and no statistic; never cast labels to bool."""


@dataclasses.dataclass(frozen=True)
class LabelledPath:
    """A path with a label for each of its steps.

    Attributes:
        path: the labelled path.
        labels: 1 (right), 0 (wrong), a value between them (share of completions that reach the answer) or ``IGNORED``
            for each step.
        first_error: 0-based index of the first wrong step, None for a path without one or where two sources differ.
        support: for each step, the number of OTHER correct paths of the problem that hold the step's key.
        keys: for each step, the name of the key kind that was matched (see ``data_gen.labels``).
        source: where the labels come from, e.g. ``frequency:forward``, ``monte_carlo:hard`` or ``oracle``.
        shares: for each step the share of completions from its prefix that reach the answer, None where none was
            sampled; empty when the source samples none.
    """

    path: Path
    labels: tuple[float, ...]
    first_error: int | None
    support: tuple[int, ...]
    keys: tuple[str, ...]
    source: str
    shares: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.path.steps):
            raise ValueError(
                f"path {self.path.path_id}: {len(self.labels)} labels for {len(self.path.steps)} steps; they must match"
            )

    def to_row(self) -> dict[str, Any]:
        return {
            "path": self.path.to_row(),
            "labels": list(self.labels),
            "first_error": self.first_error,
            "support": list(self.support),
            "keys": list(self.keys),
            "source": self.source,
            "shares": list(self.shares),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        return cls(
            path=Path.from_row(row["path"]),
            labels=tuple(int(label) if label == int(label) else float(label) for label in row["labels"]),
            first_error=row["first_error"],
            support=tuple(row["support"]),
            keys=tuple(row["keys"]),
            source=row["source"],
            shares=tuple(row.get("shares", ())),
        )

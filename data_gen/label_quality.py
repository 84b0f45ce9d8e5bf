"""Step labels compared with the true first errors: counts that add up over parts of a pool, and their shares. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from common.records import IGNORED, LabelledPath, Verdict


@dataclasses.dataclass(frozen=True)
class QualityCounts:
    """Counts over labelled paths and their steps; the sum of two is the counts over both.

    Attributes:
        correct, hidden: CORRECT paths; those among them with a true wrong step.
        wrong, exact: WRONG paths with a true error; those labelled with the same first error.
        paths: all paths.
        steps, agree: steps that are not ignored; those whose label is the truth.
        said_negative, are_negative, true_negative: steps labelled 0; steps at or behind the true first error; both.
    """

    paths: int = 0
    correct: int = 0
    hidden: int = 0
    wrong: int = 0
    exact: int = 0
    steps: int = 0
    agree: int = 0
    said_negative: int = 0
    are_negative: int = 0
    true_negative: int = 0

    def __add__(self, other: QualityCounts) -> QualityCounts:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return QualityCounts(*(a + b for a, b in pairs))

    def shares(self) -> dict[str, float]:
        """See `label_quality`."""
        share = lambda part, whole: part / whole if whole else 1.0  # noqa: E731
        return {
            "first_error_exact": share(self.exact, self.wrong),
            "negative_precision": share(self.true_negative, self.said_negative),
            "negative_recall": share(self.true_negative, self.are_negative),
            "label_accuracy": share(self.agree, self.steps),
            "hidden_wrong_in_correct": self.hidden / self.correct if self.correct else 0.0,
            "paths": self.paths,
            "wrong_paths": self.wrong,
        }


def count_quality(labelled: Sequence[LabelledPath], oracle_first_errors: Sequence[int | None]) -> QualityCounts:
    """Compare labels with the true first errors (None: no wrong step), path by path."""
    exact = wrong = hidden = correct = 0
    true_negative = said_negative = are_negative = agree = total = 0
    for row, truth in zip(labelled, oracle_first_errors, strict=True):
        if row.path.verdict is Verdict.CORRECT:
            correct += 1
            hidden += truth is not None
        elif truth is not None:
            wrong += 1
            exact += row.first_error == truth
        for k, label in enumerate(row.labels):
            is_wrong = truth is not None and k >= truth
            if label == IGNORED:
                continue
            total += 1
            agree += (label < 0.5) == is_wrong
            said_negative += label < 0.5
            are_negative += is_wrong
            true_negative += label < 0.5 and is_wrong
    return QualityCounts(
        paths=len(labelled),
        correct=correct,
        hidden=hidden,
        wrong=wrong,
        exact=exact,
        steps=total,
        agree=agree,
        said_negative=said_negative,
        are_negative=are_negative,
        true_negative=true_negative,
    )


def label_quality(labelled: Sequence[LabelledPath], oracle_first_errors: Sequence[int | None]) -> dict[str, float]:
    """Compare labels with the true first errors (None: no wrong step), path by path.

    Returns shares: ``first_error_exact`` (WRONG paths with a true error: same index), ``negative_precision`` (steps
    labelled 0 that are at or behind the true first error), ``negative_recall`` (steps at or behind it, in all
    labelled paths, that are labelled 0), ``label_accuracy``, ``hidden_wrong_in_correct`` (CORRECT paths with a true
    wrong step), and counts ``paths``, ``wrong_paths``. Ignored steps count in none. A share over nothing is 1.0
    (``hidden_wrong_in_correct``: 0.0).
    """
    return count_quality(labelled, oracle_first_errors).shares()

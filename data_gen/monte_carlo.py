"""Step labels from Monte-Carlo completions: does the path up to here still lead to the answer? Pure.

Math-Shepherd (arXiv:2312.08935): N completions are sampled from the prefix that ends with step k; c_k of them reach
the gold answer. ``hard``: step k is right when c_k / N > threshold (threshold 0: some completion reaches it).
``soft``: its label is c_k / N. The first error of a WRONG path is the first step that is not right. Search ``binary``
(OmegaPRM, arXiv:2406.06592) takes for granted that prefixes in front of the first error lead to the answer and those
from it on do not, and samples about log2(S + 1) prefixes a path instead of S.

Axis letters: S steps of one path. Sampling is in `data_gen.completions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from common.records import IGNORED, LabelledPath, Path, Verdict
from data_gen.labels import labels_from_first_error


@dataclasses.dataclass(frozen=True)
class MonteCarloSettings:
    """How completions become labels.

    Attributes:
        completions: N, sampled from each prefix, >= 1.
        form: ``hard`` (labels 1 and 0) or ``soft`` (label of a sampled step = share of right completions).
        search: ``linear`` samples from every step's prefix, ``binary`` from those a binary search asks for.
        threshold: a prefix is right when MORE than this share of its completions reaches the answer.
        after_error: as in `data_gen.labels.LabelSettings`; for ``hard`` labels and steps that were not sampled.
    """

    completions: int = 8
    form: Literal["hard", "soft"] = "hard"
    search: Literal["linear", "binary"] = "linear"
    threshold: float = 0.0
    after_error: Literal["negative", "ignore"] = "negative"

    def __post_init__(self) -> None:
        if self.completions < 1 or not 0 <= self.threshold < 1:
            raise ValueError(
                f"monte carlo: completions {self.completions} (wanted >= 1), threshold {self.threshold} (0 <= t < 1)"
            )

    @property
    def name(self) -> str:
        """The labels' source as records carry it, e.g. ``monte_carlo:hard:linear:8``."""
        return f"monte_carlo:{self.form}:{self.search}:{self.completions}"


def next_prefixes(is_right: Mapping[int, bool], n_steps: int, search: str) -> list[int]:
    """Return the steps k (0-based) whose prefix is to be sampled next, given what is known; empty: done.

    linear: all steps at once. binary: with lo the last right step in front of hi, the first wrong one (n_steps when
    none is known), the step in the middle of them, none when hi = lo + 1.
    """
    if search == "linear":
        return [] if is_right else list(range(n_steps))
    low, high = _bounds(is_right, n_steps)
    return [] if high - low <= 1 else [(low + high) // 2]


def _bounds(is_right: Mapping[int, bool], n_steps: int) -> tuple[int, int]:
    high = min((k for k, right in is_right.items() if not right), default=n_steps)
    return max((k for k, right in is_right.items() if right and k < high), default=-1), high


def first_wrong(is_right: Mapping[int, bool], n_steps: int) -> int | None:
    """Return the first step known to be wrong, None when there is none."""
    high = _bounds(is_right, n_steps)[1]
    return high if high < n_steps else None


def label_from_shares(
    path: Path, shares: Mapping[int, float], settings: MonteCarloSettings
) -> LabelledPath | Literal["no_error_found"]:
    """Label one path from the shares of right completions of its sampled prefixes (step -> share).

    A CORRECT path is its own completion from each of its steps, so every hard label is 1 whatever the shares. A WRONG
    path in which every sampled prefix is right has no error that this source can see, and gets no hard labels.
    """
    n_steps = len(path.steps)
    if path.verdict is Verdict.CORRECT:
        error = None
    else:
        error = first_wrong({k: share > settings.threshold for k, share in shares.items()}, n_steps)
        if error is None and settings.form == "hard":
            return "no_error_found"
    labels: tuple[float, ...] = labels_from_first_error(n_steps, error, settings.after_error)
    if settings.form == "soft":
        labels = tuple(shares.get(k, label) for k, label in enumerate(labels))
    return LabelledPath(
        path=path,
        labels=labels,
        first_error=error,
        support=tuple(round(shares.get(k, 0.0) * settings.completions) for k in range(n_steps)),
        keys=tuple(_why(k, shares, path) for k in range(n_steps)),
        source=settings.name,
        shares=tuple(shares.get(k) for k in range(n_steps)),
    )


def _why(k: int, shares: Mapping[int, float], path: Path) -> str:
    if k in shares:
        return "completions"
    return "own_answer" if path.verdict is Verdict.CORRECT else "search"


def consensus(one: Sequence[LabelledPath], other: Sequence[LabelledPath]) -> tuple[list[LabelledPath], dict[str, int]]:
    """Keep what two sources agree on: equal labels stay, steps on which they differ become ``IGNORED``.

    A path labelled by one source only is left out, as is one on which they agree nowhere. ``first_error`` is kept where
    both name the same one (or both none), else None.

    Returns:
        labelled paths in the order of ``one``, and counts: ``agreed_steps``, ``ignored_steps``, ``same_first_error``
        and ``other_first_error`` (of paths in which one of them finds an error), ``one_source_only``,
        ``agree_nowhere``.
    """
    theirs = {row.path.path_id: row for row in other}
    ours = {row.path.path_id for row in one}
    names = ("agreed_steps", "ignored_steps", "same_first_error", "other_first_error", "one_source_only")
    counts = dict.fromkeys((*names, "agree_nowhere"), 0)
    counts["one_source_only"] = len(ours ^ set(theirs))
    kept = []
    for a in one:
        b = theirs.get(a.path.path_id)
        if b is None:
            continue
        labels = tuple(x if x == y else IGNORED for x, y in zip(a.labels, b.labels, strict=True))
        ignored = sum(label == IGNORED for label in labels)
        if ignored == len(labels):
            counts["agree_nowhere"] += 1
            continue
        counts["agreed_steps"] += len(labels) - ignored
        counts["ignored_steps"] += ignored
        is_same = a.first_error == b.first_error
        if (a.first_error, b.first_error) != (None, None):
            counts["same_first_error" if is_same else "other_first_error"] += 1
        kept.append(
            LabelledPath(
                path=a.path,
                labels=labels,
                first_error=a.first_error if is_same else None,
                support=a.support,
                keys=tuple(f"{x}&{y}" for x, y in zip(a.keys, b.keys, strict=True)),
                source=f"{a.source}&{b.source}",
                shares=a.shares or b.shares,
            )
        )
    return kept, counts

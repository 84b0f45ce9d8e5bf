"""What ratings of a blind page say: wins with intervals, ratings by criterion, agreement between people. Pure.

Problems are what was sampled, and people's votes on one problem are not independent: intervals come from a bootstrap
over problems (a problem with all its votes together), or are exact for one verdict a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy.stats import binomtest

from common.errors import InputError
from eval.blind.page import Key
from eval.blind.ratings import CRITERIA, Ratings, Vote, votes
from eval.intervals import Array, Resampler
from eval.schema import Count, Figure, Share, Strict

RESAMPLES = 4000
Level = Literal["nominal", "ordinal"]


class Agreement(Strict):
    """Krippendorff's alpha: 1 full agreement, 0 that of chance; None with the reason why there is none."""

    alpha: Annotated[float, Field(le=1)] | None
    reason: str | None = None


class RaterCount(Strict):
    """How far a person came: problems with every question answered, with some, with none."""

    rater: str
    complete: Count
    partial: Count
    missing: Count


class Preference(Strict):
    """Which model's answers are preferred.

    Attributes:
        votes_a, ties, votes_b: votes of all people.
        share_a: mean over votes of 1 (a), 0.5 (tie), 0 (b), with a bootstrap interval over problems.
        problems_a, problems_tied, problems_b: verdicts of the majority on each problem.
        decided_a: share of a among the problems that are not tied, with the exact interval (Clopper and Pearson 1934).
        sign_test: P(a split of the decided problems at least this uneven | both equally good), two-sided.
        first_place: share of the answer that stood first among the votes that are no ties; far from 0.5, the place was
            rated.
        agreement: on which place is better, first, tie or second. Places are drawn, so what people share by all
            preferring one model counts as agreement, which by model would be put down to chance.
    """

    votes_a: Count
    ties: Count
    votes_b: Count
    share_a: Figure
    problems_a: Count
    problems_tied: Count
    problems_b: Count
    decided_a: Figure
    sign_test: Share | None
    first_place: Figure
    agreement: Agreement


class Criterion(Strict):
    """Mean rating of each model over the answers that were rated, the difference a − b paired over problems."""

    a: Figure
    b: Figure
    difference: Figure
    agreement: Agreement


class BlindScore(Strict):
    """The result of a blind comparison; ``identical`` problems (same text by both) are in no figure."""

    page: str
    a: str
    b: str
    problems: Count
    identical: Count
    raters: list[RaterCount]
    preference: Preference
    criteria: dict[str, Criterion]


def score(key: Key, raters: Sequence[Ratings], *, seed: int = 0, resamples: int = RESAMPLES) -> BlindScore:
    """All figures of the ratings that belong to ``key``.

    Args:
        raters: as ``read_ratings`` gives them.
        seed, resamples: of the bootstrap.

    Raises:
        InputError: nobody rated anything.
    """
    found = votes(raters, key)
    if not found:
        raise InputError("no problem is rated in these files")
    problems = len(key.items)
    resampler = Resampler.create(problems, num_resamples=resamples, seed=seed)
    return BlindScore(
        page=key.page,
        a=key.a,
        b=key.b,
        problems=problems,
        identical=key.identical,
        raters=[_progress(ratings) for ratings in raters],
        preference=_preference(found, problems, len(raters), resampler),
        criteria={name: _criterion(name, found, problems, len(raters), resampler) for name in CRITERIA},
    )


def _progress(ratings: Ratings) -> RaterCount:
    complete = sum(rating.is_complete for rating in ratings.ratings)
    started = len(ratings.ratings)
    return RaterCount(
        rater=ratings.rater, complete=complete, partial=started - complete, missing=ratings.items - started
    )


def _preference(found: Sequence[Vote], problems: int, raters: int, resampler: Resampler) -> Preference:
    said = [(vote.item, vote.preference) for vote in found if vote.preference is not None]
    places = [(vote.item, float(vote.is_first > 0)) for vote in found if vote.is_first]
    sums = np.zeros(problems)
    is_voted = np.zeros(problems, bool)
    for item, value in said:
        sums[item] += value
        is_voted[item] = True
    a, b = int((sums > 0).sum()), int((sums < 0).sum())
    table = np.full((raters, problems), np.nan)
    for vote in found:
        table[vote.rater, vote.item] = np.nan if vote.is_first is None else vote.is_first
    shares = [(item, (1 + value) / 2) for item, value in said]
    return Preference(
        votes_a=sum(value > 0 for _, value in said),
        ties=sum(value == 0 for _, value in said),
        votes_b=sum(value < 0 for _, value in said),
        share_a=resampler.figure(_sums(shares, problems), absent="no preference was given"),
        problems_a=a,
        problems_tied=int(is_voted.sum()) - a - b,
        problems_b=b,
        decided_a=exact_share(a, a + b),
        sign_test=float(binomtest(a, a + b).pvalue) if a + b else None,
        first_place=resampler.figure(_sums(places, problems), absent="no vote that is not a tie"),
        agreement=agreement(table, "ordinal"),
    )


def _criterion(name: str, found: Sequence[Vote], problems: int, raters: int, resampler: Resampler) -> Criterion:
    a = [(vote.item, value) for vote in found if (value := vote.a[name]) is not None]
    b = [(vote.item, value) for vote in found if (value := vote.b[name]) is not None]
    table = np.full((raters, 2 * problems), np.nan)  # each answer is a unit of its own
    for vote in found:
        for side, value in enumerate((vote.a[name], vote.b[name])):
            table[vote.rater, 2 * vote.item + side] = np.nan if value is None else value
    absent = "not rated"
    sums_a, sums_b = _sums(a, problems), _sums(b, problems)
    return Criterion(
        a=resampler.figure(sums_a, absent=absent),
        b=resampler.figure(sums_b, absent=absent),
        difference=resampler.difference(sums_b, sums_a, absent=absent),
        agreement=agreement(table, "nominal" if name == "correctness" else "ordinal"),
    )


def _sums(values: Sequence[tuple[int, float]], problems: int) -> Array:
    """(sum, count) of the values of each problem, shape (problems, 2)."""
    components = np.zeros((problems, 2))
    for item, value in values:
        components[item] += (value, 1.0)
    return components


def exact_share(hits: int, of: int) -> Figure:
    """A share of independent trials with the exact 95 % interval of Clopper and Pearson (Biometrika 1934)."""
    if not of:
        return Figure.absent("every problem is tied")
    low, high = binomtest(hits, of).proportion_ci(confidence_level=0.95, method="exact")
    return Figure(value=hits / of, ci95=(float(low), float(high)))


def agreement(table: Array, level: Level) -> Agreement:
    """Krippendorff's alpha of ratings, shape (raters, units), NaN where a person did not rate a unit.

    Values are numbers; ``nominal`` counts them equal or not, ``ordinal`` by their rank. From the library
    ``krippendorff`` (extra ``blind``).
    """
    is_rated = np.isfinite(table)
    shared = table[:, is_rated.sum(axis=0) >= 2]
    if shared.shape[1] == 0:
        return Agreement(alpha=None, reason="nothing was rated by two people")
    if len(np.unique(shared[np.isfinite(shared)])) < 2:
        return Agreement(alpha=None, reason="all ratings are the same: no chance level to compare with")
    try:
        import krippendorff
    except ImportError:
        return Agreement(alpha=None, reason="needs krippendorff: pip install 'stepwise-ppo[blind]'")
    return Agreement(alpha=min(1.0, float(krippendorff.alpha(shared, level_of_measurement=level))))

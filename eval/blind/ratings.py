"""Files of ratings that a page exported, checked against the page's key and turned from places into models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from common.errors import InputError
from eval.blind.page import Key
from eval.schema import Count, Seconds, Strict, read_record

Grade = Annotated[int, Field(ge=1, le=5)]
CRITERIA = ("correctness", "clarity", "brevity")
CORRECTNESS: dict[str | None, float | None] = {"right": 1.0, "wrong": 0.0, "unsure": None, None: None}


class AnswerRating(Strict):
    """What a person says of one answer; None where nothing was said."""

    correctness: Literal["right", "wrong", "unsure"] | None
    clarity: Grade | None
    brevity: Grade | None


class ItemRating(Strict):
    """What a person says of one problem's two answers."""

    item: Count
    first: AnswerRating
    second: AnswerRating
    preference: Literal["first", "tie", "second"] | None
    seconds: Seconds
    gold_seen: bool

    @property
    def is_complete(self) -> bool:
        said = [getattr(answer, name) for answer in (self.first, self.second) for name in CRITERIA]
        return None not in said and self.preference is not None


class Ratings(Strict):
    """The exported file of one person."""

    format: Literal["blind-ratings/1"]
    page: str
    rater: Annotated[str, Field(min_length=1, max_length=40)]
    items: Count
    ratings: list[ItemRating]

    @model_validator(mode="after")
    def _items_are_on_the_page_once(self) -> Self:
        numbers = [rating.item for rating in self.ratings]
        if len(set(numbers)) < len(numbers) or (numbers and max(numbers) >= self.items):
            raise ValueError(f"items {sorted(numbers)[:20]}: want each at most once, below {self.items}")
        return self


def read_ratings(files: Sequence[Path], key: Key) -> list[Ratings]:
    """Read the files that belong to the key's page, one a person.

    Raises:
        InputError: a file that is none of these, of another page, or of a person who is there already.
    """
    found: dict[str, tuple[Ratings, Path]] = {}
    for file in files:
        ratings = read_record(file, Ratings)
        if ratings.page != key.page:
            raise InputError(f"{file}: ratings of page {ratings.page[:12]}, the key is that of page {key.page[:12]}")
        if ratings.items != len(key.items):
            raise InputError(f"{file}: ratings of {ratings.items} problems, the page has {len(key.items)}")
        if ratings.rater in found:
            raise InputError(
                f"{file}: rater {ratings.rater!r} has ratings in {found[ratings.rater][1]} too; want one file a person"
            )
        found[ratings.rater] = (ratings, file)
    return [ratings for ratings, _ in found.values()]


@dataclasses.dataclass(frozen=True)
class Vote:
    """What one person says of one problem, by model.

    Attributes:
        rater, item: index of the person and of the problem on the page.
        preference: 1 model a, 0 tie, −1 model b; None where nothing was said.
        is_first: 1 the answer that stood first, −1 the second, 0 tie, None.
        a, b: criterion → number (correctness 1 right, 0 wrong; clarity and brevity 1 to 5), None where nothing was said
            or the person could not tell.
    """

    rater: int
    item: int
    preference: int | None
    is_first: int | None
    a: dict[str, float | None]
    b: dict[str, float | None]


def votes(raters: Sequence[Ratings], key: Key) -> list[Vote]:
    """Every rating with its places turned into models by the key."""
    found = []
    for index, ratings in enumerate(raters):
        for rating in ratings.ratings:
            place = None if rating.preference is None else {"first": 1, "tie": 0, "second": -1}[rating.preference]
            first, second = _numbers(rating.first), _numbers(rating.second)
            is_a_first = key.items[rating.item].first == "a"
            preference = place if is_a_first or place is None else -place
            a, b = (first, second) if is_a_first else (second, first)
            found.append(Vote(index, rating.item, preference, place, a, b))
    return found


def _numbers(rating: AnswerRating) -> dict[str, float | None]:
    grades = {name: getattr(rating, name) for name in ("clarity", "brevity")}
    return {"correctness": CORRECTNESS[rating.correctness]} | {
        name: None if grade is None else float(grade) for name, grade in grades.items()
    }

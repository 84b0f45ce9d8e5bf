"""PRM800K records: chosen paths, neutral ratings, labels of people, public faults of such data."""

from __future__ import annotations

import pytest
from format_rows import completion, record, step, taken

from common.records import IGNORED
from data_gen.prm800k import read_prm800k


def test_prm800k_path_and_alternatives_by_hand() -> None:
    row = record(
        step(completion("a", 1), chosen=0),
        step(completion("b", -1), completion("c", 0), completion("d", 1), chosen=2),
        step(completion("e\n\n# Answer\n\n14", 1), chosen=0),
    )
    converted = read_prm800k(row, neutral="right")
    assert [(one.steps, one.labels, one.extra["path"]) for one in converted.rows] == [
        (("a", "d", "e\n\n# Answer\n\n14"), (1.0, 1.0, 1.0), "taken"),
        (("a", "b"), (1.0, 0.0), "alternative"),
        (("a", "c"), (1.0, 1.0), "alternative"),
    ]
    assert converted.rows[0].extra["answer"] == "14"
    assert len(read_prm800k(row, neutral="right", alternatives=False).rows) == 1


@pytest.mark.parametrize(("neutral", "label"), [("right", 1.0), ("wrong", 0.0), ("ignore", IGNORED)])
def test_prm800k_neutral_policy_is_explicit(neutral: str, label: float) -> None:
    assert taken(record(step(completion("a", 0), chosen=0)), neutral=neutral).labels == (label,)
    with pytest.raises(TypeError, match="neutral"):
        read_prm800k(record(step(completion("a", 0), chosen=0)))


def test_prm800k_a_step_of_the_labeler_goes_on() -> None:
    row = record(step(completion("b", -1), human="mine"), step(completion("c", 1), chosen=0))
    rows = read_prm800k(row, neutral="right").rows
    assert [(one.steps, one.labels) for one in rows] == [(("mine", "c"), (1.0, 1.0)), (("b",), (0.0,))]


def test_prm800k_found_error_ends_with_the_models_own_step() -> None:
    row = record(
        step(completion("a", 1), chosen=0), step(completion("b", -1), completion("c", 1)), finish="found_error"
    )
    converted = read_prm800k(row, neutral="right")
    assert [(one.steps, one.first_error) for one in converted.rows] == [(("a", "b"), 1), (("a", "c"), None)]
    assert converted.notes == ()


def test_prm800k_given_up_records_end_at_the_null_step() -> None:
    null = {"completions": None, "human_completion": None, "chosen_completion": None}
    converted = read_prm800k(record(step(completion("a", 1), chosen=0), null, finish="give_up"), neutral="right")
    assert [one.steps for one in converted.rows] == [("a",)]
    assert converted.notes == (
        "labeler gave up: rated steps kept",
        "step without completion: the path ends before it",
    )


def test_prm800k_a_bad_problem_gives_no_row_and_is_counted() -> None:
    converted = read_prm800k(record(step(completion("a", 1), chosen=0), finish="bad_problem"), neutral="right")
    assert (converted.rows, converted.notes) == ((), ("bad problem: record left out",))


def test_prm800k_unrated_completions_are_ignored_and_counted() -> None:
    row = record(step(completion("a", None), completion("b", None, flagged=True), chosen=0))
    converted = read_prm800k(row, neutral="right")
    assert [one.labels for one in converted.rows] == [(IGNORED,)]
    assert sorted(converted.notes) == [
        "alternative that is blank or has no label left out",
        "flagged completion: rating kept",
        "unrated completion: label ignored",
        "unrated completion: label ignored",
    ]


def test_prm800k_7_11_no_rating_reaches_the_text() -> None:
    row = record(step(completion("a", -1), completion("b", 1), chosen=1), step(completion("c", 0), chosen=0))
    for one in read_prm800k(row, neutral="right").rows:
        assert set(one.steps) <= {"a", "b", "c"}
        assert one.problem == "What is 2 + 3 * 4?"


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        (record(step(completion("a", 2), chosen=0)), "'rating', step 0, completion 0: 2"),
        (record(step(completion("a", 1), chosen=1)), "'chosen_completion', step 0: 1"),
        (record(step(completion("a", 1), chosen=0), finish="done"), "'finish_reason': 'done'"),
        ({"question": {"problem": "p"}}, "'label': missing"),
    ],
)
def test_prm800k_bad_records_name_field_and_value(row: dict, seen: str) -> None:
    with pytest.raises(ValueError, match=seen):
        read_prm800k(row, neutral="right")

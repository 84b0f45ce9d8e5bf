"""PRM data in and out, TRL and ProcessBench: what each format keeps, what it loses, public faults of such data."""

from __future__ import annotations

import json

import pytest
from format_rows import BENCH, TRL, labelled_path, only

from common.records import IGNORED, Problem, Verdict
from data_gen.formats import read_simplerl
from data_gen.math_shepherd import write_math_shepherd
from data_gen.stepwise import (
    LabelledSteps,
    from_labelled_path,
    read_processbench,
    read_trl,
    write_processbench,
    write_trl,
)

# --- one record


def test_bool_int_and_float_labels_become_floats_and_ignored_stays() -> None:
    one = LabelledSteps("p", ("a", "b", "c", "d", "e"), (True, 0, 0.9, IGNORED, False))
    assert one.labels == (1.0, 0.0, 0.9, -100.0, 0.0)
    assert {type(label) for label in one.labels} == {float}


@pytest.mark.parametrize(
    ("labels", "first"),
    [((1, 0, 1), 1), ((1, IGNORED, 0.4), 2), ((1, 0.5, IGNORED), None), ((0, 0), 0), (None, None)],
)
def test_first_error_is_the_first_known_label_below_one_half(labels, first) -> None:
    steps = ("a", "b", "c")[: len(labels or "abc")]
    assert LabelledSteps("p", steps, labels).first_error == first


@pytest.mark.parametrize("label", [2, -1, float("nan"), None, "+", -99.5])
def test_a_label_outside_its_range_is_named(label) -> None:
    with pytest.raises(ValueError, match=r"'labels', step 1: .*want true, false, a number from 0 to 1, or -100"):
        read_trl(TRL | {"labels": [1, label]})


# --- TRL


@pytest.mark.parametrize("labels", [[True, False], [1, 0], [0.9, 0.25], [1, -100], None])
def test_trl_round_trip_is_exact(labels) -> None:
    row = TRL | {"labels": labels, "id": 3}
    assert only(write_trl(only(read_trl(row)))) == row


def test_trl_0_9_is_not_0() -> None:
    """TRL up to 1.13 documented float labels and took int() of them."""
    assert only(read_trl(TRL | {"labels": [0.9, 0.2]})).labels == (0.9, 0.2)


def test_L61_trl2127_ignored_labels_are_not_cast_to_true() -> None:
    written = only(write_trl(only(read_trl(TRL | {"labels": [-100, True]}))))
    assert json.loads(json.dumps(written))["labels"] == [-100, 1]
    assert not any(isinstance(label, bool) for label in written["labels"])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_L65_labels_and_steps_differ_in_number(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} labels for 2 steps"):
        read_trl(TRL | {"labels": [1] * count})


def test_L66_PURE20_an_empty_step_is_refused() -> None:
    for text in ("", "\n\n", " "):
        with pytest.raises(ValueError, match=r"step 1 is .* not blank"):
            read_trl(TRL | {"completions": ["3 * 4 = 12", text]})


def test_missing_labels_are_not_taken_for_unlabelled() -> None:
    with pytest.raises(ValueError, match=r"'labels': missing \(the row has completions, label, prompt\)"):
        read_trl({"prompt": "p", "completions": ["a"], "label": [1]})


# --- ProcessBench


@pytest.mark.parametrize("label", [-1, 0, 1, 2])
def test_processbench_round_trip_is_exact(label: int) -> None:
    row = BENCH | {"label": label}
    assert only(write_processbench(only(read_processbench(row)))) == row


def test_L68_steps_behind_the_first_error_are_not_judged() -> None:
    assert only(read_processbench(BENCH | {"label": 0})).labels == (0.0, IGNORED, IGNORED)
    assert only(read_processbench(BENCH)).labels == (1.0, 0.0, IGNORED)
    assert only(read_processbench(BENCH | {"label": 2})).labels == (1.0, 1.0, 0.0)
    assert only(read_processbench(BENCH | {"label": -1})).labels == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("label", [3, -2, True, 1.0, None, "1"])
def test_processbench_label_must_point_at_a_step(label) -> None:
    with pytest.raises(ValueError, match="'label'"):
        read_processbench(BENCH | {"label": label})


def test_processbench_says_what_it_loses() -> None:
    soft = write_processbench(LabelledSteps("p", ("a", "b"), (0.9, 0.2)))
    assert (soft.rows[0]["label"], soft.lost) == (1, ("soft labels",))
    later = write_processbench(LabelledSteps("p", ("a", "b", "c"), (0, 1, 0)))
    assert later.lost == ("labels other than 0 behind the first error",)
    negative = write_processbench(LabelledSteps("p", ("a", "b"), (0, 0)))
    assert (negative.lost, negative.notes) == ((), ("labels 0 behind the first error are not written",))
    for labels in ((1, IGNORED), (IGNORED, 0)):
        with pytest.raises(ValueError, match="first wrong step is not known"):
            write_processbench(LabelledSteps("p", ("a", "b"), labels))
    with pytest.raises(ValueError, match="nothing to write"):
        write_processbench(LabelledSteps("p", ("a", "b")))


def test_a_field_that_would_be_overwritten_is_refused() -> None:
    with pytest.raises(ValueError, match="field 'label' of the row means something else"):
        write_processbench(only(read_trl(TRL | {"label": "x"})))


# --- SimpleRL, runs


def test_simplerl_problems() -> None:
    chat = "<|im_start|>system\nBox it.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant"
    row = {"input": chat, "answer": "4", "gt_answer": "4", "subject": "Algebra", "level": 5, "target": "4"}
    converted = read_simplerl(row, source="s.json")
    assert converted.rows == (Problem.create("What is 2 + 2?", "4", source="s.json", topic="Algebra"),)
    assert converted.rows[0].level is None  # difficulty is no number of steps
    assert converted.notes == ("field 'level' is not kept", "chat template taken off 'input'")
    asked = read_simplerl({"input": chat, "question": "Two?", "gt_answer": 4}, source="s").rows[0]
    assert (asked.text, asked.answer) == ("Two?", "4")


def test_L70_simplerl_gold_is_gt_answer_and_a_difference_is_counted() -> None:
    converted = read_simplerl({"input": "Q", "answer": "so $x=8$, hence 64", "gt_answer": "64"}, source="s")
    assert converted.rows[0].answer == "64"
    assert converted.notes == ("gold answers differ: 'gt_answer' kept",)
    with pytest.raises(ValueError, match="no gold answer"):
        read_simplerl({"input": "Q", "gt_answer": ""}, source="s")


def test_paths_of_a_run_reach_every_format() -> None:
    problem = Problem("p", "What?", "4", "s", "t")
    one = from_labelled_path(labelled_path((1, 0, 0), Verdict.WRONG), problem)
    bench = write_processbench(one)
    assert (bench.rows[0]["label"], bench.rows[0]["final_answer_correct"], bench.rows[0]["id"]) == (1, False, "path-1")
    assert write_trl(one).rows[0]["completions"] == ["a", "b", "c"]
    assert write_math_shepherd(one).rows[0]["label"] == "What? Step 1: a +\nStep 2: b -\nStep 3: c -"
    assert "final_answer_correct" not in from_labelled_path(labelled_path((1,), Verdict.TIMEOUT), problem).extra

"""Math-Shepherd rows: tags and signs, what the format loses, public faults of such data."""

from __future__ import annotations

import pytest
from format_rows import SHEPHERD, only

from common.records import IGNORED
from data_gen.math_shepherd import read_math_shepherd, write_math_shepherd
from data_gen.stepwise import (
    LabelledSteps,
)


def test_math_shepherd_by_hand_and_round_trip() -> None:
    one = only(read_math_shepherd(SHEPHERD))
    assert one.problem == "What is 2 + 3 * 4?"
    assert one.steps == ("Step 1: 3 * 4 = <<3*4=12>>12.", "Step 2: 2 + 12 = 15. The answer is: 15")
    assert (one.labels, one.first_error, one.extra) == ((1.0, 0.0), 1, {"task": "GSM8K"})
    assert only(write_math_shepherd(one)) == SHEPHERD


def test_L58_L59_tags_and_signs_must_match_one_to_one() -> None:
    text = SHEPHERD["label"]
    for label, seen in (
        (text[:-1], "''"),  # the last sign is missing
        (text.replace("+\n", "ки\n").replace("15 -", "15 ки"), None),  # no sign at all: the letters are text
        (text + " +", "' \\+'"),
        (text.replace("<<3*4=12>>12", "12"), "differs from 'input'"),
        (text[:-1] + "0", "'0'"),
    ):
        with pytest.raises(ValueError, match=seen or "no step tag"):
            read_math_shepherd(SHEPHERD | {"label": label})


def test_openr25_spaces_around_the_tag_hide_nothing() -> None:
    row = {"input": "Q? Step 1: aки\n\n  Step 2: b   ки ", "label": "Q? Step 1: a+\n\n  Step 2: b   - "}
    one = only(read_math_shepherd(row))
    assert (one.problem, one.steps, one.labels) == ("Q?", ("Step 1: a", "Step 2: b"), (1.0, 0.0))


def test_L62_letters_of_the_tag_in_a_text_are_no_tag() -> None:
    """The label repeats letters that are text; a look-alike in Latin letters is no tag either."""
    row = {"input": "В руки? Step 1: руки kи ки", "label": "В руки? Step 1: руки kи +"}
    one = only(read_math_shepherd(row))
    assert (one.problem, one.steps, one.labels) == ("В руки?", ("Step 1: руки kи",), (1.0,))
    with pytest.raises(ValueError, match="holds the step tag"):
        write_math_shepherd(one)
    with pytest.raises(ValueError, match="differs from 'input'"):
        read_math_shepherd({"input": "Q? Step 1: a kи", "label": "Q? Step 1: a +"})


def test_tag_inside_the_problem_is_taken_out_with_its_label() -> None:
    """Annotation errors of the published rows, e.g. the one about Mr. Rocky."""
    row = {
        "input": "He runs. ки\nHow far? Step 1: a ки\nStep 2: b ки",
        "label": "He runs. -\nHow far? Step 1: a +\nStep 2: b -",
    }
    converted = read_math_shepherd(row)
    assert converted.notes == ("step tag inside the problem: taken out with its label",)
    (one,) = converted.rows
    assert (one.problem, one.steps, one.labels) == ("He runs. How far?", ("Step 1: a", "Step 2: b"), (1.0, 0.0))


def test_solution_without_step_1_begins_behind_the_question() -> None:
    row = {"input": "Is it? So: a ки\nStep 2: as in step 1: b ки", "label": "Is it? So: a +\nStep 2: as in step 1: b -"}
    converted = read_math_shepherd(row)
    assert converted.notes == ("no 'Step 1:': the problem ends at its last question mark",)
    assert (converted.rows[0].problem, converted.rows[0].steps) == ("Is it?", ("So: a", "Step 2: as in step 1: b"))
    with pytest.raises(ValueError, match="where do the steps begin"):
        read_math_shepherd({"input": "Tell me. a ки", "label": "Tell me. a +"})


def test_L62_text_behind_the_last_tag_becomes_a_step_without_label() -> None:
    cut = read_math_shepherd({"input": "Q? Step 1: a ки\nStep 2: b", "label": "Q? Step 1: a +\nStep 2: b"})
    assert (cut.rows[0].labels, len(cut.notes)) == ((1.0, IGNORED), 1)
    again = write_math_shepherd(cut.rows[0])
    assert again.lost == ("steps behind the last label",)
    assert again.rows[0]["input"] == "Q? Step 1: a ки"


def test_math_shepherd_says_what_it_loses() -> None:
    one = LabelledSteps("Q", (" a", "b", "c"), (0.9, 0.4, IGNORED))
    written = write_math_shepherd(one)
    assert written.lost == ("soft labels", "steps behind the last label", "white space around a text")
    assert written.notes == ("step numbers were added",)
    assert written.rows[0] == {"input": "Q Step 1: a ки\nStep 2: b ки", "label": "Q Step 1: a +\nStep 2: b -"}
    with pytest.raises(ValueError, match="step 0 has no label, but a later step has"):
        write_math_shepherd(LabelledSteps("Q", ("a", "b"), (IGNORED, 1)))
    with pytest.raises(ValueError, match="would not read back"):
        write_math_shepherd(LabelledSteps("Q", ("Step 1: so Step 1: is", "b"), (1, 1)))

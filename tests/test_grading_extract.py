"""Where a solution states its answer."""

from __future__ import annotations

import time

import pytest

from common.records import Verdict
from grading.equivalence import grade_completion
from grading.extract import extract
from grading.statements import last_sentence, stated_value

RIGHT, WRONG, UNPARSED = Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSED


@pytest.mark.parametrize(
    ("text", "answer", "how"),
    [
        ("so \\boxed{5}, no, \\boxed{7}.", "7", "box"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "box"),
        ("<think>\\boxed{3}</think> \\boxed{4}", "4", "box"),
        ("\\boxed{4} <think> maybe \\boxed{5}", "4", "box"),
        ("\\boxed{5} then \\boxed{", "5", "box"),
        ("\\boxed{\\text{a } \\boxed{6}}", "\\text{a } \\boxed{6}", "box"),
        ("x\n#### 1,234\n", "1,234", "marker"),
        ("Answer: 12", "12", "phrase"),
        ("The answer: 5. No, answer: 6", "6", "phrase"),
        ("**Answer:** 4", "4", "phrase"),
        ("**Answer:**\n\n4", "4", "phrase"),
        ("The final answer is $x = 3$.", "x = 3", "phrase"),
        ("First 6*7.\n42", "42", "line"),
        ("x = 3", "x = 3", "line"),
        ("The total is 72 clips.", "72 clips", "statement"),
        ("3*4=12", None, "none"),
        ("2n = -12", None, "none"),
        ("we know 72 clips were there", None, "none"),
        ("", None, "none"),
    ],
)
def test_extract(text, answer, how):
    found = extract(text)
    assert (found.answer, found.how) == (answer, how)
    assert 0 <= found.start <= found.end <= len(text)


def test_answer_span_begins_at_the_box_or_at_the_start_of_the_answer_line():
    for text, start in (
        ("a\nAnswer: 5", 2),
        ("a\nSo x is $\\boxed{5}$.", 10),
        ("a\nThe answer is $\\boxed{5}$.", 2),
        ("a\n#### 5", 2),
        ("a\n42", 2),
        ("no answer here", 14),
    ):
        assert extract(text).start == start, text


@pytest.mark.parametrize("tail", [0, 299, 301, 5000])
def test_l10_a_long_tail_hides_no_answer(tail):
    assert grade_completion("#### 42\n" + "x" * tail, "42").verdict is RIGHT


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("So, after 10 years and after 30% of the trees die, Tom has 91 trees left.", "91"),
        ("Therefore, if he spent 2 hours of each day working, he would earn $140 in one week.", "$140"),
        ("Thus he can run the 400-meter hurdles in 36 seconds.", "36"),
        ("So Bill is now on the 18th floor.", "18"),
        ("So Tracy obtained 8 pieces of wire that are 6 inches long each.", "8"),
        ("So a 42 kg bag of rice will last for 3 weeks.", "3"),
        ("So the cost of 8 pens is \\(\\$12.00\\).", "\\$12.00"),
        ("Therefore it takes \\(12 + 1 = 13\\) years in total.", "13"),
        ("Therefore, Mrs. Lane used $3200 to buy the seeds.", "$3200"),
        ("So, 21 melons were not ready.", "21"),
        ("So the number of girls who are not in the club is **40**.", "40"),
        ("So it is not 40.", None),
        ("So it is 5 or 6.", None),
        ("So we still need to add 5.", None),
        ("So 3 of the 5 went.", None),
        ("So the probability is \\frac{1}{2} of 6.", None),
        ("He has 5 cards and Ann has 6.", None),
    ],
)
def test_the_value_a_last_sentence_states(sentence, value):
    assert stated_value(last_sentence(sentence)) == value


def test_a_numbered_heading_is_no_answer_marker():
    text = "#### 4. Solve for S\nS = 8\nSo, the small pool holds 8 gallons."
    assert extract(text).answer == "8"
    assert extract("#### Step 2: add\n3 + 4 = 7").answer is None
    assert extract("## Final Answer\nThe hospital makes a profit of $10,000 from these visits.").answer == "$10,000"


def test_l11_a_mention_is_no_answer():
    assert grade_completion("We know 72 clips were mentioned, but I can not finish.", "72").verdict is UNPARSED
    assert grade_completion("The answer is 1, 2, 3, 4, 5, 6, 7, 8, 9.", "7").verdict is WRONG


def test_l12_no_thinking_tags_are_needed():
    assert all(grade_completion(f"It is $\\boxed{{{k}}}$.", str(k)).verdict is RIGHT for k in range(8))


def test_l03_a_very_long_completion_takes_no_time():
    started = time.process_time()
    for text in (
        "a = 1. " * 20_000,
        "{" * 140_000,
        "\\boxed{" * 20_000,
        "$" * 140_000,
        "Answer: " * 17_000,
        "1" * 140_000,
    ):
        assert grade_completion(text, "5").verdict is not RIGHT
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So we get\n\\[\nx = 5\n\\]", "x = 5"),
        ("Thus\n$$\n\\frac{1}{2}\n$$", "\\frac{1}{2}"),
        ("**Final Answer**\n\n\\[ 5 \\]", "5"),
        ("The answer is\n\\[\n5\n\\]\nDone.", "5"),
        ("Step 3:\n\\[ 3 \\times 4 = 12 \\]", None),
        ("Add:\n$$\n3+4=7\n$$", None),
        ("So it is not\n\\[ 5 \\]", None),
    ],
)
def test_a_displayed_formula_at_the_end_is_an_answer_when_it_concludes(text, answer):
    assert extract(text).answer == answer


@pytest.mark.parametrize(
    "unit", ["answer ", "#### ", "\\[ 1 ", "$$", "So \\[ 1 ", "a: ", "answer is ", "#### 4. a\n", "answer" + " " * 99]
)
def test_l03_extraction_takes_linear_time(unit):
    text = unit * (140_000 // len(unit))
    started = time.process_time()
    extract(text)
    assert time.process_time() - started < 1

"""Measures of quality by hand: completeness, redundancy, clarity, detail."""

import dataclasses
import time

import pytest

from common.quality_settings import MEASURES
from prm.quality.derivation import Number, edges, has_source, one_operation, share_found, step_values
from prm.quality.measures import (
    Quality,
    clarity_of_steps,
    deriving_steps,
    detail,
    new_facts,
    novelty_of_steps,
    quality_of,
)

PENS = "Tom has 3 boxes of 4 pens and gets 5 more."
WHOLE = ["3*4=12", "12+5=17"]


def counts(problem, steps, answer):
    return [dataclasses.astuple(edge)[::-1] for edge in edges(problem, steps, answer)]


# ---- completeness ----


@pytest.mark.parametrize(
    ("steps", "answer", "wanted"),
    [
        (WHOLE, "17", [(3, 3), (3, 3), (1, 1)]),
        (["12+5=17"], "17", [(2, 3), (1, 1)]),  # 12 is used and never derived
        (["3*4=12"], "17", [(2, 3), (0, 1)]),  # 12 is derived and never used, 17 is answered and never derived
        (["12+5=17", "3*4=12"], "17", [(2, 3), (2, 2), (1, 1)]),  # too late
        (["He has 3 x 4 = 12 pens.", "He gets 5 more, so 12 + 5 = 17."], "17", [(3, 3), (4, 4), (1, 1)]),
        (["He has 12 pens because 3 * 4 = 12.", "12+5=17"], "17", [(4, 4), (3, 3), (1, 1)]),  # 12 = 3 * 4, early
        (["3*4=13", "13+5=18"], "18", [(3, 3), (3, 3), (1, 1)]),  # false, and nothing is missing
        (["Then he has 12 pens", "and 5 more make 17"], "17", [(1, 2), (3, 3), (1, 1)]),  # no use of 12 is shown
        (["Let x be the pens", "x=3*4+5"], "17", [(0, 0), (1, 1), (0, 1)]),
        ([], "17", [(0, 1)]),
        (WHOLE, None, [(3, 3), (3, 3), (0, 0)]),  # no answer: the last step is where the path ends
        (WHOLE, "many", [(3, 3), (3, 3), (0, 0)]),
    ],
)
def test_edges_by_hand(steps, answer, wanted):
    assert counts(PENS, steps, answer) == wanted


def test_completeness_is_the_share_of_edges():
    assert share_found(edges(PENS, WHOLE, "17")) == 1
    assert share_found(edges(PENS, WHOLE[1:], "17")) == pytest.approx(3 / 4)
    assert share_found(edges(PENS, WHOLE[:1], "17")) == pytest.approx(2 / 4)
    assert share_found(edges("Why?", ["Because."], None)) is None


def test_long_division_brings_digits_down_and_is_answered_by_its_quotients():
    steps = ["9=1*5+4", "44=8*5+4", "49=9*5+4"]
    problem = "Find the quotient of 949 by 5."
    assert share_found(edges(problem, steps, "189")) == 1
    assert share_found(edges(problem, [steps[0], steps[2]], "189")) < 1
    assert share_found(edges(problem, steps, "188")) < 1


@pytest.mark.parametrize(
    ("number", "known", "wanted"),
    [
        (Number(12), {12}, True),
        (Number(12), {13}, False),
        (step_values("20%").results[0], {20}, True),
        (step_values("0.8 left").results[0], {20}, False),
        (step_values("0.8 left").results[0], {step_values("0.2").results[0].value}, True),  # what 20 % off leaves
        (step_values("24/2 = 12").used[0], {24, 2}, True),  # a division of two known values
        (step_values("24/2 = 12").used[0], {24}, False),
        (step_values("24/2 = 12").used[0], {24, step_values("1/2").results[0].value}, True),  # half of it
    ],
)
def test_sources_of_a_number(number, known, wanted):
    assert has_source(number, known) is wanted


def test_fractions_in_a_calculation_state_their_value_and_in_prose_their_parts_too():
    assert step_values("3/4 of them").results[0].stated >= {3, 4}
    assert step_values("3/4*2=6/4").used[0].stated == {step_values("0.75").results[0].value}


def test_one_operation():
    assert one_operation(7, {3, 4})
    assert one_operation(1, {3, 4})
    assert not one_operation(24, {2, 3})


# ---- redundancy ----


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        ("3*4=12", 0),
        ("4 * 3 = 12.0", 0),  # turned round, another format
        ("12+5=17", 1),
        ("12-3=9", 1),
        ("In other words, 3*4 = 12 pens", 1),  # new words that the bare equation lacks
        ("Tom gets 5 more", 0),  # a sentence of the problem
        ("So then", 1),  # nothing that could be repeated
    ],
)
def test_a_step_that_says_it_again(step, wanted):
    assert novelty_of_steps(PENS, ["3*4=12", step])[1] == wanted


def test_paraphrases_of_prose():
    first = "She makes 9 * 2 = 18 dollars every day at the market."
    again = ["That is, she makes 2 * 9 = 18.0 dollars every day.", "She makes 18 dollars at the market."]
    other = ["She makes 9 * 2 = 18 cakes with Ann.", "She keeps 18 - 2 = 16 dollars every day."]
    for step in again:
        assert novelty_of_steps("How much?", [first, step]) == [1, 0]
    for step in other:
        assert novelty_of_steps("How much?", [first, step]) == [1, 1]


# ---- clarity and detail ----


def test_new_facts_by_hand():
    assert new_facts(PENS, [*WHOLE, "12+5=17", "17 pens", "2x=2x+0", "so 1+7=8 and 8+1=9"]) == [1, 1, 0, 0, 1, 2]
    assert deriving_steps(PENS, [*WHOLE, "12+5=17"]) == 2


def test_clarity_by_hand():
    def one(step):
        return clarity_of_steps(PENS, [step])[0]

    assert one("3*4=12") == 1
    assert one("So he has 3*4=12 pens.") == pytest.approx(12 / (12 + 4))
    filler = one("So he has 3*4=12 pens. It goes on as it should.")  # 6 idle words of 10
    assert filler == pytest.approx(12 / (12 + 10) * (1 - 6 / 10))
    assert one("It goes on as it should.") == 0
    assert one("3*4=12. 12+5=17. 17+1=18. 18+1=19") == pytest.approx(2 / 4)  # 4 facts in a step
    assert one("Let x be the number of pens") == pytest.approx(12 / (12 + 6))


def test_detail_is_two_sided():
    assert [detail(n, 4) for n in (0, 1, 2, 4, 8, 16)] == [0, 0.25, 0.5, 1, 0.5, 0.25]
    assert detail(1, 0) == 1


def test_the_record_of_a_path():
    found = quality_of(PENS, WHOLE, "17", usual=2, coherence=0.9)
    assert found == Quality(completeness=1, redundancy=1, coherence=0.9, clarity=1, detail=1)
    assert [found.value(name) for name in MEASURES] == [1, 1, 0.9, 1, 1]
    assert quality_of(PENS, [], "17", usual=2) == Quality()
    assert quality_of(PENS, WHOLE, "17", usual=None).detail is None
    with pytest.raises(ValueError, match="quality measure 'charm': want one of completeness"):
        found.value("charm")


def test_hostile_text_is_read_in_bounded_time():
    texts = ["1+" * 50_000, "=" * 50_000, "9" * 100_000, "\\frac{1}{2}" * 9_000, "a b " * 25_000, "1/0=" * 20_000]
    started = time.process_time()
    for text in texts:
        for name in ("completeness", "redundancy", "clarity", "detail"):
            value = quality_of(PENS, [text] * 3, "17", usual=3).value(name)
            assert value is None or 0 <= value <= 1
    assert time.process_time() - started < 10

"""What steps of real text claim, and what supports it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from common.records import FinishReason, Path, Verdict, content_id
from data_gen.claims import arrived_at, claims, given_values, mentioned, stated_last
from data_gen.labels import LabelSettings, label_paths, refusal
from data_gen.steps import cut_steps
from data_gen.support import Support, ValueSupport

VALUES = LabelSettings(sources=("frequency",), keys="values")
PROBLEM = "Naomi caught 17 fish, Darren 6 fewer and Tommy 3 more than Darren. How many did Tommy catch?"


def path(text: str, verdict: Verdict = Verdict.CORRECT, problem: str = "p") -> Path:
    name = content_id(problem, text, verdict)
    return Path(problem, name, text, (), tuple(cut_steps(text)), None, verdict, FinishReason.STOP)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Darren caught 17 - 6 = <<17-6=11>>11 fish.", 11),
        (r"\[ 10 \times \frac{1}{4} = \frac{5}{2} \text{ cups} \]", Fraction(5, 2)),
        (r"So the total is \boxed{1,250}.", 1250),
        ("2. **Sum the two amounts**", None),
        ("Step 3: the cost is $18.50 = 18.50 dollars", Fraction(37, 2)),
        ("She sold 6 copies for a total of $3.0 = $3", 3),
        ("Let x be the number of fish.", None),
        (r"\[ x = -5 \]", 5),
    ],
)
def test_value_a_step_arrives_at(text, value):
    assert arrived_at(text) == value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("3-8=-5", [-5]),
        ("x = - 5", [-5]),
        ("2*3-5", [5]),  # a difference
        ("84=2*36+12", [2, 36, 12]),
        ("7+7=14, so 7", [14, 7]),
        ("1/2+1/3=5/6", [Fraction(5, 6)]),
        ("He has 12 pens and 5 more", [5]),
        ("He owes -4", [-4]),
        ("n=none, 5", [5]),
        ("x = y", []),
        ("", []),
    ],
)
def test_values_a_step_states_last(text, values):
    assert list(stated_last(text)) == values


def test_numbers_of_a_problem_are_digits_and_words():
    assert {17, 6, 3} <= given_values(PROBLEM)
    assert {Fraction(1, 2), 12, 7} <= given_values("Half a dozen eggs last two weeks.")
    assert mentioned("50% of it") == {50, Fraction(1, 2)}


def test_restating_claims_nothing_and_a_value_is_new_once():
    steps = ["Let D be the fish of Darren.", "Naomi caught 17 fish.", "17 - 6 = 11", "Darren has 11.", "11 + 3 = 14"]
    found = claims(PROBLEM, steps)
    assert [claim.kind for claim in found] == ["none", "given", "value", "given", "value"]
    assert [claim.value for claim in found] == [None, None, 11, None, 14]


def test_another_order_and_another_wording_support_a_value():
    pool = ValueSupport(
        "A costs 4 and B costs 7, twice each.", [["4*2 = 8", "7*2 = 14", "8+14 = 22"], ["4+7=11", "22"]]
    )
    assert pool.supports(["B costs 14 dollars.", "A costs 9 dollars."], is_own=False) == [
        Support(1, 0, "value"),
        Support(0, 0, "value"),
    ]
    assert pool.supports(["4+7=11", "That is 22."], is_own=True) == [Support(0, 0, "value"), Support(1, 0, "value")]


def test_setup_phrases_are_never_wrong_in_a_correct_path():
    setup = "Let's break it down.\nLet x be the fish of Tommy.\nNaomi caught 17 fish.\n17-6=11\n11+3=14"
    other = "17-6=11\n11+3=14"
    for settings in (VALUES, LabelSettings(), LabelSettings(keys="values", rule="backward")):
        labelled, summary = label_paths([path(setup), path(other)], settings, {"p": PROBLEM})
        assert labelled[0].labels == (1, 1, 1, 1, 1)
        assert summary.left_one_out == 7
    assert label_paths([path(setup), path(other)], VALUES, {"p": PROBLEM})[1].unsupported_in_correct == 0


def test_setup_phrases_are_not_the_first_error_of_a_wrong_path():
    wrong = path("Let's break it down.\nNaomi caught 17 fish.\nDarren caught 17+6=23 fish.\n23+3=26", Verdict.WRONG)
    labelled, _ = label_paths([path("17-6=11\n11+3=14"), wrong], VALUES, {"p": PROBLEM})
    assert (labelled[1].first_error, labelled[1].labels) == (2, (1, 1, 0, 0))
    assert labelled[1].keys == ("none", "given", "value", "value")


def test_support_is_refused_where_the_pool_does_not_bear_it():
    paths = [path("17-6=11\n11+3=14"), path("6-3=3\nminus 3 is 20\n14")]
    _, summary = label_paths(paths, VALUES, {"p": PROBLEM})
    assert (summary.unsupported_in_correct, summary.left_one_out) == (pytest.approx(2 / 5), 5)
    assert "40.0% of 5 steps" in (refusal(summary, VALUES, 0.05) or "")
    assert refusal(summary, VALUES, 0.4) is None
    assert refusal(summary, LabelSettings(sources=("arithmetic",)), 0.05) is None


def test_values_need_the_problem():
    with pytest.raises(ValueError, match="texts of the problems"):
        label_paths([path("1+1=2")], VALUES)

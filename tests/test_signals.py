"""The signals reward: weights and each signal by hand."""

import dataclasses
import math

import pytest
from signal_toys import DEFAULT, PENS, RIGHT, path_of, signals_of, values

from common.config import load_config
from common.errors import InputError
from common.records import FinishReason, Verdict
from common.signal_settings import SIGNALS, SignalSettings
from policy.options import PolicySettings
from policy.rewards import PenaltyWeights, outcome_rewards
from policy.signals import (
    Signals,
    StepNumbers,
    answer_format,
    consistency,
    correctness,
    depth,
    grounding,
    group_signals,
    length_in_range,
    parsable,
    step_numbers,
)

# ---- weights ----


def test_default_weights_are_those_of_the_configuration():
    settings = load_config("configs/tiny.yaml").ppo.signal_settings
    assert settings == DEFAULT
    assert [getattr(settings, name) for name in SIGNALS] == [0.5, 0.1, 0.1, 0.1, 0.08, 0.07, 0.03, 0.02]
    assert (settings.least_right, settings.most_wrong) == (pytest.approx(0.57), pytest.approx(0.55))


def test_reward_is_the_weighted_sum():
    signals = Signals(*(k / 10 for k in range(1, 9)))
    by_hand = 0.05 + 0.02 + 0.03 + 0.04 + 0.04 + 0.042 + 0.021 + 0.016
    assert signals.reward(DEFAULT) == pytest.approx(by_hand)
    assert signals.around_the_answer(DEFAULT) == pytest.approx(by_hand - 0.05 - 0.042)
    assert Signals(*[1.0] * 8).reward(DEFAULT) == pytest.approx(1)
    assert Signals().reward(DEFAULT) == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ppo.signal_depth=0.2", "the weights of the eight signals must sum to 1, got 1.1"),
        ("ppo.signal_depth=0.05", "the weights of the eight signals must sum to 1, got 0.95"),
        ("ppo.signal_near=0.14", "a wrong answer could earn 0.57 and a right one only 0.57"),
        ("ppo.signal_short=0.95", "short 0.95 must not be above long 0.9"),
        ("ppo.signal_depth=-1", "greater than or equal to 0"),
        ("ppo.reward=outcome", "'process' or 'signals'"),
        ("ppo.signal_deepth=0.1", "the closest known key is 'ppo.signal_depth'"),
    ],
)
def test_weights_that_do_not_hold_are_refused(override, message):
    with pytest.raises(InputError, match=message):
        load_config("configs/tiny.yaml", [override])


def test_weights_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match=r"signal setting near must be in \[0, 1\], got nan"):
        SignalSettings(near=math.nan)


def test_signals_and_a_critic_of_steps_exclude_each_other():
    with pytest.raises(ValueError, match="signals with baseline = 'gae' is not served; wanted another one"):
        PolicySettings(signals=DEFAULT, baseline="gae")


# ---- each signal by hand ----


def test_a_sound_path_earns_everything():
    assert values(signals_of(PENS, RIGHT)) == [1.0] * 8


def test_a_false_last_step_by_hand():
    """12 + 5 = 18: refuted, so not consistent; its 3 numbers of 6 are not grounded, 1 step of 2 derives; 1/17 off."""
    found = signals_of(PENS, "3*4=12\n12+5=18\nAnswer: 18")
    assert found.correctness == pytest.approx(0.1 * math.exp(-10 / 17))
    assert (found.consistency, found.depth, found.grounding) == (0, 0.5, 0.5)
    assert (found.format, found.parsable, found.length, found.repetition) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("answer", "gold", "wanted"),
    [
        ("18", "17", 0.1 * math.exp(-10 / 17)),
        ("16", "17", 0.1 * math.exp(-10 / 17)),
        ("1/2", "0.75", 0.1 * math.exp(-2.5)),  # below 1 the error is absolute
        ("1", "0", 0.1 * math.exp(-10)),
        ("#### 90", "#### 100", 0.0),  # no answer is written so
        ("90", "so 50+50\n#### 100", 0.1 * math.exp(-1)),
        ("17%", "17", 0.1),  # the value, and yet wrong
        ("-17", "17", 0.1 * math.exp(-20)),
        ("1e300", "17", 0.0),
        ("9^9^9^9", "17", 0.0),
        ("1/0", "17", 0.0),
        ("nan", "17", 0.0),
        ("NaN", "nan", 0.0),
        ("\\infty", "17", 0.0),
        ("inf", "17", 0.0),
        ("x+1", "x+2", 0.0),
        ("\\sqrt{2}", "1.5", 0.0),
        ("", "17", 0.0),
        (None, "17", 0.0),
        ("18", "", 0.0),
    ],
)
def test_correctness_of_wrong_answers(answer, gold, wanted):
    assert correctness(answer, False, gold, 0.1) == pytest.approx(wanted, abs=1e-12)
    assert correctness(answer, False, gold, 0.0) == 0


def test_a_right_answer_is_right_whatever_it_looks_like():
    assert correctness("x+x", True, "2x", 0.1) == 1
    assert parsable("x+x", True, "2x") == 1
    assert signals_of(PENS, "Answer: ١٧").correctness == 1  # Arabic digits, which the grader reads


@pytest.mark.parametrize(
    ("answer", "gold", "wanted"),
    [("18", "17", 1), ("nan", "17", 0), ("many", "17", 0), ("12, 17", "17", 0), ("x+1", "x+2", 1), (None, "x", 0)],
)
def test_parsable(answer, gold, wanted):
    assert parsable(answer, False, gold) == wanted


@pytest.mark.parametrize(
    ("answer", "steps", "wanted"),
    [
        ("17", ["3*4=12", "12+5=17"], 1),
        ("12", ["3*4=12", "12+5=17"], 0),
        ("5", ["12+5=17"], 0),
        ("17", ["12+5=17", "That is for 3 boxes"], 1),  # the last step that computes
        ("12", ["36=3*12+0"], 1 / 3),  # a division line: quotient, divisor and remainder
        ("7", ["x=1 2 3 4 5 6 7 8 9 10"], 1 / 10),  # listing pays little
        ("17", ["So he has 12 and 5, together 17 pens"], 1),
        ("12", ["So he has 12 and 5, together 17 pens"], 0),
        ("18", ["12+5=18"], 0),  # refuted
        ("-5", ["3-8=-5"], 1),
        ("5", ["3-8=-5"], 0),
        ("0.5", ["2/4=1/2"], 1),
        ("x = 7", ["x=7"], 1),
        ("\\sqrt{2}", ["x=\\sqrt{2}"], 1),
        ("17", [], 0),
        ("17", ["no number"], 0),
        (None, ["12+5=17"], 0),
    ],
)
def test_consistency(answer, steps, wanted):
    assert consistency(answer, steps) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (["3*4=12", "12+5=17"], [(3, 3, True), (3, 3, True)]),
        (["3*4=12", "3*4=12"], [(3, 3, True), (3, 3, False)]),  # a copy derives nothing
        (["3*4=12", " 3 * 4 = 12"], [(3, 3, True), (3, 3, False)]),
        (["99"], [(1, 0, False)]),  # from nowhere
        (["99", "99+1=100"], [(1, 0, False), (3, 0, True)]),  # true, about nothing
        (["3*4=13", "13+5=18"], [(3, 0, False), (3, 1, True)]),  # what a false equation says is not known later
        (["13+5=18"], [(3, 1, True)]),
        (["3+4+5=12"], [(4, 4, True)]),  # the left side is known, and the equation holds
        (["30=29+1"], [(3, 1, True)]),  # neither side is; 1 = 4 - 3
        (["Then 12 pens"], [(1, 1, True)]),  # 3*4
        (["Then 12 pens", "and 5 make 17"], [(1, 1, True), (2, 2, True)]),
        (["3=3"], [(1, 1, False)]),
        (["the pens"], [(0, 0, False)]),
        (["1. 3*4=12"], [(3, 3, True)]),  # a list head is no number
        (["3^2=9"], [(3, 3, True)]),
        (["3^2=10"], [(3, 0, False)]),
        (["3^200=97"], [(3, 1, False)]),  # too costly to look at
    ],
)
def test_step_numbers(steps, wanted):
    assert [dataclasses.astuple(one) for one in step_numbers(PENS.text, steps)] == wanted


def test_step_numbers_of_a_division():
    """84 and 36 are given; each line has a known left side, so quotient and remainder are grounded."""
    found = step_numbers("Find the gcd of 84 and 36.", ["84=2*36+12", "36=3*12+0", "36=2*12+12"])
    assert [dataclasses.astuple(one) for one in found] == [(4, 4, True), (4, 4, True), (3, 3, True)]


def test_numbers_beyond_the_limit_count_as_not_grounded():
    problem = " ".join(map(str, range(100)))
    (found,) = step_numbers(problem, [problem])
    assert (found.total, found.grounded) == (100, 24)


def test_depth_and_grounding_by_hand():
    numbers = [StepNumbers(3, 3, True), StepNumbers(2, 0, False), StepNumbers(3, 1, True)]
    assert grounding(numbers) == pytest.approx(4 / 8)
    assert grounding([StepNumbers(0, 0, False)]) == 0
    assert depth(numbers, 4) == pytest.approx(2 / 4)
    assert depth(numbers, None) == pytest.approx(2 / 5)
    assert depth(numbers, 100) == pytest.approx(2 / 5)
    assert depth(numbers, 1) == 1  # more than usual earns nothing
    assert depth(numbers, 0) == 1
    assert depth([], 2) == 0


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (RIGHT, 1),
        ("3*4=12\nSo it is $\\boxed{17}$.", 1),
        ("3*4=12\n#### 17\n", 1),
        ("Answer: 17\nI hope it is.", 0.5),
        ("\\boxed{17} as everyone knows", 0.5),
        ("Answer: 12\nAnswer: 17", 0.5),
        ("\\boxed{12}\nAnswer: 13\nso \\boxed{17} or so", 0),
        ("3*4=12\n12+5=17", 0),  # an answer that is not announced
        ("He has 17 pens.", 0),
        ("", 0),
    ],
)
def test_answer_format(text, wanted):
    assert answer_format(text) == wanted


def test_length_in_range():
    def at(tokens, short=0.1, long=0.8):
        return length_in_range(tokens, 100, short, long)

    assert [at(0), at(5), at(10), at(80), at(90), at(100), at(150)] == pytest.approx([0, 0.5, 1, 1, 0.5, 0, 0])
    assert at(100, long=1.0) == 1
    assert at(101, long=1.0) == 0
    assert at(0, short=0.0) == 1


def test_repetition():
    assert signals_of(PENS, "3*4=12\n" * 4 + "Answer: 12").repetition == pytest.approx(
        1 / 4
    )  # copies: 3 of 4; 4-grams: 0.6
    assert signals_of(PENS, "1\n1\n1\n1\nAnswer: 12").repetition == pytest.approx(1 - 3 / 4)  # three copies of a step
    assert signals_of(PENS, RIGHT).repetition == 1


# ---- paths that have no answer ----


def test_a_truncated_path_has_no_answer():
    cut = signals_of(PENS, RIGHT, reason=FinishReason.LENGTH, tokens=100)
    assert (cut.correctness, cut.consistency, cut.format, cut.parsable, cut.length) == (0, 0, 0, 0, 0)
    assert (cut.depth, cut.grounding) == (1, 1)


def test_a_right_answer_without_the_steps_that_are_asked_for_has_no_answer():
    bare = signals_of(PENS, "Answer: 17", min_steps=1)
    assert values(bare)[:6] == [0] * 6
    assert signals_of(PENS, "Answer: 17").correctness == 1


def test_paths_that_do_not_count_have_no_signals():
    paths = [path_of(PENS, RIGHT), dataclasses.replace(path_of(PENS, RIGHT), verdict=Verdict.TIMEOUT)]
    found = group_signals(PENS, paths, outcome_rewards(paths, weights=PenaltyWeights()), DEFAULT, 100)
    assert found[0] is not None
    assert found[1] is None

"""Outcome rewards and penalties by hand."""

import dataclasses

import pytest

from common.records import FinishReason, Path, Step, Verdict
from policy.rewards import (
    PenaltyWeights,
    has_one_pattern,
    missing_steps,
    outcome_of,
    outcome_rewards,
    penalty_of,
    repeated_words,
    sentence_pattern,
    theorem_names,
    typical_steps,
)


def path_of(*step_texts, verdict=Verdict.WRONG, reason=FinishReason.STOP):
    steps = tuple(Step(text, 0, len(text)) for text in step_texts)
    return Path("problem", "path", "\n".join(step_texts), (5, 6), steps, "1", verdict, reason)


@pytest.mark.parametrize(
    ("verdict", "wanted"),
    [
        (Verdict.CORRECT, (1.0, True)),
        (Verdict.WRONG, (0.0, True)),
        (Verdict.UNPARSED, (0.0, True)),
        (Verdict.TIMEOUT, (0.0, False)),
        (Verdict.TOO_LONG, (0.0, False)),
        (Verdict.NO_GOLD, (0.0, False)),
    ],
)
def test_outcome_of_each_verdict(verdict, wanted):
    assert outcome_of(path_of("1+1=2", verdict=verdict)) == wanted


def test_L40_truncated_completions_have_outcome_0_or_do_not_count():
    cut = path_of("1+1=2", verdict=Verdict.CORRECT, reason=FinishReason.LENGTH)
    assert outcome_of(cut) == (0.0, True)
    assert outcome_of(cut, train_on_truncated=False) == (0.0, False)
    assert outcome_of(dataclasses.replace(cut, verdict=Verdict.NO_GOLD)) == (0.0, False)


def test_a_right_answer_behind_too_few_steps_earns_nothing_and_counts():
    bare, one = path_of(verdict=Verdict.CORRECT), path_of("1+1=2", verdict=Verdict.CORRECT)
    assert outcome_of(bare) == (1.0, True)
    assert outcome_of(bare, min_steps=1) == (0.0, True)
    assert outcome_of(one, min_steps=1) == (1.0, True)
    assert outcome_of(one, min_steps=2) == (0.0, True)
    assert outcome_of(path_of(verdict=Verdict.TIMEOUT), min_steps=1) == (0.0, False)
    rewards = outcome_rewards([bare, one], weights=PenaltyWeights(), min_steps=1)
    assert [reward.outcome for reward in rewards] == [0.0, 1.0]


def test_repeated_words_by_hand():
    """a b c d a b c d: 4-grams abcd bcda cdab dabc abcd: one of five occurred before."""
    assert repeated_words("a b c d a b c d") == pytest.approx(0.2)
    assert repeated_words("12 + 7 = 19\n19 * 3 = 57") == 0
    assert repeated_words("!!!!!!") == pytest.approx(2 / 3)  # three 4-grams, one kind
    assert repeated_words("one two three") == 0


def test_sentence_pattern_ignores_numbers_and_space_only():
    assert sentence_pattern("So  12.5 + 3 =\n15.5") == "so # + # = #"
    assert has_one_pattern(["1 + 2 = 3", "4 + 55 = 59", "6 + 7 = 13"])
    assert not has_one_pattern(["1 + 2 = 3", "4 * 55 = 220", "6 + 7 = 13"])
    assert not has_one_pattern(["1 + 2 = 3", "4 + 5 = 9"])  # two steps say nothing


def test_missing_steps_by_hand():
    assert missing_steps(2, None) == pytest.approx(3 / 5)
    assert missing_steps(2, 9) == pytest.approx(3 / 5)  # the floor is 5
    assert missing_steps(2, 4) == pytest.approx(1 / 2)  # or the problem's typical number
    assert missing_steps(6, 9) == 0
    assert missing_steps(0, 0) == 0


def test_typical_steps_are_those_of_correct_paths():
    right = [path_of(*"ab", verdict=Verdict.CORRECT), path_of(*"abcd", verdict=Verdict.CORRECT)]
    assert typical_steps([*right, path_of()], level=7) == 3.0
    assert typical_steps([path_of()], level=7) == 7
    assert typical_steps([path_of()], level=None) is None


def test_theorem_names():
    text = "By Fermat's little theorem and the Law of cosines, using Vieta's formula we get 3. This rule is good."
    assert "fermat's little theorem" in theorem_names(text)
    assert "vieta's formula" in theorem_names(text)
    assert theorem_names("1 + 2 = 3, so the answer is 3.") == set()


def test_penalties_by_hand():
    none = PenaltyWeights()
    wrong = path_of("1 + 1 = 3", "2 + 2 = 5", "3 + 3 = 7")
    assert penalty_of(wrong, none, typical=9) == 0
    assert penalty_of(wrong, PenaltyWeights(same_pattern=0.2), typical=9) == pytest.approx(0.2)
    assert penalty_of(wrong, PenaltyWeights(few_steps=0.5), typical=9) == pytest.approx(0.5 * 2 / 5)
    assert penalty_of(wrong, PenaltyWeights(bad_format=0.3), typical=9) == 0
    unparsed = path_of("hm", verdict=Verdict.UNPARSED)
    assert penalty_of(unparsed, PenaltyWeights(bad_format=0.3), typical=9) == pytest.approx(0.3)
    echo = path_of("a b c d a b c d")
    assert penalty_of(echo, PenaltyWeights(repeated_ngrams=1.0), typical=9) == pytest.approx(0.2)


def test_theorem_never_seen_in_a_correct_path_is_penalised():
    weights = PenaltyWeights(unknown_theorem=0.4)
    text = "By Gumby's theorem it is 3"
    assert penalty_of(path_of(text), weights, typical=None) == pytest.approx(0.4)
    assert penalty_of(path_of(text), weights, typical=None, known_theorems={"gumby's theorem"}) == 0
    assert penalty_of(path_of(text, verdict=Verdict.CORRECT), weights, typical=None) == 0


def test_rewards_of_a_problem():
    paths = [
        path_of(*"abcd", verdict=Verdict.CORRECT),
        path_of("a", verdict=Verdict.WRONG),
        path_of(verdict=Verdict.TIMEOUT),
    ]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(few_steps=1.0))
    assert [reward.reward for reward in rewards] == pytest.approx([1.0, -0.75, 0.0])
    assert [reward.is_counted for reward in rewards] == [True, True, False]
    assert rewards[2].penalty == 0


def test_weights_are_checked():
    with pytest.raises(ValueError, match=r"penalty bad_format must be in \[0, 1\], got 2"):
        PenaltyWeights(bad_format=2)

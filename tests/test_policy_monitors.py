"""Monitors: each rule by hand, on either side of its limit."""

import dataclasses
import json

import pytest

from policy.monitors import (
    BatchFacts,
    Limits,
    Monitors,
    above,
    adapted_kl_coef,
    batch_alarms,
    flat_accuracy,
    lost_steps,
)

GOOD = BatchFacts(
    kl=0.01,
    repeated_ngrams=0.01,
    mean_steps=5.0,
    fallback_share=0.0,
    truncated_share=0.1,
    unparsed_share=0.1,
    reward_mean=0.4,
    equal_group_share=0.2,
)


def batch(**changes):
    return dataclasses.replace(GOOD, **changes)


def test_flat_accuracy():
    assert flat_accuracy([0.1, 0.5, 0.4], 2) is None  # the gain came within the last two
    assert flat_accuracy([0.5, 0.4, 0.5], 2) == "validation accuracy flat for 2 evaluations (best 0.500, then 0.500)"
    assert flat_accuracy([0.5, 0.4, 0.51], 2) is None
    assert flat_accuracy([0.5, 0.4, 0.51], 2, min_gain=0.02) is not None
    assert flat_accuracy([0.5, 0.5], 2) is None  # nothing before the last two


def test_window_rule():
    assert above([9.0, 0.1, 0.1], 2, 0.2, "x") is None
    assert above([0.1, 0.3, 0.2], 2, 0.2, "KL") == "KL 0.25 above 0.2 over 2 batches"
    assert above([9.0], 2, 0.2, "x") is None


def test_lost_steps():
    assert lost_steps([5, 5, 3, 3], [0.4, 0.3], 2, 0.7) == (
        "steps a path fell from 5.00 to 3.00 (below 70%) without a gain in accuracy"
    )
    assert lost_steps([5, 5, 3, 3], [0.4, 0.5], 2, 0.7) is None  # a gain
    assert lost_steps([5, 5, 3.5, 3.5], [], 2, 0.7) is None  # at the limit
    assert lost_steps([5, 3, 3], [], 2, 0.7) is None  # windows would overlap


def test_kl_coef_adapts_after_a_run_of_batches_only():
    limits = Limits(kl_batches=3)
    assert adapted_kl_coef([0.3, 0.3, 0.3], 0.02, limits) == pytest.approx(0.03)
    assert adapted_kl_coef([0.3, 0.1, 0.3], 0.02, limits) == 0.02
    assert adapted_kl_coef([0.3, 0.3], 0.02, limits) == 0.02
    assert adapted_kl_coef([5e-5] * 3, 0.03, limits) == pytest.approx(0.02)
    assert adapted_kl_coef([5e-5, 2e-4, 5e-5], 0.03, limits) == 0.03


def test_monitors_change_kl_coef_once_a_run_and_say_so():
    monitors = Monitors(Limits(kl_batches=3, kl_cap=None), 0.02)
    notes = [monitors.observe_batch(batch(kl=0.3)) for _ in range(5)]
    assert [len(note) for note in notes] == [0, 0, 1, 0, 0]
    assert notes[2] == ["kl_coef 0.02 -> 0.03 (KL 0.3 nats a token)"]
    assert monitors.observe_batch(batch(kl=0.3)) == ["kl_coef 0.03 -> 0.045 (KL 0.3 nats a token)"]


@pytest.mark.parametrize(
    ("changes", "alarm"),
    [
        ({"fallback_share": 0.02}, "PRM scores not finite for 2.0% of a batch"),
        ({"unparsed_share": 1.0}, "no answer could be extracted from any path"),
        ({"truncated_share": 0.6}, "more than 50% of the paths truncated for 3 batches"),
        ({"reward_mean": 0.0}, "all outcome rewards 0 for 3 batches"),
        ({"equal_group_share": 0.7}, "70% of the groups have equal rewards"),
    ],
)
def test_alarms(changes, alarm):
    assert batch_alarms([GOOD] * 3, Limits()) == []
    found = batch_alarms([batch(**changes)] * 3, Limits())
    assert len(found) == 1
    assert found[0].startswith(alarm)


def test_critic_that_is_worse_than_a_constant_is_told_after_a_run_of_batches():
    poor = batch(explained_variance=-0.2)
    assert batch_alarms([poor] * 2, Limits()) == []
    assert batch_alarms([poor, batch(), poor], Limits()) == []  # one without a figure
    assert batch_alarms([poor, batch(explained_variance=-0.1), poor], Limits()) == []
    assert batch_alarms([poor] * 3, Limits()) == [
        "the critic foresees the outcome worse than a constant would (explained variance -0.20) for 3 batches"
    ]


def test_L39_alarm_needs_a_run_of_bad_batches():
    bad = batch(truncated_share=0.9, reward_mean=0.0)
    assert batch_alarms([bad, bad], Limits()) == []
    assert batch_alarms([bad, GOOD, bad], Limits()) == []
    assert len(batch_alarms([GOOD, bad, bad, bad], Limits())) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kl": 1.1}, "KL to the reference 1.1 above 1 over 5 batches"),
    ],
)
def test_stop_rules_of_batches(changes, reason):
    monitors = Monitors(Limits(), 0.02)
    for number in range(5):
        assert monitors.stopped_by is None, number
        monitors.observe_batch(batch(**changes))
    assert monitors.stopped_by == reason


def test_stop_rule_of_repeated_ngrams_is_a_rise_over_the_start():
    """Sound long derivations repeat themselves: a share of 0.3 from the start stops nothing, 0.11 more does."""
    monitors = Monitors(Limits(), 0.02)
    for number in range(9):
        assert monitors.stopped_by is None, number
        monitors.observe_batch(batch(repeated_ngrams=0.3 if number < 5 else 0.39))
    assert monitors.stopped_by is None  # 5 x 0.3, 4 x 0.39
    for _ in range(5):
        monitors.observe_batch(batch(repeated_ngrams=0.41))
    wanted = "share of repeated n-grams rose from 0.3 to 0.402 over 5 batches (limit: 0.1 more)"
    assert monitors.stopped_by == wanted


def test_stop_rules_of_evaluations_and_steps():
    monitors = Monitors(Limits(flat_evaluations=2), 0.02)
    for accuracy in (0.5, 0.6, 0.6):
        monitors.observe_evaluation(accuracy)
    assert monitors.stopped_by is None
    monitors.observe_evaluation(0.6)
    assert monitors.stopped_by.startswith("validation accuracy flat")
    shrinking = Monitors(Limits(window=1), 0.02)
    for steps in (5.0, 3.0):
        shrinking.observe_batch(batch(mean_steps=steps))
    assert shrinking.stopped_by.startswith("steps a path fell")


def test_rules_can_be_switched_off():
    off = Limits(flat_evaluations=None, kl_cap=None, repeated_ngrams=None, steps_kept=None, rules=())
    monitors = Monitors(off, 0.02)
    for number in range(12):
        monitors.observe_batch(batch(kl=9.0, repeated_ngrams=0.9, mean_steps=5.0 if number < 5 else 0.0))
        monitors.observe_evaluation(0.1)
    assert monitors.stopped_by is None


def test_state_survives_json_and_goes_on_as_if_nothing_had_happened():
    whole, half = Monitors(Limits(kl_batches=4), 0.02), Monitors(Limits(kl_batches=4), 0.02)
    for monitors in (whole, half):
        for _ in range(2):
            monitors.observe_batch(batch(kl=0.3))
            monitors.observe_evaluation(0.3)
    resumed = Monitors(Limits(kl_batches=4), 0.5)
    resumed.load_state_dict(json.loads(json.dumps(half.state_dict())))
    for monitors in (whole, resumed):
        for _ in range(2):
            monitors.observe_batch(batch(kl=0.3))
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.kl_coef == pytest.approx(0.03)

"""The signals reward in a generation batch: advantages, anchors, alarms, sums."""

import dataclasses

import pytest
import torch
from signal_toys import DEFAULT, PENS, RIGHT, path_of

from common.records import Verdict
from common.signal_settings import SIGNALS
from policy.advantages import MovingAverage, compute_advantages
from policy.options import PolicySettings
from policy.rewards import PenaltyWeights, outcome_rewards
from policy.rollouts import Rollout
from policy.signal_batch import signal_inputs, signal_pairs, signal_sums
from policy.signals import (
    group_signals,
)

# ---- a generation batch ----


def rollout_of(*texts, is_anchor=(False, False, False, False)):
    paths = [path_of(PENS, text, tokens=3 + k) for k, text in enumerate(texts)]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    return Rollout(
        problems=[PENS] * len(paths),
        paths=paths,
        rewards=rewards,
        is_anchor=list(is_anchor)[: len(paths)],
        prompt_ids=[[1]] * len(paths),
        completion_ids=[list(path.token_ids) for path in paths],
        is_empty=[False] * len(paths),
        num_paths=len(paths),
        signals=group_signals(PENS, paths, rewards, DEFAULT, 100),
    )


BATCH = (RIGHT, "Answer: 17", "3*4=12\n12+5=18\nAnswer: 18", "hm")


def advantages_of(rollout, is_outcome_only=False, mix=(1.0, 0.0)):
    return compute_advantages(
        signal_inputs(rollout, DEFAULT, 8, is_outcome_only),
        process_weight=mix[0],
        outcome_weight=mix[1],
        baseline="group",
        normalise_sources=False,
        moving_average=MovingAverage.create(),
    ).advantages_BT


def test_the_whole_path_gets_its_reward_minus_the_baseline():
    rollout = rollout_of(*BATCH)
    earned = [signals.reward(DEFAULT) for signals in rollout.signals]
    assert earned[0] > earned[1] > earned[2] > earned[3] > 0
    found = advantages_of(rollout)
    for row, value in enumerate(earned):
        wanted = [value - sum(earned) / 4] * (3 + row) + [0.0] * (5 - row)
        assert found[row].tolist() == pytest.approx(wanted, abs=1e-6)


def test_an_anchor_learns_from_the_outcome_alone():
    rollout = rollout_of(*BATCH, is_anchor=[True] * 4)
    assert advantages_of(rollout)[:, 0].tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])
    switched_off = advantages_of(rollout_of(*BATCH), is_outcome_only=True)
    assert switched_off[:, 0].tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])


def test_what_an_alarm_takes_from_the_signals_goes_to_the_outcome():
    settings = PolicySettings(signals=DEFAULT)
    assert settings.mix(1.0) == (1.0, 0.0)
    assert settings.mix(0.25) == (0.25, 0.75)
    assert PolicySettings().mix(0.5) == (0.35, 0.3)
    rollout = rollout_of(*BATCH)
    earned = [signals.reward(DEFAULT) for signals in rollout.signals]
    half = 0.5 * (earned[0] - sum(earned) / 4) + 0.5 * 0.5
    assert advantages_of(rollout, mix=settings.mix(0.5))[0, 0].item() == pytest.approx(half)


def test_a_path_that_does_not_count_has_no_advantage_and_moves_no_baseline():
    rollout = rollout_of(*BATCH)
    paths = [*rollout.paths[:3], dataclasses.replace(rollout.paths[3], verdict=Verdict.TIMEOUT)]
    rewards = outcome_rewards(paths, weights=PenaltyWeights(), level=2)
    signals = group_signals(PENS, paths, rewards, DEFAULT, 100)
    part = dataclasses.replace(rollout, paths=paths, rewards=rewards, signals=signals)
    found = advantages_of(part)
    assert torch.equal(found[3], torch.zeros(8))
    earned = [one.reward(DEFAULT) for one in signals[:3]]
    assert found[0, 0].item() == pytest.approx(earned[0] - sum(earned) / 3)
    assert signal_sums(part, DEFAULT)["signals/total"] == pytest.approx(sum(earned))
    assert len(signal_pairs(part, DEFAULT)) == 3


def test_sums_and_pairs_by_hand():
    rollout = rollout_of(*BATCH[:3])
    sums = signal_sums(rollout, DEFAULT)
    assert set(sums) == {f"signals/{name}" for name in (*SIGNALS, "total")}
    assert sums["signals/consistency"] == 1
    assert sums["signals/depth"] == pytest.approx(1 + 0 + 1)  # right paths of 2 and 0 steps: 1 step is usual
    assert sums["signals/parsable"] == 3
    around = [one.reward(DEFAULT) - 0.5 * one.correctness - 0.07 for one in rollout.signals]
    assert [value for value, _ in signal_pairs(rollout, DEFAULT)] == pytest.approx(around)
    assert [is_right for _, is_right in signal_pairs(rollout, DEFAULT)] == [True, True, False]

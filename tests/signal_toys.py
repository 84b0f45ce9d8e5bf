"""Paths and signals for the tests of the signals reward."""

import dataclasses

from common.records import FinishReason, Problem
from common.signal_settings import SIGNALS, SignalSettings
from data_gen.steps import path_from_text
from policy.rewards import OutcomeReward, PenaltyWeights, outcome_rewards
from policy.signals import (
    group_signals,
)

DEFAULT = SignalSettings()
PENS = Problem.create("Tom has 3 boxes of 4 pens and gets 5 more.", "17", source="test", topic="word", level=2)
RIGHT = "3*4=12\n12+5=17\nAnswer: 17"


def path_of(problem, text, reason=FinishReason.STOP, tokens=40):
    return dataclasses.replace(path_from_text(problem, text, 0), token_ids=(5,) * tokens, finish_reason=reason)


def signals_of(problem, *texts, max_tokens=100, min_steps=0, **changes):
    """Signals of each text in a group of its own, so that none decides what is usual for another."""
    found = []
    for text in texts:
        path = path_of(problem, text, **changes)
        rewards = outcome_rewards([path], weights=PenaltyWeights(), level=problem.level)
        if len(path.steps) < min_steps:
            rewards = [OutcomeReward(0.0, 0.0, True)]
        found += group_signals(problem, [path], rewards, DEFAULT, max_tokens)
    return found[0] if len(found) == 1 else found


def values(signals):
    return [getattr(signals, name) for name in SIGNALS]

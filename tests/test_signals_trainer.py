"""The trainer on the signals reward: what it logs, what an anchor is, and that it can be resumed."""

import math

import pytest
import torch
from policy_toys import toy_score, toy_trainer

from common.signal_settings import SIGNALS, SignalSettings
from policy.options import PolicySettings
from policy.trainer import last_complete_checkpoint

SETTINGS = SignalSettings()


def signals_run(folder, arguments=None, checkpoint=None, **settings):
    trainer = toy_trainer(
        folder, arguments=arguments, score=None, settings=PolicySettings(signals=SETTINGS, **settings)
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


def logged(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]


def same_weights(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_each_signal_is_logged_and_every_token_of_a_path_has_its_advantage(tmp_path):
    trainer = signals_run(tmp_path, {"logging_steps": 4, "max_steps": 4}, anchor_fraction=0.0, baseline="group")
    (row,) = [row for row in trainer.state.log_history if "signals/total" in row]
    means = [row[f"signals/{name}"] for name in SIGNALS]
    assert all(0 <= value <= 1 for value in means)
    assert row["signals/parsable"] > 0
    by_hand = sum(getattr(SETTINGS, name) * value for name, value in zip(SIGNALS, means, strict=True))
    assert row["signals/total"] == pytest.approx(by_hand)
    assert row["signals/correctness"] >= row["reward/outcome"] > 0  # the monitors read right answers, as ever
    assert 0 <= row["signals/auc"] <= 1
    assert row["reward/process_share"] == 1
    assert row["rollout/no_step"] > 0
    assert "prm/auc" not in row
    assert all(math.isfinite(value) for value in row.values())
    seen = set()
    for batch in trainer._buffered_inputs:
        for mask, advantages in zip(batch["completion_mask"].bool(), batch["advantages"], strict=True):
            values = set(advantages[mask].tolist())
            assert len(values) == 1
            assert (advantages[~mask] == 0).all()
            seen |= values
    assert len(seen) > 8


def test_anchors_everywhere_and_an_alarm_make_it_the_outcome_only_run_bit_for_bit(tmp_path):
    alone = toy_trainer(tmp_path / "outcome", score=None, arguments={"max_steps": 4})
    alone.train()
    anchors = signals_run(tmp_path / "anchors", {"max_steps": 4}, anchor_fraction=1.0)
    alarmed = toy_trainer(
        tmp_path / "alarmed",
        score=None,
        arguments={"max_steps": 4},
        settings=PolicySettings(signals=SETTINGS, anchor_fraction=0.0),
    )
    alarmed.monitors._outcome_only_left = 1  # an alarm of the batch before
    alarmed.train()
    for trainer in (anchors, alarmed):
        assert logged(trainer, "loss") == logged(alone, "loss")
        assert logged(trainer, "reward/process_share") == [0]
        assert same_weights(trainer, alone)


def test_two_plus_two_is_four_bit_for_bit(tmp_path):
    straight = signals_run(tmp_path / "straight")
    folder = tmp_path / "resumed"
    signals_run(folder, {"max_steps": 4, "save_strategy": "steps", "save_steps": 4})
    resumed = signals_run(folder, checkpoint=last_complete_checkpoint(folder))
    assert same_weights(straight, resumed)
    assert logged(resumed, "signals/total") == logged(straight, "signals/total")
    assert torch.equal(resumed.moving_average.mean_K, straight.moving_average.mean_K)


def test_signals_and_a_score_exclude_each_other(tmp_path):
    with pytest.raises(ValueError, match=r"settings\.signals and score exclude each other"):
        toy_trainer(tmp_path, score=toy_score, settings=PolicySettings(signals=SETTINGS))

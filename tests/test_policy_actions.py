"""Alarms that act: each rule of the table on either side of its limit, actions, rollback, resume."""

import dataclasses
import json

import pytest
import torch
from policy_toys import toy_trainer
from test_policy_monitors import GOOD
from transformers import LlamaForCausalLM, TrainerCallback

from common.config import Config
from common.metrics import auc
from common.models import weights_hash
from policy.actions import RULES, Action, Rule, Shape, firing, tuned
from policy.arguments import monitor_limits
from policy.checkpoints import last_complete_checkpoint, last_good_checkpoint
from policy.monitors import Limits, Monitors
from policy.options import PolicySettings
from policy.rewards import repeats, theorem_names

SOUND = dataclasses.replace(
    GOOD, prm_auc=0.9, step_tokens=10.0, separators=0.1, duplicate_steps=0.05, same_pattern=0.3, entropy=0.05
)
FAULTS = {
    "extraction_failure": {"unparsed_share": 1.0},
    "kl_spike": {"kl": 3.1},
    "kl_jump": {"kl": 0.51},
    "reward_collapse": {"reward_mean": 0.09},
    "prm_unscored": {"fallback_share": 0.6},
    "prm_misleads": {"prm_auc": 0.49},
    "prm_weak": {"prm_auc": 0.59},
    "duplicate_steps": {"duplicate_steps": 0.26},
    "truncation": {"truncated_share": 0.41},
    "same_pattern": {"same_pattern": 0.61},
    "separators": {"separators": 0.26},
    "more_steps": {"mean_steps": 10.1},
    "fewer_steps": {"mean_steps": 2.4},
    "longer_steps": {"step_tokens": 20.1},
    "entropy_collapse": {"entropy": 0.0049},
    "equal_groups": {"equal_group_share": 0.96},
    "sampler_mismatch": {"logp_difference": 0.11},
}
JUST_SOUND = {
    "unparsed_share": 0.99,
    "kl": 0.1,
    "reward_mean": 0.11,
    "fallback_share": 0.5,
    "prm_auc": 0.61,
    "duplicate_steps": 0.24,
    "truncated_share": 0.39,
    "same_pattern": 0.59,
    "separators": 0.24,
    "entropy": 0.0051,
    "equal_group_share": 0.95,
    "logp_difference": 0.1,
}


def watched(**limits):
    """Monitors without the rules that end a run by themselves."""
    return Monitors(Limits(kl_cap=None, repeated_ngrams=None, steps_kept=None, **limits), 0.02)


def sound_start(monitors, count=6):
    for _ in range(count):
        assert monitors.observe_batch(SOUND) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_fires_on_its_fault_after_its_window(rule):
    monitors = watched()
    sound_start(monitors)
    bad = dataclasses.replace(SOUND, **FAULTS[rule.name])
    notes = [monitors.observe_batch(bad) for _ in range(rule.window)]
    hits = [any(note.startswith(f"{rule.name}: ") for note in batch) for batch in notes]
    assert hits == [False] * (rule.window - 1) + [True]
    assert any(f"action: {rule.action.value}" in note for note in notes[-1])


def test_no_rule_fires_just_inside_the_limits():
    monitors = watched()
    sound_start(monitors)
    for _ in range(10):
        notes = monitors.observe_batch(dataclasses.replace(SOUND, **JUST_SOUND))
        assert not [note for note in notes if "action:" in note]
    assert (monitors.process_factor, monitors.kl_coef, monitors.is_outcome_only) == (1.0, 0.02, False)
    assert monitors.stopped_by is None


def test_outcome_only_lasts_its_batches_and_a_rule_waits_for_a_new_window():
    monitors = watched(outcome_only_batches=2)
    bad = dataclasses.replace(SOUND, prm_auc=0.4)
    unasked = dataclasses.replace(SOUND, prm_auc=None)
    for _ in range(3):
        monitors.observe_batch(bad)
    assert monitors.is_outcome_only
    assert monitors.process_factor == 0.5  # prm_weak fires too
    monitors.observe_batch(unasked)
    assert monitors.is_outcome_only
    monitors.observe_batch(unasked)
    assert not monitors.is_outcome_only
    for _ in range(2):
        monitors.observe_batch(bad)
    assert not monitors.is_outcome_only
    monitors.observe_batch(bad)
    assert monitors.is_outcome_only
    assert monitors.process_factor == 0.25


def test_kl_coef_is_raised_once_for_two_alarms_and_rollback_names_the_good_batches():
    monitors = watched()
    sound_start(monitors)
    bad = dataclasses.replace(SOUND, entropy=0.001, equal_group_share=1.0)
    for _ in range(5):
        monitors.observe_batch(bad)
    assert monitors.kl_coef == pytest.approx(0.03)
    assert monitors.rollback_before is None
    for _ in range(2):
        monitors.observe_batch(dataclasses.replace(SOUND, kl=50.0))
    assert monitors.rollback_before == 11
    assert monitors.stopped_by == "kl_spike: KL to the reference 50 over 2 batches, above 3"


def test_without_acts_everything_is_logged_and_nothing_done():
    monitors = watched(acts=False)
    for _ in range(3):
        notes = monitors.observe_batch(dataclasses.replace(SOUND, prm_auc=0.1, unparsed_share=1.0, kl=9.0))
    assert sum("action: none (log only)" in note for note in notes) == 3
    assert (monitors.process_factor, monitors.is_outcome_only, monitors.stopped_by) == (1.0, False, None)


def test_state_of_the_actions_survives_json():
    whole = watched()
    for _ in range(4):
        whole.observe_batch(dataclasses.replace(SOUND, prm_auc=0.4))
    resumed = watched()
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for monitors in (whole, resumed):
        for _ in range(3):
            monitors.observe_batch(dataclasses.replace(SOUND, prm_auc=0.4))
    assert resumed.state_dict() == whole.state_dict()
    assert (resumed.process_factor, resumed.is_outcome_only) == (0.25, True)


def test_firing_by_hand():
    rule = Rule("r", "x", "kl", Shape.DROPPED, 0.5, 2, Action.ROLLBACK)
    assert firing(rule, [4, 4, 8, 8, 3, 4]) == "x 3.5 over 2 batches, below this share of its best: 0.5 (8)"
    assert firing(rule, [4, 4, 8, 8, 4, 4]) is None  # 4 is half of 8, not below
    assert firing(rule, [8, 3, 3]) is None  # no whole window before
    assert firing(rule, [8, 8, 3, 3, None]) is None  # the last batch has no such fact
    assert firing(rule, [8, 8, None, 3, 3]) is not None
    assert firing(rule, [8, 8, 3, 3], start=3) is None


def test_a_jump_is_a_multiple_of_all_before_and_above_the_floor():
    rule = Rule("r", "x", "kl", Shape.JUMPED, 5.0, 2, Action.ROLLBACK, floor=0.1)
    assert firing(rule, [0.01, 0.03, 0.2, 0.16]) == "x 0.18 over 2 batches, above its largest before, times 5 (0.03)"
    assert firing(rule, [0.01, 0.03, 0.2, 0.15]) is None  # 5 times 0.03, not above
    assert firing(rule, [0.001, 0.001, 0.1, 0.11]) is None  # the floor
    assert firing(rule, [0.03, 0.2, 0.2]) is None  # no whole window before
    assert firing(rule, [0.01, 0.05, 0.04, 0.1, 0.24, 0.5]) is None  # a climb, however steep


def test_kl_spike_is_above_its_limit_alone():
    spike = next(rule for rule in RULES if rule.name == "kl_spike")
    assert firing(spike, [2.9, 2.9, 2.9, 3.1]) is None
    assert firing(spike, [2.9, 2.9, 3.1, 3.1]) is not None


def test_settings_reach_the_table():
    limits = monitor_limits(
        Config.model_validate({"ppo": {"kl_cap": 2.0, "prm_auc_floor": 0.4, "difficulty_bands": 4}})
    )
    rules = {rule.name: rule for rule in limits.rules}
    assert rules["kl_spike"].limit == 6.0
    assert rules["prm_misleads"].limit == 0.4
    assert (rules["reward_collapse"].window, rules["kl_spike"].window) == (4, 2)
    assert tuned(RULES, {}) == RULES


def test_auc_by_hand():
    assert auc([0.9, 0.8, 0.3, 0.1], [True, False, True, False]) == 0.75  # of 4 pairs 3 are in order
    assert auc([0.5, 0.5], [True, False]) == 0.5
    assert auc([0.1, 0.2], [True, True]) is None


def test_repeats_and_a_text_that_would_stall_the_search_for_theorems():
    assert repeats(["a", "b", "a", "a"]) == 2
    assert theorem_names("of the " * 5000 + "1 theorem") == set()
    assert theorem_names("By Euler's theorem, the Cauchy inequality") == {"euler's theorem", "cauchy inequality"}


# ---- in the trainer ----

SHORT = {"num_iterations": 1, "max_steps": 12, "save_strategy": "steps", "save_steps": 2}


class Jolt(TrainerCallback):
    """Learning rate x 100 for update 5, the first of the third batch."""

    def on_step_begin(self, args, state, control, optimizer=None, **_):
        if state.global_step == 4:
            for group in optimizer.param_groups:
                group["lr"] *= 100


@pytest.mark.parametrize(("rule", "good"), [("kl_jump", 2), ("kl_spike", 4)])
def test_collapse_is_seen_within_three_batches_and_rolled_back(tmp_path, rule, good):
    """KL jumps in the batch of updates 5-6, which was sampled at update 4, and is above the cap in those of 7-10."""
    told = []
    limits = Limits(rules=tuple(one for one in RULES if one.name == rule))
    run = {"arguments": SHORT, "score": None, "announce": lambda update, line: told.append(line), "limits": limits}
    run["settings"] = PolicySettings(min_steps=0)  # the toy answers without steps
    trainer = toy_trainer(tmp_path, callbacks=[Jolt()], **run)
    trainer.train()
    assert trainer.stopped_by.startswith(f"{rule}: KL to the reference")
    assert trainer.state.global_step <= 4 + 3 * 2
    assert f"rollback: weights are those of checkpoint-{good}" in told
    wanted = weights_hash(LlamaForCausalLM.from_pretrained(tmp_path / f"checkpoint-{good}"))
    assert weights_hash(trainer.model) == wanted
    assert wanted != weights_hash(LlamaForCausalLM.from_pretrained(tmp_path / "checkpoint-6"))
    last = last_complete_checkpoint(tmp_path)
    assert weights_hash(LlamaForCausalLM.from_pretrained(last)) == wanted
    again = toy_trainer(tmp_path, **run)
    again.train(resume_from_checkpoint=last)
    assert again.sampler.calls == []
    assert weights_hash(again.model) == wanted


def test_same_run_without_the_jolt_takes_no_action(tmp_path):
    trainer = toy_trainer(tmp_path, arguments=SHORT, score=None)
    trainer.train()
    assert trainer.state.global_step == 12
    assert trainer.monitors.state_dict()["starts"] == {}


def test_rollback_prefers_the_best_checkpoint_that_is_old_enough(tmp_path):
    for update in (2, 4, 6):
        folder = tmp_path / f"checkpoint-{update}"
        folder.mkdir()
        for name in ("policy_state.json", "trainer_state.json"):
            (folder / name).write_text("{}")
    assert last_good_checkpoint(tmp_path, 6) == str(tmp_path / "checkpoint-4")
    assert last_good_checkpoint(tmp_path, 6, str(tmp_path / "checkpoint-2")) == str(tmp_path / "checkpoint-2")
    assert last_good_checkpoint(tmp_path, 6, str(tmp_path / "checkpoint-6")) == str(tmp_path / "checkpoint-4")
    assert last_good_checkpoint(tmp_path, 2) is None


@pytest.mark.parametrize("action", [Action.OUTCOME_ONLY, Action.HALVE_PROCESS_WEIGHT])
def test_action_changes_the_next_batch_and_a_resume_keeps_it(tmp_path, action):
    always = Limits(
        rules=(Rule("always", "steps", "mean_steps", Shape.ABOVE, -1.0, 1, action),), outcome_only_batches=1
    )
    both = {"num_iterations": 1, "max_steps": 4}
    straight = toy_trainer(tmp_path / "straight", limits=always, arguments=both)
    straight.train()
    plain = toy_trainer(tmp_path / "plain", arguments=both)
    plain.train()
    half = both | {"max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    toy_trainer(tmp_path / "resumed", limits=always, arguments=half).train()
    resumed = toy_trainer(tmp_path / "resumed", limits=always, arguments=both)
    resumed.train(resume_from_checkpoint=last_complete_checkpoint(tmp_path / "resumed"))
    assert weights_hash(resumed.model) == weights_hash(straight.model) != weights_hash(plain.model)
    assert resumed.monitors.state_dict() == straight.monitors.state_dict()
    factors = [row["reward/process_factor"] for row in straight.state.log_history if "reward/process_factor" in row]
    assert factors == [1.0, 0.0 if action is Action.OUTCOME_ONLY else 0.5]
    losses = [[row["loss"] for row in run.state.log_history if "loss" in row] for run in (straight, plain)]
    assert losses[0][:2] == losses[1][:2]
    assert torch.tensor(losses[0][2:]).isfinite().all()

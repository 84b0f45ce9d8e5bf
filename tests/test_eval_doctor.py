"""The doctor: each rule fires on a run folder with its fault and stays silent on a sound one."""

import json

import pytest

from eval.doctor import main
from eval.doctor_rules import RULES

CONFIG = {"ppo.problems": 48, "ppo.difficulty_bands": 1, "ppo.kl_high": 0.2}
SAMPLE = {"pool": 1600, "kept": 592, "pool_pass_rate": 0.41}


def sound_batch(i):
    """Row of batch i of a run that gets better, with the numbers of a real one."""
    return {
        "step": 4 * i,
        "reward/outcome": 0.40 + 0.02 * i,
        "prm/mean_score": 0.60 + 0.015 * i,
        "prm/auc": 0.9,
        "rollout/steps": 5.0 - 0.1 * (i % 3),
        "rollout/step_tokens": 9.0,
        "rollout/separators": 0.1,
        "rollout/truncated": 0.0,
        "rollout/unparsed": 0.0,
        "rollout/repeated_ngrams": 0.07 + 0.01 * (i % 3),
        "rollout/duplicate_steps": 0.01,
        "rollout/same_pattern": 0.3,
        "rollout/invented_theorems": 0.0,
        "rollout/equal_groups": 0.08 + 0.02 * i,
        "rollout/fallback_share": 0.0,
        "entropy": 0.045 / (1 + 0.1 * i),
        "kl/reference": 0.001 * i,
        "update/skipped": 0.0,
    }


def write_run(root, change=lambda i, row: {}, accuracies=(0.38, 0.45, 0.52, 0.53), sample=None, coverage=0.99, f1=0.93):
    """A run folder of 12 batches; ``change`` gives the keys of row i (counted from 1) that are not sound."""
    folder = root / "round-0"
    files = {
        "1_sample": {"metrics.json": SAMPLE | (sample or {}), "config.json": CONFIG, "DONE": {"seconds": 1.0}},
        "2_label": {"metrics.json": {"coverage": coverage}, "DONE": {"seconds": 1.0}},
        "3_prm": {"DONE": {"seconds": 1.0, "first_error_f1": f1}},
    }
    for stage, found in files.items():
        (folder / stage).mkdir(parents=True)
        for name, value in found.items():
            (folder / stage / name).write_text(json.dumps(value))
    rows = [{"step": 0, "eval_accuracy": accuracies[0]}]
    for i in range(1, 13):
        row = sound_batch(i)
        rows.append(row | change(i, row))
        if i % 4 == 0:
            rows.append({"step": 4 * i, "eval_accuracy": accuracies[i // 4]})
    (folder / "4_ppo").mkdir()
    (folder / "4_ppo/metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def later(key, value, since=7):
    return lambda i, row: {key: value} if i >= since else {}


def always(key, value):
    return later(key, value, 1)


FLAT = (0.4, 0.4, 0.39, 0.4)
FAULTS = {
    "nan_scores": {"change": later("rollout/fallback_share", 0.3)},
    "no_answers": {"change": later("rollout/unparsed", 0.9)},
    "low_coverage": {"coverage": 0.3},
    "weak_prm": {"f1": 0.3},
    "empty_band": {"sample": {"kept": 40, "pool_pass_rate": 0.02}},
    "skipped_updates": {"change": later("update/skipped", 2.0)},
    "collapse": {"change": later("reward/outcome", 0.05)},
    "high_kl": {"change": later("kl/reference", 0.5)},
    "acted": {"change": later("alarms", "prm_misleads: AUC 0.4; action: outcome_only for 5 batches", 9)},
    "gamed": {"accuracies": FLAT},
    "fewer_steps": {"change": later("rollout/steps", 2.0)},
    "repetition": {"change": later("rollout/repeated_ngrams", 0.4)},
    "padding": {"change": later("rollout/step_tokens", 30.0)},
    "invented_theorems": {"change": later("rollout/invented_theorems", 0.2)},
    "truncation": {"change": later("rollout/truncated", 0.5)},
    "entropy_collapse": {"change": later("entropy", 0.001)},
    "equal_groups": {"change": later("rollout/equal_groups", 0.9)},
    "zero_kl": {"change": always("kl/reference", 1e-6)},
    "flat_reward": {"change": lambda i, row: {"reward/outcome": 0.4, "prm/mean_score": 0.6}, "accuracies": FLAT},
}


def diagnosed(root, capsys):
    code = main([str(root)])
    lines = capsys.readouterr().out.splitlines()
    return code, json.loads(lines[-1]), lines


def test_every_rule_but_that_of_the_last_stage_has_a_fault():
    assert {rule.name for rule in RULES} == set(FAULTS) | {"worse_policy"}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_and_nothing_else(name, tmp_path, capsys):
    code, row, lines = diagnosed(write_run(tmp_path, **FAULTS[name]), capsys)
    assert code == 1
    assert [finding["rule"] for finding in row["findings"]] == [name]
    assert any(row["findings"][0]["evidence"] in line for line in lines)
    assert row["findings"][0]["evidence"].endswith(")")  # names its file


def test_sound_run_is_healthy(tmp_path, capsys):
    code, row, lines = diagnosed(write_run(tmp_path), capsys)
    assert (code, row["healthy"], row["findings"]) == (0, True, [])
    assert lines[0] == "nothing found"


def test_a_signals_reward_that_climbs_alone_is_named(tmp_path, capsys):
    def change(i, row):
        return {"reward/outcome": 0.4, "prm/mean_score": 0.6, "signals/total": 0.3 + 0.02 * i}

    _, row, _ = diagnosed(write_run(tmp_path, change, accuracies=FLAT), capsys)
    (found,) = [finding for finding in row["findings"] if finding["rule"] == "gamed"]
    assert found["evidence"].startswith("signals reward 0.3")


def test_order_is_that_of_the_rules_and_numbers_logged_as_text_are_seen(tmp_path, capsys):
    run = write_run(tmp_path, later("prm/mean_score", "nan"), coverage=0.1, accuracies=FLAT)
    _, row, lines = diagnosed(run, capsys)
    assert [finding["rule"] for finding in row["findings"]] == ["nan_scores", "low_coverage", "gamed"]
    assert "not finite: prm/mean_score" in row["findings"][0]["evidence"]
    assert lines[0] == "1. scores or losses that are no numbers"


def test_running_damaged_and_partial_runs_are_read(tmp_path, capsys):
    run = write_run(tmp_path)
    log = run / "round-0/4_ppo/metrics.jsonl"
    log.write_text(log.read_text()[:-40])
    (run / "round-0/3_prm/DONE").unlink()
    code, _, lines = diagnosed(run, capsys)
    assert code == 0
    assert any("1 unreadable row(s)" in line for line in lines)
    log.unlink()
    assert diagnosed(run, capsys)[0] == 0


def test_alarm_that_was_only_logged_is_no_finding(tmp_path, capsys):
    note = "equal_groups: share 0.97; action: none (log only)"
    assert diagnosed(write_run(tmp_path, later("alarms", note)), capsys)[0] == 0


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert main([str(tmp_path)]) == 2
    (tmp_path / "round-0").mkdir()
    assert main([str(tmp_path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert errors[2].endswith(f"no stage has been started in it; run: make data RUN={tmp_path}")

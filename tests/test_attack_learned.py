"""A learned attack finds what a judge of steps pays for, and nothing with a perfect judge; mined paths are taught."""

import json

import pytest
from attack_toys import attack_run, sampled_path

from bench.oracle import oracle_score
from common.config import load_config
from common.models import PROJECT, load_tokenizer, locate
from common.records import Problem, Verdict
from common.runs import Run, read_records, write_rows
from data_gen.__main__ import sample_stage
from policy.attack import attack_run as measure_run
from policy.attack import main
from policy.attack_learn import learning_config
from policy.attack_learned import learned_attack, mined_paths, print_learned
from policy.attack_mined import Mined
from policy.harden import harden
from prm.model import Calibration, build_prm, save_prm

CONFIG = str(PROJECT / "configs" / "micro.yaml")
OVERRIDES = ["base.threads=1", "data.pool=16", "data.measure_paths=4", "data.paths=4", "data.validation=4"]
OVERRIDES += ["data.test=1", "data.pass_low=0", "data.pass_high=1", "data.kinds=[chain,equation]"]
OVERRIDES += ["ppo.learning_rate=1e-3"]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """A run with sampled paths and an empty, finished stage ``prm``: the judges of these tests are functions."""
    run, config = Run(tmp_path_factory.mktemp("learned") / "run"), load_config(CONFIG, OVERRIDES)
    sample_stage(config, run)
    run.stage("prm").path.mkdir()
    run.stage("prm").file("DONE").write_text("{}")
    return run, config


def pays_for_minus(prompt_ids, paths):
    """A judge that believes a step as long as all so far have a minus sign."""
    scores = []
    for path in paths:
        has = ["-" in step.text for step in path.steps]
        scores.append([0.95 if all(has[: k + 1]) else 0.05 for k in range(len(has))])
    return scores


def test_a_judge_that_pays_for_a_sign_is_found_out(sampled, capsys):
    run, config = sampled
    row = learned_attack(config, run, pays_for_minus, 0.5, "minus", 5)
    assert row["sampled"] == 5 * 24
    assert row["high_wrong"] == sum(one["size"] for one in row["clusters"]) > 0
    assert all("-" in kind for one in row["clusters"] for kind in one["pattern"][:-1])
    assert row["mean_score"][-1] > row["mean_score"][0]
    assert row["batches"][-1]["high_wrong"] > row["batches"][0]["high_wrong"]
    assert not run.stage("ppo").path.exists()
    mined = mined_paths(run, "minus")
    assert len(mined) == row["high_wrong"]
    assert all(one.path.verdict is not Verdict.CORRECT and "-" in one.path.steps[0].text for one in mined)
    assert mined_paths(run, "another") == []
    print_learned(row)
    assert f"{row['high_wrong']} of 120 paths are wrong with a high score" in capsys.readouterr().out

    def refuses(prompt_ids, paths):
        raise AssertionError("a finished learned attack is not made again")

    assert learned_attack(config, run, refuses, 0.5, "minus", 5) == row


def test_a_perfect_judge_leaves_nothing_to_find(sampled, capsys):
    run, config = sampled
    problems = read_records(run.require("sample").file("problems_train.jsonl"), Problem.from_row)
    row = learned_attack(config, run, oracle_score(config, problems), 0.8, "oracle", 2)
    assert (row["high_wrong"], row["clusters"], row["share"]) == (0, [], 0)
    assert row["wrong"] > 5
    print_learned(row)
    assert "no high-score wrong path in 48 (95 %: at most 7.41%)" in capsys.readouterr().out


def test_the_run_is_on_the_process_reward_alone_and_is_never_stopped():
    config = load_config(CONFIG, ["ppo.baseline=gae", "ppo.reward=signals", "report_to=wandb", "curriculum.by=level"])
    ppo = learning_config(config, 3).ppo
    assert (ppo.process_weight, ppo.outcome_weight, ppo.anchor_fraction, ppo.correct_floor) == (1, 0, 0, 0)
    assert (ppo.reward, ppo.baseline, ppo.batches, ppo.alarm_actions) == ("process", "moving_average", 3, False)
    assert (learning_config(config, 3).report_to, learning_config(config, 3).curriculum.is_on) == ("none", False)
    assert config.ppo.outcome_weight == 0.3


# the command, and hardening


def test_the_command_learns_from_the_runs_own_prm(sampled, capsys):
    run, _ = sampled
    base, stage = locate("data_gen/base_model"), run.stage("prm")
    save_prm(build_prm(base, head_std=1.0, seed=3), stage.file("prm"), Calibration())
    load_tokenizer(base).save_pretrained(stage.file("prm"))
    command = ["--config", CONFIG, "--run", str(run.root), "--problems", "2", *OVERRIDES]
    assert main([*command, "--learn", "--batches", "1"]) == 0
    out = capsys.readouterr().out
    row, report = json.loads(out.splitlines()[-1]), json.loads(stage.file("learned_attacks.json").read_text())
    assert "it begins anew" in out  # the folder was of another judge
    assert (row["learned_sampled"], row["learned_high_wrong"]) == (24, report["high_wrong"])
    assert report["prm_hash"].startswith(row["prm"])
    assert not run.stage("ppo").path.exists()
    assert main([*command, "--learn", "--batches", "1"]) == 0
    assert "learned_attacks.json is finished" in capsys.readouterr().out
    assert main([*command, "--learn", "--batches", "0"]) == 2
    assert "--batches 0: must be 1 or more" in capsys.readouterr().err


def test_mined_paths_are_taught_when_asked_and_measured_either_way(tmp_path):
    run, overrides = attack_run(tmp_path)
    config, stage = load_config(CONFIG, overrides), run.stage("prm")
    before = measure_run(config, run, 3)
    problems = read_records(run.stage("sample").file("problems_train.jsonl"), Problem.from_row)
    mined = [
        Mined(0, sampled_path(problem, text), (0.9, 0.9), -0.1, True, None, cluster)
        for problem in problems
        for cluster, text in enumerate(("1+1=3\n3+4=7\nAnswer: 1", "thanks\nthanks\nAnswer: 1"))
    ]
    stage.file("learned").mkdir()
    write_rows(stage.file("learned/mined.jsonl"), [one.to_row() for one in mined])
    stage.file("learned_attacks.json").write_text(json.dumps({"key": "", "prm_hash": before.prm_hash}))
    rows, records = [], []
    for is_learned in (False, True):
        rows.append(harden(config, run, before, 3, is_learned))
        records.append(json.loads(stage.file("harden.json").read_text())["learned"])
    assert rows[0]["mined_paths"] == 0
    assert 0 < rows[1]["mined_paths"] <= 4  # one cluster of two, half of eight problems, none that is held out
    assert rows[1]["attack_paths"] == rows[0]["attack_paths"] + rows[1]["mined_paths"]
    assert records[0]["labels"] == {}
    assert records[1]["labels"] == {"labeller": rows[1]["mined_paths"], "last_step": 0, "left_out": 0}
    assert [records[1]["before"][name]["of"] for name in ("taught", "held_out")] == [4, 4]
    assert records[0]["before"] == records[1]["before"]
    assert records[1]["before"]["held_out"]["trained"]["of"] == 4
    assert rows[1]["learned_held_out_high_after"] == records[1]["after"]["held_out"]["high"] / 4

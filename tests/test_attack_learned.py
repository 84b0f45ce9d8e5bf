"""A learned attack finds what a judge of steps pays for, and nothing with a perfect judge; mined paths are taught."""

import dataclasses
import json

import pytest
from attack_toys import attack_run, sampled_path, sampled_paths, sum_problem

from bench.oracle import oracle_score
from common.config import load_config
from common.models import PROJECT, load_tokenizer, locate
from common.records import IGNORED, FinishReason, Problem, Verdict
from common.runs import Run, read_records, write_rows
from data_gen.__main__ import sample_stage
from data_gen.labels import LabelSettings
from policy.attack import attack_run as measure_run
from policy.attack import main
from policy.attack_learn import Recorder, learning_config
from policy.attack_learned import learned_attack, mined_paths, print_learned
from policy.attack_mined import LearnedRun, Mined, Scored, is_high, mine, process_total, report_row
from policy.attack_patterns import Cluster, cluster_patterns, path_pattern, step_kinds
from policy.attack_teach import mined_labels, split_mined
from policy.harden import harden
from policy.options import PolicySettings
from prm.model import Calibration, build_prm, save_prm

CONFIG = str(PROJECT / "configs" / "micro.yaml")
OVERRIDES = ["base.threads=1", "data.pool=16", "data.measure_paths=4", "data.paths=4", "data.validation=4"]
OVERRIDES += ["data.test=1", "data.pass_low=0", "data.pass_high=1", "data.kinds=[chain,equation]"]
OVERRIDES += ["ppo.learning_rate=1e-3"]
DELTA = PolicySettings(credit="delta")


# patterns, by hand


def test_step_kinds_by_hand():
    assert step_kinds(["12+3=15", " 3Y = -7", "...", "12+3=15", "So 15 it is"]) == (
        "#+#=#",
        "#v = -#",
        "(empty)",
        "(again)",
        "so # it is",
    )


def test_the_pattern_of_a_path_says_how_it_ends():
    problem = sum_problem(5)
    whole, bare = sampled_path(problem, "5+3=8\nAnswer: 8"), sampled_path(problem, "5+3=8\nthanks")
    assert path_pattern(whole) == ("#+#=#", "(answer)")
    assert path_pattern(bare) == ("#+#=#", "thanks", "(no answer)")
    cut = dataclasses.replace(bare, finish_reason=FinishReason.LENGTH)
    assert path_pattern(cut)[-1] == "(cut)"


def test_clusters_by_hand():
    thanks, sums = ("thanks", "thanks", "(answer)"), ("#+#=#", "#+#=#", "(answer)")
    more, other = ("#+#=#", "#-#=#", "(answer)"), ("v=#", "(cut)")
    patterns = [other, sums, thanks, sums, more, thanks, sums]
    assert cluster_patterns(patterns) == [
        Cluster(sums, (1, 3, 4, 6)),  # of 13 signs 12 are alike: 0.92
        Cluster(thanks, (2, 5)),
        Cluster(other, (0,)),
    ]
    assert [one.rows for one in cluster_patterns(patterns, similar=1.0)] == [(1, 3, 6), (2, 5), (4,), (0,)]
    assert cluster_patterns([]) == []


def test_clusters_do_not_depend_on_the_order():
    patterns = [("#+#=#",), ("#+#=#", "#+#=#"), ("thanks",), ("(empty)",), ("#*#=#",), ("#+#=#",)]
    forward, backward = cluster_patterns(patterns), cluster_patterns(patterns[::-1])
    assert [(one.pattern, len(one.rows)) for one in forward] == [(one.pattern, len(one.rows)) for one in backward]


# what is high


def test_high_by_hand():
    assert process_total((0.9, 0.6), DELTA) == pytest.approx(-0.4)
    assert process_total((0.9, 0.6), PolicySettings(credit="sum")) == pytest.approx(1.5)
    assert process_total((0.9, 0.6), PolicySettings(credit="min")) == pytest.approx(0.6)
    assert is_high((0.9, 0.6), 0.6, None, DELTA) == (True, None)
    assert is_high((0.9, 0.6), 0.61, -0.5, DELTA) == (False, True)
    assert is_high((0.9, 0.6), 0.61, -0.4, DELTA) == (False, False)
    assert is_high((0.9, float("nan")), 0.1, -1.0, DELTA) == (False, False)


def scored(problem: Problem, text: str, scores: tuple[float, ...], batch: int = 0) -> Scored:
    return Scored(batch, sampled_path(problem, text), scores)


def test_mining_keeps_wrong_paths_alone():
    problem = sum_problem(5)
    paths = [
        scored(problem, "5+3=8\n8+4=12\nAnswer: 12", (0.9, 0.9)),  # right
        scored(problem, "5+3=9\nAnswer: 9", (0.9,)),  # wrong, believed
        scored(problem, "5+3=7\nAnswer: 7", (0.3,)),  # wrong, seen through
        scored(problem, "thanks\nthanks", (0.4, 0.4), 1),  # no answer, paid more than the right one
    ]
    mined = mine(paths, 0.8, {problem.id: -0.65}, DELTA)
    assert [(one.path.text, one.believed, one.paid) for one in mined] == [
        ("5+3=9\nAnswer: 9", True, True),
        ("thanks\nthanks", False, True),
    ]
    assert sorted(one.cluster for one in mined) == [0, 1]
    row = report_row(LearnedRun(tuple(paths), 10, ({"rollout/no_step": 2.0},)), mined, {problem.id: problem})
    assert (row["sampled"], row["scored"], row["wrong"], row["high_wrong"], row["no_step"]) == (10, 4, 3, 2, 2)
    assert (row["low"], row["high"]) == pytest.approx((0.0567, 0.5098), abs=1e-4)  # Wilson 1927, z = 1.96
    assert row["batches"] == [{"high_wrong": 1, "wrong": 2, "scored": 3}, {"high_wrong": 1, "wrong": 1, "scored": 1}]
    first = row["clusters"][mined[0].cluster]
    assert (first["pattern"], first["share"], first["mean_score"]) == (["#+#=#", "(answer)"], 0.1, 0.9)
    assert first["example"] == {"problem": problem.text, "path": "5+3=9\nAnswer: 9", "scores": [0.9]}
    assert [Mined.from_row(json.loads(json.dumps(one.to_row()))) for one in mined] == mined


def test_the_recorder_numbers_the_batches():
    paths = sampled_paths(sum_problem(5))
    recorder = Recorder(lambda prompts, paths: [[0.5] * len(path.steps) for path in paths])
    assert recorder([(), ()], paths) == [[0.5, 0.5]] * 2
    recorder([()], paths[:1])
    assert [(one.batch, one.path, one.scores) for one in recorder.scored] == [
        (0, paths[0], (0.5, 0.5)),
        (0, paths[1], (0.5, 0.5)),
        (1, paths[0], (0.5, 0.5)),
    ]


# labels and split


def test_labels_of_mined_paths():
    problem = sum_problem(5)
    right = sampled_paths(problem)[0]
    texts = [
        "5+3=9\n9+4=13\nAnswer: 13",  # the labeller knows its first error
        "5+3=8\nso it is\nAnswer: 8",  # no step of it is refuted, and no right path goes like this
        "5+3=8\nAnswer: 8",  # a right beginning: nothing can be said of the step
        "5+3=8\n8+4=13",  # no answer, and a false equation
    ]
    paths = [sampled_path(problem, text) for text in texts]
    assert paths[3].verdict is Verdict.UNPARSED
    labelled, counts = mined_labels(paths, {problem.id: [right]}, {problem.id: problem.text}, LabelSettings())
    assert counts == {"labeller": 2, "last_step": 1, "left_out": 1}
    assert [row.labels for row in labelled] == [(0, 0), (IGNORED, 0), (1, 0)]
    assert [row.path for row in labelled] == [paths[0], paths[1], paths[3]]
    blind, counts = mined_labels(paths[:1], {}, {problem.id: problem.text}, LabelSettings())
    assert (blind[0].labels, counts["last_step"]) == ((IGNORED, 0), 1)  # no right path to compare with
    assert mined_labels(paths[:1], {}, {}, None)[0] == blind


def test_taught_and_measured_paths_share_neither_problem_nor_held_out_cluster():
    problems = [sum_problem(k) for k in range(8)]
    mined = [
        Mined(0, sampled_path(problem, f"5+3={k}\nAnswer: {k}"), (0.9,), -0.1, True, None, cluster=cluster)
        for problem in problems
        for cluster, k in enumerate((1, 2, 3))
    ]
    split = split_mined([*mined, mined[0]], 0, set())
    ids = lambda paths: {one.path.problem_id for one in paths}  # noqa: E731
    assert {one.cluster for one in split.teach} == {0, 2}
    assert {one.cluster for one in split.measure["taught"]} == {0, 2}
    assert {one.cluster for one in split.measure["held_out"]} == {1}
    assert len(ids(split.teach)) == len(ids(split.measure["held_out"])) == 4
    assert not ids(split.teach) & (ids(split.measure["taught"]) | ids(split.measure["held_out"]))
    assert (len(split.teach), len(split.measure["taught"]), len(split.measure["held_out"])) == (8, 8, 4)
    apart = next(iter(ids(split.teach)))
    assert ids(split_mined(mined, 0, {apart}).teach) == ids(split.teach) - {apart}


# trained for real, on the embedded base model


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
    config = load_config(CONFIG, ["ppo.baseline=gae", "ppo.reward=signals", "report_to=wandb"])
    ppo = learning_config(config, 3).ppo
    assert (ppo.process_weight, ppo.outcome_weight, ppo.anchor_fraction, ppo.correct_floor) == (1, 0, 0, 0)
    assert (ppo.reward, ppo.baseline, ppo.batches, ppo.alarm_actions) == ("process", "moving_average", 3, False)
    assert learning_config(config, 3).report_to == "none"
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

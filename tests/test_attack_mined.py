"""Mined paths: patterns and clusters, what is high, labels, and what is taught and measured; nothing is trained."""

import dataclasses
import json

import pytest
from attack_toys import sampled_path, sampled_paths, sum_problem

from common.records import IGNORED, FinishReason, Problem, Verdict
from data_gen.labels import LabelSettings
from policy.attack_learn import Recorder
from policy.attack_mined import LearnedRun, Mined, Scored, is_high, mine, process_total, report_row
from policy.attack_patterns import Cluster, cluster_patterns, path_pattern, step_kinds
from policy.attack_teach import mined_labels, split_mined
from policy.options import PolicySettings

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
    assert len(cluster_patterns([("first then last",), ("last then first",)])) == 2  # equal signs in another order


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
    assert first["size"] == 1
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
    sampled = {problem.id: [right, paths[1]]}  # a wrong path vouches for nothing
    labelled, counts = mined_labels(paths, sampled, {problem.id: problem.text}, LabelSettings())
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

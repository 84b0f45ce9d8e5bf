"""Figures of a pool against hand-computed values and against enumeration of subsets."""

import itertools
import random

import numpy as np
import pytest
from eval_records import path, problem

from common.metrics import majority_vote
from common.records import Verdict
from data_gen import measure
from eval.pools import (
    AGGREGATES,
    Pool,
    accuracy_components,
    best_of,
    is_right,
    majority_of,
    path_score,
    problems_by,
    process_components,
    style_components,
)
from eval.prm_quality import KnownSteps
from grading.equivalence import vote_key


def values(components):
    """Mean over problems of each figure."""
    sums = {name: column.sum(axis=0) for name, column in components.items()}
    return {name: (n / d if d else None) for name, (n, d) in sums.items()}


@pytest.mark.parametrize(
    ("aggregate", "expected"), [("min", 0.2), ("last", 0.8), ("mean", 0.5), ("product", 0.5 * 0.2 * 0.8)]
)
def test_path_score(aggregate, expected):
    assert path_score([0.5, 0.2, 0.8], aggregate) == pytest.approx(expected)


def test_path_without_usable_scores_has_no_score():
    assert all(path_score([], aggregate) is None for aggregate in AGGREGATES)
    assert all(path_score([0.5, float("nan")], aggregate) is None for aggregate in AGGREGATES)
    with pytest.raises(ValueError, match="median"):
        path_score([0.5], "median")


def test_best_of_by_hand():
    """Scores 0.9 wrong, 0.8 right, 0.1 wrong: only the pair without path 0 (1 of 3) picks the right one."""
    rights, scores = [False, True, False], [0.9, 0.8, 0.1]
    assert best_of(rights, scores, 1) == pytest.approx(1 / 3)
    assert best_of(rights, scores, 2) == pytest.approx(1 / 3)
    assert best_of(rights, scores, 3) == 0.0


def test_best_of_ties_go_to_the_path_sampled_first_and_unscored_paths_come_last():
    assert best_of([True, False], [0.5, 0.5], 2) == 1.0
    assert best_of([False, True], [0.5, 0.5], 2) == 0.0
    assert best_of([False, True], [None, 0.0], 2) == 1.0


def test_best_of_equals_enumeration():
    draw = random.Random(0)
    for _ in range(30):
        rights = [draw.random() < 0.5 for _ in range(6)]
        scores = [draw.choice([0.1, 0.5, 0.9, None]) for _ in range(6)]
        for k in (1, 2, 4, 6):
            wins = []
            for group in itertools.combinations(range(6), k):
                best = max(group, key=lambda i: (-1.0 if scores[i] is None else scores[i], -i))
                wins.append(rights[best])
            assert best_of(rights, scores, k) == pytest.approx(sum(wins) / len(wins))


def test_majority_by_hand():
    """Answers 7 8 8: one vote: 1/3 right; two votes: (7,8) (7,8) tie to the first, 7, (8,8) wrong; three: 8 wins."""
    answers, rights = ["7", "8", "8"], [True, False, False]
    assert majority_of(answers, rights, 1) == pytest.approx(1 / 3)
    assert majority_of(answers, rights, 2) == pytest.approx(2 / 3)
    assert majority_of(answers, rights, 3) == 0.0
    assert majority_of([None, None, None], [False] * 3, 3) == 0.0


def test_majority_over_many_paths_uses_disjoint_blocks():
    answers = ["7", "7", "8", "8"] * 10
    rights = [answer == "7" for answer in answers]
    assert majority_of(answers, rights, 2) == pytest.approx(0.5)


def test_accuracy_by_hand():
    pool = Pool(
        1.0,
        [[path("7"), path("8"), path(None), path("8")], [path("7"), path("7"), path("7"), path("7", cut=True)]],
        scores=[[[0.9, 0.2], [0.9, 0.9], [0.1, 0.1], [0.3, 0.3]], [[0.5, 0.5]] * 4],
    )
    found = values(accuracy_components(pool, ks=(1, 2, 4), aggregate="min"))
    assert found["pass1"] == pytest.approx((1 / 4 + 3 / 4) / 2)
    assert found["pass_at.1"] == pytest.approx(0.5)
    assert found["pass_at.2"] == pytest.approx(((1 - 3 / 6) + 1) / 2)
    assert found["pass_at.4"] == 1.0
    assert found["majority.4"] == pytest.approx(0.5)  # two votes for 8 beat one for 7; the cut path does not vote
    assert found["prm_best.4"] == pytest.approx(0.5)  # 0.9 for an 8; the second problem's first path
    assert found["prm_best_by.min"] == pytest.approx(0.5)
    assert found["prm_best_by.last"] == pytest.approx(0.5)
    assert found["prm_vote"] == pytest.approx(0.5)  # 7: 0.2 against 8: 0.9 + 0.3


def test_prm_vote_weighs_answers_by_path_score():
    pool = Pool(1.0, [[path("8"), path("8"), path("7")]], scores=[[[0.2, 0.2], [0.2, 0.2], [0.9, 0.5]]])
    found = values(accuracy_components(pool, ks=(1, 3), aggregate="min"))
    assert found["majority.3"] == 0.0
    assert found["prm_vote"] == 1.0


def test_aggregate_decides_which_path_is_best():
    pool = Pool(1.0, [[path("8"), path("7")]], scores=[[[0.3, 0.9], [0.5, 0.5]]])
    found = values(accuracy_components(pool, ks=(2,), aggregate="last"))
    assert found["prm_best.2"] == 0.0
    assert found["prm_best_by.last"] == 0.0
    assert found["prm_best_by.min"] == 1.0
    assert found["prm_best_by.mean"] == 0.0
    assert found["prm_best_by.product"] == 0.0


def test_paths_the_checker_could_not_judge_enter_no_accuracy():
    pool = Pool(1.0, [[path("7"), path("9", verdict=Verdict.TIMEOUT)], [path("9", verdict=Verdict.NO_GOLD)] * 2])
    found = accuracy_components(pool, ks=(1, 2), aggregate="min")
    assert found["pass1"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert found["pass_at.2"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert found["prm_best.1"].sum() == 0.0


def test_truncated_right_answer_is_not_right():
    assert is_right(path("7"))
    assert not is_right(path("7", cut=True))
    assert not is_right(path("8"))


def test_right_means_the_same_as_in_the_pass_rate():
    paths = [path("7", verdict=verdict, cut=cut) for verdict in Verdict for cut in (True, False)]
    assert [is_right(each) for each in paths] == [measure.is_right(each) for each in paths]
    assert values(accuracy_components(Pool(1.0, [paths]), ks=(1,), aggregate="min"))["pass1"] == measure.pass_rate(
        paths
    )


def test_cut_paths_cast_no_vote():
    pool = Pool(1.0, [[path("8", cut=True), path("8", cut=True), path("7")]])
    assert values(accuracy_components(pool, ks=(3,), aggregate="min"))["majority.3"] == 1.0


def test_votes_for_one_value_are_merged():
    assert vote_key(" X = 7 ") == vote_key("x=7")
    right = {"verdict": Verdict.CORRECT}
    pool = Pool(1.0, [[path("8"), path("7", **right), path("7.0", **right)]])
    assert values(accuracy_components(pool, ks=(3,), aggregate="min"))["majority.3"] == 1.0
    found = accuracy_components(pool, ks=(3,), aggregate="min", answer_key=str)
    assert values(found)["majority.3"] == 0.0


def test_style_by_hand():
    pool = Pool(
        1.0,
        [
            [path("7", steps=("a", "b", "c"), tokens=(1, 2, 1, 2, 1)), path(None, steps=("a",), tokens=(1, 2, 3))],
            [path("8", cut=True, steps=(), tokens=(1,)), path("8", steps=("a", "b"), tokens=())],
        ],
    )
    found = values(style_components(pool, ngram=2))
    assert found["format_rate"] == pytest.approx(2 / 4)
    assert found["mean_steps"] == pytest.approx(6 / 4)
    assert found["mean_tokens"] == pytest.approx(9 / 4)
    assert found["truncated_share"] == pytest.approx(1 / 4)
    assert found["repeated_ngrams"] == pytest.approx((2 / 4) / 4)  # 12 21 12 21: two of four seen before


def test_process_by_hand():
    three = ("a", "b", "c")
    judged = [KnownSteps(None), KnownSteps(2), KnownSteps(None), KnownSteps(0), KnownSteps(1, unknown=True)]
    pool = Pool(
        1.0,
        [[path(answer, steps=three) for answer in "777887"]],
        judgements=[[*judged, KnownSteps(None)]],
    )
    found = values(process_components(pool))
    assert found["clean_paths"] == pytest.approx(3 / 5)
    assert found["hidden_errors"] == pytest.approx(1 / 4)
    assert found["right_steps"] == pytest.approx((3 + 2 + 3 + 0 + 3) / 15)
    assert found["unknown_share"] == pytest.approx(1 / 6)


def test_no_oracle_no_process_figures():
    assert all(column.sum() == 0 for column in process_components(Pool(1.0, [[path("7")]])).values())


def test_problems_by_sorts_numbers_by_size():
    levels = [10, 2, None, 2]
    problems = [problem(i, level=level) for i, level in enumerate(levels)]
    rows = problems_by(problems, lambda p: str(p.level) if p.level is not None else "unknown")
    assert list(rows.items()) == [("2", [1, 3]), ("10", [0]), ("unknown", [2])]


def test_majority_agrees_with_the_common_vote():
    draw = random.Random(1)
    for _ in range(50):
        answers = [draw.choice(["7", "8", "9", None]) for _ in range(5)]
        assert majority_of(answers, [a == "7" for a in answers], 5) == float(majority_vote(answers) == "7")


def test_components_have_one_row_a_problem():
    pool = Pool(1.0, [[path("7")] * 2, [path("8")] * 2, [path(None)] * 2])
    for column in (accuracy_components(pool, ks=(1, 2), aggregate="min") | style_components(pool)).values():
        assert column.shape == (3, 2)
        assert np.isfinite(column).all()

"""PRM quality against hand-computed values, scikit-learn and the common metrics."""

import random

import numpy as np
import pytest
from eval_records import path
from sklearn.metrics import brier_score_loss, roc_auc_score

from common.metrics import first_below, first_error_f1
from common.records import Verdict
from eval.pools import Pool
from eval.prm_quality import KnownSteps, PRMSettings, known_from_labels, prm_figures, prm_report

SETTINGS = PRMSettings(threshold=0.5, resamples=200)
THREE = ("a", "b", "c")


def pool(rows, truth=True):
    """One problem a row; a row holds (answer, scores, first error) of each path."""
    return Pool(
        1.0,
        [[path(answer, steps=THREE) for answer, _, _ in row] for row in rows],
        scores=[[scores for _, scores, _ in row] for row in rows],
        judgements=[[KnownSteps(error) for _, _, error in row] for row in rows] if truth else None,
    )


BY_HAND = [
    [("8", [0.9, 0.2, 0.1], 1), ("8", [0.9, 0.9, 0.1], 1), ("7", [0.9, 0.9, 0.9], None)],
    [("7", [0.9, 0.4, 0.9], None), ("8", [0.1, 0.1, 0.1], 0), ("7", [0.8, 0.8, 0.8], None)],
]


def test_first_error_by_hand():
    """Paths with an error: named exactly, one step late, named exactly; without: passed, accused, passed."""
    found = prm_figures(pool(BY_HAND), SETTINGS)
    assert found.accuracy_on_wrong.value == pytest.approx(2 / 3)
    assert found.accuracy_on_right.value == pytest.approx(2 / 3)
    assert found.first_error_f1.value == pytest.approx(2 / 3)
    assert (found.paths, found.unknown_paths, found.truth, found.threshold) == (6, 0, "oracle", 0.5)


def test_brier_by_hand_and_after_the_first_error():
    one = pool([[("8", [0.9, 0.2, 0.4], 1)], [("7", [0.7, 0.6, 0.5], None)]])
    squares = [0.1**2, 0.2**2, 0.4**2, 0.3**2, 0.4**2, 0.5**2]
    assert prm_figures(one, SETTINGS).brier.value == pytest.approx(sum(squares) / 6)
    ignoring = PRMSettings(threshold=0.5, after_error="ignore", resamples=50)
    del squares[2]
    assert prm_figures(one, ignoring).brier.value == pytest.approx(sum(squares) / 5)


def test_outcome_auc_by_hand():
    """min scores: right 0.9 0.4 0.8, wrong 0.1 0.1 0.1: every right path is above every wrong one; then one is not."""
    assert prm_figures(pool(BY_HAND), SETTINGS).outcome_auc.value == 1.0
    mixed = pool([[("7", [0.5] * 3, None), ("8", [0.5] * 3, 0)], [("7", [0.9] * 3, None), ("8", [0.6] * 3, 0)]])
    assert prm_figures(mixed, SETTINGS).outcome_auc.value == pytest.approx((0.5 + 0 + 1 + 1) / 4)


def random_pool(num_problems=40, seed=0):
    draw = random.Random(seed)
    rows = []
    for _ in range(num_problems):
        row = []
        for _ in range(4):
            error = draw.choice([None, 0, 1, 2])
            answer = "7" if (error is None) != (draw.random() < 0.2) else "8"
            row.append((answer, [round(draw.random(), 1) for _ in THREE], error))
        rows.append(row)
    return rows


def test_figures_equal_independent_implementations():
    rows = random_pool()
    found = prm_figures(pool(rows), SETTINGS)
    flat = [entry for row in rows for entry in row]
    other = first_error_f1([first_below(scores, 0.5) for _, scores, _ in flat], [error for *_, error in flat])
    assert found.first_error_f1.value == pytest.approx(other.f1)
    assert found.accuracy_on_wrong.value == pytest.approx(other.accuracy_wrong)
    auc = roc_auc_score([answer == "7" for answer, *_ in flat], [min(scores) for _, scores, _ in flat])
    assert found.outcome_auc.value == pytest.approx(auc)
    labels = [int(error is None or k < error) for *_, error in flat for k in range(3)]
    assert found.brier.value == pytest.approx(brier_score_loss(labels, [s for _, scores, _ in flat for s in scores]))
    assert sum(b.count for b in found.reliability) == len(labels)


def test_intervals_hold_the_value_and_resample_problems():
    found = prm_figures(pool(random_pool()), SETTINGS)
    for name in ("first_error_f1", "accuracy_on_wrong", "accuracy_on_right", "brier", "outcome_auc"):
        figure = getattr(found, name)
        assert figure.ci95[0] < figure.value < figure.ci95[1]


def test_interval_of_the_auc_equals_a_plain_bootstrap():
    rows = random_pool(30)
    found = prm_figures(pool(rows), PRMSettings(threshold=0.5, resamples=1500))
    draw, aucs = np.random.default_rng(0), []
    for _ in range(500):
        flat = [entry for index in draw.integers(0, 30, 30) for entry in rows[index]]
        aucs.append(roc_auc_score([a == "7" for a, *_ in flat], [min(scores) for _, scores, _ in flat]))
    assert found.outcome_auc.ci95 == pytest.approx(np.quantile(aucs, [0.025, 0.975]), abs=0.03)


def test_unknown_paths_enter_the_auc_only():
    one = Pool(
        1.0,
        [[path("7", steps=THREE), path("8", steps=THREE)]] * 2,
        scores=[[[0.9] * 3, [0.1] * 3]] * 2,
        judgements=[[KnownSteps(None), KnownSteps(None, unknown=True)]] * 2,
    )
    found = prm_figures(one, SETTINGS)
    assert (found.paths, found.unknown_paths) == (4, 2)
    assert found.accuracy_on_right.value == 1.0
    assert found.accuracy_on_wrong.reason == "no path with a wrong step"
    assert found.first_error_f1.value is None
    assert found.outcome_auc.value == 1.0


def test_unscorable_and_unjudged_paths_are_left_out():
    one = Pool(
        1.0,
        [[path("7", steps=THREE), path("8", steps=THREE), path("8", steps=()), path("9", verdict=Verdict.TIMEOUT)]],
        scores=[[[0.9] * 3, [0.9, float("nan"), 0.1], [], [0.9, 0.1]]],
        judgements=[[KnownSteps(None), KnownSteps(1), KnownSteps(0), KnownSteps(None)]],
    )
    found = prm_figures(one, SETTINGS)
    assert found.paths == 2
    assert found.outcome_auc.reason == "all paths are CORRECT: nothing to tell apart"


def test_labels_can_be_the_truth():
    one = pool(BY_HAND, truth=False)
    truth = known_from_labels([[1, 1, None], [None, 0, "unlabelled"]])
    found = prm_figures(one, SETTINGS, truth=truth, truth_name="labels")
    assert (found.truth, found.unknown_paths) == ("labels", 1)
    assert found.accuracy_on_wrong.value == pytest.approx(2 / 3)
    assert found.accuracy_on_right.value == pytest.approx(1 / 2)


def test_absent_figures_say_why():
    no_truth = prm_figures(pool(BY_HAND, truth=False), SETTINGS)
    assert no_truth.truth == "none"
    assert no_truth.brier.reason == "neither oracle nor labels for these paths"
    assert no_truth.outcome_auc.value == 1.0
    no_scores = prm_figures(Pool(1.0, [[path("7")]] * 2, judgements=[[KnownSteps(None)]] * 2), SETTINGS)
    assert {no_scores.first_error_f1.reason, no_scores.outcome_auc.reason} == {"no PRM scores"}
    no_threshold = prm_figures(pool(BY_HAND), PRMSettings(threshold=None, resamples=50))
    assert no_threshold.first_error_f1.reason == "no threshold was chosen on validation"
    assert no_threshold.brier.value is not None


def test_threshold_zero_accuses_nobody():
    found = prm_figures(pool(BY_HAND), PRMSettings(threshold=0.0, resamples=50))
    assert (found.accuracy_on_wrong.value, found.accuracy_on_right.value, found.first_error_f1.value) == (0.0, 1.0, 0.0)


def test_report_holds_base_and_policy():
    base, policy = prm_figures(pool(BY_HAND), SETTINGS), prm_figures(pool(random_pool()), SETTINGS)
    report = prm_report(base, policy)
    assert report.brier == base.brier
    assert report.on_policy == policy

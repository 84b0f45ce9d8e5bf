"""The PRM benchmark against figures worked out by hand, and on a tiny saved PRM against direct calls."""

from __future__ import annotations

import json
import math

import pytest
import torch
from prm_support import character_tokenizer, tiny_prm

from common.metrics import choose_threshold, first_below
from eval.bench_scorers import symbolic_scorer
from eval.prm_bench import main
from prm.inputs import text_input
from prm.model import Calibration, save_prm
from prm.score import PRMScorer

RIGHT, WRONG = ["1+1=2", "2+2=4", "4+4=8"], ["1+1=2", "2+2=5", "5+5=10"]
HAND = [(RIGHT, -1), (WRONG, -1), (WRONG, 1), (WRONG, 0), (WRONG, 2), (WRONG, 0)]
"""The equations refute step 1 of every WRONG solution; the labels are free to differ."""


def step_rows(pairs, start=0, **more):
    return [
        {"problem": f"problem {start + k}", "steps": steps, "label": label, **more}
        for k, (steps, label) in enumerate(pairs)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def bench(capsys, *arguments):
    """Run the command; return the object on the last line of its standard output."""
    assert main(["--resamples", "50", *arguments]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def refused(capsys, *arguments):
    """Run a command that must fail; return its one line."""
    assert main([*arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    (line,) = streams.err.splitlines()
    return line


def test_f1_by_hand(tmp_path, capsys):
    """One of four wrong solutions is hit, one of two right ones is passed: 2 * 1/4 * 1/2 / (3/4) = 1/3."""
    found = bench(capsys, "--scorer", "arithmetic", "--input", write(tmp_path / "hand.jsonl", step_rows(HAND)))
    assert found["acc_wrong"] == pytest.approx(1 / 4)
    assert found["acc_right"] == pytest.approx(1 / 2)
    assert found["f1"] == pytest.approx(1 / 3)
    hand = found["subsets"]["hand"]
    assert (hand["rows"], hand["wrong_rows"], hand["right_rows"], hand["fired"]) == (6, 4, 2, 5)
    assert hand["reached"]["value"] == pytest.approx(3 / 5)
    assert hand["exact"]["value"] == pytest.approx(1 / 5)
    low, high = hand["acc_wrong"]["ci95"]
    assert 0 <= low <= 1 / 4 <= high <= 1
    assert found["calibration"] is None


def test_mean_over_subsets(tmp_path, capsys):
    """Subset b: its one wrong solution is hit, its one right one is passed, F1 1; the mean with 1/3 is 2/3."""
    rows = step_rows(HAND, subset="a") + step_rows([(WRONG, 1), (RIGHT, -1)], start=9, subset="b")
    found = bench(capsys, "--scorer", "arithmetic", "--input", write(tmp_path / "two.jsonl", rows))
    assert list(found["subsets"]) == ["a", "b"]
    assert found["f1"] == found["mean"]["f1"]["value"] == pytest.approx(2 / 3)
    assert found["acc_wrong"] == pytest.approx((1 / 4 + 1) / 2)
    assert found["acc_right"] == pytest.approx((1 / 2 + 1) / 2)


@pytest.mark.parametrize(
    ("scorer", "acc_wrong", "acc_right"), [("constant:-1", 0, 1), ("constant:1", 1 / 4, 0), ("constant:9", 0, 0)]
)
def test_constant_guesses(scorer, acc_wrong, acc_right, tmp_path, capsys):
    found = bench(capsys, "--scorer", scorer, "--input", write(tmp_path / "hand.jsonl", step_rows(HAND)))
    assert found["acc_wrong"] == pytest.approx(acc_wrong)
    assert found["acc_right"] == pytest.approx(acc_right)
    assert found["f1"] == 0


@pytest.mark.parametrize(("by", "names"), [("auto", ["rows"]), ("file", ["rows"]), ("id", ["gsm8k", "olympiad-bench"])])
def test_names_of_subsets(by, names, tmp_path, capsys):
    rows = step_rows([(RIGHT, -1), (WRONG, 1)], id="gsm8k-12") + step_rows([(WRONG, 1)], id="olympiad-bench-3")
    path = write(tmp_path / "rows.jsonl", rows)
    assert list(bench(capsys, "--scorer", "arithmetic", "--subset-by", by, "--input", path)["subsets"]) == names


def test_a_subset_of_one_kind_has_no_f1_and_leaves_the_mean(tmp_path, capsys):
    rows = step_rows([(RIGHT, -1)], subset="clean") + step_rows([(WRONG, 1), (RIGHT, -1)], start=5, subset="both")
    found = bench(capsys, "--scorer", "arithmetic", "--input", write(tmp_path / "rows.jsonl", rows))
    assert found["subsets"]["clean"]["f1"]["value"] is None
    assert found["subsets"]["clean"]["acc_right"]["value"] == 1
    assert found["f1"] == 1


def test_limit_and_scores_of_each_row(tmp_path, capsys):
    out = tmp_path / "scores.jsonl"
    path = write(tmp_path / "hand.jsonl", step_rows(HAND))
    found = bench(capsys, "--scorer", "arithmetic", "--limit", "3", "--output", str(out), "--input", path)
    assert found["mean"]["rows"] == 3
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["row"], row["label"], row["prediction"]) for row in rows] == [(1, -1, -1), (2, -1, 1), (3, 1, 1)]
    assert rows[2]["scores"] == [1.0, 0.0, 0.0]
    assert rows[0]["file"] == path


def pool_row():
    """Two right samples (7) and two with a false equation (8), in the order 8 7 8 7."""
    samples = [{"response": f"3+4={n}\n#### {n}", "correct": n == 7} for n in (8, 7, 8, 7)]
    return {"problem": "3+4", "answer": "7", "samples": samples}


def values(figures):
    return {key: figure["value"] for key, figure in figures.items()}


def test_best_of_n_by_hand(tmp_path, capsys):
    """Of the six pairs one has no right sample. By majority a pair is right when its first sample is (2 of 6), the four
    are a tie that goes to the 8 sampled first; the scores are 1 for a 7 and 0 for an 8, so a 7 wins where there is one.
    """
    found = bench(capsys, "--scorer", "arithmetic", "--input", write(tmp_path / "pool.jsonl", [pool_row()]))
    pool = found["best_of_n"]["pool"]
    assert (found["f1"], found["mean"]) == (None, None)
    assert pool["problems"] == {"1": 1, "2": 1, "4": 1}
    best = pytest.approx({"1": 1 / 2, "2": 5 / 6, "4": 1})
    assert values(pool["oracle"]) == best
    assert values(pool["majority"]) == pytest.approx({"1": 1 / 2, "2": 2 / 6, "4": 0})
    assert values(pool["vote"]) == best
    assert {rule: values(by_n) == best for rule, by_n in pool["best"].items()} == {
        "min": True, "last": True, "mean": True, "product": True
    }  # fmt: skip
    assert pool["outcome_auc"]["value"] == 1


def test_texts_are_graded_and_small_groups_leave_the_larger_n(tmp_path, capsys):
    rows = [pool_row(), {"problem": "1+1", "answer": "2", "samples": ["1+1=2\n#### 2.0", "#### 3", "1+1=2\n#### 2"]}]
    pool = bench(capsys, "--scorer", "arithmetic", "--input", write(tmp_path / "pool.jsonl", rows))["best_of_n"]["pool"]
    assert pool["problems"] == {"1": 2, "2": 2, "4": 1}
    assert pool["oracle"]["1"]["value"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert (pool["samples"], pool["unscored_samples"], pool["bad_samples"]) == (7, 1, 0)
    assert pool["best"]["min"]["2"]["value"] == pytest.approx((5 / 6 + 1) / 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problem": None}, "row 2, field 'problem'"),
        ({"steps": ["1+1=2", " "]}, "step 1 is ' '"),
        ({"steps": []}, "at least one step"),
        ({"label": 3}, "field 'label': 3, want -1 to 2"),
        ({"label": -2}, "field 'label': -2"),
        ({"label": True}, "field 'label': True"),
        ({"samples": [], "answer": "7"}, "field 'samples'"),
        ({"samples": [3], "answer": "7"}, "sample 0 is 3"),
        ({"samples": ["7"]}, "no field 'answer'"),
    ],
)
def test_bad_rows_are_one_line(change, words, tmp_path, capsys):
    rows = step_rows(HAND)
    rows[1] |= change
    path = write(tmp_path / "bad.jsonl", rows)
    line = refused(capsys, "--scorer", "arithmetic", "--input", path)
    assert words in line
    assert f"{path}, row 2" in line


def test_a_missing_field_is_named(tmp_path, capsys):
    rows = step_rows(HAND)
    del rows[4]["label"]
    line = refused(capsys, "--scorer", "arithmetic", "--input", write(tmp_path / "bad.jsonl", rows))
    assert "row 5: no field 'label'" in line


def test_bad_options_are_one_line(tmp_path, capsys):
    path = write(tmp_path / "hand.jsonl", step_rows(HAND))
    assert "constant:two" in refused(capsys, "--scorer", "constant:two", "--input", path)
    assert "--threshold" in refused(capsys, "--scorer", "arithmetic", "--threshold", "0.5", "--input", path)
    assert "no such file" in refused(capsys, "--scorer", "arithmetic", "--input", str(tmp_path / "none.jsonl"))
    assert "given twice" in refused(capsys, "--scorer", "arithmetic", "--input", path, path)
    assert "prm.json" in refused(capsys, "--prm", str(tmp_path), "--input", path)
    assert symbolic_scorer("constant:12").threshold is None


@pytest.fixture(scope="module")
def prm_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prm")
    save_prm(tiny_prm(folder / "policy"), folder / "saved", Calibration(temperature=1.5, threshold=0.4))
    character_tokenizer().save_pretrained(folder / "saved")
    return str(folder / "saved")


def direct_scores(folder, rows):
    tokenizer = character_tokenizer()
    inputs = [text_input(tokenizer, tokenizer(row["problem"] + "\n")["input_ids"], row["steps"]) for row in rows]
    return PRMScorer.load(folder).score_inputs(inputs)


def test_a_saved_prm_gives_the_scores_and_predictions_of_a_direct_call(prm_folder, tmp_path, capsys):
    rows, out = step_rows(HAND), tmp_path / "scores.jsonl"
    found = bench(capsys, "--prm", prm_folder, "--output", str(out), "--input", write(tmp_path / "hand.jsonl", rows))
    direct = direct_scores(prm_folder, rows)
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["scores"] for row in written] == [pytest.approx(one, abs=1e-5) for one in direct]
    below = [first_below(one, 0.4) for one in direct]
    assert [row["prediction"] for row in written] == [-1 if k is None else k for k in below]
    assert found["threshold"] == 0.4
    assert "its calibration" in found["threshold_rule"]
    labelled = [
        (score, k != label)
        for one, (_, label) in zip(direct, HAND, strict=True)
        for k, score in enumerate(one)
        if label == -1 or k <= label
    ]
    assert found["calibration"]["steps"] == len(labelled) == 3 + 3 + 2 + 1 + 3 + 1
    expected = sum((score - is_right) ** 2 for score, is_right in labelled) / len(labelled)
    assert found["calibration"]["brier"]["value"] == pytest.approx(expected, abs=1e-5)
    assert sum(one["count"] for one in found["calibration"]["reliability"]) == len(labelled)


def test_threshold_from_other_rows_and_never_from_those_measured(prm_folder, tmp_path, capsys):
    other = step_rows([(WRONG, 1), (RIGHT, -1), (["7-5=3", "9*9=81"], 0)], start=50)
    path, validation = write(tmp_path / "hand.jsonl", step_rows(HAND)), write(tmp_path / "validation.jsonl", other)
    found = bench(capsys, "--prm", prm_folder, "--threshold-from", validation, "--input", path)
    chosen, _ = choose_threshold(direct_scores(prm_folder, other), [1, None, 0])
    assert found["threshold"] == chosen
    assert "3 rows of validation.jsonl" in found["threshold_rule"]
    mixed = write(tmp_path / "mixed.jsonl", [*other, {**other[0], "problem": " Problem  2"}])
    line = refused(capsys, "--prm", prm_folder, "--threshold-from", mixed, "--input", path)
    assert "row 4" in line
    assert f"{path}, row 3" in line
    assert bench(capsys, "--prm", prm_folder, "--threshold", "0", "--input", path)["acc_right"] == 1


def test_scores_that_are_no_numbers_are_counted_and_predict_nothing(prm_folder, tmp_path, capsys):
    model = tiny_prm(tmp_path / "policy")
    with torch.no_grad():
        model.score.bias.fill_(math.nan)
    save_prm(model, tmp_path / "nan", Calibration())
    character_tokenizer().save_pretrained(tmp_path / "nan")
    files = write(tmp_path / "hand.jsonl", step_rows(HAND)), write(tmp_path / "pool.jsonl", [pool_row()])
    found = bench(capsys, "--prm", str(tmp_path / "nan"), "--input", *files)
    assert (found["acc_wrong"], found["acc_right"], found["mean"]["bad_rows"]) == (0, 1, 6)
    assert found["calibration"]["brier"]["value"] is None
    pool = found["best_of_n"]["pool"]
    assert pool["bad_samples"] == 4
    assert pool["best"]["min"]["4"]["value"] == 0  # nothing to choose by: the first sample, an 8


def test_steps_beyond_the_length_limit_are_counted(prm_folder, tmp_path, capsys):
    path = write(tmp_path / "hand.jsonl", step_rows(HAND))
    found = bench(capsys, "--prm", prm_folder, "--max-length", "20", "--input", path)
    assert found["mean"]["cut_rows"] == 6
    assert bench(capsys, "--prm", prm_folder, "--input", path)["mean"]["cut_rows"] == 0

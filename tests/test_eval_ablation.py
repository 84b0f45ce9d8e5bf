"""The ablation's part of the report, from what ``bench.ablation`` writes, and the same in a browser."""

from __future__ import annotations

import json

import pytest
from browser import FAULTS, browser, opened  # noqa: F401 fixture
from test_ablation import harness  # noqa: F401 fixture
from test_eval_report import HOSTILE, run_dir  # noqa: F401 fixture

from common.errors import InputError
from eval.ablation import MAX_CURVES, Ablation, ablation_view, chosen_arms, read_ablation
from eval.report import build_report, main
from eval.report_live import signature


@pytest.fixture
def row(harness):  # noqa: F811
    """Two arms, two seeds: 25 % right with TRL's, 50 % with the default; stages of 30 s."""
    _, run = harness
    return json.loads(run().to_json())


def saved(row, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))
    return path


def test_tables_and_curves_by_hand(row):
    view = ablation_view("x", Ablation.model_validate_json(json.dumps(row)))
    assert [title for title, _ in view.budgets] == [
        "Equal rollouts",
        "Equal seconds, data and PRM charged",
        "Equal seconds of training, data and PRM at hand",
    ]
    arms = dict(view.budgets[0][1])
    assert arms["trl_grpo"].difference is None
    assert arms["default"].difference["sampled"].ci95 == (0.25, 0.25)
    by_rollouts, by_seconds = view.charts
    assert [line.name for line in by_rollouts.lines] == ["default", "trl_grpo"]
    tips = [[tip for *_, tip in line.marks] for chart in view.charts for line in chart.lines]
    assert tips == [
        ["default: 20 at 0", "default: 50 at 48"],  # 24 rollouts a batch, 2 batches
        ["trl_grpo: 20 at 0", "trl_grpo: 25 at 48"],
        ["default: 20 at 30", "default: 50 at 50"],  # 30 s of data and PRM, 10 s a batch
        ["trl_grpo: 20 at 0", "trl_grpo: 25 at 20"],
    ]
    assert all(line.band for line in by_seconds.lines)


def test_report_shows_what_lies_in_the_folder_or_is_named(row, run_dir, tmp_path, capsys):  # noqa: F811
    assert "Ablation" not in build_report(run_dir).read_text()
    elsewhere = saved(row, tmp_path / "finalists" / "ablation.json")
    assert main([str(run_dir), "--ablation", str(elsewhere)]) == 0
    page = (run_dir / "report.html").read_text()
    assert '<a href="#ablation">' in page
    assert "finalists/ablation.json" in page
    assert "▲ +25.0" in page
    assert "2 seeds: a bootstrap over so few makes intervals too narrow." in page
    before = signature(run_dir)
    saved(row, run_dir / "ablation-tiny.json")
    assert signature(run_dir) != before  # --watch writes the page again
    assert "tiny/ablation-tiny.json" in build_report(run_dir).read_text()
    (run_dir / "ablation-tiny.json").write_text("{")
    assert "not shown: " in (page := build_report(run_dir).read_text())
    assert "ablation-tiny.json: no result of bench.ablation" in page


def test_folder_of_an_ablation_needs_no_round(row, tmp_path):
    page = build_report(saved(row, tmp_path / "finalists" / "ablation.json").parent).read_text()
    assert "Equal rollouts" in page
    assert 'id="accuracy"' not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": "oracle"}, "reference: 'oracle' is not among the arms default, trl_grpo"),
        ({"arms": {}}, "reference: 'trl_grpo' is not among the arms"),
        ({"base": {"greedy": "much"}}, "base.greedy: Input should be a valid number"),
    ],
)
def test_other_files_are_refused_in_one_line(row, tmp_path, capsys, change, message):
    path = saved(row | change, tmp_path / "a" / "ablation.json")
    with pytest.raises(InputError, match="no such file"):
        read_ablation(tmp_path / "none.json")
    assert main([str(path.parent)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_many_arms_have_the_best_curves(row):
    for index in range(20):
        arm = json.loads(json.dumps(row["arms"]["default"]))
        arm["comparisons"]["rollouts"]["value"]["sampled"] = index / 100
        row["arms"][f"arm_{index}"], row["jobs"][f"arm_{index}"] = arm, row["jobs"]["default"]
    result = Ablation.model_validate_json(json.dumps(row))
    names = chosen_arms(result)
    assert names == ["default", "trl_grpo", *(f"arm_{index}" for index in range(14, 20))]
    assert len(names) == MAX_CURVES
    assert "14 arms with lower accuracy left out" in ablation_view("x", result).charts[0].note


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_clipped_or_covered_and_texts_are_text(row, run_dir, browser, width):  # noqa: F811
    for number in range(MAX_CURVES):
        name = f"a_rather_long_name_of_an_arm_{number}" if number else HOSTILE
        row["arms"][name], row["jobs"][name] = row["arms"]["default"] | {"about": HOSTILE}, row["jobs"]["default"]
    saved(row, run_dir / "ablation.json")
    page, said = opened(browser, build_report(run_dir), width, 844)
    page.click("nav a[href='#ablation']")
    page.evaluate("document.querySelectorAll('details').forEach(box => { box.open = true; })")
    page.wait_for_timeout(200)
    assert "\n".join(page.evaluate(FAULTS)) == ""
    assert page.locator("#ablation svg").count() == 2
    assert page.locator("#ablation img, main script, iframe").count() == 0
    assert said == []
    page.context.close()

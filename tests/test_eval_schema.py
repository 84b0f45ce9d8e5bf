"""The schema of metrics.json: what it holds, what it refuses, and that files are whole or not there."""

import json

import pytest
from eval_records import SETTINGS, model, problem

from common.errors import InputError
from eval import schema
from eval.accuracy import compare
from eval.prm_quality import PRMSettings, prm_figures, prm_report
from eval.schema import Figure, LabelFigures, Metrics, PPOFigures, StageSeconds, read_record, write_record

PROBLEMS = [problem(i, topic="chain" if i < 4 else "equation", level=2 + i % 2) for i in range(6)]


def make_metrics(**changes):
    base, policy = model("base", PROBLEMS, 0.25), model("policy", PROBLEMS, 0.75)
    base_report, policy_report, diff = compare(base, policy, SETTINGS)
    reading = PRMSettings(threshold=0.5, resamples=50)
    fields = {
        "run": "tiny",
        "round": 0,
        "seed": 1,
        "settings": {"eval": {"samples": 8, "temperatures": [0.0, 1.0]}},
        "base": base_report,
        "policy": policy_report,
        "difference": diff,
        "labels": LabelFigures(first_error_exact=0.9, negative_precision=0.98, negative_recall=0.93, coverage=0.88),
        "prm": prm_report(prm_figures(base.sampled, reading), prm_figures(policy.sampled, reading)),
        "ppo": PPOFigures(fallbacks=0, kl=0.08, steps=64, stopped_by="all batches done"),
        "seconds": StageSeconds(sample=60.0, label=3.0, prm=80.0, ppo=240.0, eval=50.0),
    }
    return Metrics(**(fields | changes))


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


@pytest.fixture
def row(metrics):
    return json.loads(metrics.model_dump_json())


def check(row, tmp_path):
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps(row))
    return read_record(file, Metrics)


def test_round_trip(metrics, tmp_path):
    file = tmp_path / "5_eval" / "metrics.json"
    write_record(file, metrics)
    assert read_record(file, Metrics) == metrics
    assert [entry.name for entry in file.parent.iterdir()] == ["metrics.json"]


def test_what_issue_two_asks_for(metrics, tmp_path):
    write_record(tmp_path / "metrics.json", metrics)
    row = json.loads((tmp_path / "metrics.json").read_text())
    for side in ("base", "policy"):
        for name in ("pass1_greedy", "pass1_sampled", "pass1_best_temperature", "majority8", "prm_best8"):
            figure = row[side][name]
            assert set(figure) == {"value", "ci95"}
            assert figure["ci95"][0] <= figure["value"] <= figure["ci95"][1]
    assert {"first_error_exact", "negative_precision", "negative_recall", "coverage"} <= set(row["labels"])
    assert {"first_error_f1", "brier"} <= set(row["prm"])
    assert {"fallbacks", "kl", "steps", "stopped_by"} <= set(row["ppo"])
    assert set(row["seconds"]) == {"sft", "sample", "label", "prm", "ppo", "eval"}
    assert row["difference"]["pass1_sampled"]["value"] == pytest.approx(0.5)


@pytest.mark.parametrize("section", ["base", "policy", "difference", "labels", "prm", "ppo", "seconds", "run"])
def test_missing_section_is_refused(row, section, tmp_path):
    del row[section]
    with pytest.raises(InputError, match=section):
        check(row, tmp_path)


@pytest.mark.parametrize("place", ["base.majority8", "base.process.clean_paths", "prm.brier", "ppo.kl", "seconds.eval"])
def test_missing_figure_is_refused_and_named(row, place, tmp_path):
    *parents, last = place.split(".")
    target = row
    for name in parents:
        target = target[name]
    del target[last]
    with pytest.raises(InputError, match=rf"metrics\.json: {place} "):
        check(row, tmp_path)


def test_extra_key_is_refused(row, tmp_path):
    row["base"]["majority9"] = row["base"]["majority8"]
    with pytest.raises(InputError, match="majority9"):
        check(row, tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True, None])
def test_value_of_a_figure_is_a_finite_number(row, value, tmp_path):
    row["policy"]["pass1_greedy"]["value"] = value
    with pytest.raises(InputError, match=r"policy\.pass1_greedy"):
        check(row, tmp_path)


def test_nan_in_an_interval_is_refused(row, tmp_path):
    row["policy"]["pass1_greedy"]["ci95"][1] = float("nan")
    with pytest.raises(InputError, match="ci95"):
        check(row, tmp_path)


def test_nan_in_settings_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path / "metrics.json", make_metrics(settings={"lr": float("nan")}))
    assert list(tmp_path.iterdir()) == []


def test_rules_of_a_figure():
    assert Figure(value=1.0, ci95=(0.5, 1.0)).model_dump(mode="json") == {"value": 1.0, "ci95": [0.5, 1.0]}
    assert Figure.absent("why").model_dump(mode="json") == {"value": None, "ci95": None, "reason": "why"}
    with pytest.raises(ValueError, match="needs a reason"):
        Figure(value=None, ci95=None)
    with pytest.raises(ValueError, match="needs a reason"):
        Figure(value=0.5, ci95=None)
    with pytest.raises(ValueError, match="low end"):
        Figure(value=0.5, ci95=(0.6, 0.4))
    with pytest.raises(ValueError, match="without a value"):
        Figure(value=None, ci95=(0.1, 0.2), reason="why")


def test_null_label_figures_need_a_reason():
    assert LabelFigures.absent("no oracle").coverage is None
    with pytest.raises(ValueError, match="reason"):
        LabelFigures(first_error_exact=None, negative_precision=1.0, negative_recall=1.0, coverage=1.0)
    with pytest.raises(ValueError, match="coverage"):
        LabelFigures(first_error_exact=0.5, negative_precision=1.0, negative_recall=1.0, coverage=1.2)


def test_unreadable_files_are_one_line(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_record(tmp_path / "none.json", Metrics)
    (tmp_path / "cut.json").write_text('{"run": "ti')
    with pytest.raises(InputError, match=r"cut\.json: whole file") as caught:
        read_record(tmp_path / "cut.json", Metrics)
    assert "\n" not in str(caught.value)


def test_a_failed_write_leaves_the_old_file(metrics, tmp_path, monkeypatch):
    file = tmp_path / "metrics.json"
    write_record(file, metrics)
    before = file.read_bytes()

    def fail(path, text):
        raise OSError("disk full")

    monkeypatch.setattr(schema, "write_atomic", fail)
    with pytest.raises(OSError, match="disk full"):
        write_record(file, make_metrics(run="other"))
    assert file.read_bytes() == before


def test_same_input_same_bytes(tmp_path):
    for name in ("a.json", "b.json"):
        write_record(tmp_path / name, make_metrics())
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()

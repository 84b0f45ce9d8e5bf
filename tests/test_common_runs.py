import json
import subprocess
import sys

import pytest

from common.config import load_config
from common.errors import InputError
from common.records import IGNORED, FinishReason, LabelledPath, Path, Problem, Step, Verdict
from common.runs import Run, read_records, read_rows, write_atomic, write_rows


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("seed: 3")
    return lambda *overrides: load_config(path, list(overrides))


def sample_path():
    return Path(
        "p", "q", "1+1=2\nAnswer: 2", (5, 6, 7), (Step("1+1=2", 0, 5, 0, 2),), "2", Verdict.CORRECT, FinishReason.STOP
    )


def test_a_stage_is_done_only_after_finish(tmp_path, config):
    stage = Run(tmp_path / "r").stage("prm")
    timer = stage.begin(config())
    assert not stage.is_done
    timer.finish(f1=0.5)
    assert stage.is_done
    assert stage.summary["f1"] == 0.5
    assert not list(stage.path.glob("*.tmp"))


def test_changed_configuration_is_refused_by_key_and_nothing_is_written(tmp_path, config):
    stage = Run(tmp_path / "r").stage("ppo")
    stage.begin(config())
    before = stage.file("config.json").read_text()
    with pytest.raises(InputError, match=r"ppo.kl_coef = 0.02, now it is 0.05"):
        stage.begin(config("ppo.kl_coef=0.05"))
    assert stage.file("config.json").read_text() == before
    stage.begin(config("eval.samples=9"))  # a later stage's key does not matter here
    stage.begin(config("base.threads=1"))  # nor does one that changes no result


def test_missing_stage_names_the_command(tmp_path):
    with pytest.raises(InputError, match=r"run: make data RUN=.*r ROUND=2"):
        Run(tmp_path / "r", 2).require("label")


def test_seconds_add_up_over_interrupted_runs(tmp_path, config):
    stage = Run(tmp_path / "r").stage("eval")
    timer = stage.begin(config())
    timer.before = 100.0
    timer.save()
    assert 100.0 <= stage.begin(config()).seconds < 101.0


def test_metrics_survive_a_row_cut_by_a_kill(tmp_path, config):
    stage = Run(tmp_path / "r").stage("ppo")
    stage.begin(config())
    stage.log({"step": 1})
    with stage.file("metrics.jsonl").open("a") as handle:
        handle.write('{"step": 2, "lo')
    assert stage.metrics() == [{"step": 1}]


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="Out of range"):
        write_rows(tmp_path / "x.jsonl", [{"a": float("nan")}])
    assert not (tmp_path / "x.jsonl").exists()


def test_rows_name_file_and_row(tmp_path):
    path = tmp_path / "x.jsonl"
    write_atomic(path, '{"a": 1}\nnot json\n')
    with pytest.raises(InputError, match=r"x.jsonl, row 2: not JSON"):
        list(read_rows(path))
    write_atomic(path, "[1]\n")
    with pytest.raises(InputError, match=r"row 1: a list, want a JSON object"):
        list(read_rows(path))
    write_atomic(path, '{"id": "x"}\n')
    with pytest.raises(InputError, match=r"row 1: TypeError"):
        read_records(path, Problem.from_row)


def test_records_survive_a_round_trip(tmp_path):
    labelled = LabelledPath(sample_path(), (1,), None, (3,), ("equation",), "frequency:forward")
    problem = Problem.create("Compute 1+1.", "2", source="synthetic", topic="chain", level=1)
    write_rows(tmp_path / "l.jsonl", [labelled.to_row()])
    write_rows(tmp_path / "p.jsonl", [problem.to_row()])
    assert read_records(tmp_path / "l.jsonl", LabelledPath.from_row) == [labelled]
    assert read_records(tmp_path / "p.jsonl", Problem.from_row) == [problem]
    assert json.loads((tmp_path / "l.jsonl").read_text())["labels"] == [1]


def test_labels_must_match_steps():
    with pytest.raises(ValueError, match="2 labels for 1 steps"):
        LabelledPath(sample_path(), (1, IGNORED), None, (3,), ("equation",), "oracle")


def test_ids_depend_on_content_only():
    first = Problem.create("a", "1", source="s", topic="t")
    assert first.id == Problem.create("a", "1", source="s", topic="other").id
    assert first.id != Problem.create("a", "2", source="s", topic="t").id
    code = "from common.records import Problem; print(Problem.create('a', '1', source='s', topic='t').id)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == first.id

"""The whole loop on the micro configuration: payloads, reruns, kills, bad input, rounds."""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_label_stage import sampled  # noqa: F401 fixture
from test_metric_table import keys_of, keys_of_rarer_runs, unknown, unwritten

from bench.differences import differences
from bench.endings import ending
from bench.kill import run_with_kills
from bench.stage_process import StageProcesses
from common.cli import parse, stage_main
from common.models import load_policy, weights_hash
from common.records import LabelledPath
from common.runs import Run, read_records
from common.signal_settings import SIGNALS, SignalSettings
from data_gen.__main__ import data_stage
from eval.__main__ import eval_stage
from eval.schema import Metrics, read_record
from pipeline.rounds import rounds_table
from pipeline.stages import stage_command
from policy.train import train_stage
from prm.__main__ import fit_stage

PROJECT = Path(__file__).parent.parent
MICRO = str(PROJECT / "configs" / "micro.yaml")
SECTIONS = ("base", "lora", "data", "prm", "ppo", "eval", "rounds")
STAGES = {"data": data_stage, "prm": fit_stage, "ppo": train_stage, "eval": eval_stage}


def run_stage(stage: str, root: Path, *overrides: str, round_index: int = 0) -> int:
    argv = ["--config", MICRO, "--run", str(root), "--round", str(round_index), *overrides]
    return stage_main(stage, "", SECTIONS, STAGES[stage], argv)


def command(module: str, root: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", module, "--config", MICRO, "--run", str(root), *overrides]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of one round; tests read it and do not write in it."""
    root = tmp_path_factory.mktemp("runs") / "micro"
    seconds = {}
    for stage in STAGES:
        before = time.process_time()
        assert run_stage(stage, root) == 0
        seconds[stage] = time.process_time() - before
    root.with_name("cpu.json").write_text(json.dumps(seconds))
    return root


def copied(finished: Path, tmp_path: Path, *stages: str) -> Path:
    """A run folder that holds copies of the named finished stages."""
    root = tmp_path / "run"
    for stage in stages:
        source = Run(finished).stage(stage).path
        shutil.copytree(source, Run(root).stage(stage).path)
    return root


def test_the_loop_leaves_every_payload(finished):
    run = Run(finished)
    metrics = read_record(run.stage("eval").file("metrics.json"), Metrics)
    for model in (metrics.base, metrics.policy):
        for name in ("pass1_greedy", "pass1_sampled", "pass1_best_temperature", "majority8", "prm_best8"):
            figure = getattr(model, name)
            assert figure.ci95[0] <= figure.value <= figure.ci95[1]
    assert 0 <= metrics.labels.coverage <= 1
    assert metrics.prm.brier.value is not None
    assert (metrics.ppo.fallbacks, metrics.ppo.steps, metrics.ppo.stopped_by) == (0, 16, "max_steps")
    assert metrics.ppo.kl > 0
    assert metrics.ppo.prm_unchanged is True
    seconds = metrics.seconds.model_dump()
    assert seconds.pop("sft") is None
    assert min(seconds.values()) > 0
    report = (finished / "report.html").read_text()
    assert f"{100 * metrics.policy.pass1_sampled.value:.1f}" in report
    rows = run.stage("ppo").metrics()
    assert {row["step"] for row in rows if "eval_accuracy" in row} == {0, 8, 16}


def test_training_changed_the_policy_and_only_the_policy(finished):
    before = weights_hash(load_policy("data_gen/base_model"))
    after = weights_hash(load_policy(str(Run(finished).stage("ppo").file("policy"))))
    assert before != after


def test_labels_follow_the_rules(finished):
    rows = read_records(Run(finished).stage("label").file("paths.jsonl"), LabelledPath.from_row)
    wrong = [row for row in rows if row.path.verdict == "WRONG"]
    assert wrong
    for row in wrong:
        assert row.labels == tuple(int(k < row.first_error) for k in range(len(row.labels)))


def test_a_finished_stage_is_left_alone(finished, capsys):
    done = Run(finished).stage("prm").file("DONE")
    before = done.stat().st_mtime_ns
    assert run_stage("prm", finished) == 0
    assert "is finished" in capsys.readouterr().out
    assert done.stat().st_mtime_ns == before


def test_another_configuration_is_refused(finished, capsys):
    assert run_stage("ppo", finished, "ppo.kl_coef=0.03") == 2
    error = capsys.readouterr().err
    assert "ppo.kl_coef = 0.02, now it is 0.03" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("stage", "wanted"), [("prm", "make data"), ("ppo", "make prm"), ("eval", "make ppo")])
def test_a_missing_stage_is_named_with_its_command(tmp_path, capsys, stage, wanted):
    assert run_stage(stage, tmp_path / "empty") == 2
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "empty").exists()


def test_ppo_refuses_a_prm_below_the_floor(finished, tmp_path, capsys):
    root = copied(finished, tmp_path, "sample", "label", "prm")
    done = Run(root).stage("prm").file("DONE")
    done.write_text(json.dumps(json.loads(done.read_text()) | {"first_error_f1": 0.1}))
    assert run_stage("ppo", root, "prm.min_first_error_f1=0.4") == 2
    assert "is below prm.min_first_error_f1 = 0.4" in capsys.readouterr().err


def test_ppo_on_signals_needs_no_prm(finished, tmp_path):
    root = copied(finished, tmp_path, "sample", "label")
    assert run_stage("ppo", root, "ppo.reward=signals", "ppo.batches=2") == 0
    assert not Run(root).stage("prm").path.exists()
    stage = Run(root).stage("ppo")
    rows = [row for row in stage.metrics() if "signals/total" in row]
    assert len(rows) == 2
    for row in rows:
        means = {name: row[f"signals/{name}"] for name in SIGNALS}
        assert all(0 <= value <= 1 for value in means.values())
        assert row["signals/total"] == pytest.approx(sum(getattr(SignalSettings(), k) * v for k, v in means.items()))
        assert "kl/reference" in row
    assert (stage.summary["prm_hash"], stage.summary["process_weight"], stage.summary["steps"]) == (None, 0, 8)
    assert weights_hash(load_policy(str(stage.file("policy")))) != weights_hash(load_policy("data_gen/base_model"))


def test_bad_problem_file_names_row_and_field(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"problem": "1+1", "answer": "2", "split": "validation"}\n{"problem": "", "answer": "3"}\n')
    assert run_stage("data", tmp_path / "run", f"data.source={rows}") == 2
    assert "rows.jsonl, row 2, field 'problem': ''" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["data_gen", "prm", "policy", "eval"])
def test_help_explains_every_field_of_the_stage(module):
    shown = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=PROJECT)
    assert shown.returncode == 0
    assert "data.pass_low = 0.2" in shown.stdout
    assert "problems with a lower pass rate are left out" in " ".join(shown.stdout.split())


def test_five_kills_inside_the_stages_change_no_figure_and_no_weight(finished, tmp_path):
    seconds = json.loads(finished.with_name("cpu.json").read_text())
    rng = random.Random(0)
    # Early: a stage in a process of its own takes about half the CPU seconds that it took in this one, less on a busy
    # machine; a run whose stages end before their moments is made again with earlier ones.
    moments = {stage: [rng.uniform(0.05, 0.35) * seconds[stage]] for stage in STAGES}
    moments["ppo"].append(rng.uniform(0.05, 0.3) * seconds["ppo"])
    kills = []
    for number in range(3):
        if len(kills) < 3:
            root = tmp_path / f"cut-{number}" / "micro"
            root.parent.mkdir()
            kills, _ = run_with_kills(StageProcesses(MICRO), root, number, moments)
            moments = {stage: [moment / 3 for moment in early] for stage, early in moments.items()}
    assert len(kills) >= 3
    wanted = ending(finished)
    assert len(wanted) > 300
    assert differences(wanted, ending(root)) == []


def test_second_round_starts_from_the_first_policy_and_a_worse_prm_is_rejected(finished, tmp_path, capsys):
    root = copied(finished, tmp_path, "sample", "label", "prm", "ppo", "eval")
    assert run_stage("data", root, round_index=1) == 0
    first, second = (Run(root, k).require("sample").file("problems_train.jsonl").read_text() for k in (0, 1))
    assert first != second
    assert run_stage("prm", root, "prm.learning_rate=1.0", "prm.epochs=2", round_index=1) == 0
    summary = Run(root, 1).require("prm").summary
    assert summary["accepted"] is False
    assert "refit rejected" in capsys.readouterr().out
    kept, used = (Run(root, k).stage("prm").file("prm") / "model.safetensors" for k in (0, 1))
    assert kept.read_bytes() == used.read_bytes()
    assert run_stage("ppo", root, "prm.learning_rate=1.0", "prm.epochs=2", "ppo.batches=2", round_index=1) == 0
    rows = Run(root, 1).stage("ppo").metrics()
    assert any("kl/base" in row for row in rows)
    assert run_stage("eval", root, "prm.learning_rate=1.0", "prm.epochs=2", "ppo.batches=2", round_index=1) == 0
    assert rounds_table(root, 2).row_count == 2
    assert unknown(keys_of(Run(root, 1))) == []  # with the PRM of the round before


def test_adapters_run_the_loop_over_one_base_and_are_carried_to_the_next_round(finished, tmp_path, capsys):
    """Round 0 and the training stages of round 1, on the data of the finished run."""
    settings = ["lora.rank=4", "ppo.batches=1", "ppo.eval_every=1", "ppo.problems=4", "prm.batch_paths=64"]
    root = copied(finished, tmp_path, "sample", "label")
    assert run_stage("prm", root, *settings) == 0
    assert run_stage("ppo", root, *settings) == 0
    first = Run(root).require("ppo")
    assert first.summary["prm_unchanged"] is True
    policy = load_policy(str(first.file("policy")))  # plain and merged
    assert set(policy.state_dict()) == set(load_policy("data_gen/base_model").state_dict())
    assert weights_hash(policy) != weights_hash(load_policy("data_gen/base_model"))
    assert run_stage("eval", root, *settings, "eval.resamples=100", "eval.temperatures=[0.0]") == 0
    for stage in ("sample", "label"):
        shutil.copytree(Run(finished).stage(stage).path, Run(root, 1).stage(stage).path)
    assert run_stage("prm", root, *settings, "rounds.f1_tolerance=1.0", round_index=1) == 0
    assert run_stage("ppo", root, *settings, "rounds.f1_tolerance=1.0", round_index=1) == 0
    second = Run(root, 1).require("ppo")
    kl_base = [row["kl/base"] for row in second.metrics() if "kl/base" in row]
    assert len(kl_base) == 1
    assert kl_base[0] != 0  # of paths sampled before the first update: with a fresh adapter it would be 0
    files = [stage.file("policy") / "adapter" / "adapter_model.safetensors" for stage in (first, second)]
    assert files[0].read_bytes() != files[1].read_bytes()
    capsys.readouterr()
    full = ["ppo.batches=1", "ppo.eval_every=1", "ppo.problems=4", "prm.batch_paths=64"]
    assert run_stage("ppo", root, *full, "rounds.f1_tolerance=1.0", round_index=1) == 2
    assert "lora.rank = 4, now it is 0" in capsys.readouterr().err


def test_an_offline_wandb_run_holds_every_monitor_key(finished, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.setenv(name, "")  # restored after the test, whatever the stage sets
        monkeypatch.delenv(name)
    root = copied(finished, tmp_path, "sample", "label", "prm")
    process = subprocess.run(
        command("policy", root, "report_to=wandb", "ppo.batches=1", "ppo.eval_every=1"),
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    stage = Run(root).stage("ppo")
    (record,) = stage.path.glob("wandb/offline-run-*/*.wandb")
    written = record.read_bytes()
    keys = {key for row in stage.metrics() for key in row} - {"step", "alarms", "epoch"}
    assert len(keys) > 30
    missing = {key for key in keys if key.removeprefix("eval_").encode() not in written}
    assert not missing


def test_the_table_of_metrics_holds_what_runs_write_and_nothing_else(finished, tmp_path, sampled):  # noqa: F811
    written, rarer = keys_of(Run(finished)), keys_of_rarer_runs(tmp_path, sampled)
    written = {place: keys | rarer.get(place, set()) for place, keys in written.items()}
    assert min(map(len, written.values())) > 5
    assert unknown(written) == []
    assert unwritten(written) == []


def test_stages_that_train_go_through_the_launcher():
    launch = ["accelerate", "launch"]
    assert stage_command("ppo", "c.yaml", Run(Path("r"), 1), ["seed=1"], launch) == [
        *launch, "-m", "policy", "--config", "c.yaml", "--run", "r", "--round", "1", "seed=1",
    ]  # fmt: skip
    assert stage_command("data", "c.yaml", Run(Path("r")), [], launch)[0] == sys.executable


def test_default_run_folder_is_named_after_the_configuration():
    _, run = parse("data_gen", "", SECTIONS, ["--config", MICRO])
    assert run.root == Path("runs/micro")

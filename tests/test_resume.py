"""What a resumed run goes on from is checked first: rows, payloads, checkpoints; a full disk; notes of the log."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import TrainerState

from bench.differences import differences, flat
from bench.kill import draw_moments
from bench.repro import Spread, spread_of, table
from common.checkpoints import newest_intact, use_intact_best
from common.checksums import read_checked_rows, write_checked_rows, write_manifest
from common.cli import is_disk_full
from common.config import load_config
from common.errors import InputError, RunError
from common.files import write_atomic
from common.progress import SaveSeconds
from common.runs import Run
from data_gen.completion_store import StoredCompletions
from data_gen.completions import CompletionCost, CompletionSampler
from data_gen.measure import SampleSettings
from eval.schema import Figure
from policy.metrics_log import MetricsLog

# ---- rows with a checksum ----

ROWS = [{"a": 1}, {"a": "ü\u2028x"}, {"a": None}]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda body: body[:-5], "its last line, the checksum, is missing"),
        (lambda body: b"\n".join(body.splitlines()[:-1]) + b"\n", "its last line, the checksum, is missing"),
        (lambda body: b"\n".join([body.splitlines()[0], *body.splitlines()[2:]]) + b"\n", "not as it was written"),
        (lambda body: body.replace(b"1", b"2", 1), "not as it was written"),
        (lambda body: b"", "its last line, the checksum, is missing"),
    ],
)
def test_rows_that_were_cut_or_changed_are_not_read_and_said(tmp_path, harm, said):
    file, heard = tmp_path / "rows.jsonl", []
    assert read_checked_rows(file, dict, heard.append) is None
    write_checked_rows(file, ROWS)
    assert read_checked_rows(file, dict, heard.append) == ROWS
    assert heard == []
    file.write_bytes(harm(file.read_bytes()))
    assert read_checked_rows(file, dict, heard.append) is None
    assert len(heard) == 1
    assert said in heard[0]


# ---- payload of a finished stage ----


def finished_stage(tmp_path: Path):
    config = load_config(Path(__file__).parent.parent / "configs" / "micro.yaml")
    stage = Run(tmp_path / "run").stage("prm")
    timer = stage.begin(config)
    (stage.path / "prm").mkdir()
    (stage.path / "prm" / "weights").write_bytes(b"12345678")
    (stage.path / "metrics.json").write_text("{}")
    timer.finish("prm", "metrics.json", f1=0.5)
    return config, stage


def test_a_damaged_payload_is_refused_by_the_next_stage_and_made_again_by_its_own(tmp_path, capsys):
    config, stage = finished_stage(tmp_path)
    assert sorted(stage.summary["sha256"]) == ["metrics.json", "prm/weights"]
    assert Run(tmp_path / "run").require("prm") == stage
    stage.begin(config)
    assert stage.is_done
    (stage.path / "prm" / "weights").write_bytes(b"1234567")
    os.utime(stage.file("DONE"))  # another process would look; this one has looked at this DONE
    with pytest.raises(InputError, match=r"prm/weights is not as it was written .* run: make prm RUN="):
        Run(tmp_path / "run").require("prm")
    stage.begin(config)
    assert not stage.is_done
    assert "prm/weights is not as it was written" in capsys.readouterr().out
    assert "it is made again" in stage.file("continued.log").read_text()


def test_a_damaged_done_or_configuration_is_told(tmp_path, capsys):
    config, stage = finished_stage(tmp_path)
    stage.file("DONE").write_text('{"seconds": 1')
    stage.begin(config)
    assert not stage.is_done
    assert "DONE cannot be read" in capsys.readouterr().out
    stage.file("config.json").write_text('{"seed')
    with pytest.raises(InputError, match=r"config.json: damaged"):
        stage.begin(config)


def test_an_unreadable_row_inside_a_log_is_told(tmp_path, capsys):
    _, stage = finished_stage(tmp_path)
    stage.file("metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    assert [row["step"] for row in stage.metrics()] == [1, 3]
    assert "row(s) 2 cannot be read" in capsys.readouterr().out


def test_seconds_up_to_the_last_checkpoint_are_counted_after_a_kill(tmp_path):
    config, stage = finished_stage(tmp_path)
    timer = stage.begin(config)
    timer.before = 100.0
    SaveSeconds(timer).on_save(None, TrainerState(is_world_process_zero=True), None)
    assert 100.0 <= stage.begin(config).before < 101.0


# ---- checkpoints: the best one before counts too ----


def checkpoint(folder: Path, step: int, best: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": f"elsewhere/checkpoint-{best}"}))
    (path / "weights").write_bytes(bytes(range(256)))
    write_manifest(path)
    return path


def test_a_checkpoint_whose_best_was_damaged_is_passed_over_for_one_before_it(tmp_path):
    first, best, newest = checkpoint(tmp_path, 4, 4), checkpoint(tmp_path, 8, 8), checkpoint(tmp_path, 12, 8)
    heard: list[str] = []
    assert newest_intact(tmp_path, ("trainer_state.json",), heard.append) == str(newest)
    (best / "weights").write_bytes(b"")
    assert newest_intact(tmp_path, ("trainer_state.json",), heard.append) == str(first)
    assert len(heard) == 1  # checkpoint-8 itself
    (first / "weights").write_bytes(b"")
    assert newest_intact(tmp_path, ("trainer_state.json",), heard.append) == str(newest)
    assert "has lost the best checkpoint before it (checkpoint-8: weights is not as" in heard[-1]


def test_the_best_of_a_fit_that_was_damaged_is_replaced_aloud_or_refused(tmp_path):
    class State:
        best_model_checkpoint = str(tmp_path / "checkpoint-8")
        best_global_step, best_metric = 8, 0.9
        log_history = ({"step": 12, "eval_f1": 0.7},)

    best, other = checkpoint(tmp_path, 8, 8), checkpoint(tmp_path, 12, 12)
    heard: list[str] = []
    use_intact_best(State, tmp_path, ("trainer_state.json",), "eval_f1", heard.append)
    assert (State.best_global_step, heard) == (8, [])
    (best / "weights").write_bytes(b"")
    use_intact_best(State, tmp_path, ("trainer_state.json",), "eval_f1", heard.append)
    assert (State.best_model_checkpoint, State.best_global_step, State.best_metric) == (str(other), 12, 0.7)
    assert "another run may end differently" in heard[-1]
    (other / "weights").write_bytes(b"")
    with pytest.raises(RunError, match=r"damaged .* and there is no other"):
        use_intact_best(State, tmp_path, ("trainer_state.json",), "eval_f1", heard.append)


# ---- a full disk, as the libraries really say it ----


@contextlib.contextmanager
def largest_file(size: int):
    """No file may grow above ``size`` bytes: writes fail as on a full disk, with another number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_atomic(folder / "rows", "x" * 200_000),
        lambda folder: torch.save(torch.zeros(50_000), folder / "optimizer.pt"),
        lambda folder: save_file({"w": torch.zeros(50_000)}, folder / "model.safetensors"),
    ],
    ids=["rows", "torch", "safetensors"],
)
def test_every_writer_that_meets_a_full_disk_is_understood(tmp_path, write):
    with largest_file(65_536), pytest.raises((OSError, RuntimeError, SafetensorError)) as caught:
        write(tmp_path)
    assert is_disk_full(caught.value)
    assert not list(tmp_path.glob(".*.tmp"))


def test_other_failures_are_no_full_disk():
    assert not is_disk_full(RuntimeError("shapes differ"))
    assert not is_disk_full(FileNotFoundError(2, "No such file"))
    wrapped = ValueError("outer")
    wrapped.__cause__ = OSError(28, "No space left on device")
    assert is_disk_full(wrapped)


# ---- worker processes end with a killed parent ----

PARENT = """
import multiprocessing, time
from common.processes import end_with_parent
def work():
    end_with_parent()
    time.sleep(600)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_a_worker_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = str(Path(__file__).parent.parent)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    worker = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    limit = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < limit, "the worker outlived its parent"
        time.sleep(0.05)


# ---- notes of the log ----


def test_notes_of_the_update_after_the_checkpoint_are_dropped_with_it(tmp_path):
    _, stage = finished_stage(tmp_path)
    log = MetricsLog(stage)
    log.announce(3, "first")
    stage.log({"step": 8, "loss": 0.5})
    log.announce(8, "before the checkpoint of update 8")
    log.announce(8, "in the update after it")
    stage.log({"step": 12, "loss": 0.4})
    log.drop_after(8, notes=2)
    assert [row.get("alarms", row["step"]) for row in stage.metrics()] == [
        "first",
        8,
        "before the checkpoint of update 8",
    ]


# ---- completions of Monte-Carlo labels ----


class Counted(CompletionSampler):
    def outcomes(self, keys, n, cost):
        self.engine.append(len(keys))
        cost.tokens += 7 * len(keys)
        return {key: [key[1][0] % 2 == 0] * n for key in keys}


def test_labelling_goes_on_behind_the_completions_that_are_there(tmp_path):
    calls: list[int] = []
    sampler = Counted(calls, None, None, {}, SampleSettings(), seed=3)  # type: ignore[arg-type]
    keys = [("p", (k, k + 1)) for k in range(5)]
    heard: list[str] = []
    store = StoredCompletions(sampler, tmp_path, heard.append, chunk=2)
    cost, again = CompletionCost(), CompletionCost()
    wanted = store.outcomes(keys, 3, cost)
    assert (wanted, calls) == ({key: [key[1][0] % 2 == 0] * 3 for key in keys}, [2, 2, 1])
    assert (cost.prefixes, cost.completions, cost.tokens) == (5, 15, 35)
    last = sorted(tmp_path.glob("*.jsonl"), key=lambda file: file.stat().st_size)[0]
    last.write_bytes(last.read_bytes()[:-4])
    assert store.outcomes(keys, 3, again) == wanted
    assert calls[3:] == [1]
    assert again == cost
    assert "completions of 4 of 5 prefixes are there" in heard[-1]
    assert store.outcomes(keys, 2, CompletionCost())[keys[0]] == [True, True]  # another draw is sampled
    assert calls[4:] == [2, 2, 1]


# ---- the tools ----


def test_moments_lie_in_their_stages_in_proportion():
    import random

    seconds = {"data": 1.0, "prm": 0.0, "ppo": 3.0}
    moments = draw_moments(seconds, 4000, random.Random(1))
    assert sum(map(len, moments.values())) == 4000
    assert len(moments["ppo"]) == pytest.approx(3000, abs=120)
    for stage, found in moments.items():
        assert all(0 <= moment <= seconds[stage] for moment in found)
    assert sum(moments["ppo"]) / len(moments["ppo"]) == pytest.approx(1.5, abs=0.1)


def test_endings_differ_in_any_figure_but_a_time():
    row = {"a": {"value": 0.5, "ci95": [0.4, 0.6]}, "seconds": {"ppo": 3}, "history": [{"train_runtime": 2.0, "f1": 1}]}
    wanted = flat(row)
    assert wanted == {"a.value": 0.5, "a.ci95.0": 0.4, "a.ci95.1": 0.6, "history.0.f1": 1}
    assert differences(wanted, dict(wanted)) == []
    assert differences(wanted, wanted | {"a.ci95.1": 0.61}) == ["a.ci95.1"]
    assert differences(wanted, wanted | {"b": None}) == ["b"]
    assert differences(wanted, {}) == sorted(wanted)


def test_spread_against_its_limit_by_hand():
    def figure(value: float) -> Figure:
        return Figure(value=value, ci95=(value - 0.02, value + 0.03))

    close = spread_of("x", [figure(0.50), figure(0.54), figure(0.53)])
    assert (close.spread, close.limit, close.is_within) == (pytest.approx(0.04), pytest.approx(0.05), True)
    assert not spread_of("x", [figure(0.50), figure(0.56)]).is_within
    assert not spread_of("x", [figure(0.50), figure(0.54)], limit=0.03).is_within
    absent = Figure.absent("no PRM")
    assert spread_of("x", [absent, absent]).is_within
    assert not spread_of("x", [figure(0.5), absent]).is_within
    assert not Spread("x", (0.5, 0.6), None).is_within
    shown = table([0, 1], [close], ["metrics.a"])
    assert (shown.row_count, "1 values differ" in str(shown.title)) == (1, True)

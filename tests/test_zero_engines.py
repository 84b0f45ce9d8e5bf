"""DDP, DeepSpeed ZeRO-1/2/3 and FSDP2 for real: two CPU ranks through ``accelerate launch``, against one process.

Run by ``make test-engines``. Tolerances are for float32: what two ranks round otherwise, AdamW makes larger.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import engine_ranks
import pytest
import torch
from prm_support import tiny_policy
from transformers import AutoModelForCausalLM

from common.errors import InputError

PROJECT = pathlib.Path(__file__).parent.parent
ENGINES = {
    "ddp": {"type": "MULTI_CPU", "wrapped": "DistributedDataParallel", "zero": 0, "fsdp": None},
    "zero1": {"type": "DEEPSPEED", "wrapped": "DeepSpeedEngine", "zero": 1, "fsdp": None},
    "zero2": {"type": "DEEPSPEED", "wrapped": "DeepSpeedEngine", "zero": 2, "fsdp": None},
    "zero3": {"type": "DEEPSPEED", "wrapped": "DeepSpeedEngine", "zero": 3, "fsdp": None},
    "fsdp2": {"type": "FSDP", "wrapped": "FSDPLlamaForCausalLM", "zero": 0, "fsdp": 2},
}
TOLERANCE = 1e-5
"""Largest difference of a weight or advantage between two ranks and one process."""
SECONDS = 300
pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(4 * SECONDS),
    pytest.mark.skipif(
        importlib.util.find_spec("deepspeed") is None,
        reason="deepspeed is not installed, no engine was run: make test-engines installs it and runs these",
    ),
]


def launched(engine: str, task: str, folder: pathlib.Path) -> tuple[int, str]:
    """Run a task of ``engine_ranks`` as two CPU ranks; returns exit code (-1: it ran too long) and what was printed."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    environment["PYTHONPATH"] = f"{PROJECT}{os.pathsep}{PROJECT / 'tests'}"
    command = [sys.executable, "-W", "ignore", "-m", "accelerate.commands.launch", "--num_processes", "2"]
    command += ["--config_file", str(PROJECT / f"configs/accelerate/{engine}.yaml"), "--main_process_port", port]
    with (folder / "output.txt").open("w+") as output:
        script = [str(PROJECT / "tests/engine_ranks.py"), str(folder), task]
        job = subprocess.Popen(
            command + script, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = job.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        output.seek(0)
        return code, output.read()[-4000:]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives the folder of a run by engine ("alone": one process, no engine) and task; each is run once."""
    root = tmp_path_factory.mktemp("engines")
    tiny_policy(root / "base")

    def folder_of(engine: str, task: str = "policy+prm") -> pathlib.Path:
        folder = root / f"{engine}-{task}"
        if not folder.exists():
            folder.mkdir()
            if engine == "alone":
                for one in task.split("+"):
                    engine_ranks.main(folder, one)
            else:
                for one in task.split("+"):  # a process of its own, as stages are: ZeRO-3 stays switched on in one
                    code, said = launched(engine, one, folder)
                    assert code == 0, said
        return folder

    return folder_of


def facts(folder: pathlib.Path, rank: int = 0) -> dict[str, Any]:
    return json.loads((folder / f"rank{rank}.json").read_text())


def policy_weights(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder / "policy").state_dict()


def assert_close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=TOLERANCE, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_that_runs_is_the_one_asked_for(runs, engine):
    for rank in range(2):
        found = facts(runs(engine), rank)
        assert {key: found[key] for key in ENGINES[engine]} == ENGINES[engine]
        assert found["ranks"] == 2


def test_zero_3_holds_pieces_and_zero_2_shards_the_optimiser(runs):
    assert facts(runs("zero3"))["local_elements"] == 0  # every weight of the policy is in pieces
    assert facts(runs("zero2"))["optimizer"] == "DeepSpeedZeroOptimizer"


@pytest.mark.parametrize("engine", ENGINES)
def test_two_ranks_train_the_policy_of_one_process(runs, engine):
    alone, start = policy_weights(runs("alone")), engine_ranks.toy_model().state_dict()
    assert max(float((alone[name] - start[name]).abs().max()) for name in start) > 1e-3  # training moved it
    assert_close(policy_weights(runs(engine)), alone)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_ranks_fit_the_prm_of_one_process(runs, engine):
    alone = torch.load(runs("alone") / "prm.pt")
    assert_close(torch.load(runs(engine) / "prm.pt"), alone)
    rows = [json.loads((runs(name) / "prm0.json").read_text())["history"] for name in ("alone", engine)]
    pairs = [(a, b) for a, b in zip(*rows, strict=True) if "eval_loss" in a]
    assert len(pairs) == 3
    assert all(a["eval_loss"] == pytest.approx(b["eval_loss"], rel=TOLERANCE) for a, b in pairs)


@pytest.mark.parametrize("engine", ENGINES)
def test_advantages_baselines_anchors_counts_and_monitors_are_global(runs, engine):
    alone, ranks = facts(runs("alone")), [facts(runs(engine), rank) for rank in range(2)]
    for batch, wanted in enumerate(alone["advantages"]):
        found = ranks[0]["advantages"][batch] + ranks[1]["advantages"][batch]
        assert len(found) == engine_ranks.BATCH
        for path, values in enumerate(wanted):
            assert found[path] == pytest.approx(values, abs=TOLERANCE)
    for rank in ranks:
        assert rank["average"]["is_set"] == alone["average"]["is_set"]
        assert rank["average"]["mean"] == pytest.approx(alone["average"]["mean"], abs=TOLERANCE)
        assert rank["notes"] == alone["notes"]
    assert json.dumps(ranks[0]["monitors"]) == json.dumps(ranks[1]["monitors"])  # what stops one stops the other
    logs = [[row for row in run["logs"] if "train_runtime" not in row] for run in (alone, ranks[0])]
    assert len(logs[0]) == len(logs[1]) == engine_ranks.UPDATES + 3
    assert sum(row.get("rollout/anchors", 0) for row in logs[0]) > 0
    for wanted, row in zip(*logs, strict=True):
        kept = {name: value for name, value in wanted.items() if not name.startswith(UNLIKE)}
        assert kept == pytest.approx({name: row[name] for name in kept}, rel=1e-4, abs=TOLERANCE)


UNLIKE = ("seconds/", "step", "epoch")
"""Figures of time and place."""


@pytest.mark.parametrize("engine", ["zero2", "zero3"])
def test_an_update_that_is_not_finite_on_one_rank_is_skipped_by_all(runs, engine):
    """The second one has a finite gradient: ZeRO's own check of the norm would let it through."""
    alone = facts(runs("alone", "fault"))
    assert alone["skipped"] == len(engine_ranks.FAULTS)
    assert alone["nonfinite"] == {"loss": 1, "gradient": 1, "ratio": 2}
    for rank in range(2):
        found = facts(runs(engine, "fault"), rank)
        assert found["skipped"] == alone["skipped"]
        assert found["nonfinite"] == alone["nonfinite"]
    assert_close(policy_weights(runs(engine, "fault")), policy_weights(runs("alone", "fault")))


def test_deepspeed_that_would_be_plain_data_parallel_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")  # accelerate then leaves DeepSpeed out without a word
    code, said = launched("zero2", "policy", tmp_path / "job")
    assert code != 0
    assert "launched for DEEPSPEED, but accelerate runs MULTI_CPU" in said


def test_a_killed_rank_of_zero2_ends_the_job_and_the_next_one_goes_on(runs, tmp_path):
    folder = tmp_path / "job"
    code, said = launched("zero2", "die", folder)
    assert code not in (0, -1), said  # ended by itself, and not well
    assert time.time() - (folder / "died").stat().st_mtime < 60
    code, said = launched("zero2", "policy", folder)
    assert code == 0, said
    assert facts(folder, 1)["resumed_from"].endswith("checkpoint-2")
    unbroken = facts(runs("zero2"))
    assert facts(folder)["monitors"] == unbroken["monitors"]
    assert_close(policy_weights(folder), policy_weights(runs("zero2")))


def test_a_checkpoint_of_two_ddp_ranks_goes_on_in_one_process(runs, tmp_path):
    folder = tmp_path / "job"
    code, said = launched("ddp", "die", folder)
    assert code not in (0, -1), said
    engine_ranks.main(folder, "policy")
    assert facts(folder)["resumed_from"].endswith("checkpoint-2")
    assert facts(folder)["ranks"] == 1
    assert_close(policy_weights(folder), policy_weights(runs("alone")))


def test_a_zero_checkpoint_is_refused_by_another_launch(runs, tmp_path):
    shutil.copytree(runs("zero2") / "checkpoints", tmp_path / "checkpoints")
    with pytest.raises(InputError, match="written by 2 processes under zero2, and 1 under none cannot go on"):
        engine_ranks.main(tmp_path, "policy")

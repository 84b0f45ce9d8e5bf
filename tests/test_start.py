"""``pipeline.start``: the supervised start before the stage it belongs to, in the four commands of the Makefile."""

import sys
from pathlib import Path

import pytest

from common.config import load_config
from common.runs import Run, write_atomic
from pipeline import start
from pipeline.start import is_due, main

PROJECT = Path(__file__).parent.parent
MICRO = str(PROJECT / "configs" / "micro.yaml")


@pytest.mark.parametrize(
    ("source", "due"),
    [("none", ()), ("solutions", ("data", "prm", "ppo")), ("right_paths", ("prm", "ppo"))],
)
def test_solutions_are_learnt_before_data_and_right_paths_behind_it(tmp_path, source, due):
    config = load_config(MICRO, [f"sft.source={source}"])
    assert tuple(stage for stage in start.BEFORE if is_due(config, Run(tmp_path), stage)) == due


def test_made_start_and_later_rounds_have_none_to_make(tmp_path):
    config = load_config(MICRO, ["sft.source=right_paths"])
    assert not is_due(config, Run(tmp_path, 1), "prm")
    folder = Run(tmp_path).stage("sft").path
    folder.mkdir(parents=True)
    assert is_due(config, Run(tmp_path), "prm")  # begun, not finished
    write_atomic(folder / "DONE", "{}")
    assert not is_due(config, Run(tmp_path), "prm")


def test_command_passes_options_on_and_its_exit_code_back(tmp_path, monkeypatch):
    calls = []

    def run(command):
        calls.append(command)
        return type("Ended", (), {"returncode": 3})

    monkeypatch.setattr(start.subprocess, "run", run)
    place = ["--config", MICRO, "--run", str(tmp_path)]
    assert main(["ppo", *place]) == 0
    assert calls == []
    assert main(["ppo", *place, "seed=1", "sft.source=right_paths"]) == 3
    assert calls == [[sys.executable, "-m", "policy.sft", *place, "--round", "0", "seed=1", "sft.source=right_paths"]]
    assert main(["prm", "--launch", "accelerate launch", *place, "sft.source=right_paths"]) == 3
    assert calls[1][:4] == ["accelerate", "launch", "-m", "policy.sft"]


def test_unreadable_setting_is_one_line(tmp_path, capsys):
    assert main(["data", "--config", MICRO, "--run", str(tmp_path), "sft.source=some"]) == 2
    assert capsys.readouterr().err.startswith("start: ")

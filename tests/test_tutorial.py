"""The commands of docs/tutorial.md, as they stand there, on the files that it tells one to write."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
TUTORIAL = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", TUTORIAL, re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    environment = own | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def stages(line: str, folder: Path) -> list[list[str]]:
    """What ``make`` would run after the installation, by the Python of this test (itself often a child of make)."""
    head, *rest = shlex.split(line)
    make = [head, "--dry-run", "--file", str(PROJECT / "Makefile"), "--old-file", ".venv/.installed", *rest]
    said = run(make, folder)
    assert said.returncode == 0, said.stderr
    return [[sys.executable, *shlex.split(one)[1:]] for one in said.stdout.splitlines()]


def test_own_problems_become_a_trained_model(tmp_path):
    (tmp_path / "configs").symlink_to(PROJECT / "configs")
    (python,), (yaml,), (rows,) = blocks("python"), blocks("yaml"), blocks("json")
    (tmp_path / "my.yaml").write_text(yaml)
    exec(compile(python.replace("problems.jsonl", str(tmp_path / "problems.jsonl")), "problems.py", "exec"), {})
    assert (tmp_path / "problems.jsonl").read_text().startswith(rows)
    lines = [line for block in blocks("") for line in block.splitlines()]
    (train,) = [line for line in lines if line.startswith("make data prm ppo eval")]
    commands = stages(train, tmp_path)
    assert [command[2] for command in commands] == [
        *("pipeline.start", "data_gen"),
        *("pipeline.start", "prm"),
        *("pipeline.start", "policy"),
        "eval",
    ]
    for command in commands:
        done = run(command, tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
    round_0 = tmp_path / "runs" / "my" / "round-0"
    for name in ("4_ppo/policy/model.safetensors", "3_prm/prm/model.safetensors", "5_eval/metrics.json"):
        assert (round_0 / name).is_file()
    assert (tmp_path / "runs" / "my" / "report.html").is_file()
    others = [shlex.split(line) for line in lines if line.startswith(".venv/bin/python -m")]
    assert [command[2] for command in others] == ["eval.doctor", "eval.metric_table"]
    for command in others:
        said = run([sys.executable, *command[1:]], tmp_path)
        assert said.returncode in ((0, 1) if "eval.doctor" in command else (0,)), said.stderr
        assert said.stdout

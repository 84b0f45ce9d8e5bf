"""A stage in a process of its own that can be killed at a chosen moment.

The process is forked from one that has imported the libraries and nothing else, so that a kill always meets the stage
at work and not Python's imports. It leads a process group, as ``make`` does, and the whole group gets the signal.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from common.errors import InputError
from common.files import write_atomic
from common.runs import Run

MODULES = {"data": "data_gen.__main__", "prm": "prm.__main__", "ppo": "policy.train", "eval": "eval.__main__"}
"""Command of each stage in the Makefile, in order -> module with its function."""
POLL_S = 0.03


def run_stage(stage: str, arguments: Sequence[str]) -> int:
    """Run a stage as its command line does; return its exit code."""
    from common.cli import stage_main
    from data_gen.__main__ import data_stage
    from eval.__main__ import eval_stage
    from policy.train import train_stage
    from prm.__main__ import fit_stage

    functions: dict[str, Callable[..., None]] = {
        "data": data_stage,
        "prm": fit_stage,
        "ppo": train_stage,
        "eval": eval_stage,
    }
    return stage_main(stage, "", ("base", "data", "prm", "ppo", "eval", "rounds"), functions[stage], list(arguments))


class StageProcesses:
    """Starts stages on one configuration.

    Args:
        config: path of its YAML file. overrides: ``section.key=value``.
    """

    def __init__(self, config: str, overrides: Sequence[str] = ()) -> None:
        self.config, self.overrides = config, list(overrides)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["bench.endings", *MODULES.values()])

    def run(self, stage: str, run: Run, log: Path, kill_at: float | None = None) -> tuple[int, float]:
        """Run a stage, and kill it when it has used ``kill_at`` seconds of CPU.

        Args:
            log: file that its output is added to.

        Returns:
            exit code (-9 after the kill) and the CPU seconds it used, as last seen before its end.
        """
        place = ["--config", self.config, "--run", str(run.root), "--round", str(run.round)]
        process = self._context.Process(target=_serve, args=(stage, [*place, *self.overrides], str(log)))
        process.start()
        assert process.pid is not None
        used = 0.0
        while process.is_alive():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended since the loop's test
                times = psutil.Process(process.pid).cpu_times()
                used = times.user + times.system
            if kill_at is not None and used >= kill_at:
                _kill_group(process.pid)
                break
            time.sleep(POLL_S)
        process.join()
        return int(process.exitcode or 0), used

    def ending(self, root: Path) -> dict[str, Any]:
        """``bench.endings.ending`` of a run, read in a process that has the libraries.

        Raises:
            InputError: it cannot be read, e.g. because a stage is not finished; its words are in the log.
        """
        found, log = root.with_name("ending.json"), root.with_name(f"{root.name}.log")
        process = self._context.Process(target=_write_ending, args=(root, found, log))
        process.start()
        process.join()
        if process.exitcode:
            raise InputError(f"{root}: how it ended cannot be read\n{tail(log)}")
        return dict(json.loads(found.read_text(encoding="utf-8")))


def _write_ending(root: Path, found: Path, log: Path) -> None:
    from bench.endings import ending

    _to_log(str(log))
    write_atomic(found, json.dumps(ending(root)))


def _serve(stage: str, arguments: list[str], log: str) -> None:
    """The process: a group of its own, output to a file, then the stage."""
    os.setsid()
    _to_log(log)
    raise SystemExit(run_stage(stage, arguments))


def _to_log(log: str) -> None:
    """Let what this process prints go to the end of a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # before its setsid, or after its end
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def tail(log: Path, lines: int = 12) -> str:
    """The end of a log, for an error message."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def say(line: Any) -> None:
    """Progress goes to standard error: standard output has one JSON line."""
    print(line, file=sys.stderr, flush=True)

"""A killable process for symbolic work: trees go in and out as JSON lines, so model text never reaches the
interpreter there.

A child started by `subprocess` (no fork, no import of the caller's main module) works from any thread and from a
forked process. After the limit the process is killed and replaced; it is recycled after `RECYCLE_AFTER` questions.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

LIMIT_S = 1.5
"""Wall seconds for one question, start of the process not counted."""
START_LIMIT_S = 60.0
RECYCLE_AFTER = 2_000
MEMORY_BYTES = 2 << 30
QUESTIONS = ("are_equal", "are_proportional")


class Unanswered(Exception):
    """The checker has no answer: its own fault, never the model's."""


class SymbolicTimeout(Unanswered):
    """The question was not answered within the limit; its process is gone."""


class SymbolicFailure(Unanswered):
    """SymPy raised on the question; the message names question and exception."""


class SymbolicWorker:
    """One child process, started when first asked. Use from several threads is serialised."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = -1
        self._asked = 0
        self._lines: queue.Queue[str | None] = queue.Queue()

    def ask(self, question: str, *trees: Any, limit_s: float = LIMIT_S) -> bool:
        """Return the answer of `grading.symbolic.<question>(*trees)`.

        Raises:
            SymbolicTimeout: no answer within `limit_s` seconds.
            SymbolicFailure: the question raised in the process.
        """
        with self._lock:
            if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps([question, *trees]) + "\n")
                self._process.stdin.flush()
                line = self._lines.get(timeout=limit_s)
            except (queue.Empty, BrokenPipeError):
                line = None
            if line is None:
                self._stop()
                raise SymbolicTimeout(f"{question}: no answer within {limit_s} s")
            self._asked += 1
            if self._asked >= RECYCLE_AFTER:
                self._stop()
            answer = json.loads(line)
            if not isinstance(answer, bool):
                raise SymbolicFailure(f"{question}: {answer}")
            return answer

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grading.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._owner, self._asked, self._lines = os.getpid(), 0, queue.Queue()
        threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()
        try:
            ready = self._lines.get(timeout=START_LIMIT_S)
        except queue.Empty:
            ready = None
        if ready is None:
            self._stop()
            raise RuntimeError("the process for symbolic answers did not start")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, ValueError):
                stream.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """Kill the process; the next question starts a new one."""
        with self._lock:
            self._stop()


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:  # type: ignore[union-attr]
            lines.put(line)
    lines.put(None)


WORKER = SymbolicWorker()
atexit.register(WORKER.close)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def main() -> None:
    """Answer questions, one JSON line each, until standard input ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from grading import symbolic

    print("ready", flush=True)
    for line in sys.stdin:
        question, *trees = json.loads(line)
        answer: bool | str
        try:
            answer = getattr(symbolic, question)(*map(_tuples, trees)) if question in QUESTIONS else "unknown question"
        except Exception as error:  # whatever SymPy raises is passed on by name, and the process goes on
            answer = type(error).__name__
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

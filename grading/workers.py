"""A killable process for symbolic work: trees go in and out as JSON lines, so model text never reaches the
interpreter there.

A template process, started by `subprocess` (no import of the caller's main module; right from any thread and in a
forked process), imports SymPy once and forks the worker that answers. A worker that is over its limit is killed and
the next one is there in milliseconds; after `RECYCLE_AFTER` questions or `RECYCLE_BYTES` a worker is replaced, so its
memory is bounded. Both end when the caller does, however it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

LIMIT_S = 1.5
"""Wall seconds for all questions of one answer, start of the process not counted."""
CPU_LIMIT_S = 4
"""CPU seconds after which a worker ends by itself, for the case that nobody is left to kill it."""
START_LIMIT_S = 60.0
RECYCLE_AFTER = 2_000
RECYCLE_BYTES = 256 << 20
MEMORY_BYTES = 2 << 30
"""Address space of a worker; a question that needs more fails by name (MemoryError)."""
QUESTIONS = ("are_equal", "are_proportional")
_END = 3
"""Exit code of a worker whose input ended: the template ends too."""


class Unanswered(Exception):
    """The checker has no answer: its own fault, never the model's."""


class SymbolicTimeout(Unanswered):
    """The question was not answered within the limit; its worker is gone."""


class SymbolicFailure(Unanswered):
    """SymPy raised on the question, or the process is gone; the message names question and cause."""


class SymbolicWorker:
    """One template with one worker, started when first asked. Use from several threads is serialised."""

    def __init__(self, recycle_after: int = RECYCLE_AFTER) -> None:
        """Take the number of questions after which a worker is replaced."""
        self._recycle_after = recycle_after
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = -1
        self._asked = 0
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.pid: int | None = None
        """Process id of the worker that answers next; None when there is none."""

    def ask(self, question: str, *trees: Any, limit_s: float = LIMIT_S) -> bool:
        """Return the answer of `grading.symbolic.<question>(*trees)`.

        Raises:
            SymbolicTimeout: no answer within `limit_s` seconds.
            SymbolicFailure: the question raised in the worker, or the process is gone.
        """
        with self._lock:
            self._start_if_needed()
            self._asked += 1
            try:
                reply = self._reply(json.dumps([self._asked, question, *trees]), time.monotonic() + limit_s)
            except (BrokenPipeError, EOFError):
                self._stop()
                raise SymbolicFailure(f"{question}: the process is gone") from None
            except queue.Empty:
                self._replace()
                raise SymbolicTimeout(f"{question}: no answer within {limit_s} s") from None
            if reply["last"]:
                self._await_worker()
            if not isinstance(reply["answer"], bool):
                raise SymbolicFailure(f"{question}: {reply['answer']}")
            return reply["answer"]

    def start(self) -> None:
        """Start template and worker if there are none."""
        with self._lock:
            self._start_if_needed()

    def _start_if_needed(self) -> None:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._start()

    def _reply(self, message: str, deadline: float) -> dict[str, Any]:
        """Send a question, return its reply. Raises queue.Empty at the deadline, EOFError without a process."""
        self._send(message)
        while True:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            if line is None:
                raise EOFError
            reply: dict[str, Any] = json.loads(line)
            if reply.get("question") == self._asked:
                return reply
            if "ready" in reply:  # the worker asked before died
                self.pid = reply["ready"]
                self._send(message)

    def _send(self, message: str) -> None:
        self._process.stdin.write(message + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grading.workers", str(self._recycle_after)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._owner, self._lines = os.getpid(), queue.Queue()
        threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()
        self._await_worker()

    def _await_worker(self) -> None:
        """Read up to the line in which the next worker reports; raises RuntimeError when none does."""
        self.pid = None
        while self.pid is None:
            try:
                line = self._lines.get(timeout=START_LIMIT_S)
            except queue.Empty:
                line = None
            if line is None:
                self._stop()
                raise RuntimeError("the process for symbolic answers did not start")
            self.pid = json.loads(line).get("ready")

    def _replace(self) -> None:
        """Kill the worker; the template forks the next one."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._await_worker()

    def _stop(self) -> None:
        process, self._process, self.pid = self._process, None, None
        if process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write("null\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, ValueError):
                stream.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """End template and worker; the next question starts new ones."""
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
    """Be the template: fork workers, one at a time, until standard input ends."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from grading import symbolic

    symbolic.warm_up()
    while True:
        worker = os.fork()
        if worker == 0:
            os._exit(_serve(symbolic, int(sys.argv[1])))
        if os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == _END:
            return


def _serve(symbolic: Any, recycle_after: int) -> int:
    """Answer questions, one JSON line each; return the exit code."""
    _send({"ready": os.getpid()})
    for asked, line in enumerate(open(0, encoding="utf-8", closefd=False), 1):  # noqa: SIM115
        message = json.loads(line)
        if message is None:
            return _END
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(
            resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_LIMIT_S, resource.RLIM_INFINITY)
        )
        number, question, *trees = message
        answer: bool | str
        try:
            answer = getattr(symbolic, question)(*map(_tuples, trees)) if question in QUESTIONS else "unknown question"
        except Exception as error:  # whatever SymPy raises is passed on by name, and the worker goes on
            answer = type(error).__name__
        last = asked >= recycle_after or resident_bytes(os.getpid()) > RECYCLE_BYTES
        _send({"question": number, "answer": answer, "last": last})
        if last:
            return 0
    return _END


def _send(message: dict[str, Any]) -> None:
    os.write(1, (json.dumps(message) + "\n").encode())


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, from /proc; 0 where that is missing."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


if __name__ == "__main__":
    main()

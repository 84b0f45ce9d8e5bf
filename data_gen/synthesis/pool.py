"""Derivations in processes that can be killed: SymPy may take for ever on what a model wrote."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import resource
from multiprocessing.connection import Connection
from typing import Any, Self

import psutil

from common.processes import end_with_parent
from data_gen.synthesis.check import Derived, Refused, derive_answer

LIMIT_S = 10.0
"""Wall seconds for one problem."""
START_S = 60.0
MEMORY_BYTES = 2 << 30
"""Address space that a process may take beyond what it starts with (what its parent had loaded counts there)."""


def _serve(pipe: Connection) -> None:
    """Answer questions until the other end is gone."""
    end_with_parent()
    limit = psutil.Process().memory_info().vms + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    pipe.send("ready")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            formal, also, twice = pipe.recv()
            try:
                pipe.send(derive_answer(formal, also, twice=twice))
            except Refused as error:
                pipe.send((error.reason, error.detail))
            except (MemoryError, RecursionError) as error:
                pipe.send(("derivation_failed", type(error).__name__))


class _Worker:
    def __init__(self, context: Any) -> None:
        self._context = context
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = self._context.Pipe()
        self.process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self._is_ready = False

    def ask(self, question: Any, limit_s: float) -> Derived:
        """Derive. Raises Refused also when the process took too long or died; there is a new one then."""
        try:
            if not self._is_ready:
                if not self.pipe.poll(START_S):
                    raise EOFError
                self.pipe.recv()
                self._is_ready = True
            self.pipe.send(question)
            if not self.pipe.poll(limit_s):
                self._restart()
                raise Refused("derivation_timeout", f"more than {limit_s} s")
            reply = self.pipe.recv()
        except (EOFError, OSError):
            self._restart()
            raise Refused("derivation_failed", "the process died") from None
        if isinstance(reply, tuple):
            raise Refused(*reply)
        return reply

    def _restart(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class DerivationPool:
    """A context with ``count`` processes; ``derive`` may be called from several threads."""

    def __init__(self, count: int, limit_s: float = LIMIT_S) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["data_gen.synthesis.check"])
        self._limit_s = limit_s
        self._workers = [_Worker(context) for _ in range(max(1, count))]
        self._free: queue.Queue[_Worker] = queue.Queue()
        for worker in self._workers:
            self._free.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()

    def derive(self, formal: Any, also: Any = None, *, twice: bool = False) -> Derived:
        """``check.derive_answer`` in a process, within the limit. Raises Refused."""
        worker = self._free.get()
        try:
            return worker.ask((formal, also, twice), self._limit_s)
        finally:
            self._free.put(worker)

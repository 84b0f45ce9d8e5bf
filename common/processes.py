"""Child processes that do not outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Let this process of ``multiprocessing`` end as soon as its parent is gone, however it ended.

    The parent's SIGKILL runs no handler: without this a worker that waits for its next task waits for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("end_with_parent: not a process that multiprocessing started")

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end_with_parent", daemon=True).start()

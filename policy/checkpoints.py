"""Which checkpoint of a policy run may be used: complete, and with the bytes it was written with."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import common.checkpoints
from common.checkpoints import STATE, newest_intact
from common.checksums import NO_MANIFEST, damage

POLICY_STATE = "policy_state.json"
WHOLE = (STATE, POLICY_STATE)


def policy_state(checkpoint: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``policy.upkeep`` saved beside TRL's files.

    Raises:
        ValueError: the checkpoint has none.
    """
    path = pathlib.Path(checkpoint, POLICY_STATE)
    if not path.is_file():
        raise ValueError(f"{checkpoint}: no {POLICY_STATE}; this checkpoint cannot be resumed")
    return json.loads(path.read_text())


def last_complete_checkpoint(folder: str | os.PathLike[str], say: Callable[[str], None] = print) -> str | None:
    """Return the newest checkpoint in a folder that was written to its end and is undamaged, None without any.

    ``trainer_state.json`` is the last file of TRL's; a process killed before it leaves an unusable folder.
    """
    return newest_intact(folder, WHOLE, say)


def use_intact_best(state: Any, folder: str | os.PathLike[str], say: Callable[[str], None]) -> None:
    """See ``common.checkpoints.use_intact_best``."""
    common.checkpoints.use_intact_best(state, folder, WHOLE, "eval_accuracy", say)


def last_good_checkpoint(folder: str | os.PathLike[str], before: int, best: str | None = None) -> str | None:
    """Return the complete, undamaged checkpoint a rollback goes to, None without any.

    Args:
        before: the update at which the first bad batch was sampled. The checkpoint of that very update is not good:
            its weights are the ones that batch was sampled from.
        best: the best checkpoint by validation; it is taken when it is old enough, else the newest that is.
    """
    good = {}
    for path in pathlib.Path(folder).glob("checkpoint-*"):
        update = path.name.rsplit("-", 1)[1]
        if update.isdecimal() and int(update) < before and damage(path) in (None, NO_MANIFEST) and _is_complete(path):
            good[int(update)] = path
    chosen = next((path for path in good.values() if best is not None and path.name == pathlib.Path(best).name), None)
    chosen = chosen or good.get(max(good, default=-1))
    return str(chosen) if chosen else None


def _is_complete(checkpoint: pathlib.Path) -> bool:
    return all((checkpoint / name).is_file() for name in WHOLE)

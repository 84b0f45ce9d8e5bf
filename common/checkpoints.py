"""Which checkpoint of a trainer may be used: written to its end, undamaged, and with an undamaged best one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.checksums import NO_MANIFEST, damage
from common.errors import RunError

STATE = "trainer_state.json"
"""The last file that transformers writes into a checkpoint."""


def newest_intact(
    folder: str | os.PathLike[str], whole: Sequence[str], say: Callable[[str], None] = print
) -> str | None:
    """Return the newest ``checkpoint-<n>`` of a folder that can be used, None without any.

    A checkpoint needs the JSON files ``whole`` (the trainer writes one of them last) and the bytes of its manifest, and
    so does the best one so far, which a resumed run may end with. When none has all that, the newest is taken that
    lacks a manifest (left by a kill between the two, or by an older version) or whose best one was damaged.

    Args:
        say: is told every checkpoint that is passed over, and why.
    """
    second_choice: tuple[Path, str] | None = None
    found = sorted(Path(folder).glob("checkpoint-*"), key=update_of, reverse=True)
    for path in found:
        reason = damage(path)
        if reason == NO_MANIFEST and _is_whole(path, whole):
            second_choice = second_choice or (path, "has no checksums")
        elif reason is not None:
            told = "not written to its end" if reason == NO_MANIFEST else reason
            say(f"{path} is passed over: {told}")
        elif (best := _best_damage(path)) is not None:
            second_choice = second_choice or (path, f"has lost the best checkpoint before it ({best})")
        else:
            return str(path)
    if second_choice is None:
        return None
    say(f"{second_choice[0]} {second_choice[1]} and is taken as it is")
    return str(second_choice[0])


def use_intact_best(
    state: Any, folder: str | os.PathLike[str], whole: Sequence[str], metric: str, say: Callable[[str], None]
) -> None:
    """Point ``state.best_model_checkpoint`` (a ``TrainerState``) at an undamaged checkpoint, the newest one if need be.

    Args:
        metric: name of the logged figure that chooses the best.

    Raises:
        RunError: the best checkpoint is damaged and there is no other.
    """
    best = state.best_model_checkpoint
    if best is None or (reason := damage(best)) in (None, NO_MANIFEST):
        return
    other = newest_intact(folder, whole, say)
    if other is None or Path(other).name == Path(best).name:
        raise RunError(f"the best checkpoint {best} is damaged ({reason}) and there is no other")
    step = update_of(Path(other))
    rows = [row for row in state.log_history if row.get("step") == step and metric in row]
    say(f"the best checkpoint {best} is damaged ({reason}); {other} is kept instead: another run may end differently")
    state.best_model_checkpoint, state.best_global_step = other, step
    state.best_metric = rows[-1][metric] if rows else None


def update_of(checkpoint: str | os.PathLike[str]) -> int:
    """Updates before a checkpoint, from its name."""
    return int(Path(checkpoint).name.rsplit("-", 1)[1])


def _best_damage(path: Path) -> str | None:
    """What is wrong with the best checkpoint that ``path`` names, None when nothing is or it is ``path`` itself."""
    state = path / STATE
    best = json.loads(state.read_text(encoding="utf-8")).get("best_model_checkpoint") if state.is_file() else None
    if best is None or Path(best).name == path.name:
        return None
    beside = path.parent / Path(best).name
    if not beside.is_dir():
        return f"{beside.name} is gone"
    reason = damage(beside)
    return None if reason in (None, NO_MANIFEST) else f"{beside.name}: {reason}"


def _is_whole(path: Path, names: Sequence[str]) -> bool:
    try:
        for name in names:
            json.loads((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True

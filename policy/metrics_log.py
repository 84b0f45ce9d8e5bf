"""The log of a policy run, ``metrics.jsonl``: one row a batch or an evaluation, one a note."""

from __future__ import annotations

import json
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback

from common.files import write_atomic
from common.ranks import is_main
from common.runs import StageFolder


class MetricsLog(TrainerCallback):
    """Appends each logged row to the stage's ``metrics.jsonl``; a resumed run drops rows after its checkpoint."""

    def __init__(self, stage: StageFolder) -> None:
        self.stage = stage

    def drop_after(self, step: int, notes: int | None = None) -> None:
        """Drop what was logged after the checkpoint of update ``step``.

        Args:
            notes: announcements before the checkpoint; those of the update after it bear the same number. None: those
                of a checkpoint of an older version, which all stay.
        """
        if not is_main():  # later than the main process it would drop what that has logged since
            return
        rows = [row for row in self.stage.metrics() if row["step"] <= step]
        is_note = ["alarms" in row for row in rows]
        rows = [row for k, row in enumerate(rows) if not is_note[k] or notes is None or sum(is_note[:k]) < notes]
        write_atomic(self.stage.file("metrics.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))

    def announce(self, update: int, line: str) -> None:
        """Write an alarm, a change of kl_coef or a stop to the log and above the bar."""
        tqdm.write(f"ppo: update {update}: {line}")
        self.stage.log({"step": update, "alarms": line})

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and state.is_world_process_zero and "train_runtime" not in logs:
            values = {name: value for name, value in logs.items() if isinstance(value, int | float | str)}
            self.stage.log({"step": state.global_step, **_finite(values)})


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: a non-finite number is logged as text, so that it stays visible."""
    return {k: str(v) if isinstance(v, float) and v - v != 0 else v for k, v in values.items()}

"""Progress of the stages that train: one bar with rate and time left, and one line an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback

from common.runs import StageTimer


class StageBar(TrainerCallback):
    """A bar over updates in place of the trainer's own printing.

    Args:
        title: name of the stage.
        shown: logged key -> label beside the bar, for training logs.
        evaluated: logged key -> label in the line that an evaluation prints.
    """

    def __init__(self, title: str, shown: Mapping[str, str], evaluated: Mapping[str, str]) -> None:
        self.title, self.shown, self.evaluated = title, shown, evaluated
        self.bar: tqdm | None = None

    @classmethod
    def attach(
        cls,
        trainer: Trainer,
        title: str,
        shown: Mapping[str, str],
        evaluated: Mapping[str, str],
        *,
        is_quiet: bool = False,
    ) -> None:
        """Put a bar in the place of the trainer's own progress and log printing; ``is_quiet``: print nothing."""
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        if not is_quiet:
            trainer.add_callback(cls(title, shown, evaluated))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.bar = tqdm(
                total=state.max_steps, initial=state.global_step, desc=self.title, unit="update", dynamic_ncols=True
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not logs or not state.is_world_process_zero:
            return
        if self.bar is not None:
            self.bar.set_postfix({label: f"{logs[key]:.3g}" for key, label in self.shown.items() if key in logs})
        found = {label: logs[key] for key, label in self.evaluated.items() if key in logs}
        if found:
            tqdm.write(
                f"{self.title}: update {state.global_step}: " + ", ".join(f"{k} {v:.3f}" for k, v in found.items())
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class SaveSeconds(TrainerCallback):
    """Notes the seconds of a stage with every checkpoint, so that a resumed stage adds to them."""

    def __init__(self, timer: StageTimer) -> None:
        self.timer = timer

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.timer.save()

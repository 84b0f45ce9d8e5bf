"""The ``transformers.Trainer`` of a PRM fit, its settings, and the one place that builds its arguments.

Departures from ``Trainer``'s defaults: own loss (mean over the labelled steps of the global window), order of batches
fixed by (seed, epoch) and grouped by length, no NaN filter in the logged loss, and ``evaluate`` measures first-error F1
on whole paths.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from common.checkpoints import STATE, use_intact_best
from common.checksums import write_manifest
from common.ranks import world_size
from common.records import IGNORED
from common.sharding import whole_weights
from prm.inputs import PRMBatch, PRMInput, collate
from prm.network import read_steps, reads_surprise
from prm.objective import right_step_loss, step_loss
from prm.score import PRMQuality, measure_quality, score_logits, to_probabilities
from prm.training_set import LengthGrouped, WholeWindows, blank_row

Part = Literal["head", "all"]
"""What a stage trains."""


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """Settings of a fit.

    Attributes:
        head_epochs, head_learning_rate: head-only stage; 0 epochs leave it out.
        epochs, learning_rate: stage of all weights; 0 epochs leave it out.
        batch_paths: paths of one micro-batch on one device.
        accumulate: micro-batches of one update.
        schedule: learning rate after the warm-up, down to 0 unless constant.
        warmup: share of a stage's updates with rising learning rate.
        weight_decay, max_grad_norm: AdamW's decay, and the limit of the gradient's norm.
        steps_after_error: wrong paths are cut this many steps behind their first error, see
            ``prm.training_set``; None keeps them whole. Held-out paths are never cut.
        lm_weight: of ``prm.objective.right_step_loss`` against the loss of the steps.
        wrong_weight: see ``prm.objective.step_loss``.
        select_by: what held-out figure picks the epoch that is kept.
        patience: epochs without a better held-out figure before a stage stops; None never stops early.
        lora_rank: 0 trains all weights, else LoRA adapters of this rank.
        bf16: compute in bfloat16 (weights stay as they are).
        seed: order of the batches, dropout.
        max_eval_tokens: tokens, padding included, of one scoring batch.
    """

    head_epochs: float = 0.25
    head_learning_rate: float = 1e-2
    epochs: float = 2.0
    learning_rate: float = 5e-4
    batch_paths: int = 16
    accumulate: int = 1
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: float = 0.05
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    steps_after_error: int | None = 0
    lm_weight: float = 3.0
    wrong_weight: float = 1.0
    select_by: Literal["first_error_f1", "loss"] = "first_error_f1"
    patience: int | None = None
    lora_rank: int = 0
    bf16: bool = False
    seed: int = 0
    max_eval_tokens: int = 16384


class PRMTrainer(Trainer):
    """``Trainer`` whose loss, batch order and evaluation are those of a PRM (see the top of this file)."""

    control: TrainerControl

    def __init__(
        self,
        *,
        settings: FitSettings,
        pad_id: int,
        lm_head_VH: Float[Tensor, "vocabulary hidden"] | None = None,
        **kwargs: Any,
    ) -> None:
        is_alone = world_size() == 1
        if not is_alone:
            kwargs["train_dataset"] = [*kwargs["train_dataset"], blank_row(kwargs["train_dataset"])]
        # of several processes one may hold blank rows alone; a window without a label still raises in the loss
        super().__init__(data_collator=lambda rows: _tensors(collate(rows, pad_id, needs_label=is_alone)), **kwargs)
        self.settings = settings
        self.pad_id = pad_id
        self.lm_head_VH = lm_head_VH.to(self.args.device) if lm_head_VH is not None and settings.lm_weight else None
        self.with_surprise = reads_surprise(self.model)
        self.model_accepts_loss_kwargs = True  # makes Trainer count the labels of the whole window for us
        self.loss_is_scaled_for_ga = True

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        read = read_steps(
            model,
            inputs["input_ids"],
            inputs["attention_mask"],
            inputs["step_starts"],
            inputs["step_positions"],
            with_surprise=self.with_surprise,
            lm_head_VH=self.lm_head_VH,
        )
        window = inputs["labels"].ne(IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        loss = step_loss(
            read.logits_BS,
            inputs["labels"],
            steps_in_window=window,
            wrong_weight=self.settings.wrong_weight,
        )
        if self.settings.lm_weight and read.token_logprobs_BT is not None and read.token_logprobs_BT.requires_grad:
            loss = loss + self.settings.lm_weight * right_step_loss(
                read.token_logprobs_BT, inputs["right_token_weights"], steps_in_window=window
            )
        # ranks average gradients, the window's steps are counted over all ranks
        loss = loss * self.accelerator.num_processes
        return (loss, read) if return_outputs else loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        held_out: Sequence[PRMInput] = self.eval_dataset
        with whole_weights(self.model_wrapped, self.accelerator) as model:
            quality = held_out_quality(model, held_out, self.settings.max_eval_tokens, self.pad_id)
        metrics = {
            "eval_loss": quality.loss,
            "eval_first_error_f1": quality.first_error.f1,
            "eval_accuracy_wrong": quality.first_error.accuracy_wrong,
            "eval_accuracy_right": quality.first_error.accuracy_right,
            "eval_brier": quality.brier,
        }
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            write_manifest(pathlib.Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"))

    def finish_from(self, checkpoint: str) -> None:
        """End as ``train`` does after its last update, whose checkpoint this is: the best model so far, the history."""
        self.state = TrainerState.load_from_json(str(pathlib.Path(checkpoint, STATE)))
        self._load_best_model()

    def _load_best_model(self) -> None:
        metric = str(self.args.metric_for_best_model)
        use_intact_best(self.state, self.args.output_dir, (STATE,), metric, print)
        super()._load_best_model()

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int]:
        paths: Sequence[PRMInput] = self.train_dataset if train_dataset is None else train_dataset
        ranks, batch = self.accelerator.num_processes, self.settings.batch_paths
        window = batch * self.settings.accumulate * ranks
        lengths = [len(one.token_ids) for one in paths]
        if ranks == 1:
            return LengthGrouped(lengths, window, self.settings.seed)
        return WholeWindows(LengthGrouped(lengths[:-1], window, self.settings.seed), batch, len(lengths) - 1)


def trainer_arguments(part: Part, settings: FitSettings, folder: pathlib.Path) -> TrainingArguments:
    """Arguments of one stage's trainer."""
    is_f1 = settings.select_by == "first_error_f1"
    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.head_epochs if part == "head" else settings.epochs,
        learning_rate=settings.head_learning_rate if part == "head" else settings.learning_rate,
        per_device_train_batch_size=settings.batch_paths,
        gradient_accumulation_steps=settings.accumulate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.bf16,
        seed=settings.seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_first_error_f1" if is_f1 else "eval_loss",
        greater_is_better=is_f1,
        save_total_limit=2,  # a damaged newest one must leave one to go back to
        restore_callback_states_from_checkpoint=settings.patience is not None,  # else the count of epochs starts anew
        logging_steps=10,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
        report_to="none",
    )


def held_out_quality(model: nn.Module, inputs: Sequence[PRMInput], max_batch_tokens: int, pad_id: int) -> PRMQuality:
    """Quality before calibration: temperature 1, threshold chosen on these very paths."""
    logits = score_logits(model, inputs, max_batch_tokens=max_batch_tokens, pad_id=pad_id)
    return measure_quality(to_probabilities(logits), inputs)


def _tensors(batch: PRMBatch) -> dict[str, torch.Tensor]:
    return {
        "input_ids": batch.input_ids_BT,
        "attention_mask": batch.attention_mask_BT,
        "step_starts": batch.step_starts_BS,
        "step_positions": batch.step_positions_BS,
        "labels": batch.labels_BS,
        "right_token_weights": batch.right_token_weights_BT,
    }

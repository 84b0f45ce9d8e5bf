"""Fit of a PRM: head first, then all weights, held-out problems decide which epoch is kept.

    before  -> quality on held-out problems
    head    -> backbone frozen, only the fresh head learns (its first, large gradients cannot damage the backbone)
    all     -> every weight (or LoRA adapters)
    after   -> temperature and threshold from the held-out problems

Built on ``transformers.Trainer``, so ``accelerate`` and DeepSpeed launch it unchanged. Departures from its defaults:
own loss (mean over the labelled steps of the global window), order of batches fixed by (seed, epoch) and grouped by
length, no NaN filter in the logged loss, and ``evaluate`` measures first-error F1 on whole paths.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers import EarlyStoppingCallback, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from common.errors import InputError
from common.progress import StageBar
from common.records import IGNORED
from prm.inputs import PRMBatch, PRMInput, collate
from prm.model import Calibration, merge_lora, set_trainable, with_lora
from prm.network import read_steps, reads_surprise
from prm.objective import right_step_loss, step_loss
from prm.score import PRMQuality, calibrate, measure_quality, score_logits, to_probabilities
from prm.training_set import LengthGrouped, stable_hash, training_view

STAGE_REPORT = "stage.json"
SHOWN = {"loss": "loss", "learning_rate": "rate"}
EVALUATED = {"eval_first_error_f1": "held-out F1", "eval_loss": "loss", "eval_brier": "Brier"}


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
        wrong_weight, focal_gamma: see ``prm.objective.step_loss``.
        select_by: what held-out figure picks the epoch that is kept.
        patience: epochs without a better held-out figure before a stage stops; None never stops early.
        lora_rank: 0 trains all weights, else LoRA adapters of this rank.
        bf16: compute in bfloat16 (weights stay as they are).
        seed: order of the batches, dropout.
        max_eval_tokens: tokens, padding included, of one scoring batch.
    """

    head_epochs: float = 0.25
    head_learning_rate: float = 1e-2
    epochs: float = 3.0
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
    focal_gamma: float = 0.0
    select_by: Literal["first_error_f1", "loss"] = "first_error_f1"
    patience: int | None = None
    lora_rank: int = 0
    bf16: bool = False
    seed: int = 0
    max_eval_tokens: int = 16384


@dataclasses.dataclass(frozen=True)
class FitReport:
    """What a fit did.

    Attributes:
        quality: held-out quality under ``before``, ``head``, ``all`` (stages that ran) and ``calibrated``.
        calibration: temperature and threshold for the saved model.
        train_paths, distinct_paths, held_out_paths: sizes; ``distinct_paths`` is what an epoch reads.
        history: logged rows of both stages (loss in nats a step, learning rate, gradient norm, held-out figures).
    """

    quality: dict[str, PRMQuality]
    calibration: Calibration
    train_paths: int
    distinct_paths: int
    held_out_paths: int
    history: tuple[dict[str, Any], ...]


def split_by_problem(
    inputs: Sequence[PRMInput], fraction: float, *, seed: int = 0
) -> tuple[list[PRMInput], list[PRMInput]]:
    """Return (train, held out): all paths of a problem on one side, ``fraction`` of the problems (at least 1) held out.

    Problems are ordered by a hash of (seed, problem id): adding paths of a known problem moves nothing, and adding
    problems moves few.

    Raises:
        InputError: fewer than two problems.
    """
    problems = sorted({one.problem_id for one in inputs}, key=lambda name: stable_hash(seed, name))
    if len(problems) < 2:
        raise InputError(f"paths of {len(problems)} problem(s); wanted at least 2 to hold one out for calibration")
    count = min(max(1, round(fraction * len(problems))), len(problems) - 1)
    held_out = set(problems[:count])
    return (
        [one for one in inputs if one.problem_id not in held_out],
        [one for one in inputs if one.problem_id in held_out],
    )


def fit_prm(
    model: PreTrainedModel,
    train: Sequence[PRMInput],
    held_out: Sequence[PRMInput],
    settings: FitSettings,
    folder: str | pathlib.Path,
    *,
    lm_head_VH: Float[Tensor, "vocabulary hidden"] | None = None,
    pad_id: int = 0,
    callbacks: Sequence[TrainerCallback] = (),
    show_progress: bool = False,
) -> tuple[PreTrainedModel, FitReport]:
    """Fit in both stages and calibrate; return the fitted model (the same object unless LoRA) and the report.

    A fit that was killed goes on from its newest complete checkpoint in ``folder`` and ends with the same weights.

    Args:
        model: from ``prm.model.build_prm``, or an earlier round's PRM.
        train, held_out: labelled inputs; they should not share problems (``split_by_problem``).
        folder: where the stages keep checkpoints; ``prm.model.save_prm`` writes the result elsewhere.
        lm_head_VH: ``prm.model.policy_lm_head``; a plain token classifier needs it when ``lm_weight`` > 0.
        pad_id: any valid id.
        callbacks: more callbacks for both stages, e.g. one that writes each logged row.

    Raises:
        InputError: no training path, or no held-out path, has a label; or a plain PRM lacks ``lm_head_VH``.
    """
    train = [one for one in train if one.has_label]
    held_out = [one for one in held_out if one.has_label]
    if not train or not held_out:
        raise InputError(f"{len(train)} training and {len(held_out)} held-out paths have labels; wanted some of each")
    if settings.lm_weight > 0 and lm_head_VH is None and not reads_surprise(model):
        raise InputError(f"lm_weight = {settings.lm_weight} needs lm_head_VH when the PRM reads no surprise")
    distinct = training_view(train, steps_after_error=settings.steps_after_error)
    tokens = settings.max_eval_tokens
    quality = {"before": _quality(model, held_out, tokens, pad_id)}
    history: list[dict[str, Any]] = []
    for part, epochs in (("head", settings.head_epochs), ("all", settings.epochs)):
        if epochs > 0:
            stage_folder = pathlib.Path(folder) / part
            model, rows = _run_stage(
                model, part, distinct, held_out, settings, stage_folder, lm_head_VH, pad_id, callbacks, show_progress
            )
            history += [{"part": part, **row} for row in rows]
            quality[part] = _quality(model, held_out, tokens, pad_id)
    calibration, quality["calibrated"] = calibrate(
        score_logits(model, held_out, max_batch_tokens=tokens, pad_id=pad_id), held_out
    )
    return model, FitReport(quality, calibration, len(train), len(distinct), len(held_out), tuple(history))


class PRMTrainer(Trainer):
    """``Trainer`` whose loss, batch order and evaluation are those of a PRM (see the module's docstring)."""

    def __init__(
        self,
        *,
        settings: FitSettings,
        pad_id: int,
        lm_head_VH: Float[Tensor, "vocabulary hidden"] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_collator=lambda inputs: _tensors(collate(inputs, pad_id, needs_label=True)), **kwargs)
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
            focal_gamma=self.settings.focal_gamma,
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
        quality = _quality(self.model, held_out, self.settings.max_eval_tokens, self.pad_id)
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

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int]:
        paths: Sequence[PRMInput] = self.train_dataset if train_dataset is None else train_dataset
        window = self.settings.batch_paths * self.settings.accumulate * self.accelerator.num_processes
        return LengthGrouped([len(one.token_ids) for one in paths], window, self.settings.seed)


def _run_stage(
    model: PreTrainedModel,
    part: Literal["head", "all"],
    train: Sequence[PRMInput],
    held_out: Sequence[PRMInput],
    settings: FitSettings,
    folder: pathlib.Path,
    lm_head_VH: Float[Tensor, "vocabulary hidden"] | None,
    pad_id: int,
    callbacks: Sequence[TrainerCallback],
    show_progress: bool,
) -> tuple[PreTrainedModel, list[dict[str, Any]]]:
    """Train one part of the model; a finished stage is read back from ``folder``."""
    done = folder / STAGE_REPORT
    if done.exists():
        model.load_state_dict(torch.load(folder / "weights.pt", map_location=model.device, weights_only=True))
        return model, json.loads(done.read_text())["history"]
    trained: Any = with_lora(model, settings.lora_rank) if part == "all" and settings.lora_rank else model
    if trained is model:
        set_trainable(model, part)
    stop = [] if settings.patience is None else [EarlyStoppingCallback(settings.patience)]
    trainer = PRMTrainer(
        settings=settings,
        lm_head_VH=lm_head_VH if part == "all" else None,  # a frozen backbone learns nothing from it
        pad_id=pad_id,
        model=trained,
        args=_arguments(part, settings, folder),
        train_dataset=train,
        eval_dataset=held_out,
        callbacks=[*stop, *callbacks],
    )
    StageBar.attach(trainer, f"prm {part}", SHOWN, EVALUATED, is_quiet=not show_progress)
    trainer.train(resume_from_checkpoint=newest_checkpoint(folder))
    model = merge_lora(trainer.accelerator.unwrap_model(trainer.model))
    set_trainable(model, "all")
    if trainer.args.should_save:
        torch.save(model.state_dict(), folder / "weights.pt")
        part_file = done.with_suffix(".part")
        part_file.write_text(json.dumps({"history": trainer.state.log_history}))
        part_file.replace(done)
    return model, trainer.state.log_history


def newest_checkpoint(folder: pathlib.Path) -> str | None:
    """Newest complete checkpoint in ``folder``, None if there is none; one cut by a kill is passed over."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]), reverse=True)
    for path in found:
        try:
            json.loads((path / "trainer_state.json").read_text())  # written last
        except (OSError, ValueError):
            continue
        return str(path)
    return None


def _arguments(part: Literal["head", "all"], settings: FitSettings, folder: pathlib.Path) -> TrainingArguments:
    """The one place that builds the trainer's arguments."""
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
        save_total_limit=1,
        logging_steps=10,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
        report_to="none",
    )


def _tensors(batch: PRMBatch) -> dict[str, torch.Tensor]:
    return {
        "input_ids": batch.input_ids_BT,
        "attention_mask": batch.attention_mask_BT,
        "step_starts": batch.step_starts_BS,
        "step_positions": batch.step_positions_BS,
        "labels": batch.labels_BS,
        "right_token_weights": batch.right_token_weights_BT,
    }


def _quality(model: nn.Module, inputs: Sequence[PRMInput], max_batch_tokens: int, pad_id: int) -> PRMQuality:
    logits = score_logits(model, inputs, max_batch_tokens=max_batch_tokens, pad_id=pad_id)
    return measure_quality(to_probabilities(logits), inputs)

"""Fit of a PRM: head first, then all weights, held-out problems decide which epoch is kept.

    before  -> quality on held-out problems
    head    -> backbone frozen, only the fresh head learns (its first, large gradients cannot damage the backbone)
    all     -> every weight (or LoRA adapters)
    after   -> temperature and threshold from the held-out problems

Built on ``transformers.Trainer`` (``prm.trainer``), so ``accelerate`` launches it unchanged.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainerCallback
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from common.adapters import is_adapted
from common.checkpoints import STATE, newest_intact, update_of
from common.errors import InputError, RunError
from common.files import file_sha256, write_atomic
from common.models import first_nonfinite
from common.progress import StageBar
from common.ranks import check_engine, wait_for_all
from common.sharding import is_engine
from prm.inputs import PRMInput
from prm.model import Calibration, merge_lora, set_trainable, with_lora
from prm.network import reads_surprise
from prm.score import PRMQuality, calibrate, score_logits
from prm.trainer import FitSettings, Part, PRMTrainer, held_out_quality, trainer_arguments
from prm.training_set import stable_hash, training_view

STAGE_REPORT = "stage.json"
SHOWN = {"loss": "loss", "learning_rate": "rate"}
EVALUATED = {"eval_first_error_f1": "held-out F1", "eval_loss": "loss", "eval_brier": "Brier"}


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
    """Return (train, held out): all paths of a problem on one side, about ``fraction`` of the problems held out.

    A problem is held out when a hash of (seed, problem id) falls below ``fraction``, whatever the other problems are:
    over rounds, that add problems, none ever changes sides. If that leaves a side empty, the problem next to the
    border moves.

    Raises:
        InputError: fewer than two problems.
    """
    places = {one.problem_id: stable_hash(seed, one.problem_id) / 2**64 for one in inputs}
    if len(places) < 2:
        raise InputError(f"paths of {len(places)} problem(s); wanted at least 2 to hold one out for calibration")
    problems = sorted(places, key=places.__getitem__)
    count = sum(place < fraction for place in places.values())
    held_out = set(problems[: min(max(1, count), len(problems) - 1)])
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
    say: Callable[[str], None] = print,
) -> tuple[PreTrainedModel, FitReport]:
    """Fit in both stages and calibrate; return the fitted model (the same object unless ``lora_rank``) and the report.

    A fit that was killed goes on from its newest complete checkpoint in ``folder`` and ends with the same weights.

    Args:
        model: from ``prm.model.build_prm``, an earlier round's PRM, or one with adapters from ``prm.adapted``.
        train, held_out: labelled inputs; they should not share problems (``split_by_problem``).
        folder: where the stages keep checkpoints; ``prm.model.save_prm`` writes the result elsewhere.
        lm_head_VH: ``prm.model.policy_lm_head``; a plain token classifier needs it when ``lm_weight`` > 0.
        pad_id: any valid id.
        callbacks: more callbacks for both stages, e.g. one that writes each logged row.
        say: is told from which update a killed fit goes on, and which checkpoint is not trusted.

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
    quality = {"before": held_out_quality(model, held_out, tokens, pad_id)}
    history: list[dict[str, Any]] = []
    stages: tuple[tuple[Part, float], ...] = (("head", settings.head_epochs), ("all", settings.epochs))
    for part, epochs in stages:
        if epochs > 0:
            stage_folder = pathlib.Path(folder) / part
            model, rows = _run_stage(
                model,
                part,
                distinct,
                held_out,
                settings,
                stage_folder,
                lm_head_VH,
                pad_id,
                callbacks,
                show_progress,
                say,
            )
            history += [{"part": part, **row} for row in rows]
            quality[part] = held_out_quality(model, held_out, tokens, pad_id)
    calibration, quality["calibrated"] = calibrate(
        score_logits(model, held_out, max_batch_tokens=tokens, pad_id=pad_id), held_out
    )
    return model, FitReport(quality, calibration, len(train), len(distinct), len(held_out), tuple(history))


def _run_stage(
    model: PreTrainedModel,
    part: Part,
    train: Sequence[PRMInput],
    held_out: Sequence[PRMInput],
    settings: FitSettings,
    folder: pathlib.Path,
    lm_head_VH: Float[Tensor, "vocabulary hidden"] | None,
    pad_id: int,
    callbacks: Sequence[TrainerCallback],
    show_progress: bool,
    say: Callable[[str], None],
) -> tuple[PreTrainedModel, list[dict[str, Any]]]:
    """Train one part of the model; a finished stage is read back from ``folder``."""
    done = folder / STAGE_REPORT
    weights = folder / "weights.pt"
    if done.exists() and not _is_as_written(weights, json.loads(done.read_text()).get("weights_sha256")):
        say(f"{weights} is not as it was written; part {part!r} of the fit is trained again")
        done.unlink(missing_ok=True)
    if done.exists():
        say(f"part {part!r} of the fit is finished; its weights are read from {weights}")
        model.load_state_dict(torch.load(weights, map_location=model.device, weights_only=True))
        return model, json.loads(done.read_text())["history"]
    trained: Any = model
    if part == "all" and settings.lora_rank:
        torch.manual_seed(settings.seed)  # adapters start the same whether part "head" was trained or read back
        trained = with_lora(model, settings.lora_rank)
    else:
        set_trainable(model, part)
    stop = [] if settings.patience is None else [EarlyStoppingCallback(settings.patience)]
    trainer = PRMTrainer(
        settings=settings,
        lm_head_VH=lm_head_VH if part == "all" else None,  # a frozen backbone learns nothing from it
        pad_id=pad_id,
        model=trained,
        args=trainer_arguments(part, settings, folder),
        train_dataset=train,
        eval_dataset=held_out,
        callbacks=[LogWithCheckpoint(), *stop, *callbacks],
    )
    check_engine(trainer.accelerator)
    if is_engine(trainer.accelerator) and is_adapted(trained):
        raise InputError(
            "a PRM with adapters is not fitted under DeepSpeed or FSDP, which would have little to shard: use"
            " configs/accelerate/ddp.yaml for make prm"
        )
    StageBar.attach(trainer, f"prm {part}", SHOWN, EVALUATED, is_quiet=not show_progress)
    checkpoint = newest_checkpoint(folder, say)
    if checkpoint:
        say(f"part {part!r} of the fit continues after update {update_of(checkpoint)}")
        if _had_stopped(checkpoint):
            trainer.args.max_steps = update_of(checkpoint)
    if checkpoint and _is_over(checkpoint) and not is_engine(trainer.accelerator):
        trainer.finish_from(checkpoint)
    else:
        trainer.train(resume_from_checkpoint=checkpoint)
    fitted = trainer.accelerator.unwrap_model(trainer.model)
    if is_engine(trainer.accelerator):
        fitted = trained = model = _plain_again(trainer, model, weights)
    model = fitted if trained is model else merge_lora(fitted)
    set_trainable(model, "all")
    if bad := first_nonfinite(model.named_parameters()):
        raise RunError(f"part {part!r} of the PRM fit ended with a non-finite weight {bad}; lower its learning rate")
    rows = [row for row in trainer.state.log_history if "train_runtime" not in row]  # a sum over this process alone
    if trainer.args.should_save:
        torch.save(model.state_dict(), weights)
        sums = {"weights_sha256": file_sha256(weights)}
        write_atomic(done, json.dumps({"history": rows, **sums}))
    return model, rows


def _plain_again(trainer: PRMTrainer, model: PreTrainedModel, weights: pathlib.Path) -> PreTrainedModel:
    """A plain PRM with the fitted weights, on every rank: the one an engine trained is in pieces, or holds its hooks.

    Args:
        weights: file through which the main rank hands the weights to the others.
    """
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if trainer.args.should_save:
        torch.save(state, weights)
    wait_for_all()
    trainer.accelerator.free_memory()
    unset_hf_deepspeed_config()  # else models are read in pieces from now on
    plain = type(model)(model.config).to(model.dtype)
    plain.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    wait_for_all()  # the file is written again
    return plain.to(trainer.args.device)


class LogWithCheckpoint(TrainerCallback):
    """Logs where a checkpoint is written: the mean loss of a row covers the updates since the row before, and what is
    summed up between two rows is in no checkpoint.
    """

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_log = True


def _is_as_written(weights: pathlib.Path, sha256: str | None) -> bool:
    return weights.is_file() and file_sha256(weights) == sha256


def newest_checkpoint(folder: pathlib.Path, say: Callable[[str], None] = print) -> str | None:
    """Newest complete and undamaged checkpoint in ``folder``, None if there is none; see ``newest_intact``."""
    return newest_intact(folder, (STATE,), say)


def _is_over(checkpoint: str) -> bool:
    """True for the last checkpoint of a fit. ``Trainer`` counts after an update whether it was the last one, so resumed
    there inside an epoch (a fraction of epochs, or patience) it would train one too many.
    """
    state = json.loads(pathlib.Path(checkpoint, STATE).read_text(encoding="utf-8"))
    return state["global_step"] >= state["max_steps"] or _had_stopped(checkpoint)


def _had_stopped(checkpoint: str) -> bool:
    """True for a checkpoint at which ``patience`` had run out: a resumed ``Trainer`` would train on."""
    state = json.loads(pathlib.Path(checkpoint, STATE).read_text(encoding="utf-8"))
    found = state["stateful_callbacks"].get("EarlyStoppingCallback")
    if found is None:
        return False
    return bool(found["attributes"]["early_stopping_patience_counter"] >= found["args"]["early_stopping_patience"])

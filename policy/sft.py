"""``python -m policy.sft``: the supervised start, ``0_sft/policy``, from which data, prm and ppo then go on.

solutions -> rows of token ids (``data_gen.solutions``) -> TRL's ``SFTTrainer``, loss on the solution alone
  -> validation accuracy before and after, measured as ppo measures it

What differs from TRL's trainer: rows come tokenised by the project's own prompt template; their order is fixed by
(seed, epoch); checkpoints lie where an epoch ends, with checksums, so a killed stage ends as an unbroken one.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import SFTConfig, SFTTrainer

from common.adapters import with_adapter
from common.checkpoints import STATE, newest_intact, update_of
from common.checksums import write_manifest
from common.cli import stage_main
from common.config import Config
from common.errors import InputError, RunError
from common.models import first_nonfinite, load_policy, load_tokenizer
from common.progress import SaveSeconds, StageBar
from common.prompts import PromptTemplate
from common.ranks import check_engine, start_ranks, wait_for_all, world_size
from common.records import Path as SampledPath
from common.records import Problem
from common.runs import Run, StageFolder, read_records, write_atomic
from common.sharding import is_engine
from data_gen.engines import make_engine
from data_gen.settings import problems_of
from data_gen.solutions import (
    Solution,
    TrainingRow,
    read_solutions,
    reference_solutions,
    right_solutions,
    training_rows,
)
from data_gen.steps import build_paths
from policy.metrics_log import MetricsLog
from policy.models import save_policy
from policy.sampler import StoppingSampler
from policy.train import validation
from prm.train import LogWithCheckpoint
from prm.training_set import LengthGrouped

IGNORED_LABEL = -100
SHOWN = {"loss": "loss", "learning_rate": "rate"}


class StartTrainer(SFTTrainer):
    """TRL's trainer with a fixed order of rows, checksums in its checkpoints and no model card.

    Args:
        lengths: tokens of each row.
    """

    def __init__(self, *args: Any, lengths: list[int], **kwargs: Any) -> None:
        self.lengths = lengths
        super().__init__(*args, **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGrouped:
        window = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps * world_size()
        return LengthGrouped(self.lengths, window, self.args.seed)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            write_manifest(Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        self._metrics["train"].pop("num_tokens", None)  # counted anew by a resumed trainer
        super().log(logs, start_time)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """No model card beside checkpoints."""


def load_solutions(config: Config, run: Run) -> list[Solution]:
    """The solutions that section ``sft`` asks for.

    Raises:
        InputError: the run's paths are not sampled yet, or the file does not hold what it should.
    """
    sft = config.sft
    if sft.source == "right_paths":
        stage = run.require("sample")
        problems = read_records(stage.file("problems_train.jsonl"), Problem.from_row)
        paths = read_records(stage.file("paths.jsonl"), SampledPath.from_row)
        return right_solutions(paths, problems, sft.paths)
    if sft.file or config.data.source != "synthetic":
        return read_solutions(Path(sft.file or config.data.source), sft.problems)
    return reference_solutions(problems_of(config, "train", config.seed, sft.problems))


def trainer_arguments(config: Config, folder: Path) -> SFTConfig:
    """Arguments of the trainer.

    Raises:
        InputError: an update's rows do not divide over the devices.
    """
    sft = config.sft
    micro = min(sft.micro_batch, sft.batch)
    if sft.batch % (micro * world_size()):
        raise InputError(
            f"sft.batch = {sft.batch}: want a multiple of sft.micro_batch * devices = {micro * world_size()}"
        )
    return SFTConfig(
        output_dir=str(folder),
        seed=config.seed,
        num_train_epochs=sft.epochs,
        learning_rate=sft.learning_rate,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=sft.batch // (micro * world_size()),
        lr_scheduler_type=sft.schedule,
        warmup_steps=sft.warmup,  # below 1: a share of the updates
        weight_decay=sft.weight_decay,
        max_grad_norm=sft.max_grad_norm,
        gradient_checkpointing=sft.gradient_checkpointing,
        bf16=config.base.dtype == "bfloat16",
        max_length=None,  # rows that are too long were left out, none is cut
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},  # rows are tokenised and labelled
        save_strategy="epoch",
        save_total_limit=2,  # a damaged newest one must leave one to go back to
        eval_strategy="no",
        logging_steps=10,
        logging_nan_inf_filter=False,
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
        report_to=[] if config.report_to == "none" else [config.report_to],
    )


def build_trainer(config: Config, rows: list[TrainingRow], tokenizer: Any, folder: Path) -> StartTrainer:
    """The trainer over the base model, with a fresh adapter where ``lora.rank`` asks for one."""
    model = load_policy(config.base.model, config.base.dtype)
    if config.lora.rank:
        model = with_adapter(model, config.lora, "CAUSAL_LM", seed=config.seed)
    else:
        model.train()
    dataset = Dataset.from_list(
        [
            {
                "input_ids": [*row.prompt_ids, *row.solution_ids],
                "labels": [IGNORED_LABEL] * len(row.prompt_ids) + list(row.solution_ids),
            }
            for row in rows
        ]
    )
    return StartTrainer(
        model=model,
        args=trainer_arguments(config, folder),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[LogWithCheckpoint()],
        lengths=[len(row.prompt_ids) + len(row.solution_ids) for row in rows],
    )


def accuracy_of(config: Config, trainer: StartTrainer, tokenizer: Any) -> dict[str, float]:
    """Validation accuracy of the model in training, as ``ppo`` measures it (``policy.train.validation``)."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    engine = make_engine("transformers", model=model, tokenizer=tokenizer, max_rows=config.data.max_batch_rows)
    encode = functools.partial(PromptTemplate.from_config(config.base).ids, tokenizer=tokenizer)
    grade = functools.partial(build_paths, tokenizer=tokenizer, stop=config.base.stop)
    checked = problems_of(config, "validation", 0, config.data.validation)
    measure = validation(config, checked, StoppingSampler(engine, config.base.stop), encode, grade)
    was_training = model.training
    model.eval()
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        found = measure(model)
    model.train(was_training)
    return found


def sft_stage(config: Config, run: Run, *callbacks: TrainerCallback) -> None:
    """Fine-tune the base model on solutions: the start, and KL reference, of ppo."""
    if not config.sft.is_on:
        raise InputError("sft.source = 'none': no supervised start; want sft.source=solutions or right_paths")
    if run.round:
        raise InputError(
            f"--round {run.round}: the supervised start belongs to round 0, later rounds start from a policy"
        )
    start_ranks()
    stage = run.stage("sft")
    if not stage.is_done and config.sft.source == "right_paths":
        run.require("sample")
    timer = stage.begin(config)
    if stage.is_done:
        print(f"sft: {stage.path} is finished")
        shutil.rmtree(stage.file("checkpoints"), ignore_errors=True)  # a kill right after DONE leaves them
        return
    tokenizer = load_tokenizer(config.base.model)
    rows, left_out = _rows(config, run, tokenizer)
    print(f"sft: {len(rows)} rows, left out: {dict(left_out) or 'none'}")
    log = MetricsLog(stage)
    trainer = build_trainer(config, rows, tokenizer, stage.file("checkpoints"))
    check_engine(trainer.accelerator)
    if is_engine(trainer.accelerator):
        raise InputError("sft under DeepSpeed or FSDP is not supported; launch it with configs/accelerate/ddp.yaml")
    StageBar.attach(trainer, "sft", SHOWN, {})
    for callback in (log, SaveSeconds(timer), *callbacks):
        trainer.add_callback(callback)
    checkpoint = newest_intact(stage.file("checkpoints"), (STATE,), stage.say)
    before = _measured_before(stage, functools.partial(accuracy_of, config, trainer, tokenizer))
    log.drop_after(update_of(Path(checkpoint)) if checkpoint else -1)
    if checkpoint:
        stage.say(f"continues after update {update_of(Path(checkpoint))}")
    trainer.train(resume_from_checkpoint=checkpoint)
    if bad := first_nonfinite(trainer.model.named_parameters()):
        raise RunError(f"sft ended with a non-finite weight {bad}; lower sft.learning_rate")
    after = accuracy_of(config, trainer, tokenizer)
    if trainer.is_world_process_zero():
        save_policy(trainer, stage.file("policy"), config)
        tokenizer.save_pretrained(stage.file("policy"))
        timer.finish("policy", rows=len(rows), left_out=dict(left_out), before=before, after=after)
        shutil.rmtree(stage.file("checkpoints"), ignore_errors=True)
        print(
            f"sft: validation {before['accuracy']:.3f} -> {after['accuracy']:.3f} (greedy {before['greedy']:.3f} ->"
            f" {after['greedy']:.3f}, sampled {before['sampled']:.3f} -> {after['sampled']:.3f}), {timer.seconds:.0f} s"
        )
    wait_for_all()


def _rows(config: Config, run: Run, tokenizer: Any) -> tuple[list[TrainingRow], Counter[str]]:
    data = config.data
    held_out = [
        problem.text
        for split, count in (("validation", data.validation), ("test", data.test))
        for problem in problems_of(config, split, 0, count)
    ]
    return training_rows(
        load_solutions(config, run),
        tokenizer,
        functools.partial(PromptTemplate.from_config(config.base).ids, tokenizer=tokenizer),
        max_length=config.sft.max_length,
        held_out=held_out,
        stop=config.base.stop,
    )


def _measured_before(stage: StageFolder, measure: Any) -> dict[str, float]:
    """Accuracy before the first update: of a stage that was killed, the one that was noted then."""
    note = stage.file("before.json")
    if not note.is_file():
        write_atomic(note, json.dumps(measure()))
    return dict(json.loads(note.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sections = ("base", "lora", "data", "sft")
    raise SystemExit(stage_main("policy.sft", sft_stage.__doc__ or "", sections, sft_stage))

"""What a rank does in the tests of the training engines: ``python engine_ranks.py FOLDER TASK``, alone or launched.

``policy``: three generation batches of recorded rollouts, two updates each, evaluated and saved after each batch.
``prm``: both parts of a PRM fit. ``die``: ``policy``, and rank 1 kills itself in the second batch. ``fault``:
``policy`` with log-probs that are not finite on the last rank alone.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from typing import Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DeepSpeedPlugin, DistributedType
from policy_toys import RecordedSampler, toy_model, toy_tokenizer, toy_trainer
from prm_support import toy_inputs
from transformers import PreTrainedModel

import prm.objective
from common.ranks import check_engine, is_main, start_ranks, world_size
from data_gen.engines import make_engine
from policy.checkpoints import last_complete_checkpoint
from policy.models import engine_weights, save_policy
from policy.trainer import ProcessPPOTrainer
from prm.model import build_prm
from prm.train import FitSettings, fit_prm

BATCH = 16
UPDATES = 6
FAULTS = {1: float("nan"), 3: float("inf")}
"""Update -> old log-prob. The first makes loss and gradient NaN, the second leaves both finite."""


class Recording(ProcessPPOTrainer):
    """Keeps the token advantages of every path, batch by batch."""

    advantages: list[list[list[float]]]
    task = "policy"

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        rows = zip(output["advantages"], output["completion_mask"].sum(1).tolist(), strict=True)
        self.advantages.append([row[:length].tolist() for row, length in rows])
        return output

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        rank, update = self.accelerator.process_index, self.state.global_step
        if self.task == "die" and rank == 1 and update == 3:
            pathlib.Path(self.args.output_dir).with_name("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.task == "fault" and rank == world_size() - 1 and update in FAULTS:
            row, token = inputs["is_trained"].nonzero()[5].tolist()
            inputs["old_per_token_logps"][row, token] = FAULTS[update]
        return super()._compute_loss(model, inputs)


def measure(policy: Any) -> dict[str, float]:
    """Greedy tokens of one prompt; ranks then sample different amounts, as training does."""
    tokenizer = toy_tokenizer()
    engine = make_engine("transformers", model=policy, tokenizer=tokenizer, max_rows=8)
    prompt = tokenizer("1+7=?\n", add_special_tokens=False)["input_ids"]
    rank = int(os.environ.get("RANK", "0"))
    [[path]] = engine.sample([prompt], n=1, temperature=0.0, max_new_tokens=12, seed=0)
    engine.sample([prompt] * (1 + rank), n=2, temperature=1.0, max_new_tokens=4 + 8 * rank, seed=1)
    return {"accuracy": 0.5, "tokens": float(sum((k + 1) * t for k, t in enumerate(path.token_ids)))}


def make_trainer(folder: pathlib.Path, task: str) -> Recording:
    """The toy trainer: an update is a whole generation batch, so its paths are the same on any number of ranks."""
    accumulation = BATCH // (4 * world_size())
    trainer = toy_trainer(
        folder / "checkpoints",
        model=toy_model(),
        arguments={
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": accumulation,
            "steps_per_generation": accumulation,
            "max_steps": UPDATES,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 2,
        },
        evaluate_policy=measure,
        trainer_class=Recording,
        sampler=RecordedSampler(),
        announce=lambda update, line: notes.append(f"{update}: {line}"),
    )
    notes: list[str] = []
    trainer.task, trainer.advantages, trainer.notes = task, [], notes
    return trainer


def run_policy(folder: pathlib.Path, task: str) -> None:
    """Train, save the policy as the stage does, and write what this rank saw."""
    trainer = make_trainer(folder, task)
    check_engine(trainer.accelerator)
    checkpoint = last_complete_checkpoint(folder / "checkpoints")
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.refuse_bad_weights()
    weights = engine_weights(trainer)
    if is_main():
        save_policy(trainer, folder / "policy", None, weights)
        toy_tokenizer().save_pretrained(folder / "policy")
    write_facts(folder, trainer, checkpoint)


def write_facts(folder: pathlib.Path, trainer: Recording, checkpoint: str | None) -> None:
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    fsdp = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    rank = trainer.accelerator.process_index
    facts = {
        "ranks": trainer.accelerator.num_processes,
        "type": trainer.accelerator.distributed_type.value,
        "wrapped": type(trainer.model_wrapped).__name__,
        "zero": 0 if plugin is None else plugin.zero_stage,
        "fsdp": None if fsdp is None else fsdp.fsdp_version,
        "optimizer": type(getattr(trainer.optimizer, "optimizer", None)).__name__,
        "local_elements": sum(w.numel() for w in trainer.model.parameters()) if fsdp is None else None,
        "resumed_from": checkpoint,
        "skipped": trainer.skipped_updates,
        "nonfinite": dict(trainer.blackbox.counts),
        "monitors": trainer.monitors.state_dict(),
        "average": trainer.moving_average.state_dict(),
        "logs": trainer.state.log_history,
        "advantages": trainer.advantages,
        "notes": trainer.notes,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(facts, default=str))


def run_prm(folder: pathlib.Path) -> None:
    """Fit on a number of paths that is no multiple of an update's, the vocabulary in pieces as with a large one."""
    prm.objective.LOGITS_AT_ONCE = 2**14
    settings = FitSettings(head_epochs=1, epochs=2, learning_rate=1e-3, batch_paths=8 // world_size())
    model: PreTrainedModel = build_prm(str(folder.parent / "base"), head_std=0.1, seed=3)
    model, report = fit_prm(model, toy_inputs(45), toy_inputs(16, seed=1), settings, folder / "fit", say=lambda _: None)
    if is_main():
        torch.save(model.state_dict(), folder / "prm.pt")
    rank = int(os.environ.get("RANK", "0"))
    rows = [row for row in report.history if "loss" in row or "eval_loss" in row]
    facts = {"distinct": report.distinct_paths, "history": rows, "type": type(model).__name__}
    (folder / f"prm{rank}.json").write_text(json.dumps(facts, default=str))


def run_fsdp_on_cpu() -> None:
    """On a CPU accelerate runs DDP in FSDP's place, in silence; after this its FSDP code runs there, over gloo."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"

    def backend(_self: Any, *_: Any, **__: Any) -> tuple[str | None, DistributedType]:
        if "LOCAL_RANK" not in os.environ:
            return None, DistributedType.NO
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        return "gloo", DistributedType.MULTI_XPU

    PartialState._prepare_backend = backend


def shard_small_weights() -> None:
    """ZeRO-3 leaves weights below 100,000 elements whole, which is every weight of a toy."""
    fill = DeepSpeedPlugin.__post_init__

    def post_init(plugin: DeepSpeedPlugin) -> None:
        fill(plugin)
        if plugin.zero_stage == 3:
            plugin.deepspeed_config["zero_optimization"]["stage3_param_persistence_threshold"] = 0

    DeepSpeedPlugin.__post_init__ = post_init


def main(folder: pathlib.Path, task: str) -> None:
    torch.set_num_threads(1)
    start_ranks()
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        run_fsdp_on_cpu()
    shard_small_weights()
    if task == "prm":
        run_prm(folder)
    else:
        run_policy(folder, task)


if __name__ == "__main__":
    for one in sys.argv[2].split("+"):
        main(pathlib.Path(sys.argv[1]), one)

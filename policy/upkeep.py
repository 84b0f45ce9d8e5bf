"""The part of the trainer around the algorithm: skipped updates, metrics, monitors, evaluation, checkpoints.

What TRL loses when a run is resumed, and what is done about it: the micro-step counter ``_step`` (saved here), the
generation batch in the buffer with its old log-probs (a checkpoint is only written where a batch ends), the generator
of its sampler (the plan is a function of the batch index), the reference model, which would become the checkpoint (kept
from the start of the round, its hash compared), and everything of ours: baseline, monitors with kl_coef, counters.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from common.adapters import NAME, is_adapted
from common.checksums import write_manifest
from common.errors import InputError, RunError
from common.metrics import auc
from common.models import weights_hash
from common.sharding import engine_name, whole_tensor, whole_weights, zero_stage
from policy.advantages import AdvantageInputs, Advantages, MovingAverage
from policy.batches import BatchPlan
from policy.blackbox import AGREED, SKIPPED
from policy.checkpoints import POLICY_STATE, last_good_checkpoint, policy_state, use_intact_best
from policy.gradients import clip, total_norm
from policy.monitors import BatchFacts, Monitors
from policy.objective import PolicyLoss
from policy.options import PolicySettings, updates_per_generation
from policy.quality import quality_sums
from policy.rollouts import Rollout, Sampler, agreement_pairs, rollout_sums
from policy.sampler import sync_weights
from policy.signal_batch import signal_pairs, signal_sums
from policy.zero_guard import RanksAgree, has_dropped

_SUMMED = ("num_trained", "num_reasoning", "clipped_sum", "old_kl_sum", "kl_sum", "kl_k1_sum", "kl_k1_squares",
           "entropy_sum")  # fmt: skip
UNSHARDED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Every rank holds the whole gradient."""
_UNSAID = ("rewards/", "reward_std", "frac_reward", "completions/clipped", "completions/m", "step_time")
"""TRL's metrics that read the placeholder reward, or the last id as the end: ours are logged instead."""


class NonFiniteUpdates(RunError):
    """Too many updates in a row had a non-finite loss or gradient, or a weight of the policy is not finite."""


class TrainerUpkeep(RanksAgree):
    """Base of ``policy.trainer.ProcessPPOTrainer``, which fills these attributes.

    Attributes:
        settings, monitors, moving_average, known_theorems: state of the run; checkpoints hold all but ``settings``.
        evaluate_policy: returns metrics with ``accuracy``.
        announce: is told (update, line) of every alarm, change of kl_coef, and stop.
        skipped_updates, skipped_in_a_row: updates dropped because of a non-finite loss or gradient.
    """

    settings: PolicySettings
    monitors: Monitors
    moving_average: MovingAverage
    known_theorems: set[str]
    evaluate_policy: Any
    announce: Callable[[int, str], None]
    sampler: Sampler
    control: Any
    ref_model: Any
    _buffered_inputs: Any
    _tr_loss: Tensor  # of transformers.Trainer: losses since the last logged row
    skipped_updates: int
    skipped_in_a_row: int
    _rollout: Any  # the Rollout of the batch at hand, None before the first
    plan: BatchPlan
    _facts: dict[str, float]
    _kls: list[float]
    _entropies: list[float]
    _parts: list[PolicyLoss]
    _reference_hash: str | None

    @property
    def stopped_by(self) -> str | None:
        """Why a monitor ended the run, None when none did."""
        return self.monitors.stopped_by

    @property
    def generate_every(self) -> int:
        """Micro-steps between two generation batches."""
        return self.args.steps_per_generation * self.num_iterations

    def _clip_grad_norm(self, model: Any) -> Any:
        """Trainer's, but a gradient that is not finite is left as it is (see ``policy.gradients.clip``)."""
        if self.accelerator.distributed_type not in UNSHARDED or self._has_mixed_mesh_grads(model):
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()
        return clip(model, self.args.max_grad_norm)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """End of an update's backward passes: skip it when it is not finite, log it, and close the generation batch."""
        if grad_norm is None and self.accelerator.distributed_type in UNSHARDED:
            grad_norm = total_norm(model)
        grad_norm = whole_tensor(super()._get_grad_norm(model, grad_norm))
        seen = self.blackbox.look(self, None if self._is_norm_lost else grad_norm)
        local = torch.stack([sum(getattr(part, name) for part in self._parts).double() for name in _SUMMED])
        flags = torch.tensor([float(kind in seen) for kind in AGREED], dtype=torch.float64, device=local.device)
        totals = self._reduce_sum(torch.cat([local, flags])).tolist()
        sums = dict(zip(_SUMMED, totals, strict=False))
        kinds = [kind for kind, count in zip(AGREED, totals[len(_SUMMED) :], strict=True) if count]
        kinds += ["kl"] if self.blackbox.spike(sums["kl_sum"] / max(sums["num_reasoning"], 1)) else []
        ratio_error = self._reduce_max(max(float(part.max_ratio_error) for part in self._parts))
        self.blackbox.record(self, kinds, seen, grad_norm)
        losses = torch.stack([part.loss.detach() for part in self._parts])
        self._parts = []
        if SKIPPED.intersection(kinds):
            self._skip_update(model)
        else:
            self.skipped_in_a_row = 0
            if not bool(torch.isfinite(self._tr_loss)):  # Trainer's running sum would stay NaN for the rest of the run
                self._tr_loss = losses.sum()
            self._log_update(sums, ratio_error)
        self._log_mean("update/skipped", self.skipped_updates)
        if self._step % self.generate_every == 0:
            self._finish_generation(model)
        return grad_norm

    def window(self) -> list[dict[str, Any]]:
        """The micro-batches of the update whose last backward pass is done, on this rank."""
        first, size = self._step - self.args.gradient_accumulation_steps, self.args.steps_per_generation
        return [self._buffered_inputs[step % size] for step in range(first, self._step)]

    def refuse_bad_weights(self) -> None:
        """Raise NonFiniteUpdates when a weight of the policy is not finite: sampling and training are at an end."""
        if name := self.blackbox.first_bad_weight(self):
            raise NonFiniteUpdates(
                f"update {self.state.global_step}: weight {name} is not finite; resume from the last good checkpoint"
            )

    def _skip_update(self, model: Any) -> None:
        """Drop all gradients: an optimiser leaves parameters without a gradient, and their moments, as they are."""
        self.skipped_updates += 1
        self.skipped_in_a_row += 1
        if not zero_stage(self.accelerator):
            model.zero_grad(set_to_none=True)
        elif not has_dropped(self.model_wrapped):
            raise NonFiniteUpdates("non-finite loss or gradient, and DeepSpeed has applied it: the run stops here")
        if self.skipped_in_a_row >= self.settings.max_skipped:
            raise NonFiniteUpdates(
                f"{self.skipped_in_a_row} updates in a row had a non-finite loss or gradient; the weights are those "
                "before them: lower the learning rate, or look at the last batch"
            )

    def _log_update(self, sums: dict[str, float], ratio_error: float) -> None:
        trained, reasoning = max(sums["num_trained"], 1), max(sums["num_reasoning"], 1)
        self._entropies.append(sums["entropy_sum"] / trained)
        self._log_mean("entropy", self._entropies[-1])
        self._log_mean("update/clip_fraction", sums["clipped_sum"] / trained)
        self._log_mean("update/kl_to_old", sums["old_kl_sum"] / trained)
        self._log_mean("update/max_ratio_error", ratio_error)
        if self.beta != 0:
            kl = sums["kl_sum"] / reasoning
            self._kls.append(kl)
            self._log_mean("kl/reference", kl)
            self._log_mean("kl/reference_k1", sums["kl_k1_sum"] / reasoning)
            self._log_mean("kl/coef", self.monitors.kl_coef)
            is_first = (self._step - self.args.gradient_accumulation_steps) % self.generate_every == 0
            if is_first:  # of its batch: these tokens are samples of this very policy
                fresh = {"kl/fresh_k1": sums["kl_k1_sum"] / reasoning}
                fresh["kl/fresh_k1_error"] = math.sqrt(sums["kl_k1_squares"]) / reasoning
                self._facts |= fresh
                for name, value in fresh.items():
                    self._log_mean(name, value)

    def _finish_generation(self, model: Any) -> None:
        """Give the batch to the monitors, log the seconds of its parts, and stop the run when a rule says so."""
        kl = sum(self._kls) / len(self._kls) if self._kls else 0.0
        entropy = sum(self._entropies) / len(self._entropies) if self._entropies else None
        self._kls, self._entropies = [], []
        notes = self.monitors.observe_batch(BatchFacts.from_metrics(self._facts, kl, entropy))
        for note in notes:
            self._say(note)
        for part, seconds in self._rollout.seconds.items():
            self._log_mean(f"seconds/{part}", seconds)
        if self.monitors.rollback_before is not None:
            self._roll_back(model, self.monitors.rollback_before)
        self._stop_if_told()

    def _roll_back(self, model: Any, num_good: int) -> None:
        """Load the last good checkpoint's weights and drop this update's gradients; the run ends with these weights.

        Args:
            num_good: generation batches before the alarm's window.
        """
        before = num_good * updates_per_generation(self.args)
        checkpoint = last_good_checkpoint(self.args.output_dir, before, self.state.best_model_checkpoint)
        if checkpoint is None:
            self._say(f"rollback: no checkpoint before update {before}; the weights stay as they are")
        elif self.is_deepspeed_enabled or self.is_fsdp_enabled:
            self._say(f"rollback: sharded weights are not reloaded in place; the last good ones are in {checkpoint}")
        else:
            self._load_from_checkpoint(checkpoint)
            model.zero_grad(set_to_none=True)
            self._say(f"rollback: weights are those of {pathlib.Path(checkpoint).name}")

    def _stop_if_told(self) -> None:
        if self.monitors.stopped_by is None:
            return
        self.control.should_training_stop = True
        self.control.should_evaluate |= self.args.eval_strategy != "no" and not self._is_evaluating
        self.control.should_save |= self.args.save_strategy != "no"
        self._say(f"stopped by: {self.monitors.stopped_by}")

    _is_evaluating = False

    _announced = 0  # lines so far; in every checkpoint, so that a resumed run knows which of the log were before it

    def _say(self, line: str) -> None:
        self._announced += 1
        if self.accelerator.is_main_process:
            self.announce(self.state.global_step, line)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict:
        """Call ``evaluate_policy`` with a forked random state; see the class."""
        self.refuse_bad_weights()
        was_training = self.model.training
        self._is_evaluating = True
        self.model.eval()
        devices = [self.accelerator.device] if self.accelerator.device.type == "cuda" else []
        whole = whole_weights(self.model_wrapped, self.accelerator)
        with torch.random.fork_rng(devices), torch.no_grad(), whole as policy:
            sync_weights(self.sampler, policy)
            found = self.evaluate_policy(policy)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        self.log(dict(metrics))
        self.model.train(was_training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.monitors.observe_evaluation(found["accuracy"])
        if promoted := self.plan.after_evaluation(self._step // self.generate_every, found):
            self.monitors.begin_stage()
            self._say(promoted)
        self._stop_if_told()
        self._is_evaluating = False
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name in [name for name in metrics if name == "reward" or name.startswith(_UNSAID)]:
            del metrics[name]
        super().log(logs, start_time)

    def _send_telemetry(self) -> None:
        """Nothing leaves the machine."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """No model card beside checkpoints."""

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """TRL's; a run that a monitor had stopped before its last checkpoint loads it and trains no further."""
        if isinstance(resume_from_checkpoint, str | os.PathLike):
            state = policy_state(resume_from_checkpoint)
            engine, ranks = engine_name(self.accelerator), self.accelerator.num_processes
            written = state.get("engine", engine), state.get("ranks", ranks)
            if written[0] != engine or (engine != "none" and written[1] != ranks):
                raise InputError(
                    f"{resume_from_checkpoint}: written by {written[1]} processes under {written[0]}, and {ranks} under"
                    f" {engine} cannot go on with it: launch it as before, or start with another RUN"
                )
            if state["monitors"]["stopped_by"]:
                self.args.max_steps = state["update"]
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save what TRL does not: micro-step, baseline, monitors, counters. Only where a generation batch ends.

        Raises:
            RuntimeError: inside a generation batch, whose paths and old log-probs a checkpoint would lose.
        """
        if self._step % self.generate_every != 0:
            raise RuntimeError(
                f"a checkpoint at update {self.state.global_step} would cut a generation batch; save at a multiple of "
                f"{updates_per_generation(self.args)} updates"
            )
        self.known_theorems = set().union(*gather_object([list(self.known_theorems)]))
        folder = pathlib.Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if self.args.should_save:
            folder.mkdir(parents=True, exist_ok=True)
            state = {
                "update": self.state.global_step,
                "ranks": self.accelerator.num_processes,
                "engine": engine_name(self.accelerator),
                "moving_average": self.moving_average.state_dict(),
                "monitors": self.monitors.state_dict(),
                "plan": self.plan.state_dict(),
                "known_theorems": sorted(self.known_theorems),
                "skipped_updates": self.skipped_updates,
                "skipped_in_a_row": self.skipped_in_a_row,
                "nonfinite": dict(self.blackbox.counts),
                "announced": self._announced,
                "reference_hash": self._hash_of_reference(),
            }
            (folder / POLICY_STATE).write_text(json.dumps(state))
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            write_manifest(folder)

    def _load_best_model(self) -> None:
        use_intact_best(self.state, self.args.output_dir, self._say)
        super()._load_best_model()

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Restore what ``_save_checkpoint`` saved.

        Raises:
            ValueError: a checkpoint without optimiser or policy state, or of a run with another reference.
        """
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        has_own_files = self.is_deepspeed_enabled or self.is_fsdp_enabled
        if not has_own_files and not os.path.isfile(os.path.join(checkpoint, "optimizer.pt")):
            raise ValueError(f"{checkpoint}: no optimizer.pt; this checkpoint cannot be resumed")
        state = policy_state(checkpoint)
        if state["reference_hash"] != self._hash_of_reference():
            raise ValueError(f"{checkpoint}: the reference model is not the one this run started with")
        self._step = state["update"] * self.args.gradient_accumulation_steps  # micro-steps of this number of ranks
        self.moving_average = MovingAverage.from_state_dict(state["moving_average"])
        self.monitors.load_state_dict(state["monitors"])
        self.plan.load_state_dict(state.get("plan", {}))
        self.known_theorems = set(state["known_theorems"])
        self.skipped_updates, self.skipped_in_a_row = state["skipped_updates"], state["skipped_in_a_row"]
        self.blackbox.counts.update(state.get("nonfinite", {}))
        self._announced = state.get("announced", 0)

    def _hash_of_reference(self) -> str | None:
        """Hash of the reference's weights; of a policy with an adapter: of all that is not being trained."""
        if self._reference_hash is None and self.beta != 0:
            policy = self.accelerator.unwrap_model(self.model)
            if self.ref_model is not None:
                self._reference_hash = weights_hash(self.accelerator.unwrap_model(self.ref_model))
            elif is_adapted(policy):
                self._reference_hash = weights_hash(policy, without=f".{NAME}.")
        return self._reference_hash

    def _log_rollout(self, rollout: Rollout, advantages: Advantages, batch: AdvantageInputs) -> None:
        """Add the batch's metrics to TRL's, over all ranks, and keep what the monitors need."""
        signals = self.settings.signals
        sums = rollout_sums(rollout) | (signal_sums(rollout, signals) if signals else {})
        sums |= quality_sums(rollout.qualities, self.settings.quality)
        sums |= {
            "anchors": float(advantages.num_anchors),
            "fallbacks": float(advantages.num_fallbacks),
            "groups": float(advantages.num_groups),
            "equal_groups": float(advantages.num_equal_groups),
            "separators": float((batch.is_separator_BT & batch.is_completion_BT & batch.is_counted_B[:, None]).sum()),
        }
        names = sorted(sums)
        total = self._reduce_sum(torch.tensor([sums[name] for name in names], dtype=torch.float64))
        facts = dict(zip(names, total.tolist(), strict=True))
        paths, counted, steps = (max(facts[name], 1) for name in ("paths", "counted", "steps"))
        self._facts = {
            "reward/outcome": facts["outcome"] / counted,
            "reward/penalty": facts["penalty"] / counted,
            "reward/process_share": advantages.process_share,
            "prm/mean_score": facts["prm_sum"] / max(facts["prm_count"], 1),
            "reward/process_factor": 0.0 if self.monitors.is_outcome_only else self.monitors.process_factor,
            "rollout/steps": facts["steps"] / counted,
            "rollout/step_tokens": facts["step_tokens"] / steps,
            "rollout/separators": facts["separators"] / max(facts["tokens"], 1),
            "rollout/duplicate_steps": facts["duplicate_steps"] / steps,
            "rollout/same_pattern": facts["same_pattern"] / steps,
            "rollout/invented_theorems": facts["invented_theorems"] / paths,
            "rollout/tokens": facts["tokens"] / counted,
            "rollout/counted_share": facts["counted"] / paths,
            "rollout/truncated": facts["truncated"] / paths,
            "rollout/repeated_ngrams": facts["repeated_ngrams"] / counted,
            "rollout/equal_groups": facts["equal_groups"] / max(facts["groups"], 1),
            "rollout/fallbacks": facts["fallbacks"],
            "rollout/fallback_share": facts["fallbacks"] / paths,
            "rollout/anchors": facts["anchors"],
            "rollout/no_step": facts["no_step"],
        } | {name: value for name, value in facts.items() if name.startswith("verdict/")}
        self._facts |= {name: value / counted for name, value in facts.items() if name.startswith("signals/")}
        right = max(facts["outcome"], 1)
        self._facts |= {name: value / right for name, value in facts.items() if name.startswith("quality/")}
        self._facts["rollout/unparsed"] = facts["verdict/UNPARSED"] / paths
        pairs = gather_object(signal_pairs(rollout, signals) if signals else agreement_pairs(rollout))
        agreement = auc([score for score, _ in pairs], [is_right for _, is_right in pairs])
        if agreement is not None:
            self._facts["signals/auc" if signals else "prm/auc"] = agreement
        self._log_facts(self._facts | self.plan.facts())

    def _log_facts(self, facts: dict[str, float]) -> None:
        """Log figures of the batch at hand and keep them for the monitors."""
        self._facts |= facts
        for name, value in facts.items():
            self._log_mean(name, value)

    def _log_mean(self, name: str, value: float) -> None:
        self._metrics["train"][name].append(value)

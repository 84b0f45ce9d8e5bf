"""The part of the trainer that drives the critic (baseline ``gae``): without one nothing here does anything."""

from __future__ import annotations

import pathlib
import time
from typing import Any

from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from common.errors import InputError
from common.models import tensor_bytes
from policy.advantages import AdvantageInputs, Advantages
from policy.critic import Critic, batch_metrics
from policy.gae import Estimates
from policy.upkeep import NonFiniteUpdates, TrainerUpkeep
from prm.credit import default_flow


class ActorCritic(TrainerUpkeep):
    """Base of ``policy.trainer.ProcessPPOTrainer`` that values states, trains the critic, logs and saves it.

    Attributes:
        critic: None with another baseline than ``gae``.
    """

    critic: Critic | None
    _carried: dict[str, Tensor]

    @property
    def is_warming_up(self) -> bool:
        """True = in the generation batch of the last micro-step only the critic learns."""
        batch = (self._step - 1) // self.generate_every
        return self.critic is not None and batch < self.settings.critic.warmup

    def _place_critic(self) -> None:
        """Move the critic to the trainer's device.

        Raises:
            InputError: a sharded run.
        """
        if self.critic is None:
            return
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise InputError(
                "policy trainer: baseline = 'gae' is not served under DeepSpeed or FSDP (the critic is not sharded);"
                " wanted one of group, rloo, grpo, moving_average, or plain data parallel"
            )
        self.critic.model.to(self.accelerator.device)

    def _estimates(self, output: dict[str, Any], batch: AdvantageInputs) -> Estimates | None:
        """Value the states of the generation batch; None without a critic."""
        if self.critic is None or batch.segments is None:
            return None
        started = time.perf_counter()
        flow = self.settings.flow or default_flow(self.settings.credit)
        policy, size = self.accelerator.unwrap_model(self.model), self.args.per_device_train_batch_size
        estimates, self._carried = self.critic.estimate(policy, output, batch.segments, flow, size)
        self._rollout.seconds["critic"] = time.perf_counter() - started
        return estimates

    def _carry_values(self, output: dict[str, Any], advantages: Advantages, estimates: Estimates | None) -> None:
        """Put what the critic learns into the batch, and log how well it knew these paths."""
        if self.critic is None or estimates is None or advantages.targets is None:
            return
        device = self._carried["old_values"].device
        output.update(self._carried)
        output["value_targets"] = advantages.targets.targets_BN2.to(device)
        output["is_valued"] = advantages.targets.is_valued_BN2.to(device)
        for name, value in batch_metrics(advantages.targets, estimates.values_BN2, self._reduce_sum).items():
            self._log_mean(f"critic/{name}", value)
            if self._step // self.generate_every >= self.critic.settings.warmup:  # before that no alarm
                self._facts[f"critic/{name}"] = value

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.critic is not None:  # after the policy's backward pass, whose activations are freed
            self.critic.learn(self._buffered_inputs[(self._step - 1) % self.args.steps_per_generation])
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The policy's end of an update, then the critic's; in the warm-up the policy's gradient is dropped.

        Raises:
            NonFiniteUpdates: the critic's loss or gradient was not finite too often in a row.
        """
        skipped = self.skipped_updates
        grad_norm = super()._get_grad_norm(model, grad_norm)
        if self.critic is None:
            return grad_norm
        num_valued = float(self.window()[0]["window_valued"].sum())
        metrics = self.critic.update(num_valued, self._reduce_sum, self.skipped_updates > skipped)
        if self.critic.skipped_in_a_row >= self.settings.max_skipped:
            raise NonFiniteUpdates(
                f"{self.critic.skipped_in_a_row} updates in a row: loss or gradient of the critic not finite; lower"
                " ppo.critic_learning_rate"
            )
        if self.is_warming_up:
            model.zero_grad(set_to_none=True)
        metrics |= {"warming_up": float(self.is_warming_up)} | self._critic_memory(self.critic)
        for name, value in metrics.items():
            self._log_mean(f"critic/{name}", value)
        return grad_norm

    def _critic_memory(self, critic: Critic) -> dict[str, float]:
        """MB of the critic's weights and optimiser state, and their share of those of all models of this process
        (policy with its optimiser, critic, reference, base); activations, gradients and the PRM are not in it.
        """
        models = [self.model, self.ref_model, getattr(self, "base_model", None)]
        others = sum(tensor_bytes(dict(model.named_parameters())) for model in models if model is not None)
        others += tensor_bytes(self.optimizer.state_dict())
        own = critic.num_bytes()
        return {"megabytes": own / 1e6, "memory_share": own / (own + others)}

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.critic is not None and self.args.should_save and self._step % self.generate_every == 0:
            folder = pathlib.Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            folder.mkdir(parents=True, exist_ok=True)
            self.critic.save(folder)  # before the manifest, which the base writes last
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.critic is not None:
            self.critic.load(pathlib.Path(checkpoint))

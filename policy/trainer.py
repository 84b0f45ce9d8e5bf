"""`ProcessPPOTrainer`: PPO with process and outcome rewards on top of TRL's `GRPOTrainer`.

What is TRL's: batching, PEFT, DeepSpeed/FSDP wrapping, logging, checkpoints, the pass that computes old and reference
log-probs. What differs from it, and why:

1. Sampling goes through ``rollout_func`` to the project's engine, so data and PPO share one sampler, ids flow unchanged
   to the loss, and a stop string or an empty completion breaks nothing.
2. The PRM scores after ``super()._generate_and_score_completions`` (TRL's reward sum turns NaN into 0); its advantages
   (B, T), ``is_trained`` (B, T) and ``is_reasoning`` (B, T) travel through TRL's shuffle and split.
3. The paths of each update are sorted by length, and log-probs are computed with padding on the right only, trimmed: no
   attention mask is needed under a causal model, and positions are right for every kind of position embedding.
4. ``_compute_loss`` is replaced as a whole by ``policy.objective.policy_loss`` with exact token counts of the update.
5. The reference is the model as given (or ``reference``), never the checkpoint that a run resumes from. Of a policy
   with a fresh adapter it is the policy with the adapter off (``ADAPTER_OFF``): TRL would keep a copy of the adapter.
6. An update with a non-finite loss or gradient is skipped on all ranks and counted.
7. With baseline ``gae`` a critic values the states of the batch and learns beside the policy (``policy.actor_critic``).
8. A sampler with weights of its own (vLLM) gets the policy's before each use, and the surrogate is weighted for the
   difference of its probabilities (``policy.importance``), by TRL's ``vllm_importance_sampling_*`` arguments.
9. Nothing depends on the global random state: plan, shuffle and sampling have seeds of their own, so a resumed run is
   the uninterrupted one, bit for bit on one device.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel
from trl import GRPOConfig
from trl.trainer.utils import add_fused_lm_head

from common.adapters import ADAPTER_OFF, Frozen, copy_sharing_frozen, is_adapted
from common.models import switch_off_dropout, weights_hash
from common.records import Problem
from common.sharding import is_engine, whole_weights
from policy.actor_critic import ActorCritic
from policy.advantages import MovingAverage, compute_advantages
from policy.batches import BatchPlan, PlanSampler, derived_seed, generations_needed, sort_windows
from policy.blackbox import BlackBox, BoxSettings
from policy.checkpoints import last_complete_checkpoint
from policy.critic import Critic
from policy.forward import token_logprobs
from policy.microbatch import LossSettings, micro_batch_loss, model_inputs
from policy.monitors import Limits, Monitors
from policy.objective import PolicyLoss
from policy.options import PolicySettings, check_arguments
from policy.quality import JudgeCoherence
from policy.rollouts import (
    Grade,
    Sampler,
    Score,
    advantage_inputs,
    collect_rollout,
    reasoning_mask,
    score_rollout,
)
from policy.sampler import correct_sampler, sync_weights
from policy.signal_batch import signal_inputs
from policy.upkeep import NonFiniteUpdates

__all__ = ["NonFiniteUpdates", "ProcessPPOTrainer", "last_complete_checkpoint"]


def print_note(update: int, line: str) -> None:
    """Print an alarm or a stop."""
    print(f"update {update}: {line}", flush=True)


class ProcessPPOTrainer(ActorCritic):
    """Trains a policy on process and outcome rewards; see the module's docstring and ``policy.advantages``.

    Args:
        model: the policy at the START of the round (a resumed run loads its checkpoint over it).
        args: ``GRPOConfig``; what it must say is in ``policy.options``. ``beta`` is the starting KL coefficient (0: no
            reference), ``epsilon``/``epsilon_high`` the clip, ``num_iterations`` the epochs, ``steps_per_generation /
            gradient_accumulation_steps`` the minibatches, ``max_steps`` the updates of the whole run.
        problems: training problems; ``difficulty`` orders the bands.
        encode_prompt: problem text to prompt ids.
        processing_class: tokenizer with a pad token.
        sampler: an engine of ``data_gen.engines`` on the same module, or one with weights of its own
            (``policy.sampler``).
        grade, score: see ``policy.rollouts``; ``score`` None is a run on the outcome alone, or on signals.
        judge_coherence: of a frozen model; wanted where ``settings.quality.coherence`` is above 0.
        settings, limits: the algorithm's fields and the monitors' limits.
        reference: model of the KL term, None for ``model`` as it starts: a copy, which shares the weights that get no
            gradient, or with PEFT a copy of its adapter; ``ADAPTER_OFF`` with PEFT.
        base_model: KL to it is logged too, None when it is the reference; ``ADAPTER_OFF`` with PEFT.
        evaluate_policy: called with the unwrapped policy in evaluation mode, on every rank, when TRL's
            ``eval_strategy`` asks; returns metrics that hold ``accuracy`` in [0, 1] (becomes ``eval_accuracy``).
        announce: is told (update, line) of every alarm, change of kl_coef, and stop.
        box: where black boxes go, None for no box (see ``policy.blackbox``).
        plan: which problems make a batch, e.g. ``policy.curriculum.StagedPlan``; None: bands of difficulty that rotate.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        args: GRPOConfig,
        problems: Sequence[Problem],
        encode_prompt: Callable[[str], Sequence[int]],
        processing_class: Any,
        sampler: Sampler,
        grade: Grade,
        score: Score | None = None,
        judge_coherence: JudgeCoherence | None = None,
        settings: PolicySettings | None = None,
        limits: Limits | None = None,
        reference: Frozen = None,
        base_model: Frozen = None,
        evaluate_policy: Callable[[Any], dict[str, float]] | None = None,
        announce: Callable[[int, str], None] = print_note,
        box: BoxSettings | None = None,
        plan: BatchPlan | None = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        settings = settings or PolicySettings()
        check_arguments(args, settings)
        switch_off_dropout(model)  # before anything is copied from it
        if args.eval_strategy != "no" and evaluate_policy is None:
            raise ValueError(f"policy trainer: eval_strategy = {args.eval_strategy!r} needs evaluate_policy")
        if settings.signals is not None and score is not None:
            raise ValueError("policy trainer: settings.signals and score exclude each other; want score = None")
        if settings.quality.coherence and judge_coherence is None:
            raise ValueError("policy trainer: settings.quality.coherence > 0 needs judge_coherence")
        self.settings, self.sampler, self.grade, self.score = settings, sampler, grade, score
        self.judge_coherence = judge_coherence if settings.quality.coherence else None
        self.evaluate_policy, self.announce, self.blackbox = evaluate_policy, announce, BlackBox(box)
        self.monitors = Monitors(limits or Limits(), args.beta)
        self.moving_average = MovingAverage.create(settings.max_step_positions, settings.baseline_momentum)
        self.critic = self._new_critic(model, args) if settings.baseline == "gae" else None
        self.known_theorems: set[str] = set()
        self.skipped_updates = self.skipped_in_a_row = 0
        self._rollout = None
        self._rows: list[int] = []
        self._facts: dict[str, float] = {}
        self._kls: list[float] = []
        self._entropies: list[float] = []
        self._parts: list[PolicyLoss] = []
        self._reference_hash: str | None = None
        self._problems = list(problems)
        self._prompt_ids = [list(encode_prompt(problem.text)) for problem in problems]
        dataset = Dataset.from_dict({"prompt": [""] * len(problems), "index": list(range(len(problems)))})
        self.plan = plan or BatchPlan(
            [problem.difficulty for problem in problems],
            args.generation_batch_size // args.num_generations,
            settings.difficulty_bands,
            args.seed,
        )
        if ADAPTER_OFF in (reference, base_model) and not is_adapted(model):
            raise ValueError(f"policy trainer: reference or base_model = {ADAPTER_OFF!r} needs a model with an adapter")
        is_adapter_copy = is_adapted(model) and reference is None
        own_reference = args.beta != 0 and not is_adapter_copy and reference != ADAPTER_OFF
        if own_reference and reference is None:
            reference = copy_sharing_frozen(model)
        beta, args.beta = args.beta, args.beta if is_adapter_copy else 0.0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*rollout_func.*experimental")
            super().__init__(
                model=model,
                reward_funcs=[_placeholder_reward],
                args=args,
                train_dataset=dataset,
                eval_dataset=dataset.select([0]) if args.eval_strategy != "no" else None,
                processing_class=processing_class,
                callbacks=callbacks,
                optimizers=optimizers,
                rollout_func=_sample_rollout,
            )
        args.beta = self.beta = beta
        if own_reference and is_engine(self.accelerator):
            self._reference_hash = weights_hash(reference)  # while it is whole
        self.ref_model = self._frozen(reference) if own_reference else self.ref_model
        self.base_model = self._frozen(base_model) if base_model is not None else None
        self._place_critic()

    def _new_critic(self, model: PreTrainedModel, args: GRPOConfig) -> Critic:
        return Critic(
            model,
            self.settings.critic,
            autocast=lambda: self.accelerator.autocast(),  # of the trainer, which is built later
            max_grad_norm=args.max_grad_norm,
            gradient_checkpointing=args.gradient_checkpointing,
        )

    def _frozen(self, model: Any) -> Any:
        """Prepare a model that only gives log-probs, as TRL prepares its reference."""
        if model == ADAPTER_OFF:
            return model
        model.requires_grad_(False)
        switch_off_dropout(model)
        add_fused_lm_head(model, temperature=self.temperature)
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            from trl.models import prepare_deepspeed, prepare_fsdp

            return (prepare_deepspeed if self.is_deepspeed_enabled else prepare_fsdp)(model, self.accelerator)
        return self.accelerator.prepare_model(model.eval(), evaluation_mode=True)

    def _get_train_sampler(self, dataset: Dataset | None = None) -> PlanSampler:
        return PlanSampler(self.plan, generations_needed(self.args), self.num_generations, self.generate_every)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """TRL's, with a shuffle of its own seed and the windows of new batches sorted by length."""
        started = time.perf_counter()
        if self._step % self.generate_every == 0 or self._buffered_inputs is None:
            self._buffered_inputs = None
            devices = [self.accelerator.device] if self.accelerator.device.type == "cuda" else []
            with torch.random.fork_rng(devices):
                torch.manual_seed(derived_seed(self._seed(), self.accelerator.process_index))
                super()._prepare_inputs(generation_batch)
            self._buffered_inputs = sort_windows(self._buffered_inputs, self.args.gradient_accumulation_steps)
            for batch in self._buffered_inputs:
                counts = torch.stack([batch["window_trained"], batch["window_reasoning"]])
                batch["window_trained"], batch["window_reasoning"] = self._reduce_sum(counts).unbind()
                if self.critic is not None:
                    batch["window_valued"] = self._reduce_sum(batch["window_valued"])
        self._prepare_seconds = time.perf_counter() - started
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _seed(self) -> int:
        """Seed of this generation batch; the same on every rank, so ranks together sample what one would."""
        return derived_seed(self.args.seed, self._step // self.generate_every)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch (sampling, grading, old and reference log-probs), then PRM scores and our advantages."""
        started = time.perf_counter()
        self._rows = self.plan.rows(self._step // self.generate_every, [row["index"] for row in inputs])
        self.refuse_bad_weights()
        output = super()._generate_and_score_completions(inputs)
        rollout = self._rollout
        rollout.seconds["logprobs"] = time.perf_counter() - started - sum(rollout.seconds.values())
        score_rollout(rollout, None if self.monitors.is_outcome_only else self.score)
        device, width = output["completion_ids"].device, output["completion_ids"].size(1)
        if self.settings.signals is not None:
            batch = signal_inputs(rollout, self.settings.signals, width, self.monitors.is_outcome_only)
        else:
            batch = advantage_inputs(rollout, self.settings, self._tokenizer, width)
        estimates = self._estimates(output, batch)
        process_weight, outcome_weight = self.settings.mix(self.monitors.process_factor)
        advantages = compute_advantages(
            batch,
            process_weight=process_weight,
            outcome_weight=outcome_weight,
            baseline=self.settings.baseline,
            normalise_sources=self.settings.normalise_sources,
            moving_average=self.moving_average,
            reduce_sum=self._reduce_sum,
            estimates=estimates,
        )
        self.moving_average = advantages.moving_average
        is_empty_B = torch.tensor(rollout.is_empty, device=device)
        output["completion_mask"] = output["completion_mask"] * (~is_empty_B).long()[:, None]
        output["advantages"] = advantages.advantages_BT.to(device)
        output["is_trained"] = (batch.is_completion_BT & batch.is_counted_B[:, None]).to(device)
        output["is_reasoning"] = reasoning_mask(rollout, self.settings, self._tokenizer, width).to(device)
        output["rollout_row"] = torch.arange(len(inputs), device=device)
        if self.base_model is not None:
            self._log_base_kl(output)
        self._log_rollout(rollout, advantages, batch)
        self._log_facts(correct_sampler(self, output))
        self._carry_values(output, advantages, estimates)
        return output

    def _log_base_kl(self, output: dict[str, Any]) -> None:
        """Log the mean of log pi - log pi_base over reasoning tokens of the sampled batch, nats a token."""
        size = self.args.per_device_train_batch_size
        is_off, policy = self.base_model == ADAPTER_OFF, self.accelerator.unwrap_model(self.model)
        base = self.model if is_off else self.base_model
        with torch.no_grad(), policy.disable_adapter() if is_off else contextlib.nullcontext():
            base_BT, _, _ = self._get_per_token_logps_and_entropies(base, *model_inputs(output), size)
        now_BT = self.sampled_logprobs(output)
        counted = torch.where(output["is_reasoning"], now_BT - base_BT, torch.zeros_like(now_BT)).sum().double()
        sums = self._reduce_sum(torch.stack([counted, output["is_reasoning"].sum().double()]))
        self._log_mean("kl/base", float(sums[0] / sums[1].clamp(min=1)))

    def sampled_logprobs(self, output: dict[str, Any]) -> Tensor:
        """Return log pi of the sampled tokens, (B, T), before the batch's first update; TRL leaves them out where a
        batch has one update.
        """
        if output.get("old_per_token_logps") is not None:
            return output["old_per_token_logps"]
        size = self.args.per_device_train_batch_size
        with torch.no_grad():
            found = self._get_per_token_logps_and_entropies(self.model, *model_inputs(output), size)
        return found[0]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **unserved: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """Same contract as TRL's for text; see ``policy.forward``."""
        if compute_aux_loss or any(value is not None for value in unserved.values()):
            raise ValueError("policy trainer: images and router losses are not served")
        with self.accelerator.autocast():
            logprobs_BT, entropy_BT = token_logprobs(model, input_ids, attention_mask, logits_to_keep, batch_size)
        return logprobs_BT, entropy_BT if compute_entropy else None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Loss of one micro-batch, scaled so that the mean over ranks of the sum over the update is the objective."""
        logprobs_BT, entropy_BT, _ = self._get_per_token_logps_and_entropies(
            model, *model_inputs(inputs), compute_entropy=True
        )
        out = micro_batch_loss(logprobs_BT, entropy_BT, inputs, self.loss_settings())
        self.blackbox.keep(logprobs_BT)
        self._parts.append(out)
        return out.loss

    def loss_settings(self) -> LossSettings:
        """Clip and KL weight in force."""
        is_corrected, num_ranks = self.args.use_bias_correction_kl, self.accelerator.num_processes
        return LossSettings(self.epsilon_low, self.epsilon_high, self.monitors.kl_coef, is_corrected, num_ranks)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        started = time.perf_counter()
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._rollout is not None:
            update = time.perf_counter() - started - self._prepare_seconds
            self._rollout.seconds["update"] = self._rollout.seconds.get("update", 0.0) + update
        return loss


def _placeholder_reward(completions: list[Any], **_: Any) -> list[float]:
    """TRL wants a reward; ours need steps and scores and are computed after its batch."""
    return [0.0] * len(completions)


def _sample_rollout(prompts: list[str], trainer: ProcessPPOTrainer) -> dict[str, Any]:
    """TRL's ``rollout_func``: sample and grade the rows of the batch at hand."""
    with whole_weights(trainer.model_wrapped, trainer.accelerator) as policy:
        sync_seconds = sync_weights(trainer.sampler, policy)
        trainer._rollout = collect_rollout(
            [trainer._problems[row] for row in trainer._rows],
            [trainer._prompt_ids[row] for row in trainer._rows],
            sampler=trainer.sampler,
            grade=trainer.grade,
            settings=trainer.settings,
            num_paths=trainer.num_generations,
            temperature=trainer.temperature,
            max_new_tokens=trainer.max_completion_length,
            seed=trainer._seed(),
            run_seed=trainer.args.seed,
            generation=trainer._step // trainer.generate_every,
            known_theorems=trainer.known_theorems,
            end_id=trainer._tokenizer.eos_token_id,
            judge_coherence=trainer.judge_coherence,
        )
    if sync_seconds is not None:
        trainer._rollout.seconds["sync"] = sync_seconds
    return {
        "prompt_ids": trainer._rollout.prompt_ids,
        "completion_ids": trainer._rollout.completion_ids,
        "logprobs": trainer._rollout.sampling_logprobs,
    }

"""From a configuration to TRL's arguments, the algorithm's fields, the monitors' limits and the plan of batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from trl import GRPOConfig

from common.config import Config
from common.errors import InputError
from common.records import Problem
from policy.actions import RULES, tuned
from policy.blackbox import BoxSettings
from policy.curriculum import StagedPlan, split_stages
from policy.monitors import Limits
from policy.options import CriticSettings, PolicySettings
from policy.rewards import PenaltyWeights

KL_SPIKE = 3.0
"""The KL that rolls a run back, as a multiple of ``ppo.kl_cap``."""


def trainer_arguments(config: Config, folder: Path, world_size: int = 1) -> GRPOConfig:
    """The one function that turns the ``ppo`` section into TRL's arguments.

    One generation batch is ``problems * paths`` paths over all devices; it is cut into ``minibatches`` updates and
    passed over ``epochs`` times.

    Raises:
        InputError: the batch does not divide into minibatches of whole micro-batches, or the critic's warm-up is all.
    """
    ppo = config.ppo
    batch = ppo.problems * ppo.paths
    per_update = batch // ppo.minibatches
    if batch % (ppo.minibatches * world_size) or per_update % (min(ppo.micro_batch, per_update) * world_size):
        raise InputError(
            f"ppo.problems * ppo.paths = {batch}: want a multiple of ppo.minibatches * ppo.micro_batch * devices ="
            f" {ppo.minibatches} * {ppo.micro_batch} * {world_size}"
        )
    if ppo.baseline == "gae" and ppo.reward == "signals":
        raise InputError("ppo.baseline = 'gae' with ppo.reward = 'signals': a critic of steps; want another baseline")
    if ppo.baseline == "gae" and ppo.critic_warmup >= ppo.batches:
        raise InputError(f"ppo.critic_warmup = {ppo.critic_warmup}: want less than ppo.batches = {ppo.batches}")
    micro = min(ppo.micro_batch, per_update // world_size)
    updates = ppo.minibatches * ppo.epochs
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        per_device_train_batch_size=micro,
        per_device_eval_batch_size=ppo.paths,  # TRL wants whole groups; no evaluation of its own is run
        steps_per_generation=batch // (micro * world_size),
        gradient_accumulation_steps=per_update // (micro * world_size),
        num_generations=ppo.paths,
        num_iterations=ppo.epochs,
        max_steps=ppo.batches * updates,
        max_completion_length=config.data.max_new_tokens,
        temperature=ppo.temperature,
        top_p=1.0,
        top_k=0,
        loss_type="dapo",
        beta=ppo.kl_coef,
        epsilon=ppo.clip,
        learning_rate=ppo.learning_rate,
        warmup_steps=ppo.warmup_updates,
        lr_scheduler_type=ppo.schedule,
        weight_decay=ppo.weight_decay,
        max_grad_norm=ppo.max_grad_norm,
        vllm_importance_sampling_correction=ppo.vllm_importance_sampling_correction,
        vllm_importance_sampling_mode=ppo.vllm_importance_sampling_mode,
        vllm_importance_sampling_clip_min=ppo.vllm_importance_sampling_clip_min,
        vllm_importance_sampling_clip_max=ppo.vllm_importance_sampling_clip_max,
        disable_dropout=True,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        eval_strategy="steps",
        eval_steps=ppo.eval_every * updates,
        save_strategy="steps",
        save_steps=ppo.eval_every * updates,
        save_total_limit=ppo.keep_checkpoints,
        load_best_model_at_end=True,
        metric_for_best_model="eval_accuracy",
        greater_is_better=True,
        logging_steps=updates,
        disable_tqdm=True,
        gradient_checkpointing=ppo.gradient_checkpointing,
        bf16=config.base.dtype == "bfloat16",
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[] if config.report_to == "none" else [config.report_to],
        run_name=str(folder.parent.parent.name),
    )


def policy_settings(config: Config) -> PolicySettings:
    """The algorithm's fields."""
    ppo = config.ppo
    return PolicySettings(
        process_weight=ppo.process_weight,
        outcome_weight=ppo.outcome_weight,
        credit=ppo.credit,
        flow=ppo.flow,
        correct_floor=ppo.correct_floor,
        baseline=ppo.baseline,
        baseline_momentum=ppo.baseline_momentum,
        normalise_sources=ppo.normalise_sources,
        anchor_fraction=ppo.anchor_fraction,
        penalties=PenaltyWeights(
            repeated_ngrams=ppo.penalty_repeat,
            same_pattern=ppo.penalty_pattern,
            few_steps=ppo.penalty_short,
            bad_format=ppo.penalty_format,
            unknown_theorem=ppo.penalty_theorem,
        ),
        signals=ppo.signal_settings if ppo.reward == "signals" else None,
        quality=ppo.quality_weights,
        train_on_truncated=ppo.truncated == "zero",
        min_steps=ppo.min_steps,
        difficulty_bands=ppo.difficulty_bands,
        critic=CriticSettings(
            gamma=ppo.gamma,
            lam=ppo.gae_lambda,
            trunk=ppo.critic_trunk,
            learning_rate=ppo.critic_learning_rate,
            clip=ppo.critic_clip,
            warmup=ppo.critic_warmup,
        ),
    )


def monitor_limits(config: Config) -> Limits:
    """Limits of the monitors."""
    ppo = config.ppo
    return Limits(
        flat_evaluations=ppo.patience,
        kl_cap=ppo.kl_cap,
        kl_high=ppo.kl_high,
        repeated_ngrams=ppo.repeat_limit,
        steps_kept=ppo.steps_floor,
        rules=tuned(
            RULES,
            {
                "kl_spike": KL_SPIKE * ppo.kl_cap,
                "prm_misleads": ppo.prm_auc_floor,
                "entropy_collapse": ppo.entropy_floor,
                "sampler_mismatch": ppo.logp_difference_limit,
            },
            ppo.difficulty_bands,
        ),
        outcome_only_batches=ppo.outcome_only_batches,
        acts=ppo.alarm_actions,
    )


def curriculum_plan(config: Config, problems: Sequence[Problem]) -> StagedPlan | None:
    """The stages of section ``curriculum`` over the training problems; None when it is off.

    Raises:
        InputError: a stage has too few problems for a batch of each difficulty band beside those it is checked on.
    """
    settings, ppo = config.curriculum, config.ppo
    if not settings.is_on:
        return None
    values = [problem.difficulty if settings.by == "pass_rate" else problem.level for problem in problems]
    stages = split_stages([problem.id for problem in problems], values, settings.stages, settings.checked)
    wanted = settings.checked + ppo.problems * ppo.difficulty_bands
    for number, stage in enumerate(stages, 1):
        found = len(stage.train) + len(stage.checked)
        if found < wanted:
            raise InputError(
                f"curriculum.stages, stage {number}: {found} problems have a {settings.by} in [{stage.low:g},"
                f" {stage.high:g}]; want curriculum.checked + ppo.problems * ppo.difficulty_bands = {wanted}: raise"
                " data.pool, or change the stages"
            )
    return StagedPlan(
        stages,
        [problem.difficulty for problem in problems],
        batch_size=ppo.problems,
        bands=ppo.difficulty_bands,
        seed=config.seed,
        promote_at=settings.promote_at,
        max_batches=settings.max_batches,
        max_epochs=settings.max_epochs,
    )


def box_settings(config: Config, folder: Path) -> BoxSettings:
    """When a black box is written below ``folder``."""
    ppo = config.ppo
    max_bytes = int(ppo.blackbox_gb * 1e9)
    return BoxSettings(folder, ppo.blackboxes, ppo.blackbox_kl, max_bytes, config.model_dump(mode="json"))

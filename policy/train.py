"""Stage ``ppo``: from a start model, a frozen PRM and measured problems to a policy.

problems in the pass-rate band -> ProcessPPOTrainer (engine, grader, PRM, reference)
  -> validation accuracy, checkpoint and stop rules every ``eval_every`` batches -> best checkpoint saved
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, TrainerCallback

from common.checkpoints import update_of
from common.config import Config
from common.errors import InputError
from common.models import load_policy, load_tokenizer, locate, sampling_device, weights_hash
from common.progress import SaveSeconds, StageBar
from common.prompts import PromptTemplate
from common.ranks import check_engine, start_ranks, wait_for_all, world_size
from common.records import Problem, Verdict
from common.runs import Run, StageFolder, read_records
from common.sharding import is_engine
from data_gen.steps import build_paths
from policy.arguments import box_settings, curriculum_plan, monitor_limits, policy_settings, trainer_arguments
from policy.attack_report import check_attacks
from policy.checkpoints import last_complete_checkpoint, policy_state
from policy.curriculum import staged_validation
from policy.finish import finish, refuse_untrained, remove_checkpoints
from policy.metrics_log import MetricsLog
from policy.models import engine_weights, load_scorer, refuse_sharded, saved_hash, start_models
from policy.options import updates_per_generation
from policy.quality import coherence_judge
from policy.rollouts import Sampler, Score
from policy.sampler import make_sampler, refuse_colocation
from policy.trainer import ProcessPPOTrainer, print_note
from prm.score import PRMScorer


def process_reward(config: Config, run: Run, shared: PreTrainedModel | None = None) -> tuple[PRMScorer | None, float]:
    """The frozen PRM and the process weight it earned: held-out first-error F1 against ``prm.min_first_error_f1``.

    Args:
        shared: base model whose tensors the PRM lies over, see ``policy.models.load_scorer``.

    Returns:
        ``(None, 0.0)`` for a run on the outcome alone or on the signals reward, which loads no PRM.

    Raises:
        InputError: F1 below the floor and ``prm.below_floor`` is ``refuse``.
    """
    weight, prm = config.ppo.process_weight, config.prm
    if config.ppo.reward == "signals" or weight == 0 or config.ppo.anchor_fraction == 1:
        return None, 0.0
    stage = run.require("prm")
    f1 = float(stage.summary["first_error_f1"])
    if f1 < prm.min_first_error_f1:
        seen = f"held-out first-error F1 of the PRM {f1:.3f} is below prm.min_first_error_f1 = {prm.min_first_error_f1}"
        if prm.below_floor == "refuse":
            raise InputError(f"{seen}; use more paths, or set prm.below_floor to outcome_only or scale")
        weight = weight * f1 / prm.min_first_error_f1 if prm.below_floor == "scale" else 0.0
        print(f"ppo: {seen}; process weight is now {weight:.3f}")
        if weight == 0:
            return None, 0.0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return load_scorer(config, run, device, shared), weight


def training_problems(config: Config, run: Run) -> list[Problem]:
    """Measured problems whose pass rate lies in the band of ``ppo``.

    Raises:
        InputError: too few of them for one batch of each difficulty band.
    """
    ppo = config.ppo
    measured = read_records(run.require("sample").file("problems_train.jsonl"), Problem.from_row)
    kept = [p for p in measured if p.difficulty is not None and ppo.pass_low <= p.difficulty <= ppo.pass_high]
    if len(kept) < ppo.problems * ppo.difficulty_bands:
        raise InputError(
            f"{len(kept)} of {len(measured)} problems have a pass rate in [{ppo.pass_low}, {ppo.pass_high}]; want"
            f" ppo.problems * ppo.difficulty_bands = {ppo.problems * ppo.difficulty_bands}: raise data.pool"
        )
    return kept


def validation(
    config: Config, problems: Sequence[Problem], sampler: Sampler, encode: Callable[[str], Sequence[int]], grade: Any
) -> Callable[[Any], dict[str, float]]:
    """Return the function that measures a policy on the validation problems.

    ``accuracy`` is the mean of the greedy and the sampled pass@1 (at temperature 1, as in ``eval``): what a run is
    stopped and its best checkpoint is chosen by.
    """
    prompts = [list(encode(problem.text)) for problem in problems]

    def share_correct(n: int, temperature: float) -> tuple[float, float]:
        groups = sampler.sample(
            prompts, n=n, temperature=temperature, max_new_tokens=config.data.max_new_tokens, seed=config.seed
        )
        flat = [(p, c) for p, group in zip(problems, groups, strict=True) for c in group]
        paths = grade(
            [p for p, _ in flat],
            [(c.token_ids, c.finish_reason) for _, c in flat],
            seed=config.seed,
            indices=[k for group in groups for k in range(len(group))],
        )
        correct = sum(path.verdict is Verdict.CORRECT for path in paths) / len(paths)
        return correct, sum(len(path.steps) for path in paths) / len(paths)

    def measure(_: Any) -> dict[str, float]:
        greedy, _steps = share_correct(1, 0.0)
        sampled, steps = share_correct(config.ppo.eval_samples, EVAL_TEMPERATURE)
        return {"accuracy": (greedy + sampled) / 2, "greedy": greedy, "sampled": sampled, "steps": steps}

    return measure


EVAL_TEMPERATURE = 1.0
SHOWN = {"reward/outcome": "right", "kl/reference": "KL", "entropy": "entropy", "rollout/steps": "steps"}
EVALUATED = {"eval_accuracy": "validation", "eval_greedy": "greedy", "eval_sampled": "sampled", "eval_steps": "steps"}
EVALUATED |= {"eval_stage": "stage", "eval_stage_accuracy": "on its problems"}


def set_up_tracker(config: Config, stage: StageFolder) -> None:
    """W&B runs offline unless a key is set, and every tracker writes below the stage's folder."""
    if config.report_to == "wandb":
        if not os.environ.get("WANDB_API_KEY"):
            os.environ.setdefault("WANDB_MODE", "offline")
        os.environ.setdefault("WANDB_DIR", str(stage.path))
        os.environ.setdefault("WANDB_PROJECT", "stepwise-ppo")
    elif config.report_to == "tensorboard":
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(stage.file("tensorboard")))


def build_trainer(
    config: Config,
    *,
    start: str,
    problems: Sequence[Problem],
    checked: Sequence[Problem],
    score: Score | None,
    process_weight: float,
    folder: Path,
    is_first_round: bool = True,
    shared: PreTrainedModel | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    announce: Callable[[int, str], None] = print_note,
) -> tuple[ProcessPPOTrainer, Any]:
    """Return the trainer of a round and its tokenizer.

    Args:
        start: model the round starts from; the KL reference unless ``ppo.reference`` is ``base``.
        problems: training problems. checked: validation problems.
        score: PRM probabilities of the steps of paths, None for a run on the outcome alone.
        process_weight: w_p, which the PRM's quality may have lowered.
        folder: where checkpoints go.
        is_first_round, shared: see ``policy.models.start_models``.
    """
    tokenizer = load_tokenizer(start)
    plan = curriculum_plan(config, problems)
    models = start_models(config, start, is_first_round, shared)
    model = models.policy
    encode = functools.partial(PromptTemplate.from_config(config.base).ids, tokenizer=tokenizer)
    judge = None
    if config.ppo.quality_coherence:
        judge = coherence_judge(load_policy(locate(config.base.model), config.base.dtype).to(sampling_device()))
    arguments = trainer_arguments(config, folder, world_size())
    prompts = (encode(problem.text) for problem in (*problems, *checked))
    sampler = make_sampler(config, model, tokenizer, start, prompts)
    grade = functools.partial(build_paths, tokenizer=tokenizer, stop=config.base.stop)
    evaluate = validation(config, checked, sampler, encode, grade)
    if plan is not None:
        own = [[problems[i] for i in stage.checked] for stage in plan.stages]
        evaluate = staged_validation(plan, evaluate, [validation(config, p, sampler, encode, grade) for p in own])
    trainer = ProcessPPOTrainer(
        model,
        args=arguments,
        problems=problems,
        encode_prompt=encode,
        processing_class=tokenizer,
        sampler=sampler,
        grade=grade,
        score=score,
        judge_coherence=judge,
        settings=dataclasses.replace(policy_settings(config), process_weight=process_weight),
        limits=monitor_limits(config),
        reference=models.reference,
        base_model=models.base,
        evaluate_policy=evaluate,
        callbacks=list(callbacks),
        announce=announce,
        box=box_settings(config, folder.parent),
        plan=plan,
    )
    return trainer, tokenizer


def train_stage(config: Config, run: Run, *callbacks: TrainerCallback) -> None:
    """Train the policy with process and outcome rewards and write ``4_ppo/policy``."""
    start_ranks()
    stage = run.stage("ppo")
    shared = None if stage.is_done or not config.lora.rank else load_policy(config.base.model, config.base.dtype)
    scorer, process_weight = process_reward(config, run, shared)
    hash_before = scorer.weights_hash() if scorer else None
    if hash_before and not stage.is_done:
        check_attacks(config, run, hash_before if shared is None else saved_hash(run))
    problems = training_problems(config, run)
    timer = stage.begin(config)
    if stage.is_done:
        print(f"ppo: {stage.path} is finished")
        remove_checkpoints(stage, stage.summary.get("best_step"))  # a kill right after DONE leaves them
        return
    set_up_tracker(config, stage)
    log = MetricsLog(stage)
    checked = read_records(run.require("sample").file("problems_validation.jsonl"), Problem.from_row)
    trainer, tokenizer = build_trainer(
        config,
        start=locate(run.start_model(config)),
        problems=problems,
        checked=checked,
        score=scorer.score if scorer else None,
        process_weight=process_weight,
        folder=stage.file("checkpoints"),
        is_first_round=run.round == 0 and not config.sft.is_on,
        shared=shared,
        callbacks=[log, *callbacks],
        announce=log.announce,
    )
    check_engine(trainer.accelerator)
    refuse_colocation(trainer)
    if config.lora.rank or config.ppo.frozen_layers:
        refuse_sharded(trainer)
    StageBar.attach(trainer, "ppo", SHOWN, EVALUATED)
    trainer.add_callback(SaveSeconds(timer))
    checkpoint = last_complete_checkpoint(stage.file("checkpoints"), stage.say)
    if checkpoint:
        step = update_of(checkpoint)
        log.drop_after(step, policy_state(checkpoint).get("announced"))
        batch, updates = step // updates_per_generation(trainer.args), trainer.args.max_steps
        stage.say(f"continues after update {step} of {updates}, batch {batch}")
    else:
        log.drop_after(-1)
        if is_engine(trainer.accelerator):  # which has the model on its device only when training begins
            trainer.add_callback(EvaluateFirst(trainer))
        else:
            trainer.evaluate()
    start_hash = weights_hash(trainer.model)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.refuse_bad_weights()
    weights = engine_weights(trainer)
    if weights is None or trainer.is_world_process_zero():  # which alone has gathered ones
        refuse_untrained(trainer, start_hash, weights)
    if trainer.is_world_process_zero():
        finish(config, trainer, tokenizer, stage, timer, scorer, hash_before, process_weight, weights)
    wait_for_all()


class EvaluateFirst(TrainerCallback):
    """Measures the start model when training begins."""

    def __init__(self, trainer: ProcessPPOTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.evaluate()

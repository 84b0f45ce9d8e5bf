"""The end of stage ``ppo``: a policy that was trained is saved with its summary, and the PRM is proven unchanged."""

from __future__ import annotations

import shutil
from typing import Any

from common.checkpoints import update_of
from common.config import Config
from common.errors import RunError
from common.models import state_hash, weights_hash
from common.runs import StageFolder
from policy.models import save_policy
from policy.trainer import ProcessPPOTrainer
from prm.score import PRMScorer


def refuse_untrained(trainer: ProcessPPOTrainer, start_hash: str, weights: dict[str, Any] | None = None) -> None:
    """Nothing learned is a failure, never a finished stage.

    Args:
        weights: of ``policy.models.engine_weights``.

    Raises:
        RunError: every update was skipped, or the weights to be saved are those of the start.
    """
    steps, skipped = trainer.state.global_step, trainer.skipped_updates
    end_hash = weights_hash(trainer.model) if weights is None else state_hash(weights)
    if steps == skipped or end_hash == start_hash:
        raise RunError(
            f"nothing was trained: {skipped} of {steps} updates skipped, weights as at the start;"
            f" non-finite: {dict(trainer.blackbox.counts) or 'none'}"
        )


def finish(
    config: Config,
    trainer: ProcessPPOTrainer,
    tokenizer: Any,
    stage: StageFolder,
    timer: Any,
    scorer: PRMScorer | None,
    hash_before: str | None,
    process_weight: float,
    weights: dict[str, Any] | None = None,
) -> None:
    """Save the best policy and the summary; prove that the PRM stayed as it was.

    Raises:
        RuntimeError: the PRM's weights changed during training.
    """
    hash_after = scorer.weights_hash() if scorer else None
    if hash_before != hash_after:
        raise RuntimeError("the PRM's weights changed during ppo; it must stay frozen")
    policy = stage.file("policy")
    save_policy(trainer, policy, config, weights)
    tokenizer.save_pretrained(policy)
    rows = stage.metrics()
    best = trainer.state.best_model_checkpoint
    best_step = int(best.rsplit("-", 1)[1]) if best else trainer.state.global_step
    until_best = [row for row in rows if row["step"] <= best_step and "kl/reference" in row]
    last = until_best[-1] if until_best else {}
    curriculum = trainer.plan.state_dict()
    timer.finish(
        "policy",
        steps=trainer.state.global_step,
        best_step=best_step,
        stopped_by=trainer.stopped_by or "max_steps",
        fallbacks=int(sum(row.get("rollout/fallbacks", 0) for row in rows)),
        skipped_updates=trainer.skipped_updates,
        nonfinite=dict(trainer.blackbox.counts),
        kl=last.get("kl/reference"),
        kl_base=last.get("kl/base", last.get("kl/reference") if trainer.base_model is None else None),
        validation_accuracy=trainer.state.best_metric,
        process_weight=process_weight,
        prm_hash=hash_after,
        prm_unchanged=None if scorer is None else True,
        **({"curriculum": curriculum} if curriculum else {}),
    )
    remove_checkpoints(stage, best_step)
    print(f"ppo: best at update {best_step}, validation {trainer.state.best_metric:.3f}, {timer.seconds:.0f} s")


def remove_checkpoints(stage: StageFolder, best_step: int | None) -> None:
    """Remove the checkpoints of a finished stage, all but the best."""
    for old in stage.file("checkpoints").glob("checkpoint-*"):
        if update_of(old) != best_step:
            shutil.rmtree(old, ignore_errors=True)  # another rank may have been first

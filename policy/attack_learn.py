"""A learned attack: a short PPO run on the process reward alone, whose sampled paths are kept with their scores.

copy of the start policy -> process weight 1, outcome weight 0, no anchors, no alarm that acts, little KL
  -> a few generation batches -> every path the PRM scored, in the order sampled

Nothing of stage ``ppo`` is read or written: checkpoints and the log lie in ``3_prm/learned``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from common.config import Config
from common.models import locate
from common.progress import StageBar
from common.records import Path, Problem
from common.runs import Run, StageFolder, read_records
from policy.attack_mined import LearnedRun, Scored
from policy.metrics_log import MetricsLog
from policy.rollouts import Score
from policy.train import EVALUATED, SHOWN, build_trainer, training_problems

FOLDER = "learned"
BATCHES = 8
"""Generation batches unless told otherwise."""
KL_COEF = 1e-3
"""A twentieth of the default: the run may go far from its start, but not into noise."""
NEVER = 10**9


class Recorder:
    """A ``Score`` that keeps what passes through it; the trainer calls it once a generation batch."""

    def __init__(self, score: Score) -> None:
        self.score, self.scored, self.batches = score, list[Scored](), 0

    def __call__(self, prompt_ids: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[list[float]]:
        found = self.score(prompt_ids, paths)
        self.scored += [Scored(self.batches, path, tuple(one)) for path, one in zip(paths, found, strict=True)]
        self.batches += 1
        return found


def learning_config(config: Config, batches: int) -> Config:
    """Return the configuration of the run: the round's own but for what would keep it from gaming the PRM.

    The process reward is all of the reward, no alarm acts and no rule stops; the KL coefficient is ``KL_COEF``. A
    critic, whose warm-up may outlast the run, gives way to the moving average. Batches are drawn from all problems
    alike, so that the first and the last can be compared. One evaluation ends the run.
    """
    changes: dict[str, Any] = {
        "reward": "process",
        "process_weight": 1.0,
        "outcome_weight": 0.0,
        "correct_floor": 0.0,
        "quality_coherence": 0.0,
        "anchor_fraction": 0.0,
        "kl_coef": KL_COEF,
        "kl_high": float(NEVER),
        "kl_cap": float(NEVER),
        "patience": NEVER,
        "repeat_limit": 1.0,
        "steps_floor": 0.0,
        "alarm_actions": False,
        "difficulty_bands": 1,
        "blackboxes": 0,
        "warmup_updates": 0,
        "batches": batches,
        "eval_every": batches,
    }
    if config.ppo.baseline == "gae":
        changes["baseline"] = "moving_average"
    ppo = config.ppo.model_copy(update=changes)
    curriculum = config.curriculum.model_copy(update={"by": "none"})
    return config.model_copy(update={"ppo": ppo, "curriculum": curriculum, "report_to": "none"})


def learn(config: Config, run: Run, score: Score) -> LearnedRun:
    """Train a copy of the round's start policy on ``score`` alone and return every path that was scored.

    Args:
        config: of ``learning_config``.
        score: the frozen judge of steps.

    Raises:
        InputError: stage ``sample`` is not finished, or has too few problems for a batch.
        RunError: updates came out non-finite.
    """
    folder = StageFolder(run.stage("prm").file(FOLDER), "ppo")
    if folder.path.exists():
        print(f"policy.attack: {folder.path}: a learned attack cut off, or of another PRM or setting: it begins anew")
        shutil.rmtree(folder.path)
    folder.path.mkdir(parents=True)
    recorder, log = Recorder(score), MetricsLog(folder)
    trainer, _ = build_trainer(
        config,
        start=locate(run.start_model(config)),
        problems=training_problems(config, run),
        checked=read_records(run.require("sample").file("problems_validation.jsonl"), Problem.from_row),
        score=recorder,
        process_weight=1.0,
        folder=folder.file("checkpoints"),
        is_first_round=run.round == 0 and not config.sft.is_on,
        callbacks=[log],
        announce=lambda update, line: folder.log({"step": update, "alarms": line}),
    )
    StageBar.attach(trainer, "policy.attack", SHOWN, EVALUATED)
    trainer.evaluate()
    trainer.train()
    shutil.rmtree(folder.file("checkpoints"))
    sampled = config.ppo.batches * config.ppo.problems * config.ppo.paths
    return LearnedRun(tuple(recorder.scored), sampled, tuple(folder.metrics()))

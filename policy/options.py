"""Settings of the policy trainer beside TRL's own arguments, and the refusal of arguments it does not serve."""

from __future__ import annotations

import dataclasses
from typing import Any

from common.quality_settings import QualityWeights
from common.signal_settings import SignalSettings
from policy.advantages import BASELINES
from policy.importance import MODES
from policy.rewards import PenaltyWeights
from prm.credit import FLOWS, RULES

TRUNKS = ("own", "shared")


@dataclasses.dataclass(frozen=True)
class CriticSettings:
    """The value model of baseline ``gae`` (``policy.critic``); time is counted in steps of a path.

    Attributes:
        gamma: discount a step, in [0, 1]. lam: lambda of the advantages, in [0, 1].
        trunk: ``own`` copy of the policy's backbone, trained whole; ``shared``: a head alone on the policy's hidden
            states as they were when the batch was sampled, no gradient into the policy.
        learning_rate: of its AdamW, constant.
        clip: how far a value may move in a generation batch before its gradient stops, in units of the return; None:
            no limit.
        warmup: generation batches at the start in which only the critic learns.
    """

    gamma: float = 0.99
    lam: float = 0.95
    trunk: str = "own"
    learning_rate: float = 1e-3
    clip: float | None = 0.2
    warmup: int = 2

    def __post_init__(self) -> None:
        _require("critic.trunk", self.trunk, self.trunk in TRUNKS, f"one of {', '.join(TRUNKS)}")
        for name in ("gamma", "lam"):
            _require(f"critic.{name}", getattr(self, name), 0 <= getattr(self, name) <= 1, "in [0, 1]")
        _require("critic.learning_rate", self.learning_rate, self.learning_rate > 0, "> 0")
        _require("critic.clip", self.clip, self.clip is None or self.clip > 0, "> 0 or none")
        _require("critic.warmup", self.warmup, self.warmup >= 0, ">= 0")


@dataclasses.dataclass(frozen=True)
class PolicySettings:
    """The algorithm's fields; clip, KL coefficient, epochs, batch sizes and learning rate are TRL's (``GRPOConfig``).

    Attributes:
        process_weight, outcome_weight: w_p and w_o of the mix.
        credit, flow, softmin_temperature: see ``prm.credit``; flow None is the rule's own.
        correct_floor: in a path with a right answer no step probability counts as less, in [0, 1]. 0: the PRM alone; 1:
            a right path is right at every step, as its labels are, and the PRM only finds the error of wrong paths.
        baseline: ``moving_average``, ``group``, ``rloo``, ``grpo``, or ``gae`` (a critic, see ``critic``).
        baseline_momentum: of the moving average, in [0, 1).
        normalise_sources: divide each source's advantages by their own deviation before mixing.
        anchor_fraction: share of the problems of a batch trained on the outcome alone, in [0, 1].
        penalties: weights of the penalties on the outcome side.
        signals: the signals reward (``policy.signals``), one scalar for the whole path, in the place of the process
            reward, alone in the mix; process_weight, outcome_weight, credit, flow and correct_floor are not read then.
            None: the process reward.
        quality: what the quality of a right path adds to its outcome (``policy.quality``); all 0: nothing.
        train_on_truncated: True = a truncated completion has outcome 0; False = it has no gradient.
        min_steps: a right answer behind fewer steps has outcome 0; 0 asks for none.
        mask_answer_kl: True = tokens of the answer are outside the KL; False = KL on all tokens.
        difficulty_bands: number of bands of equal size by difficulty; each batch comes from one, bands rotate.
        max_step_positions: step positions with a moving average of their own; later steps share the last one.
        max_skipped: updates skipped in a row because of a non-finite loss or gradient that end the run.
        critic: of baseline ``gae``; not read with another.
    """

    process_weight: float = 0.7
    outcome_weight: float = 0.3
    credit: str = "delta"
    flow: str | None = None
    softmin_temperature: float = 0.1
    correct_floor: float = 0.0
    baseline: str = "moving_average"
    baseline_momentum: float = 0.9
    normalise_sources: bool = True
    anchor_fraction: float = 0.15
    penalties: PenaltyWeights = dataclasses.field(default_factory=PenaltyWeights)
    signals: SignalSettings | None = None
    quality: QualityWeights = dataclasses.field(default_factory=QualityWeights)
    train_on_truncated: bool = True
    min_steps: int = 1
    mask_answer_kl: bool = True
    difficulty_bands: int = 1
    max_step_positions: int = 64
    max_skipped: int = 3
    critic: CriticSettings = dataclasses.field(default_factory=CriticSettings)

    def __post_init__(self) -> None:
        _require("credit", self.credit, self.credit in RULES, f"one of {', '.join(RULES)}")
        _require("flow", self.flow, self.flow is None or self.flow in FLOWS, f"one of {', '.join(FLOWS)} or none")
        _require("signals with baseline", self.baseline, self.signals is None or self.baseline != "gae", "another one")
        _require("baseline", self.baseline, self.baseline in BASELINES, f"one of {', '.join(BASELINES)}")
        for name in ("process_weight", "outcome_weight"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, ">= 0")
        _require("correct_floor", self.correct_floor, 0 <= self.correct_floor <= 1, "in [0, 1]")
        _require("min_steps", self.min_steps, self.min_steps >= 0, ">= 0")
        _require("anchor_fraction", self.anchor_fraction, 0 <= self.anchor_fraction <= 1, "in [0, 1]")
        _require("difficulty_bands", self.difficulty_bands, self.difficulty_bands >= 1, ">= 1")

    def mix(self, process_factor: float) -> tuple[float, float]:
        """Return the weights (process or signals, outcome) of the advantages.

        Args:
            process_factor: what alarms left of the first, in [0, 1]; what they take from signals goes to the outcome.
        """
        if self.signals is not None:
            return process_factor, 1 - process_factor
        return self.process_weight * process_factor, self.outcome_weight


_SERVED = {
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "delta": None,
    "off_policy_mask_threshold": None,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "top_entropy_quantile": 1.0,
    "mask_truncated_completions": False,
    "sync_ref_model": False,
    "reward_weights": None,
    "router_aux_loss_coef": None,
    "use_transformers_continuous_batching": False,
    "use_vllm": False,
    "dataloader_num_workers": 0,
    "disable_dropout": True,
    "logging_nan_inf_filter": False,
    "remove_unused_columns": False,
    "ds3_gather_for_generation": True,
}
"""Arguments that must have this value. ``dapo`` is the token-mean loss: here exact over each update's tokens."""

_REASONS = {
    "top_p": "a filtered sampling distribution biases the ratio",
    "top_k": "a filtered sampling distribution biases the ratio",
    "min_p": "a filtered sampling distribution biases the ratio",
    "repetition_penalty": "a changed sampling distribution biases the ratio",
    "use_vllm": "the sampler is ours: ppo.engine=vllm, or pass a vLLM engine as the sampler",
    "mask_truncated_completions": "use train_on_truncated of the policy settings",
    "disable_dropout": "with dropout the first ratio is not 1",
    "logging_nan_inf_filter": "it would hide a non-finite loss",
    "ds3_gather_for_generation": "ranks sample different numbers of tokens: a gather at each would wait for ever",
    "sync_ref_model": "the reference is the start of the round",
}


def check_arguments(args: Any, settings: PolicySettings) -> None:
    """Refuse ``GRPOConfig`` arguments that this trainer does not serve.

    Raises:
        ValueError: one line that names the argument, its value and the value wanted.
    """
    for name, wanted in _SERVED.items():
        value = getattr(args, name)
        reason = f" ({_REASONS[name]})" if name in _REASONS else ""
        _require(name, value, value == wanted, f"{wanted!r}{reason}")
    mode = args.vllm_importance_sampling_mode
    _require("vllm_importance_sampling_mode", mode, mode in MODES, f"one of {', '.join(MODES)}")
    updates = updates_per_generation(args)
    _require("max_steps", args.max_steps, args.max_steps > 0, "> 0: the number of updates of the whole run")
    _require(
        "steps_per_generation",
        args.steps_per_generation,
        args.steps_per_generation % args.gradient_accumulation_steps == 0,
        f"a multiple of gradient_accumulation_steps {args.gradient_accumulation_steps}",
    )
    whole = f"a multiple of {updates}, the updates of one generation batch"
    if settings.baseline == "gae":
        warmup, batches = settings.critic.warmup, args.max_steps // updates
        _require("critic.warmup", warmup, warmup < batches, f"below the run's {batches} generation batches")
    _require("max_steps", args.max_steps, args.max_steps % updates == 0, whole)
    if args.save_strategy == "steps":
        _require("save_steps", args.save_steps, args.save_steps % updates == 0, whole)
    if args.eval_strategy == "steps":
        _require("eval_steps", args.eval_steps, args.eval_steps % updates == 0, whole)
    local = args.per_device_train_batch_size * args.steps_per_generation
    _require(
        "per_device_train_batch_size * steps_per_generation",
        local,
        local % args.num_generations == 0,
        f"a multiple of num_generations {args.num_generations}, so that no group spans two ranks",
    )


def updates_per_generation(args: Any) -> int:
    """Return the optimiser updates made on one generation batch: minibatches times epochs (``num_iterations``)."""
    return max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps)


def _require(name: str, value: Any, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise ValueError(f"policy trainer: {name} = {value!r} is not served; wanted {wanted}")

"""What sections of a configuration have in common, and the fields that choose and weigh the reward of ``ppo``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from common.quality_settings import MEASURES, QualityWeights
from common.signal_settings import SIGNALS, SignalSettings

_DEFAULT = SignalSettings()


class Section(BaseModel):
    """A group of settings: unknown keys are refused, values cannot change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RewardFields(Section):
    """Which reward trains the policy, and the weights of the signals reward (docs/signals.md)."""

    reward: Literal["process", "signals"] = Field(
        "process", description="process: PRM and outcome; signals: eight symbolic checks, no PRM (docs/signals.md)"
    )
    signal_correctness: float = Field(
        _DEFAULT.correctness, ge=0, le=1, description="signals: weight of the right answer; the eight weights sum to 1"
    )
    signal_consistency: float = Field(
        _DEFAULT.consistency, ge=0, le=1, description="weight: the answer is the value that the last step computed"
    )
    signal_depth: float = Field(
        _DEFAULT.depth, ge=0, le=1, description="weight: steps that derive something new, up to 5 or the usual number"
    )
    signal_grounding: float = Field(
        _DEFAULT.grounding, ge=0, le=1, description="weight: numbers of the steps come from the problem or are derived"
    )
    signal_format: float = Field(
        _DEFAULT.format, ge=0, le=1, description="weight: one announced answer, and nothing after it"
    )
    signal_parsable: float = Field(_DEFAULT.parsable, ge=0, le=1, description="weight: the answer can be read")
    signal_length: float = Field(_DEFAULT.length, ge=0, le=1, description="weight: neither too short nor too long")
    signal_repetition: float = Field(_DEFAULT.repetition, ge=0, le=1, description="weight: nothing is repeated")
    signal_near: float = Field(
        _DEFAULT.near, ge=0, le=1, description="most correctness of a wrong number near the right one; 0: none"
    )
    signal_short: float = Field(
        _DEFAULT.short, ge=0, le=1, description="too short: fewer tokens than this share of data.max_new_tokens"
    )
    signal_long: float = Field(
        _DEFAULT.long, ge=0, le=1, description="too long: more tokens than this share of data.max_new_tokens"
    )
    quality_completeness: float = Field(
        0.0,
        ge=0,
        le=1,
        description="quality of right paths, weights sum to 0.5 at most (docs/quality.md): no step is missing",
    )
    quality_redundancy: float = Field(
        0.0, ge=0, le=1, description="weight: no step says again what an earlier one says"
    )
    quality_coherence: float = Field(
        0.0,
        ge=0,
        le=1,
        description="weight: neighbouring steps stand as the base model expects; a forward a pair",
    )
    quality_clarity: float = Field(
        0.0, ge=0, le=1, description="weight: few words a fact, few facts a step, no empty sentences"
    )
    quality_detail: float = Field(
        0.0,
        ge=0,
        le=1,
        description="weight: as many deriving steps as right paths of the problem have",
    )

    @property
    def quality_weights(self) -> QualityWeights:
        """The checked weights of quality."""
        return QualityWeights(**{name: getattr(self, f"quality_{name}") for name in MEASURES})

    @property
    def signal_settings(self) -> SignalSettings:
        """The checked weights."""
        names = (*SIGNALS, "near", "short", "long")
        return SignalSettings(**{name: getattr(self, f"signal_{name}") for name in names})

    @model_validator(mode="after")
    def _check_signals(self) -> RewardFields:
        _ = self.signal_settings, self.quality_weights
        return self


class SftSection(Section):
    """Supervised start: fine-tuning on solutions, once, in round 0 (docs/sft.md)."""

    source: Literal["none", "solutions", "right_paths"] = Field(
        "none",
        description="none: no such stage; solutions: worked ones; right_paths: the run's own right paths"
        " (rejection sampling fine-tuning, arXiv:2308.01825)",
    )
    file: str | None = Field(
        None, description="solutions: JSON Lines of problem and solution; null: data.source, whose rows then have both"
    )
    problems: int = Field(1024, ge=1, description="solutions: most problems that are taken")
    paths: int = Field(4, ge=1, description="right_paths: most different paths of a problem (arXiv:2308.01825: all)")
    epochs: int = Field(2, ge=1, description="passes over the rows")
    learning_rate: float = Field(2e-5, gt=0, description="AdamW learning rate (TRL's SFT: 2e-5; adapters: about 1e-4)")
    schedule: Literal["constant", "linear", "cosine"] = Field("cosine", description="learning-rate schedule")
    warmup: float = Field(0.03, ge=0, lt=1, description="share of the updates with rising learning rate")
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay")
    max_grad_norm: float = Field(1.0, gt=0, description="gradient norm limit")
    batch: int = Field(32, ge=1, description="rows an update")
    micro_batch: int = Field(8, ge=1, description="rows a forward pass and device")
    max_length: int = Field(1024, ge=8, description="tokens of prompt and solution; longer rows are left out, counted")
    gradient_checkpointing: bool = Field(False, description="recompute activations: less memory, a third more time")

    @property
    def is_on(self) -> bool:
        """True when the run has the stage."""
        return self.source != "none"

    @model_validator(mode="after")
    def _check_batch(self) -> SftSection:
        if self.batch % min(self.batch, self.micro_batch):
            raise ValueError(f"batch {self.batch} is no multiple of micro_batch {self.micro_batch}")
        return self


class CurriculumSection(Section):
    """Stages of ppo from easy to hard problems, one model throughout (docs/curriculum.md)."""

    by: Literal["none", "pass_rate", "level"] = Field(
        "none", description="what tells easy from hard: the measured pass rate, or the problems' level; none: off"
    )
    stages: tuple[tuple[float, float], ...] = Field(
        ((0.6, 1.0), (0.3, 0.6), (0.0, 0.3)),
        min_length=1,
        description="lowest and highest value of each stage, easiest first; a problem goes to the first that holds it",
    )
    promote_at: float | None = Field(
        0.7, ge=0, le=1, description="validation accuracy on the stage's own problems that promotes; null: never"
    )
    max_batches: int | None = Field(None, ge=1, description="generation batches after which a stage ends anyway")
    max_epochs: int | None = Field(None, ge=1, description="passes over a stage's problems after which it ends anyway")
    checked: int = Field(32, ge=1, description="problems of each stage that are kept out of training and measure it")

    @property
    def is_on(self) -> bool:
        """True when ppo has stages."""
        return self.by != "none"

    @model_validator(mode="after")
    def _check_stages(self) -> CurriculumSection:
        if any(low > high for low, high in self.stages):
            raise ValueError(f"stages {self.stages}: the first value of each must not be above the second")
        if self.is_on and self.promote_at is None and self.max_batches is None and self.max_epochs is None:
            raise ValueError("no stage would end: give promote_at, max_batches or max_epochs")
        return self

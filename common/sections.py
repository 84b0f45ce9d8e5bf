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

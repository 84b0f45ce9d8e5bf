"""Schema of ``5_eval/metrics.json``: every figure of an evaluation.

Rules, enforced when writing and when reading:

- unknown keys, missing keys, wrong types, NaN and infinities are errors;
- a figure is ``{"value": x, "ci95": [low, high]}``; a figure that does not exist is ``{"value": null, "ci95": null,
  "reason": "why"}``, never NaN and never left out;
- shares are in [0, 1]; counts are integers; times are seconds.
"""

from __future__ import annotations

import json
from pathlib import Path as FilePath
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from common.errors import InputError
from common.runs import write_atomic

SCHEMA_VERSION = 1
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


class Strict(BaseModel):
    """Base of every record in stage 5's files: frozen, no unknown key, no type guessing, finite numbers only."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Figure(Strict):
    """One measured number with its 95 % interval, or the reason why there is none.

    Attributes:
        value: point estimate, None when absent.
        ci95: (low, high) with low <= high; None when ``value`` is None or when ``reason`` says why.
        reason: None for a complete figure.
    """

    value: float | None
    ci95: tuple[float, float] | None
    reason: str | None = None

    @model_validator(mode="after")
    def _absence_has_a_reason(self) -> Self:
        if (self.value is None or self.ci95 is None) and not self.reason:
            raise ValueError("a figure without value or ci95 needs a reason")
        if self.value is None and self.ci95 is not None:
            raise ValueError("ci95 without a value")
        if self.ci95 is not None and not self.ci95[0] <= self.ci95[1]:
            raise ValueError(f"ci95 {self.ci95}: the low end must come first")
        return self

    @model_serializer(mode="wrap")
    def _omit_empty_reason(self, handler: Any) -> dict[str, Any]:
        row = handler(self)
        if row.get("reason") is None:
            row.pop("reason", None)
        return row

    @classmethod
    def absent(cls, reason: str) -> Self:
        return cls(value=None, ci95=None, reason=reason)


class SampledFigures(Strict):
    """What one pool of sampled paths gives. Keys of the maps are numbers of paths ("1", "2", "4", "8") or rule names.

    Attributes:
        temperature: sampling temperature of the pool; 0 is greedy, where all paths of a problem are the same.
        pass1: mean accuracy of a single path.
        pass_at: unbiased pass@k, which is also best-of-k by an oracle that knows the answer.
        majority: majority vote over k paths; ties go to the answer seen first.
        prm_best: best-of-k by the PRM with the settings' aggregate; ties go to the path sampled first.
        prm_best_by: best-of-n at the full n, for each aggregate of step scores (min, last, mean, product).
        prm_vote: vote over the full n weighted by path score.
    """

    temperature: Annotated[float, Field(ge=0)]
    pass1: Figure
    pass_at: dict[str, Figure]
    majority: dict[str, Figure]
    prm_best: dict[str, Figure]
    prm_best_by: dict[str, Figure]
    prm_vote: Figure


class ProcessFigures(Strict):
    """Correctness of the steps by the exact oracle; paths it calls unknown enter ``unknown_share`` only.

    Attributes:
        clean_paths: share of paths without a wrong step.
        hidden_errors: share of paths with a right answer that hold a wrong step.
        right_steps: share of steps that come before their path's first error (all, when there is none).
        unknown_share: share of paths the oracle cannot judge.
    """

    clean_paths: Figure
    hidden_errors: Figure
    right_steps: Figure
    unknown_share: Figure


class AnswerFigures(Strict):
    """All figures of one model on one set of problems.

    ``majority8`` and ``prm_best8`` are copies of ``sampled.majority["8"]`` and ``sampled.prm_best["8"]``;
    format, length, verdict and process figures are over the sampled pool (temperature 1).
    """

    problems: Count
    problems_left_out: Count
    pass1_greedy: Figure
    pass1_sampled: Figure
    pass1_best_temperature: Figure
    majority8: Figure
    prm_best8: Figure
    sampled: SampledFigures
    best_temperature: SampledFigures
    format_rate: Figure
    mean_steps: Figure
    mean_tokens: Figure
    truncated_share: Figure
    repeated_ngrams: Figure
    process: ProcessFigures
    verdicts: dict[str, Count]
    paths_without_score: Count


class QualityFigures(Strict):
    """Measures of quality (docs/quality.md), each in [0, 1] and 1 best: means over the greedy paths looked at."""

    completeness: Figure
    redundancy: Figure
    coherence: Figure
    clarity: Figure
    detail: Figure

    @classmethod
    def absent(cls, reason: str = "not measured") -> Self:
        return cls(**dict.fromkeys(cls.model_fields, Figure.absent(reason)))


class ModelReport(AnswerFigures):
    """One model on the whole test set, then the same figures for each topic and level.

    Attributes:
        quality: absent in files of versions that did not measure it.
        validation_by_temperature: pass@1 on validation problems for each temperature tried ("0.0", "0.2", …);
            the highest one was chosen, the lowest temperature wins a tie.
    """

    validation_by_temperature: dict[str, Figure]
    by_topic: dict[str, AnswerFigures]
    by_level: dict[str, AnswerFigures]
    quality: QualityFigures = QualityFigures.absent()


class Difference(Strict):
    """Policy minus base, paired over problems; positive is better except for lengths and shares of faults."""

    pass1_greedy: Figure
    pass1_sampled: Figure
    pass1_best_temperature: Figure
    majority8: Figure
    prm_best8: Figure
    pass8: Figure
    prm_vote8: Figure
    format_rate: Figure
    mean_steps: Figure
    mean_tokens: Figure
    truncated_share: Figure
    repeated_ngrams: Figure
    clean_paths: Figure
    hidden_errors: Figure
    right_steps: Figure
    by_topic: dict[str, Figure]
    by_level: dict[str, Figure]
    quality: QualityFigures = QualityFigures.absent()


class LabelFigures(Strict):
    """Quality of the step labels that the PRM was fitted on; ``reason`` says why a figure is null.

    Attributes:
        first_error_exact: share of labelled WRONG paths whose first error is the oracle's.
        negative_precision, negative_recall: of the label 0 against the oracle's wrong steps.
        coverage: share of steps with a label that rests on evidence.
        hidden_errors: share of CORRECT paths that hold a wrong step.
    """

    first_error_exact: Share | None
    negative_precision: Share | None
    negative_recall: Share | None
    coverage: Share | None
    hidden_errors: Share | None = None
    paths: Count | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _absence_has_a_reason(self) -> Self:
        needed = (self.first_error_exact, self.negative_precision, self.negative_recall, self.coverage)
        if None in needed and not self.reason:
            raise ValueError("a null label figure needs a reason")
        return self

    @classmethod
    def absent(cls, reason: str) -> Self:
        return cls(first_error_exact=None, negative_precision=None, negative_recall=None, coverage=None, reason=reason)


class CalibrationBin(Strict):
    """Predictions in [low, high): their mean, the share of right steps among them, and how many there are."""

    low: Share
    high: Share
    mean_probability: Share
    share_right: Share
    count: Annotated[int, Field(gt=0)]


class PRMFigures(Strict):
    """How well step scores point at wrong steps on one model's test paths.

    Attributes:
        truth: "oracle", "labels" or "none".
        threshold: a step whose probability of being right is below it is called wrong; chosen on validation.
        first_error_f1: harmonic mean of the two accuracies.
        accuracy_on_wrong: share of paths with an error whose first wrong step is named exactly.
        accuracy_on_right: share of paths without an error of which none is claimed.
        brier: mean squared error of step probabilities (0 best).
        calibration_error: expected calibration error over ten bins, without interval.
        outcome_auc: P(score of a right-answer path > score of a wrong-answer one), ties count half.
    """

    truth: str
    threshold: Share | None
    paths: Count
    unknown_paths: Count
    first_error_f1: Figure
    accuracy_on_wrong: Figure
    accuracy_on_right: Figure
    brier: Figure
    calibration_error: Figure
    outcome_auc: Figure
    reliability: list[CalibrationBin]


class PRMReport(PRMFigures):
    """Figures on the base model's test paths, and the same on the policy's."""

    on_policy: PRMFigures


class PPOFigures(Strict):
    """What happened in training.

    Attributes:
        fallbacks: paths that fell back to outcome only because a PRM score was not finite.
        kl: nats a reasoning token, policy to round start, at the checkpoint that was kept.
        kl_base: the same to the base model.
        steps: policy updates made.
        stopped_by: the rule that ended training, e.g. "max_steps" or "kl_cap".
        prm_unchanged: True when the PRM's weights hash at the end equals that at the start.
    """

    fallbacks: Count
    kl: float | None
    steps: Count
    stopped_by: str
    kl_base: float | None = None
    best_step: Count | None = None
    skipped_updates: Count | None = None
    prm_unchanged: bool | None = None


class StageSeconds(Strict):
    """Wall-clock seconds of each stage, None for one that was not run here; ``sft`` is the supervised start."""

    sft: Seconds | None = None
    sample: Seconds | None
    label: Seconds | None
    prm: Seconds | None
    ppo: Seconds | None
    eval: Seconds | None


class Metrics(Strict):
    """``5_eval/metrics.json``: base (round start of round 0) against policy on the same test problems."""

    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    run: str
    round: Count
    seed: int
    settings: dict[str, Any]
    base: ModelReport
    policy: ModelReport
    difference: Difference
    labels: LabelFigures
    prm: PRMReport
    ppo: PPOFigures
    seconds: StageSeconds


Record = TypeVar("Record", bound=Strict)


def write_record(path: FilePath, record: Strict) -> None:
    """Write ``record`` as JSON by rename: ``path`` holds the old or the whole new content, never a part.

    The record is validated again through its JSON text: what was written can be read.
    """
    text = json.dumps(record.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    type(record).model_validate_json(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text + "\n")


def read_record(path: FilePath, kind: type[Record]) -> Record:
    """Read and check a record.

    Raises:
        InputError: no such file, not JSON, or a field that does not follow the schema; one line with file, field, the
            value seen and what is wanted.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "whole file"
        raise InputError(f"{path}: {field} = {repr(first['input'])[:80]}: {first['msg']}") from error

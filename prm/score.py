"""Scores of steps: every step of every path of a batch in ONE forward pass; calibration; best-of-N aggregation.

The probability of step k is read from the problem and steps 1..k only (causal), and never rises along a path. A score
that is not finite is passed on as NaN, never replaced: what to do with it is the caller's decision, and counted there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from scipy import optimize
from torch import nn

from common.metrics import (
    FirstErrorScore,
    ReliabilityBin,
    brier,
    choose_threshold,
    expected_calibration_error,
    first_below,
    first_error_f1,
    reliability,
)
from common.models import weights_hash
from common.records import IGNORED, Path
from prm.inputs import PRMInput, collate, path_input
from prm.model import Calibration, check_labels, freeze, load_prm
from prm.network import read_steps, reads_surprise
from prm.objective import NonFiniteLoss

Aggregate = Literal["min", "last", "mean", "product"]
_Key = tuple[tuple[int, ...], tuple[int, ...], int]
"""Token ids, step positions and prompt length: all that scores depend on."""
TEMPERATURE_LOG_RANGE = (-math.log(20), math.log(20))


def score_logits(
    model: nn.Module, inputs: Sequence[PRMInput], *, max_batch_tokens: int = 16384, pad_id: int = 0
) -> list[list[float]]:
    """Return the logit of each kept step, one list a path, in the order given; non-finite logits as NaN.

    The model is put in evaluation mode for the call (dropout would make scores random) and back afterwards. Paths
    are sorted by length; a batch holds at most ``max_batch_tokens`` tokens, padding included, and at least one path.
    Equal paths (about half of 8 samples of a short problem) are scored once. A path without a step costs no forward
    and gets an empty list.

    Args:
        model: a token classifier with one logit; float32 is computed from whatever dtype it has.
        pad_id: any valid id; it changes no score.
    """
    unique: dict[_Key, list[float]] = {_key(one): [] for one in inputs}
    was_training = model.training
    device = next(model.parameters()).device
    model.eval()
    try:
        with torch.inference_mode():
            for keys in _batches(list(unique), max_batch_tokens):
                batch = collate([PRMInput(ids, ends, prompt_length=start) for ids, ends, start in keys], pad_id)
                read = read_steps(
                    model,
                    batch.input_ids_BT.to(device),
                    batch.attention_mask_BT.to(device),
                    batch.step_starts_BS.to(device),
                    batch.step_positions_BS.to(device),
                    with_surprise=reads_surprise(model),
                )
                steps_BS = read.logits_BS.float().cpu()
                steps_BS = torch.where(torch.isfinite(steps_BS), steps_BS, math.nan)
                for key, values in zip(keys, steps_BS.tolist(), strict=True):
                    unique[key] = values[: len(key[1])]
    finally:
        model.train(was_training)
    logits = [list(unique[_key(one)]) for one in inputs]
    return logits


def to_probabilities(logits: Sequence[Sequence[float]], temperature: float = 1.0) -> list[list[float]]:
    """``p_k = min over j <= k of sigmoid(z_j / temperature)``, float32: how sure it is that steps 1..k are all right.

    The logit of a step is about the step given that what stands before it is right; behind an error that premise is
    false, and a path must not seem to recover. The running minimum changes no first error and, unlike a product, does
    not sink with the number of steps. NaN stays NaN, also for the steps behind it.
    """
    return [
        torch.sigmoid(torch.tensor(path, dtype=torch.float32) / temperature).cummin(0).values.tolist() if path else []
        for path in logits
    ]


def score_paths(
    model: nn.Module,
    inputs: Sequence[PRMInput],
    max_batch_tokens: int = 16384,
    *,
    temperature: float = 1.0,
    pad_id: int = 0,
) -> list[list[float]]:
    """Return ``to_probabilities`` of ``score_logits``: one list a path, one probability in [0, 1] a kept step."""
    logits = score_logits(model, inputs, max_batch_tokens=max_batch_tokens, pad_id=pad_id)
    return to_probabilities(logits, temperature)


class PRMScorer:
    """A frozen PRM with its calibration: what best-of-N and PPO hold.

    Attributes:
        calibration: temperature applied to every score, and the threshold of ``first_errors``.
    """

    def __init__(
        self,
        model: nn.Module,
        calibration: Calibration | None = None,
        *,
        max_length: int | None = None,
        max_batch_tokens: int = 16384,
    ) -> None:
        check_labels(model)
        freeze(model)
        self.model = model
        self.calibration = calibration or Calibration()
        self.max_length = max_length
        self.max_batch_tokens = max_batch_tokens

    @classmethod
    def load(cls, directory: str, *, device: str | torch.device = "cpu", **options: Any) -> PRMScorer:
        """Load what ``prm.model.save_prm`` wrote."""
        model, calibration = load_prm(directory)
        return cls(model.to(device), calibration, **options)

    def weights_hash(self) -> str:
        """Hash of all weights; equal before and after a stage proves the PRM stayed frozen."""
        return weights_hash(self.model)

    def score(self, prompt_ids: Sequence[Sequence[int]], paths: Sequence[Path]) -> list[list[float]]:
        """Return calibrated probabilities, one list a path with exactly one score a step.

        Args:
            prompt_ids: the prompt's ids for each path.
            paths: rollouts with token spans. A path without a step gets an empty list.

        Raises:
            ValueError: a step lies beyond ``max_length`` (a missing score would shift credit), or a bad span.
        """
        inputs = [
            path_input(ids, path, max_length=self.max_length) for ids, path in zip(prompt_ids, paths, strict=True)
        ]
        cut = sum(one.dropped_steps for one in inputs)
        if cut:
            raise ValueError(f"{cut} steps lie beyond max_length = {self.max_length}; raise it or shorten the rollouts")
        return self.score_inputs(inputs)

    def score_inputs(self, inputs: Sequence[PRMInput]) -> list[list[float]]:
        """``score`` of inputs already built; steps they dropped have no score."""
        return score_paths(self.model, inputs, self.max_batch_tokens, temperature=self.calibration.temperature)

    def first_errors(self, scores: Sequence[Sequence[float]]) -> list[int | None]:
        """Predicted first wrong step of each path: the first one below the threshold, None for none."""
        return [first_below(path, self.calibration.threshold) for path in scores]


def aggregate(scores: Sequence[float], how: Aggregate) -> float:
    """One number in [0, 1] for a path, larger is better: its min, last, mean or product of step probabilities.

    A path without a step gets 0: an empty solution never wins (PURE#20). A non-finite score makes the result NaN.

    Raises:
        ValueError: unknown ``how``.
    """
    if how not in get_args(Aggregate):
        raise ValueError(f"aggregate = {how!r}; wanted one of {get_args(Aggregate)}")
    if not scores:
        return 0.0
    if not all(math.isfinite(score) for score in scores):
        return math.nan
    if how == "min":
        return min(scores)
    if how == "last":
        return scores[-1]
    return math.fsum(scores) / len(scores) if how == "mean" else math.prod(scores)


def label_first_error(labels: Sequence[float]) -> int | None:
    """Index of the first step labelled wrong (below 0.5, ``IGNORED`` left out), None for none."""
    return next((k for k, label in enumerate(labels) if label != IGNORED and label < 0.5), None)


@dataclasses.dataclass(frozen=True)
class PRMQuality:
    """How good scores are against labels.

    Attributes:
        first_error: F1 and its two accuracies at ``threshold``.
        threshold: probability below which a step counts as wrong.
        loss: mean binary cross entropy, nats a labelled step.
        brier: mean squared error of the probabilities, 0 (best) to 1.
        calibration_error: expected calibration error over ten bins.
        bins: reliability diagram.
        steps: labelled steps with a finite score; ``non_finite`` those without.
    """

    first_error: FirstErrorScore
    threshold: float
    loss: float
    brier: float
    calibration_error: float
    bins: tuple[ReliabilityBin, ...]
    steps: int
    non_finite: int


def measure_quality(
    scores: Sequence[Sequence[float]], inputs: Sequence[PRMInput], *, threshold: float | None = None
) -> PRMQuality:
    """Compare probabilities with the labels of ``inputs``.

    Args:
        scores: one probability a kept step.
        threshold: None chooses the one with the best first-error F1 on these very paths (validation only).

    Raises:
        NonFiniteLoss: no labelled step with a finite score.
    """
    true = [label_first_error(one.labels or ()) for one in inputs]
    if threshold is None:
        threshold, first_error = choose_threshold(scores, true)
    else:
        first_error = first_error_f1([first_below(path, threshold) for path in scores], true)
    pairs = [
        (score, label)
        for path, one in zip(scores, inputs, strict=True)
        for score, label in zip(path, one.labels or (), strict=True)
        if label != IGNORED
    ]
    finite = [(score, label) for score, label in pairs if math.isfinite(score)]
    if not finite:
        raise NonFiniteLoss(f"none of {len(pairs)} labelled steps has a finite score")
    p, y = (list(column) for column in zip(*finite, strict=True))
    nll = torch.nn.functional.binary_cross_entropy(
        torch.tensor(p, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
    )
    bins = reliability(p, y)
    return PRMQuality(
        first_error=first_error,
        threshold=threshold,
        loss=float(nll),
        brier=brier(p, y),
        calibration_error=expected_calibration_error(bins),
        bins=tuple(bins),
        steps=len(finite),
        non_finite=len(pairs) - len(finite),
    )


def fit_temperature(logits: Sequence[float], labels: Sequence[float]) -> float:
    """Temperature > 0 that minimises the binary cross entropy of ``sigmoid(logit / T)`` (Guo et al. 2017).

    Ranking and so first-error F1 at the best threshold do not change. Logits that separate the classes perfectly
    have no minimum; T stays in [1/20, 20].

    Args:
        logits, labels: of held-out labelled steps; labels in [0, 1].

    Raises:
        ValueError: empty, lengths differ, or a logit is not finite.
    """
    z, y = torch.tensor(logits, dtype=torch.float64), torch.tensor(labels, dtype=torch.float64)
    if z.shape != y.shape or z.numel() == 0 or not bool(torch.isfinite(z).all()):
        raise ValueError(f"{z.numel()} logits for {y.numel()} labels; wanted equal, non-zero numbers, all finite")

    def loss(log_temperature: float) -> float:
        return float(nn.functional.binary_cross_entropy_with_logits(z * math.exp(-log_temperature), y))

    # the loss is convex in 1/T, so it has one valley in log T
    found = optimize.minimize_scalar(loss, bounds=TEMPERATURE_LOG_RANGE, method="bounded", options={"xatol": 1e-4})
    return math.exp(found.x)


def calibrate(logits: Sequence[Sequence[float]], inputs: Sequence[PRMInput]) -> tuple[Calibration, PRMQuality]:
    """Fit temperature, then threshold, on held-out paths; return them and the quality they give there.

    Steps behind a path's first error do not enter the temperature: their logits answer another question.

    Raises:
        ValueError: no labelled step with a finite logit.
    """
    pairs = [
        (z, label)
        for path, one in zip(logits, inputs, strict=True)
        for z, label in _until_error(path, one.labels or ())
        if label != IGNORED and math.isfinite(z)
    ]
    temperature = fit_temperature([z for z, _ in pairs], [label for _, label in pairs])
    quality = measure_quality(to_probabilities(logits, temperature), inputs)
    return Calibration(temperature, quality.threshold), quality


def _until_error(path: Sequence[float], labels: Sequence[float]) -> list[tuple[float, float]]:
    first = label_first_error(labels)
    return list(zip(path, labels, strict=True))[: None if first is None else first + 1]


def _batches(keys: Sequence[_Key], max_batch_tokens: int) -> Iterator[list[_Key]]:
    """Batches, longest paths first (an out-of-memory error comes at once); paths without a step are left out."""
    order = sorted((key for key in keys if key[1]), key=lambda key: -len(key[0]))
    start = 0
    while start < len(order):
        size = max(1, max_batch_tokens // len(order[start][0]))
        yield order[start : start + size]
        start += size


def _key(one: PRMInput) -> _Key:
    return one.token_ids, one.step_positions, one.prompt_length

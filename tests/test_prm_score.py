"""Scores: the same to 1e-5 for every caller, padding and batching; causal; NaN passed on; calibration."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
from pathlib import Path

import pytest
import torch
from prm_support import PROMPT, STEPS, TOKENIZERS, rollout, tiny_prm, toy_inputs

from common.records import IGNORED
from common.records import Path as Solution
from prm.inputs import PRMInput, collate, path_input, text_input
from prm.model import Calibration, head_parameters
from prm.network import read_steps, reads_surprise
from prm.score import (
    PRMScorer,
    aggregate,
    calibrate,
    fit_temperature,
    label_first_error,
    measure_quality,
    score_logits,
    score_paths,
    to_probabilities,
)


@pytest.fixture(scope="module", params=["surprise", "plain"])
def prm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    return tiny_prm(tmp_path_factory.mktemp("policy"), surprise=request.param == "surprise")


def assert_close(ours: list[list[float]], theirs: list[list[float]]) -> None:
    assert [len(path) for path in ours] == [len(path) for path in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_contract_equal_scores_for_every_caller(prm, name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    prompt = tokenizer(PROMPT)["input_ids"]
    paths = [rollout(tokenizer), rollout(tokenizer, STEPS[:1]), rollout(tokenizer, (*STEPS, "2=2"))]
    texts = [STEPS, STEPS[:1], (*STEPS, "2=2")]
    by_scorer = PRMScorer(prm).score([prompt] * 3, paths)
    assert_close(by_scorer, score_paths(prm, [path_input(prompt, path) for path in paths]))
    assert_close(by_scorer, score_paths(prm, [text_input(tokenizer, prompt, steps) for steps in texts]))
    batch = collate([path_input(prompt, path) for path in paths], pad_id=tokenizer.pad_token_id)  # as in training
    with torch.no_grad():
        read = read_steps(
            prm.eval(),
            batch.input_ids_BT,
            batch.attention_mask_BT,
            batch.step_starts_BS,
            batch.step_positions_BS,
            with_surprise=reads_surprise(prm),
        )
    rows = zip(read.logits_BS, batch.is_step_BS, strict=True)
    assert_close(by_scorer, to_probabilities([row[is_step].tolist() for row, is_step in rows]))


def test_scores_do_not_depend_on_padding_batching_or_order(prm) -> None:
    inputs = toy_inputs(40)
    alone = [score_paths(prm, [one])[0] for one in inputs]
    for tokens in (1, 40, 200, 10_000):
        for pad_id in (0, 299):
            assert_close(score_paths(prm, inputs, tokens, pad_id=pad_id), alone)
    order = list(range(40))
    random.Random(1).shuffle(order)
    assert_close(score_paths(prm, [inputs[k] for k in order]), [alone[k] for k in order])


def test_scores_differ_between_steps_and_paths(prm) -> None:
    """So that the equalities above are not those of a constant."""
    scores = [score for path in to_probabilities(score_logits(prm, toy_inputs(20))) for score in path]
    assert len({round(score, 4) for score in scores}) > len(scores) // 2
    assert max(scores) - min(scores) > 0.05


def test_causal_later_steps_change_no_earlier_score(prm) -> None:
    inputs = [one for one in toy_inputs(30) if len(one.step_positions) >= 3]
    for one in inputs:
        whole = score_logits(prm, [one])[0]
        for step, position in enumerate(one.step_positions):
            tail = tuple(7 + (token * 31) % 200 for token in one.token_ids[position + 1 :])
            changed = dataclasses.replace(one, token_ids=one.token_ids[: position + 1] + tail)
            assert score_logits(prm, [changed])[0][: step + 1] == pytest.approx(whole[: step + 1], abs=1e-5)
            if step + 1 < len(whole):
                assert score_logits(prm, [changed])[0] != pytest.approx(whole, abs=1e-5)


def by_hand(prm, one: PRMInput, step: int) -> float:
    """The step's logit from a forward on the prefix alone: an independent way to the same number."""
    end = one.step_positions[step]
    ids = torch.tensor([one.token_ids[: end + 1]])
    with torch.no_grad():
        hidden = prm.eval().base_model(input_ids=ids).last_hidden_state[0]
        logit = prm.score(hidden[-1])[0]
        if reads_surprise(prm):
            for at in range(one.step_starts[step], end + 1):
                logprob = prm.lm_head(hidden[at - 1]).log_softmax(-1)[ids[0, at]].clamp(min=-12)
                logit = logit + torch.nn.functional.softplus(prm.gate(hidden[at - 1]))[0] * logprob
    return logit.item()


def test_step_score_equals_a_forward_on_the_prefix_alone(prm) -> None:
    for one, logits in zip(toy_inputs(10), score_logits(prm, toy_inputs(10)), strict=True):
        assert logits == pytest.approx([by_hand(prm, one, step) for step in range(len(logits))], abs=1e-5)


def test_probabilities_are_the_running_minimum() -> None:
    (scores,) = to_probabilities([[2.0, -1.0, 0.5, -3.0]])
    by_hand = [1 / (1 + math.exp(-z)) for z in (2.0, -1.0, -1.0, -3.0)]
    assert scores == pytest.approx(by_hand)
    assert to_probabilities([[]]) == [[]]


def test_nan_stays_nan_behind_it() -> None:
    (scores,) = to_probabilities([[2.0, math.nan, 3.0]])
    assert scores[0] == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert math.isnan(scores[1])
    assert math.isnan(scores[2])


def test_L65_one_score_a_step(prm) -> None:
    inputs = toy_inputs(25)
    assert [len(path) for path in score_paths(prm, inputs)] == [len(one.step_positions) for one in inputs]


def test_L66_no_step_scores_nothing_and_is_worth_zero(prm) -> None:
    tokenizer = TOKENIZERS["character"]()
    prompt = tokenizer(PROMPT)["input_ids"]
    empty = [dataclasses.replace(rollout(tokenizer), text=text, steps=()) for text in ("", "\n\n", "\n\n\n\n")]
    scorer = PRMScorer(prm)
    scores = scorer.score([prompt] * 4, [*empty, rollout(tokenizer)])
    assert scores[:3] == [[], [], []]
    for how in ("min", "last", "mean", "product"):
        assert [aggregate(path, how) for path in scores[:3]] == [0.0, 0.0, 0.0]
        assert aggregate(scores[3], how) > 0


def test_a_step_beyond_the_limit_is_an_error_when_scoring(prm) -> None:
    tokenizer = TOKENIZERS["character"]()
    scorer = PRMScorer(prm, max_length=30)
    with pytest.raises(ValueError, match="steps lie beyond max_length = 30"):
        scorer.score([tokenizer(PROMPT)["input_ids"]], [rollout(tokenizer)])


def test_non_finite_scores_are_passed_on_as_nan(prm) -> None:
    head = head_parameters(prm)["score.bias"]
    with torch.no_grad():
        old = head.item()
        for bad in (math.nan, math.inf, -math.inf):
            head.fill_(bad)
            scores = score_paths(prm, toy_inputs(5))
            assert all(math.isnan(score) for path in scores for score in path)
            assert all(math.isnan(aggregate(path, "min")) for path in scores)
            assert PRMScorer(prm).first_errors(scores) == [0] * 5
        head.fill_(old)


def test_scoring_changes_no_weight_and_no_mode(prm) -> None:
    scorer = PRMScorer(prm)
    before = scorer.weights_hash()
    first = scorer.score_inputs(toy_inputs(20))
    assert scorer.score_inputs(toy_inputs(20)) == first
    assert scorer.weights_hash() == before
    prm.train()
    score_paths(prm, toy_inputs(2))
    assert prm.training
    prm.eval()


def test_temperature_divides_the_logit(prm) -> None:
    inputs = toy_inputs(5)
    scores = PRMScorer(prm, Calibration(2.0, 0.5)).score_inputs(inputs)
    logits = [itertools.accumulate(path, min) for path in score_logits(prm, inputs)]
    assert_close(scores, [[1 / (1 + math.exp(-z / 2.0)) for z in path] for path in logits])


def test_temperature_recovers_a_known_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(40_000, generator=generator)
    labels = (torch.rand(40_000, generator=generator) < torch.sigmoid(true)).float()
    for scale in (0.5, 1.0, 3.0):
        assert fit_temperature((true * scale).tolist(), labels.tolist()) == pytest.approx(scale, rel=0.05)
    assert fit_temperature([5.0, -5.0], [1.0, 0.0]) == pytest.approx(0.05, abs=1e-3)  # separable: kept in its range
    for logits, labels in ([], []), ([1.0], [1.0, 0.0]), ([math.nan], [1.0]):
        with pytest.raises(ValueError, match="logits for"):
            fit_temperature(logits, labels)


def labelled(*labels: float) -> PRMInput:
    return PRMInput(tuple(range(len(labels))), tuple(range(len(labels))), labels=labels)


def test_quality_by_hand() -> None:
    scores = [[0.9, 0.2, 0.9], [0.8, 0.7], [0.6, 0.9]]
    inputs = [labelled(1, 0, IGNORED), labelled(1, 1), labelled(1, 0)]
    quality = measure_quality(scores, inputs, threshold=0.5)
    # wrong paths: named exactly in 1 of 2; right path: passed; harmonic mean of 1/2 and 1
    assert quality.first_error.f1 == pytest.approx(2 / 3)
    assert quality.brier == pytest.approx((0.01 + 0.04 + 0.04 + 0.09 + 0.16 + 0.81) / 6)
    assert quality.loss == pytest.approx(-sum(map(math.log, (0.9, 0.8, 0.8, 0.7, 0.6, 0.1))) / 6, rel=1e-5)
    assert (quality.steps, quality.non_finite) == (6, 0)


def test_quality_leaves_non_finite_scores_out_and_counts_them() -> None:
    quality = measure_quality([[0.9, math.nan]], [labelled(1, 0)], threshold=0.5)
    assert (quality.steps, quality.non_finite) == (1, 1)
    assert quality.first_error.accuracy_wrong == 1.0  # a step that cannot be judged counts as wrong
    with pytest.raises(ValueError, match="none of 1 labelled steps"):
        measure_quality([[math.nan]], [labelled(1)], threshold=0.5)


def test_calibration_chooses_the_threshold_with_the_best_f1() -> None:
    logits = [[2.0, 0.4], [2.0, 1.5], [0.3, 0.2], [1.8, 1.9]]
    inputs = [labelled(1, 0), labelled(1, 1), labelled(0, 0), labelled(1, 1)]
    calibration, quality = calibrate(logits, inputs)
    assert quality.first_error.f1 == 1.0
    low, high = (to_probabilities([[z]], calibration.temperature)[0][0] for z in (0.4, 1.5))
    assert low < calibration.threshold <= high


def test_label_first_error() -> None:
    assert label_first_error([1, 1, 0, 0]) == 2
    assert label_first_error([1, IGNORED, 1]) is None
    assert label_first_error([IGNORED, 0.4]) == 1
    assert label_first_error([]) is None


def test_L67_aggregation_by_hand() -> None:
    short, long = [0.9] * 2, [0.9] * 10
    assert aggregate(short, "min") == aggregate(long, "min") == 0.9
    assert aggregate(short, "product") == pytest.approx(0.81)
    assert aggregate(long, "product") == pytest.approx(0.349, abs=1e-3)
    assert aggregate([0.2, 0.4, 0.9], "last") == 0.9
    assert aggregate([0.2, 0.4, 0.9], "mean") == pytest.approx(0.5)
    with pytest.raises(ValueError, match="wanted one of"):
        aggregate([0.5], "sum")


def test_L68_ignored_later_steps_enter_no_figure() -> None:
    inputs = [labelled(1, 0, IGNORED, IGNORED)]
    quiet = measure_quality([[0.9, 0.1, 0.0, 0.0]], inputs, threshold=0.5)
    loud = measure_quality([[0.9, 0.1, 1.0, 1.0]], inputs, threshold=0.5)
    assert quiet == loud


def one_forward_a_step(prm, inputs: list[PRMInput]) -> list[list[float]]:
    """What others do: a forward on the prefix of each step."""
    return [
        [
            score_logits(prm, [PRMInput(one.token_ids[: at + 1], (at,), prompt_length=start)])[0][0]
            for start, at in zip(one.step_starts, one.step_positions, strict=True)
        ]
        for one in inputs
    ]


@pytest.mark.slow
def test_one_forward_for_all_steps_is_five_times_faster(tmp_path: Path) -> None:
    prm = tiny_prm(tmp_path, hidden=64, layers=4)
    inputs = [one for one in toy_inputs(200, steps=8) if len(one.step_positions) >= 6][:64]
    score_logits(prm, inputs)
    start = time.perf_counter()
    together = score_logits(prm, inputs)
    middle = time.perf_counter()
    apart = one_forward_a_step(prm, inputs)
    end = time.perf_counter()
    assert_close(together, apart)
    assert (end - middle) / (middle - start) >= 5


def test_scorer_takes_one_prompt_a_path(prm) -> None:
    path: Solution = rollout(TOKENIZERS["character"]())
    with pytest.raises(ValueError, match="argument"):
        PRMScorer(prm).score([[1]], [path, path])

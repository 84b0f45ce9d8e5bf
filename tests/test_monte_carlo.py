"""Labels from completions: the pure core by hand, the driver on an engine that plays a known model."""

from __future__ import annotations

import json
import math

import pytest

from common.records import IGNORED, FinishReason, LabelledPath, Path, Problem, Verdict
from data_gen.completions import CompletionCost, CompletionSampler, label_by_completions
from data_gen.engines import Completion, EngineStats, TransformersEngine
from data_gen.measure import SampleSettings
from data_gen.monte_carlo import MonteCarloSettings, consensus, first_wrong, label_from_shares, next_prefixes
from data_gen.steps import build_path
from tests.tokenizer_toys import character_tokenizer, tiny_llama

TOKENIZER = character_tokenizer()
FOUR = MonteCarloSettings(4)
PROBLEM = Problem.create("Compute 3*4-8-1.", "3", source="test", topic="chain")
END = TOKENIZER.eos_token_id


def render(problem: Problem) -> list[int]:
    return TOKENIZER(problem.text + "\n")["input_ids"]


def sampled(text: str, index: int = 0) -> Path:
    ids = [*TOKENIZER(text)["input_ids"], END]
    return build_path(PROBLEM, ids, FinishReason.STOP, TOKENIZER, seed=0, index=index)


RIGHT = sampled("3*4=12\n12-8=4\n4-1=3\nAnswer: 3", 0)
WRONG = sampled("3*4=12\n12-8=3\n3-1=2\nAnswer: 2", 1)
LATE = sampled("3*4=12\n12-8=4\n4-1=2\nAnswer: 2", 2)
SLIP = sampled("3*4=12\n12-8=4\n4-1=3\nAnswer: 2", 3)


class Perfect:
    """An engine whose completions are right exactly when the prefix holds no wrong step, `share` of the time."""

    def __init__(self, share: float = 1.0) -> None:
        self.stats = EngineStats()
        self.share = share
        self.calls: list[int] = []

    def sample(self, prompts, *, n, seed, **settings):
        self.calls.append(len(prompts))
        texts = [TOKENIZER.decode(prompt) for prompt in prompts]
        return [[self._completion("8=3" in t or "1=2" in t, j, n) for j in range(n)] for t in texts]

    def _completion(self, is_wrong: bool, index: int, n: int) -> Completion:
        answer = "5" if is_wrong or index >= math.ceil(self.share * n) else "3"
        return Completion((*TOKENIZER(f"\nAnswer: {answer}")["input_ids"], END), FinishReason.STOP)


def label(engine, paths, settings=FOUR):
    sampler = CompletionSampler(engine, TOKENIZER, render, {PROBLEM.id: PROBLEM}, SampleSettings(1.0, 24), seed=5)
    return label_by_completions(sampler, paths, settings)


@pytest.mark.parametrize("n_steps", range(1, 9))
def test_binary_search_finds_every_first_error_in_log_steps(n_steps):
    for error in range(n_steps + 1):
        known: dict[int, bool] = {}
        while asked := next_prefixes(known, n_steps, "binary"):
            assert len(asked) == 1
            assert asked[0] not in known
            known[asked[0]] = asked[0] < error
        assert first_wrong(known, n_steps) == (error if error < n_steps else None)
        assert len(known) <= math.ceil(math.log2(n_steps + 1))


def test_linear_asks_for_every_step_once():
    assert next_prefixes({}, 3, "linear") == [0, 1, 2]
    assert next_prefixes({0: True, 1: False, 2: False}, 3, "linear") == []


def test_hard_soft_and_threshold_by_hand():
    shares = {0: 0.75, 1: 0.25, 2: 0.0}
    hard = label_from_shares(WRONG, shares, MonteCarloSettings(4))
    assert (hard.labels, hard.first_error, hard.support, hard.shares) == ((1, 1, 0), 2, (3, 1, 0), (0.75, 0.25, 0.0))
    strict = label_from_shares(WRONG, shares, MonteCarloSettings(4, threshold=0.25, after_error="ignore"))
    assert (strict.labels, strict.first_error) == ((1, 0, IGNORED), 1)
    soft = label_from_shares(WRONG, shares, MonteCarloSettings(4, "soft"))
    assert (soft.labels, soft.first_error) == ((0.75, 0.25, 0.0), 2)
    assert label_from_shares(WRONG, {0: 1.0, 1: 0.5, 2: 0.25}, MonteCarloSettings(4)) == "no_error_found"
    right = label_from_shares(RIGHT, {}, MonteCarloSettings(4))
    assert (right.labels, right.first_error, right.keys) == ((1, 1, 1), None, ("own_answer",) * 3)
    assert LabelledPath.from_row(json.loads(json.dumps(soft.to_row()))) == soft
    with pytest.raises(ValueError, match="completions 0"):
        MonteCarloSettings(0)


@pytest.mark.parametrize("search", ["linear", "binary"])
def test_driver_finds_the_first_errors_of_a_known_model(search):
    engine = Perfect(share=0.5)
    labelled, left_out, cost = label(engine, [RIGHT, WRONG, LATE, SLIP], MonteCarloSettings(4, search=search))
    assert [row.labels for row in labelled] == [(1, 1, 1), (1, 0, 0), (1, 1, 0)]
    assert [row.first_error for row in labelled] == [None, 1, 2]
    assert left_out == {"no_error_found": 1}
    # distinct prefixes. linear: 12 | 12,4 | 12,3 | 12,3,2 | 12,4,2 | 12,4,3. binary: 12,4 | 12,3 | 12 | 12,4,2 | 12,4,3
    assert (cost.prefixes, cost.completions) == ((6, 24) if search == "linear" else (5, 20))
    assert engine.calls == ([6] if search == "linear" else [2, 3])
    assert labelled[1].keys == (
        ("completions",) * 3 if search == "linear" else ("completions", "completions", "search")
    )


def test_L69_a_step_is_right_when_completions_from_it_reach_the_gold_whatever_its_own_value():
    """The gold is 3; the first steps arrive at 12 and 4 and are right, the wrong one arrives at 2."""
    (labelled,), _, _ = label(Perfect(), [LATE])
    assert PROBLEM.answer == "3"
    assert [step.text.split("=")[1].strip() for step in LATE.steps] == ["12", "4", "2"]
    assert labelled.labels == (1, 1, 0)


def test_soft_labels_ask_correct_paths_too():
    labelled, _, cost = label(Perfect(share=0.5), [RIGHT], MonteCarloSettings(4, "soft"))
    assert labelled[0].labels == (0.5, 0.5, 0.5)
    assert cost.completions == 12


def test_a_completion_that_was_cut_off_is_not_right():
    class Cut(Perfect):
        def _completion(self, is_wrong: bool, index: int, n: int) -> Completion:
            return Completion(super()._completion(is_wrong, index, n).token_ids, FinishReason.LENGTH)

    assert label(Cut(), [LATE])[0][0].shares == (0.0, 0.0, 0.0)


def test_paths_that_cannot_be_labelled_are_counted():
    text_only = Path("p", "x", "1", (), WRONG.steps, None, Verdict.WRONG, FinishReason.STOP)
    unparsed = Path("p", "y", "1", (1,), WRONG.steps, None, Verdict.UNPARSED, FinishReason.STOP)
    labelled, left_out, cost = label(Perfect(), [text_only, unparsed])
    assert (labelled, left_out, cost.completions) == ([], {"UNPARSED": 1, "no_token_ids": 1}, 0)


def test_completions_depend_on_seed_and_prefix_alone():
    engine = TransformersEngine(tiny_llama(TOKENIZER, scale=12.0).eval(), TOKENIZER)
    keys = [(PROBLEM.id, tuple(TOKENIZER(f"{text}\nAnswer: ")["input_ids"])) for text in ("3*4=12", "3*4=11", "4")]

    def outcomes(chosen, seed=5):
        answers: list[str | None] = []

        def grader(pairs):
            answers.extend(answer for answer, _ in pairs)
            return [Verdict.CORRECT for _ in pairs]

        settings = SampleSettings(1.0, 16)
        sampler = CompletionSampler(engine, TOKENIZER, render, {PROBLEM.id: PROBLEM}, settings, seed, grader)
        return sampler.outcomes(chosen, 3, CompletionCost()), answers

    whole, answers = outcomes(keys)
    assert outcomes(keys[::-1])[0] == whole
    assert outcomes(keys[1:2])[0][keys[1]] == whole[keys[1]]
    assert outcomes(keys)[1] == answers
    assert len(set(answers)) > 1
    assert outcomes(keys, seed=6)[1] != answers


def labels(values: tuple[int, ...], path: Path = WRONG, source: str = "a") -> LabelledPath:
    error = values.index(0) if 0 in values else None
    return LabelledPath(path, values, error, (0,) * 3, (source,) * 3, source)


def test_consensus_by_hand():
    one = [labels((1, 0, 0)), labels((1, 1, 1), RIGHT), labels((0, 0, 0), LATE), labels((1, 1, 0), SLIP)]
    other = [labels((1, 1, 0), source="b"), labels((1, 1, 1), RIGHT, "b"), labels((1, 1, 1), LATE, "b")]
    kept, counts = consensus(one, other)
    assert [row.labels for row in kept] == [(1, IGNORED, 0), (1, 1, 1)]
    assert [row.first_error for row in kept] == [None, None]
    assert (kept[0].source, kept[0].keys[1]) == ("a&b", "a&b")
    assert counts == {
        "agreed_steps": 5,
        "ignored_steps": 1,
        "same_first_error": 0,
        "other_first_error": 1,
        "one_source_only": 1,
        "agree_nowhere": 1,
    }
    same, counts = consensus(one[:1], [labels((1, 0, 0), source="b")])
    assert (same[0].first_error, counts["same_first_error"]) == (1, 1)
    assert same[0].labels == (1, 0, 0)

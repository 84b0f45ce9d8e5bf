"""Coherence under models whose probabilities are known, and under the embedded base."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from common.models import load_policy, load_tokenizer
from common.records import FinishReason, Path, Step, Verdict
from prm.quality.coherence import (
    coherence,
    neighbour_gains,
    pair_coherence,
    pair_places,
    segments_of,
    tail_logprobs,
)

NEXT = torch.tensor([[0.2, 0.7, 0.1], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]])


class Bigrams(nn.Module):
    """p(next | last) from a table; remembers how many rows it was asked for."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(NEXT.log())
        self.rows = 0

    def forward(self, input_ids, use_cache, logits_to_keep):
        self.rows += len(input_ids)
        return SimpleNamespace(logits=self.table[input_ids][:, -logits_to_keep:])


def test_gain_of_a_pair_by_hand():
    as_written, swapped = math.log(0.7 * 0.8), math.log(0.1 * 0.3)  # 0 -> 1 -> 2 against 0 -> 2 -> 1
    (gains,) = neighbour_gains(Bigrams(), [[0]], [[[1], [2]]])
    assert gains == pytest.approx([as_written - swapped])
    (back,) = neighbour_gains(Bigrams(), [[0]], [[[2], [1]]])
    assert back == pytest.approx([swapped - as_written])


def test_gains_of_three_steps_by_hand_and_what_they_cost():
    model = Bigrams()
    (gains,) = neighbour_gains(model, [[0]], [[[1], [2], [0, 0]]])
    first = math.log(0.7 * 0.8) - math.log(0.1 * 0.3)
    second = math.log(0.8 * 0.5 * 0.2) - math.log(0.1 * 0.2 * 0.1)  # 1 -> 2 -> 0 -> 0 against 1 -> 0 -> 0 -> 2
    assert gains == pytest.approx([first, second])
    assert model.rows == 3  # the path once, and each swap


def test_coherence_of_gains():
    assert pair_coherence([0.0, 2.0, -2.0]) == pytest.approx([0.5, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])
    assert coherence([2.0, -2.0]) == pytest.approx(0.5)
    assert coherence([]) is None
    assert pair_coherence([1e9, -1e9]) == pytest.approx([1, 0])


def test_pairs_are_spread_evenly():
    assert [pair_places(n) for n in (0, 1, 2, 5)] == [[], [], [0], [0, 1, 2, 3]]
    assert pair_places(21, 5) == [0, 5, 10, 14, 19]
    assert pair_places(9, 1) == [0]


def test_batches_and_padding_change_nothing():
    model = load_policy("data_gen/base_model")
    rows = [((5, 6, 7, 8), 2), ((5, 6), 1), ((9, 8, 7, 6, 5, 4, 3, 5), 3)]
    together, alone = tail_logprobs(model, rows), [tail_logprobs(model, [row], 1)[0] for row in rows]
    assert [len(found) for found in together] == [2, 1, 5]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_segments_hold_the_paths_own_tokens():
    steps = (Step("a", 0, 1, 0, 2), Step("b", 2, 3, 3, 4), Step("c", 4, 5, 5, 7))
    path = Path("p", "q", "a\nb\nc\n!", tuple(range(10, 20)), steps, None, Verdict.CORRECT, FinishReason.STOP)
    assert segments_of(path) == [[10, 11, 12], [13, 14], [15, 16, 17]]
    assert segments_of(Path("p", "q", "a", (), (Step("a", 0, 1),), None, Verdict.CORRECT, FinishReason.STOP)) == []


def test_the_base_prefers_a_solution_in_its_order():
    tokenizer, model = load_tokenizer("data_gen/base_model"), load_policy("data_gen/base_model")

    def of(*steps):
        ids = [tokenizer(text + "\n", add_special_tokens=False)["input_ids"] for text in ("Compute 3*4+5-2.", *steps)]
        return coherence(neighbour_gains(model, ids[:1], [ids[1:]])[0])

    assert of("3*4=12", "12+5=17", "17-2=15") > 0.9
    assert of("12+5=17", "3*4=12", "17-2=15") < 0.6

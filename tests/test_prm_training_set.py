"""What an epoch reads: distinct paths, cut behind the first error, grouped by length."""

from __future__ import annotations

import pytest

from common.records import IGNORED
from prm.inputs import PRMInput
from prm.training_set import LengthGrouped, stable_hash, training_view


def path(*labels: float, problem: str = "p", first: int = 10) -> PRMInput:
    """Two tokens of prompt, two tokens a step, the last one at the step's position."""
    tokens = tuple(range(first, first + 2 + 2 * len(labels)))
    return PRMInput(tokens, tuple(3 + 2 * k for k in range(len(labels))), labels=labels, problem_id=problem)


def test_wrong_paths_are_cut_behind_the_first_error() -> None:
    whole = path(1, 1, 0, 0, 0)
    for keep, steps in ((0, 3), (1, 4), (2, 5), (9, 5), (None, 5)):
        (cut,) = training_view([whole], steps_after_error=keep)
        assert cut.step_positions == whole.step_positions[:steps]
        assert cut.labels == whole.labels[:steps]
        assert cut.token_ids == whole.token_ids[: 2 + 2 * steps]
        assert cut.token_ids[cut.step_positions[-1]] == cut.token_ids[-1]


def test_right_paths_stay_whole() -> None:
    right = path(1, 1, IGNORED, 1)
    assert training_view([right], steps_after_error=0) == [right]


@pytest.mark.parametrize("keep", [0, 1, None])
def test_ignored_steps_at_the_end_are_cut(keep: int | None) -> None:
    (cut,) = training_view([path(1, 0, IGNORED, IGNORED)], steps_after_error=keep)
    assert cut == path(1, 0)
    assert training_view([path(1, IGNORED, 1, IGNORED)], steps_after_error=keep) == [path(1, IGNORED, 1)]


def test_equal_paths_are_taken_once_and_order_is_kept() -> None:
    first, second = path(1, 1), path(1, 0, first=50)
    assert training_view([first, second, first, first], steps_after_error=None) == [first, second]
    # equal up to the cut: one path
    assert len(training_view([path(1, 0, 0), path(1, 0, 0, 0)], steps_after_error=0)) == 1
    # equal ids of another problem are another path
    assert len(training_view([path(1, 1), path(1, 1, problem="q")], steps_after_error=None)) == 2


def test_labels_that_differ_are_averaged() -> None:
    (merged,) = training_view([path(1, 1), path(1, 0), path(1, 1), path(1, 1)], steps_after_error=None)
    assert merged.labels == (1.0, 0.75)


def test_ignored_labels_enter_no_mean() -> None:
    merged = training_view([path(IGNORED, 1), path(1, 0), path(1, 1)], steps_after_error=None)
    assert [one.labels for one in merged] == [(float(IGNORED), 1.0), (1.0, 0.5)]


def test_batches_are_grouped_by_length_and_repeatable() -> None:
    lengths = [(7 * k) % 53 + 1 for k in range(1000)]
    sampler = LengthGrouped(lengths, 8, seed=1)
    first = list(sampler)
    assert sorted(first) == list(range(1000))
    assert first == list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    spreads = [
        max(lengths[row] for row in window) - min(lengths[row] for row in window)
        for window in (first[k : k + 8] for k in range(0, 1000, 8))
    ]
    assert sum(spreads) / len(spreads) < 8  # a random order gives about 41
    halves = [sum(lengths[row] for row in half) for half in (first[:500], first[500:])]
    assert halves[0] == pytest.approx(halves[1], rel=0.4)  # sorted, the ratio were 1 : 3


def test_a_short_window_comes_last() -> None:
    order = list(LengthGrouped(list(range(1, 22)), 8, seed=0))
    assert sorted(order) == list(range(21))
    windows = [sorted(order[:8]), sorted(order[8:16]), sorted(order[16:])]
    assert windows[2] == [16, 17, 18, 19, 20]  # the rest of the sorted pool stays together at the end


def test_hash_is_the_same_in_every_process() -> None:
    assert stable_hash(3, "problem") == 15133721841454825442

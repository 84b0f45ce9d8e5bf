"""The base model's paths are sampled once a run."""

import json

import pytest
from eval_records import path, problem

from common.config import Config
from eval.base_paths import saved

PROBLEMS = [problem(0), problem(1)]


class Sampler:
    def __init__(self):
        self.calls = []

    def __call__(self, problems, n, temperature, seed):
        self.calls.append((len(problems), n, temperature, seed))
        return [[path(str(10 * row + index)) for index in range(n)] for row, _ in enumerate(problems)]


def test_a_second_round_reads_what_the_first_one_sampled(tmp_path):
    first, second = Sampler(), Sampler()
    found = saved(first, Config(), tmp_path)(PROBLEMS, 3, 1.0, 7)
    assert [[one.answer for one in group] for group in found] == [["0", "1", "2"], ["10", "11", "12"]]
    assert saved(second, Config(), tmp_path)(PROBLEMS, 3, 1.0, 7) == found
    assert (first.calls, second.calls) == ([(2, 3, 1.0, 7)], [])


@pytest.mark.parametrize(
    ("override", "call"),
    [
        ({}, (PROBLEMS, 2, 1.0, 7)),
        ({}, (PROBLEMS, 3, 0.5, 7)),
        ({}, (PROBLEMS, 3, 1.0, 8)),
        ({}, (PROBLEMS[:1], 3, 1.0, 7)),
        ({"base": {"model": "other"}}, (PROBLEMS, 3, 1.0, 7)),
        ({"data": {"max_new_tokens": 50}}, (PROBLEMS, 3, 1.0, 7)),
    ],
)
def test_another_draw_is_sampled_anew(tmp_path, override, call):
    saved(Sampler(), Config(), tmp_path)(PROBLEMS, 3, 1.0, 7)
    again = Sampler()
    saved(again, Config.model_validate(override), tmp_path)(*call)
    assert len(again.calls) == 1


def test_threads_do_not_matter_and_a_damaged_file_is_sampled_again(tmp_path):
    saved(Sampler(), Config(), tmp_path)(PROBLEMS, 3, 1.0, 7)
    again = Sampler()
    saved(again, Config.model_validate({"base": {"threads": 5}}), tmp_path)(PROBLEMS, 3, 1.0, 7)
    assert again.calls == []
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps({"problem_id": "p"}) + "\n")
    heard: list[str] = []
    found = saved(again, Config(), tmp_path, say=heard.append)(PROBLEMS, 3, 1.0, 7)
    assert len(again.calls) == 1
    assert f"{file.name} is not used" in heard[0]
    assert saved(again, Config(), tmp_path, say=heard.append)(PROBLEMS, 3, 1.0, 7) == found
    assert "2 problems x 3 at temperature 1 are there" in heard[-1]


def test_paths_of_another_policy_are_not_read(tmp_path):
    calls = Sampler()
    for weights in ("", "abc", "abd", "abc"):
        saved(calls, Config(), tmp_path, model=weights)(PROBLEMS, 3, 1.0, 7)
    assert len(calls.calls) == 3

"""Measuring, the band, balancing, resuming chunk by chunk, and problem files."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import pytest

from common.errors import InputError
from common.prompts import PromptTemplate
from common.records import FinishReason, Path, Problem, Verdict
from data_gen.engines import Completion, EngineStats, TransformersEngine
from data_gen.measure import Accuracy, SampleSettings, measure_accuracy, pass_rate
from data_gen.problems import ProblemSource, load_problems, read_problems
from data_gen.sample import PoolSettings, balanced, in_band, make_pool, sample_chunked
from tests.tokenizer_toys import character_tokenizer, tiny_llama

TOKENIZER = character_tokenizer()
TEMPLATE = PromptTemplate()


def render(problem: Problem) -> list[int]:
    return TEMPLATE.ids(problem.text, TOKENIZER)


class FakeEngine:
    """Answers problem "k ..." right in k of 8 paths; counts what it is asked."""

    def __init__(self) -> None:
        self.stats = EngineStats()
        self.asked: list[int] = []

    def sample(self, prompts, *, n, seed, **settings):
        self.asked.append(len(prompts) * n)
        result = []
        for prompt in prompts:
            k = int(TOKENIZER.decode(prompt).split()[0])
            texts = ["Answer: 7" if (j * 5 + seed) % 8 < k else "Answer: 8" for j in range(n)]
            result.append([Completion((*TOKENIZER(t)["input_ids"], 1), FinishReason.STOP) for t in texts])
        return result


def problems(counts: dict[int, str]) -> list[Problem]:
    return [Problem.create(f"{k} of 8", "7", source="test", topic=topic) for k, topic in counts.items()]


def a_path(verdict: Verdict, reason: FinishReason = FinishReason.STOP) -> Path:
    return Path("p", "q", "", (), (), None, verdict, reason)


def test_pass_rate_counts_what_was_judged():
    right, wrong = a_path(Verdict.CORRECT), a_path(Verdict.WRONG)
    assert pass_rate([right, wrong, wrong, a_path(Verdict.UNPARSED)]) == 0.25
    assert pass_rate([right, a_path(Verdict.TIMEOUT)]) == 1.0
    assert pass_rate([a_path(Verdict.CORRECT, FinishReason.LENGTH), right]) == 0.5
    assert pass_rate([a_path(Verdict.NO_GOLD)]) is None
    assert Accuracy((), ()).mean == 0.0


def test_accuracy_is_the_mean_pass_rate():
    found = measure_accuracy(FakeEngine(), problems({0: "a", 2: "a", 8: "a"}), TOKENIZER, render, n=8, seed=0)
    assert found.pass_rates == (0.0, 0.25, 1.0)
    assert found.mean == pytest.approx(1.25 / 3)
    assert len(found.flat) == 24
    assert len({path.path_id for path in found.flat}) == 24


def test_greedy_measures_one_path():
    greedy = SampleSettings(temperature=0.0)
    found = measure_accuracy(FakeEngine(), problems({8: "a"}), TOKENIZER, render, n=8, seed=0, settings=greedy)
    assert len(found.flat) == 1


def test_pool_keeps_the_band_and_reuses_the_measuring_paths(tmp_path):
    engine = FakeEngine()
    given = problems({0: "a", 1: "a", 2: "a", 4: "b", 6: "a", 7: "b", 8: "b"})
    settings = PoolSettings(measure_paths=8, paths=12, pass_low=0.25, pass_high=0.75, chunk=2, balance=0)
    pool = make_pool(engine, given, TOKENIZER, render, tmp_path, settings, SampleSettings())
    assert [p.text[0] for p in pool.problems] == ["2", "4", "6"]
    assert [p.difficulty for p in pool.problems] == [0.25, 0.5, 0.75]
    assert [p.difficulty for p in pool.measured] == [0, 0.125, 0.25, 0.5, 0.75, 0.875, 1]
    assert sum(engine.asked) == 7 * 8 + 3 * 4
    assert len(pool.paths) == 3 * 12
    assert len({path.path_id for path in pool.paths}) == 36
    assert pool.kept_by_topic == {"a": 2, "b": 1}


def test_measuring_paths_of_other_problems_are_handed_on_where_they_can_be_labelled(tmp_path):
    engine = FakeEngine()
    given = problems({0: "a", 1: "a", 2: "a", 4: "b", 6: "a", 7: "b", 8: "b"})
    settings = PoolSettings(
        measure_paths=8, paths=12, pass_low=0.25, pass_high=0.75, chunk=2, balance=0, label_measured=True
    )
    pool = make_pool(engine, given, TOKENIZER, render, tmp_path, settings, SampleSettings())
    assert [p.text[0] for p in pool.problems] == ["2", "4", "6"]
    assert [p.text[0] for p in pool.others] == ["1", "7"]
    assert sum(engine.asked) == 7 * 8 + 3 * 4
    assert Counter(path.problem_id for path in pool.paths) == {
        **{problem.id: 12 for problem in pool.problems},
        **{problem.id: 8 for problem in pool.others},
    }


def test_kinds_are_balanced_by_seed_and_order_is_kept():
    given = problems(dict.fromkeys(range(10), "a") | dict.fromkeys(range(10, 13), "b"))
    kept = balanced(given, 2.0, 0)
    assert Counter(p.topic for p in kept) == {"a": 6, "b": 3}
    assert [p for p in given if p in kept] == kept
    assert balanced(given, 2.0, 0) == kept != balanced(given, 2.0, 1)
    assert balanced(given, 0, 0) == given
    assert balanced([], 2.0, 0) == []


def test_band_holds_its_ends():
    problem = problems({1: "a"})[0]
    assert not in_band(problem, 0.2, 0.8)
    assert in_band(dataclasses.replace(problem, difficulty=0.2), 0.2, 0.8)
    assert in_band(dataclasses.replace(problem, difficulty=0.8), 0.2, 0.8)
    assert not in_band(dataclasses.replace(problem, difficulty=0.81), 0.2, 0.8)


class Killed(Exception):
    pass


def test_a_killed_run_continues_with_the_next_chunk_and_ends_the_same(tmp_path):
    model = tiny_llama(TOKENIZER, scale=12.0).eval()
    given = problems(dict.fromkeys(range(7), "a"))
    arguments = (given, TOKENIZER, render)
    settings = {"n": 3, "seed": 4, "chunk": 2, "settings": SampleSettings(max_new_tokens=12)}
    whole = sample_chunked(TransformersEngine(model, TOKENIZER), *arguments, tmp_path / "whole", **settings)

    class DyingEngine(TransformersEngine):
        calls = 0

        def sample(self, *args, **kwargs):
            DyingEngine.calls += 1
            if DyingEngine.calls == 3:
                raise Killed
            return super().sample(*args, **kwargs)

    with pytest.raises(Killed):
        sample_chunked(DyingEngine(model, TOKENIZER), *arguments, tmp_path / "killed", **settings)
    assert len(list((tmp_path / "killed").glob("*.jsonl"))) == 2
    engine = TransformersEngine(model, TOKENIZER)
    resumed = sample_chunked(engine, *arguments, tmp_path / "killed", **settings)
    assert resumed == whole
    assert engine.stats.sampled_tokens == sum(len(p.token_ids) for group in whole.paths[4:] for p in group)
    cut = sorted((tmp_path / "killed").glob("*.jsonl"))[1]
    cut.write_bytes(cut.read_bytes()[:-200])
    heard: list[str] = []
    assert sample_chunked(engine, *arguments, tmp_path / "killed", **settings, say=heard.append) == whole
    assert f"{cut} is not used" in heard[0]
    assert heard[1] == f"sample: 5 of 7 problems are there; continues with problem {given[2].id}"
    one_chunk = settings | {"chunk": 100}
    assert sample_chunked(engine, *arguments, tmp_path / "one", **one_chunk) == whole
    other_seed = sample_chunked(engine, *arguments, tmp_path / "killed", **(settings | {"seed": 5}))
    assert other_seed != whole  # files of other settings are not read


def test_built_in_problems_and_their_errors():
    found = load_problems(ProblemSource(levels=(3, 4), kinds=("chain",)), "train", 1, 6)
    assert len(found) == 6
    assert {p.topic for p in found} == {"chain"}
    assert {p.level for p in found} == {3, 4}
    with pytest.raises(InputError, match="chian"):
        load_problems(ProblemSource(kinds=("chian",)), "train", 1, 6)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_problems_of_a_file_are_split_by_content(tmp_path):
    file = write(
        tmp_path / "own.jsonl", [{"question": f"What is {k}+1?", "answer": k + 1, "type": "sum"} for k in range(200)]
    )
    source = ProblemSource(str(file))
    splits = {name: load_problems(source, name, 0, 1000) for name in ("train", "validation", "test")}
    assert sum(map(len, splits.values())) == 200
    assert all(len(own) > 5 for own in splits.values())
    assert len({p.id for own in splits.values() for p in own}) == 200
    first = splits["train"][0]
    assert (first.source, first.topic) == ("own.jsonl", "sum")
    assert load_problems(source, "train", 0, 5) == splits["train"][:5]
    assert load_problems(source, "train", 1, 5) != splits["train"][:5]


def test_equal_rows_come_once_and_a_named_split_is_kept(tmp_path):
    row = {"problem": "1+1", "answer": "2", "split": "test"}
    file = write(tmp_path / "own.jsonl", [row, row])
    assert len(list(read_problems(file))) == 1
    assert len(load_problems(ProblemSource(str(file)), "test", 0, 9)) == 1
    with pytest.raises(InputError, match="no problem of split 'train'"):
        load_problems(ProblemSource(str(file)), "train", 0, 9)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "2"}, "row 2: no field 'problem'"),
        ({"problem": "1+1"}, "row 2: no field 'answer'"),
        ({"problem": "1+1", "answer": ""}, "row 2, field 'answer': '', want text"),
        ({"problem": 5.5, "answer": True}, "row 2, field 'answer': True, want text"),
        ({"problem": None, "answer": "2"}, "row 2, field 'problem': None, want text"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    file = write(tmp_path / "own.jsonl", [{"problem": "1+1", "answer": "2"}, row])
    with pytest.raises(InputError, match=message):
        load_problems(ProblemSource(str(file)), "train", 0, 9)
    with pytest.raises(InputError, match="no such file"):
        load_problems(ProblemSource(str(tmp_path / "none.jsonl")), "train", 0, 9)

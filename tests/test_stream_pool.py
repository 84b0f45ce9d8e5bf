"""The data stage from file to file: the same bytes as with the pool in memory, whoever fills the chunks."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from common.config import load_config
from common.errors import InputError
from common.records import Path, Problem, content_id
from common.runs import Run, write_rows
from data_gen import stage_labels
from data_gen.__main__ import data_stage, sample_stage
from data_gen.chunks import sample_chunk
from data_gen.measure import SampleSettings
from data_gen.problems import ProblemSource, load_problems, stream_problems
from data_gen.ray_cluster import build_sampler
from data_gen.sample import PoolSettings, balanced, make_pool
from data_gen.stage_labels import label_stage
from data_gen.stream_labels import cut_label_chunks, label_chunk
from data_gen.stream_pool import Measured, stream_pool
from tests.test_architecture import PROJECT
from tests.test_sample import TEMPLATE, TOKENIZER, FakeEngine, problems, render

SMALL = [
    "data.pool=14",
    "data.paths=6",
    "data.chunk=4",
    "data.label_measured=true",
    "data.pass_low=0.2",
    "data.pass_high=0.6",
    "base.threads=1",
]
PAYLOAD = [
    "1_sample/problems_train.jsonl",
    "1_sample/problems_test.jsonl",
    "1_sample/paths.jsonl",
    "1_sample/metrics.json",
    "2_label/paths.jsonl",
    "2_label/metrics.json",
]


class OneProcess:
    """Has the methods of `RayCluster`, and the chunks done here, last first."""

    def __init__(self, replicas, build):
        self.build = build

    def fill(self, chunks, draw):
        sampler = self.build()
        for chunk in reversed(chunks):
            yield sample_chunk(*sampler, chunk, draw)

    def label(self, chunks, settings, has_oracle):
        return (label_chunk(chunk, settings, has_oracle) for chunk in reversed(chunks))


def config_of(*overrides: str):
    return load_config(PROJECT / "configs" / "micro.yaml", [*SMALL, *overrides])


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("local"))
    data_stage(config_of(), run)
    return run


def assert_same(run: Run, other: Run) -> None:
    for name in PAYLOAD:
        assert (run.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def test_both_halves_write_the_bytes_of_the_stage_in_memory(tmp_path, local, monkeypatch):
    monkeypatch.setattr("data_gen.__main__.RayCluster", OneProcess)
    monkeypatch.setattr(stage_labels, "RayCluster", OneProcess)
    run = Run(tmp_path)
    data_stage(config_of("data.cluster=ray"), run)
    assert_same(run, local)
    names = [sorted(p.name for p in (r.folder / "1_sample" / "chunks").glob("*/*")) for r in (run, local)]
    assert names[0] == names[1]
    assert len(names[0]) == 5  # four measured, one of what was kept
    rows = (local.folder / "1_sample/paths.jsonl").read_text().splitlines()
    counts = {row["problem_id"]: 0 for row in map(json.loads, rows)}
    for row in map(json.loads, rows):
        counts[row["problem_id"]] += 1
    assert set(counts.values()) == {4, 6}  # measured alone, and kept: both kinds are in the comparison


def test_a_cut_run_goes_on_with_the_chunks_that_are_missing_and_says_so(tmp_path, local, monkeypatch, capsys):
    class Cut(Exception):
        pass

    class Dying(OneProcess):
        left = 3

        def fill(self, chunks, draw):
            for count in super().fill(chunks, draw):
                Dying.left -= 1
                yield count
                if not Dying.left:
                    raise Cut

    monkeypatch.setattr("data_gen.__main__.RayCluster", Dying)
    run, config = Run(tmp_path), config_of("data.cluster=ray")
    with pytest.raises(Cut):
        sample_stage(config, run)
    done = list((run.folder / "1_sample/chunks/measure").glob("*.jsonl"))
    assert len(done) == 3
    done[0].write_bytes(done[0].read_bytes()[:-30])
    sample_stage(config, run)
    heard = capsys.readouterr().out
    first = json.loads((run.folder / "1_sample/chunks/pool.jsonl").read_text().splitlines()[0])["id"]
    assert f"{done[0]} is not used" in heard
    assert f"problems are there; continues with problem {first}" in heard
    assert_same_sample(run, local)


def assert_same_sample(run: Run, other: Run) -> None:
    for name in PAYLOAD[:4]:
        assert (run.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def test_labels_go_on_with_the_chunks_that_are_missing(tmp_path, local, monkeypatch, capsys):
    monkeypatch.setattr("data_gen.__main__.RayCluster", OneProcess)
    monkeypatch.setattr(stage_labels, "RayCluster", OneProcess)
    run, config = Run(tmp_path), config_of("data.cluster=ray")
    data_stage(config, run)
    chunks = sorted((run.folder / "2_label/chunks").iterdir())
    before = {file: file.stat().st_mtime_ns for file in chunks}
    chunks[1].unlink()
    (run.folder / "2_label/DONE").unlink()
    label_stage(config, run)
    assert "chunks are there; continues with problem" in capsys.readouterr().out
    changed = [file for file in chunks if file.stat().st_mtime_ns != before[file]]
    assert changed == [chunks[1]]
    assert_same(run, local)


@pytest.mark.parametrize("balance", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("label_measured", [False, True])
def test_pool_from_file_to_file_is_the_pool_in_memory(tmp_path, balance, label_measured):
    given = problems({k: "a" if k % 3 else "b" for k in range(9)} | {k + 10: "a" for k in range(3)})
    settings = PoolSettings(
        measure_paths=8,
        paths=11,
        pass_low=0.25,
        pass_high=0.75,
        chunk=2,
        balance=balance,
        label_measured=label_measured,
    )
    pool = make_pool(FakeEngine(), given, TOKENIZER, render, tmp_path / "a", settings, SampleSettings())
    draw_with = functools.partial(sample_chunk, FakeEngine(), TOKENIZER, render)
    counts = stream_pool(
        iter(given),
        tmp_path / "b",
        settings,
        SampleSettings(),
        lambda chunks, draw: (draw_with(chunk, draw) for chunk in chunks),
        problems_file=tmp_path / "problems.jsonl",
        paths_file=tmp_path / "paths.jsonl",
    )
    rows = [json.loads(line) for line in (tmp_path / "paths.jsonl").open()]
    assert tuple(map(Path.from_row, rows)) == pool.paths
    found = [Problem.from_row(json.loads(line)) for line in (tmp_path / "problems.jsonl").open()]
    assert tuple(found) == pool.measured
    assert (counts.kept, counts.others, counts.paths) == (len(pool.problems), len(pool.others), len(pool.paths))
    assert counts.kept_by_topic == pool.kept_by_topic


def test_balanced_choice_is_that_of_the_pool_in_memory():
    given = problems(dict.fromkeys(range(40), "a") | dict.fromkeys(range(40, 52), "b") | {60: "c", 61: "c"})
    names = ("a", "b", "c")
    measured = Measured(
        np.full(len(given), 0.5),
        np.array([names.index(p.topic) for p in given]),
        np.array([int(content_id(3, p.id), 16) for p in given], dtype=np.uint64),
        names,
    )
    for ratio in (0.0, 0.2, 1.0, 2.5):
        is_kept, _ = measured.chosen(PoolSettings(balance=ratio, seed=3))
        assert [p for p, keep in zip(given, is_kept, strict=True) if keep] == balanced(given, ratio, 3)


def test_nothing_in_the_band_is_an_error_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("data_gen.__main__.RayCluster", OneProcess)
    run = Run(tmp_path)
    with pytest.raises(InputError, match="none of 2 problems has a pass rate"):
        sample_stage(config_of("data.cluster=ray", "data.pool=2", "data.pass_low=0.99", "data.pass_high=0.991"), run)
    assert not (run.folder / "1_sample/paths.jsonl").exists()


@pytest.mark.parametrize("kinds", [(), ("sum",)])
def test_problems_of_a_file_come_one_by_one_as_they_come_at_once(tmp_path, kinds):
    rows = [
        {"question": f"Wie groß ist {k}+1?", "answer": k + 1, "type": "sum" if k % 3 else "Übung"} for k in range(90)
    ]
    rows[10] = {**rows[3], "split": "test"}  # equal problems: the first decides
    rows[12]["split"] = "test"
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows[:50]) + "\n\n")
    with file.open("a") as handle:
        handle.writelines(json.dumps(row) + "\n" for row in rows[50:])
    source = ProblemSource(str(file), kinds=kinds)
    for split in ("train", "validation", "test"):
        for seed, count in ((0, 1000), (1, 5)):
            assert list(stream_problems(source, split, seed, count)) == load_problems(source, split, seed, count)
    with pytest.raises(InputError, match="no problem of split 'train' and kinds"):
        list(stream_problems(ProblemSource(str(file), kinds=("none",)), "train", 0, 9))


def test_a_path_without_its_problem_is_named(tmp_path, local):
    sampled = local.folder / "1_sample"
    rows = [json.loads(line) for line in (sampled / "problems_train.jsonl").open()]
    known = {json.loads(line)["problem_id"] for line in (sampled / "paths.jsonl").open()}
    lost = next(row["id"] for row in rows if row["id"] in known)
    write_rows(tmp_path / "problems.jsonl", [row for row in rows if row["id"] != lost])
    with pytest.raises(InputError, match=f"no problem '{lost}'"):
        cut_label_chunks(sampled / "paths.jsonl", tmp_path / "problems.jsonl", tmp_path / "chunks", 3)


def test_a_replica_samples_as_the_stage_does():
    engine, tokenizer, render_prompt = build_sampler(config_of(), str(PROJECT / "data_gen/base_model"))
    problem = problems({1: "a"})[0]
    assert render_prompt(problem) == TEMPLATE.ids(problem.text, tokenizer)
    assert engine.max_rows == config_of().data.max_batch_rows

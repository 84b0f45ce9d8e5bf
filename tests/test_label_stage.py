"""The label stage on a sample stage written by hand: sources, consensus, and the gate on real text."""

from __future__ import annotations

import json

import pytest
from test_architecture import PROJECT

from common.config import load_config
from common.errors import InputError
from common.models import load_tokenizer, locate
from common.records import IGNORED, FinishReason, LabelledPath, Path, Problem, Verdict
from common.runs import Run, read_records, write_rows
from data_gen.__main__ import label_stage
from data_gen.rows import label_rows
from data_gen.steps import build_path, path_from_text

PROBLEM = Problem.create("Compute 3*4-8-1.", "3", source="synthetic", topic="chain", level=3)
TEXTS = ("3*4=12\n12-8=4\n4-1=3\nAnswer: 3", "3*4=12\n12-8=4\n4-1=3\nAnswer: 3", "3*4=12\n12-8=6\n6-1=5\nAnswer: 5")


def labelled(root, paths: list[Path], problem: Problem, *overrides: str) -> tuple[list[LabelledPath], dict]:
    config = load_config(PROJECT / "configs" / "micro.yaml", list(overrides))
    run = Run(root)
    stage = run.stage("sample")
    timer = stage.begin(config)
    write_rows(stage.file("problems_train.jsonl"), [problem.to_row()])
    write_rows(stage.file("paths.jsonl"), (path.to_row() for path in paths))
    timer.finish()
    label_stage(config, run)
    done = run.stage("label")
    rows = read_records(done.file("paths.jsonl"), LabelledPath.from_row)
    return rows, json.loads(done.file("metrics.json").read_text())


@pytest.fixture(scope="module")
def sampled():
    tokenizer = load_tokenizer(locate("data_gen/base_model"))
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in TEXTS]
    return [build_path(PROBLEM, one, FinishReason.STOP, tokenizer, seed=0, index=k) for k, one in enumerate(ids)]


def test_completions_alone_and_with_support(tmp_path, sampled):
    alone, row = labelled(tmp_path / "a", sampled, PROBLEM, "data.label_sources=[monte_carlo]", "data.mc_completions=4")
    assert "summary" not in row
    assert row["settings"] == "monte_carlo:hard:linear:4"
    assert row["monte_carlo"]["cost"]["completions"] == 12  # 3 prefixes of the wrong path, the correct ones need none
    assert row["monte_carlo"]["cost"]["seconds"] > 0
    assert [one.first_error for one in alone[:2]] == [None, None]
    sources = "data.label_sources=[frequency,monte_carlo]"
    both, row = labelled(tmp_path / "b", sampled, PROBLEM, sources, "data.mc_completions=4")
    assert row["consensus"]["agreed_steps"] == sum(label != IGNORED for one in both for label in one.labels)
    by_support = (1, 0, 0)
    by_completions = {one.path.path_id: one.labels for one in alone}
    for one in both:
        wanted = by_support if one.path.verdict is Verdict.WRONG else (1, 1, 1)
        pairs = zip(wanted, by_completions[one.path.path_id], strict=True)
        assert one.labels == tuple(a if a == b else IGNORED for a, b in pairs)


def real(*texts: str) -> tuple[Problem, list[Path]]:
    problem = Problem.create("Ann has 3 bags of 4 and eats 8. How many?", "4", source="own", topic="file")
    return problem, [path_from_text(problem, text, k) for k, text in enumerate(texts)]


def test_support_on_real_text_is_refused_by_what_the_pool_shows(tmp_path):
    own = "data.source=own.jsonl"
    problem, paths = real("3*4=12\n12-8=4\n#### 4", "4+4=8, 8-8=0\n0+4=4\n#### 4", "3+4=7\n8-7=1\n#### 1")
    with pytest.raises(InputError, match=r"data.max_unsupported: support labels refused: .* of 4 steps"):
        labelled(tmp_path / "a", paths, problem, own)
    rows, row = labelled(tmp_path / "b", paths, problem, own, "data.max_unsupported=1")
    assert row["quality"] is None
    assert [one.first_error for one in rows] == [None, None, 0]
    assert rows[2].keys == ("value", "value")


def test_command_line_refuses_too(tmp_path, capsys):
    rows, out = tmp_path / "pools.jsonl", tmp_path / "out.jsonl"
    samples = ["2*5=10\n10+1=11\n#### 11", "5+5=10\n12-1=11\n#### 11", "2+5+9=16\n#### 16", "30/3=10\n20-9=11\n#### 11"]
    pool = {"problem": "Two bags of 5 and 1.", "answer": "11", "samples": samples}
    write_rows(rows, [pool])
    arguments = ["--input", str(rows), "--output", str(out)]
    assert label_rows(arguments) == 0
    assert [LabelledPath.from_row(json.loads(line)).first_error for line in out.open()] == [None, None, 0, None]
    write_rows(rows, [{**pool, "samples": ["2*5=10\n10+1=11\n#### 11", "5+9=14\n14-3=11\n#### 11"]}])
    out.unlink()
    assert label_rows(arguments) == 2
    assert "--max-unsupported: support labels refused" in capsys.readouterr().err
    assert not out.exists()

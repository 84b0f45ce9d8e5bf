"""``python -m data_gen.formats``: files in, files out, losses counted, one line for a bad row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from format_rows import SHEPHERD, TRL, completion, labelled_path, record, step

from common.records import Problem, Verdict
from common.runs import Run, write_rows
from data_gen.formats import convert_rows, load_steps


def convert(folder: Path, rows: list, *options: str) -> tuple[int, Path]:
    source, output = folder / "rows.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return convert_rows([*options, "--input", str(source), "--output", str(output)]), output


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_command_line_converts_and_counts(tmp_path: Path, capsys) -> None:
    rows = [record(step(completion("a", 0), completion("b", -1), chosen=0)), record(finish="bad_problem")]
    code, output = convert(tmp_path, rows, "--from", "prm800k", "--to", "trl", "--neutral", "wrong")
    assert code == 0
    assert [(row["completions"], row["labels"]) for row in read(output)] == [(["a"], [0.0]), (["b"], [0.0])]
    counts = json.loads(capsys.readouterr().out)
    assert counts == {"rows written": 2, "rows read": 2, "note: bad problem: record left out": 1}


def test_bad_row_stops_in_one_line_and_writes_nothing(tmp_path: Path, capsys) -> None:
    options = ("--from", "trl", "--to", "processbench")
    code, output = convert(tmp_path, [TRL, TRL | {"labels": [1, "no"]}], *options)
    error = capsys.readouterr().err
    assert code == 2
    assert "rows.jsonl, row 2, field 'labels', step 1: 'no', want" in error
    assert error.count("\n") == 1
    assert not output.exists()
    code, output = convert(tmp_path, [TRL, TRL | {"labels": [1, "no"]}], *options, "--bad-rows", "drop")
    assert (code, len(read(output))) == (0, 1)
    assert json.loads(capsys.readouterr().out)["bad rows dropped"] == 1


@pytest.mark.parametrize(("on_loss", "code", "kept"), [("stop", 2, None), ("drop", 0, [1]), ("keep", 0, [1, 0])])
def test_a_loss_stops_or_is_counted(tmp_path: Path, capsys, on_loss: str, code: int, kept: list | None) -> None:
    rows = [TRL, TRL | {"labels": [0.2, 1]}]
    found, output = convert(tmp_path, rows, "--from", "trl", "--to", "processbench", "--on-loss", on_loss)
    assert found == code
    shown = capsys.readouterr()
    if kept is None:
        assert "row 2: processbench would lose soft labels and labels other than 0 behind" in shown.err
    else:
        assert [row["label"] for row in read(output)] == kept
        assert json.loads(shown.out)["lost: soft labels"] == 1


def test_simplerl_list_becomes_problems(tmp_path: Path, capsys) -> None:
    source, output = tmp_path / "problems.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps([{"input": "What is 1 + 1?", "gt_answer": "2"}], indent=1))
    options = ["--input", str(source), "--output", str(output)]
    assert convert_rows(["--from", "simplerl", "--to", "problems", *options]) == 0
    assert [(row["text"], row["answer"]) for row in read(output)] == [("What is 1 + 1?", "2")]
    assert convert_rows(["--from", "simplerl", "--to", "trl", *options]) == 2
    assert "gives problems and nothing else" in capsys.readouterr().err


def test_nothing_left_and_missing_files_are_errors(tmp_path: Path, capsys) -> None:
    code, output = convert(tmp_path, [record(finish="bad_problem")], "--from", "prm800k", "--to", "trl")
    assert (code, output.exists()) == (2, False)
    assert "no row is left to write" in capsys.readouterr().err
    missing = ["--input", str(tmp_path / "none"), "--output", str(output)]
    assert convert_rows(["--from", "trl", "--to", "trl", *missing]) == 2
    assert convert_rows(["--from", "run", "--to", "trl", *missing]) == 2
    assert "not finished; run: make data" in capsys.readouterr().err


def test_labelled_paths_of_a_run_are_exported(tmp_path: Path, capsys) -> None:
    run = Run(tmp_path / "run")
    problem = Problem("p", "What?", "4", "s", "t")
    paths = [labelled_path((1, 0), Verdict.WRONG), labelled_path((), Verdict.WRONG)]
    for name, file, records in (("sample", "problems_train.jsonl", [problem]), ("label", "paths.jsonl", paths)):
        run.stage(name).path.mkdir(parents=True)
        write_rows(run.stage(name).file(file), [one.to_row() for one in records])
        run.stage(name).file("DONE").write_text("{}")
    output = tmp_path / "out.jsonl"
    options = ["--from", "run", "--to", "trl", "--input", str(run.root), "--output", str(output)]
    assert convert_rows(options) == 0
    assert [(row["prompt"], row["completions"], row["labels"]) for row in read(output)] == [
        ("What?", ["a", "b"], [1, 0])
    ]
    assert json.loads(capsys.readouterr().out)["note: path without a step left out"] == 1
    write_rows(run.stage("sample").file("problems_train.jsonl"), [])
    assert convert_rows(options) == 2
    assert "path path-1: no problem p in the run" in capsys.readouterr().err


def test_load_steps_counts(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(SHEPHERD) + "\n")
    rows, counts = load_steps(source, "math_shepherd")
    assert [one.first_error for one in rows] == [1]
    assert counts == {"rows read": 1}

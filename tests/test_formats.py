"""PRM data in and out: what each format keeps, what it loses, and the public faults of such data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.records import IGNORED, FinishReason, LabelledPath, Problem, Step, Verdict
from common.records import Path as SampledPath
from common.runs import Run, write_rows
from data_gen.formats import convert_rows, load_steps, read_simplerl
from data_gen.math_shepherd import read_math_shepherd, write_math_shepherd
from data_gen.prm800k import read_prm800k
from data_gen.stepwise import (
    LabelledSteps,
    from_labelled_path,
    read_processbench,
    read_trl,
    write_processbench,
    write_trl,
)

TRL = {"prompt": "What is 2 + 3 * 4?", "completions": ["3 * 4 = 12", "2 + 12 = 15"], "labels": [True, False]}
SHEPHERD = {
    "input": "What is 2 + 3 * 4? Step 1: 3 * 4 = <<3*4=12>>12. ки\nStep 2: 2 + 12 = 15. The answer is: 15 ки",
    "label": "What is 2 + 3 * 4? Step 1: 3 * 4 = <<3*4=12>>12. +\nStep 2: 2 + 12 = 15. The answer is: 15 -",
    "task": "GSM8K",
}
BENCH = {
    "id": "math-7",
    "generator": "some-model",
    "problem": "What is 2 + 3 * 4?",
    "steps": ["3 * 4 = 12", "2 + 12 = 15", "The answer is 15."],
    "final_answer_correct": False,
    "label": 1,
}


def completion(text: str, rating: int | None, flagged: bool | None = None) -> dict:
    return {"text": text, "rating": rating, "flagged": flagged}


def step(*completions: dict, chosen: int | None = None, human: str | None = None) -> dict:
    written = None if human is None else {"text": human, "rating": None, "source": "human", "flagged": False}
    return {"completions": list(completions), "human_completion": written, "chosen_completion": chosen}


def record(*steps: dict, finish: str = "solution") -> dict:
    question = {"problem": "What is 2 + 3 * 4?", "ground_truth_answer": "14"}
    return {
        "labeler": "someone",
        "generation": None,
        "question": question,
        "label": {"steps": list(steps), "finish_reason": finish},
    }


def only(converted):
    """The one row of a conversion that noted and lost nothing."""
    assert (converted.notes, converted.lost) == ((), ())
    (row,) = converted.rows
    return row


def taken(row: dict, **options) -> LabelledSteps:
    return read_prm800k(row, **({"neutral": "right"} | options)).rows[0]


# --- one record


def test_bool_int_and_float_labels_become_floats_and_ignored_stays() -> None:
    one = LabelledSteps("p", ("a", "b", "c", "d", "e"), (True, 0, 0.9, IGNORED, False))
    assert one.labels == (1.0, 0.0, 0.9, -100.0, 0.0)
    assert {type(label) for label in one.labels} == {float}


@pytest.mark.parametrize(
    ("labels", "first"),
    [((1, 0, 1), 1), ((1, IGNORED, 0.4), 2), ((1, 0.5, IGNORED), None), ((0, 0), 0), (None, None)],
)
def test_first_error_is_the_first_known_label_below_one_half(labels, first) -> None:
    steps = ("a", "b", "c")[: len(labels or "abc")]
    assert LabelledSteps("p", steps, labels).first_error == first


@pytest.mark.parametrize("label", [2, -1, float("nan"), None, "+", -99.5])
def test_a_label_outside_its_range_is_named(label) -> None:
    with pytest.raises(ValueError, match=r"'labels', step 1: .*want true, false, a number from 0 to 1, or -100"):
        read_trl(TRL | {"labels": [1, label]})


# --- TRL


@pytest.mark.parametrize("labels", [[True, False], [1, 0], [0.9, 0.25], [1, -100], None])
def test_trl_round_trip_is_exact(labels) -> None:
    row = TRL | {"labels": labels, "id": 3}
    assert only(write_trl(only(read_trl(row)))) == row


def test_trl_0_9_is_not_0() -> None:
    """TRL up to 1.13 documented float labels and took int() of them."""
    assert only(read_trl(TRL | {"labels": [0.9, 0.2]})).labels == (0.9, 0.2)


def test_L61_trl2127_ignored_labels_are_not_cast_to_true() -> None:
    written = only(write_trl(only(read_trl(TRL | {"labels": [-100, True]}))))
    assert json.loads(json.dumps(written))["labels"] == [-100, 1]
    assert not any(isinstance(label, bool) for label in written["labels"])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_L65_labels_and_steps_differ_in_number(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} labels for 2 steps"):
        read_trl(TRL | {"labels": [1] * count})


def test_L66_PURE20_an_empty_step_is_refused() -> None:
    for text in ("", "\n\n", " "):
        with pytest.raises(ValueError, match=r"step 1 is .* not blank"):
            read_trl(TRL | {"completions": ["3 * 4 = 12", text]})


def test_missing_labels_are_not_taken_for_unlabelled() -> None:
    with pytest.raises(ValueError, match=r"'labels': missing \(the row has completions, label, prompt\)"):
        read_trl({"prompt": "p", "completions": ["a"], "label": [1]})


# --- ProcessBench


@pytest.mark.parametrize("label", [-1, 0, 1, 2])
def test_processbench_round_trip_is_exact(label: int) -> None:
    row = BENCH | {"label": label}
    assert only(write_processbench(only(read_processbench(row)))) == row


def test_L68_steps_behind_the_first_error_are_not_judged() -> None:
    assert only(read_processbench(BENCH | {"label": 0})).labels == (0.0, IGNORED, IGNORED)
    assert only(read_processbench(BENCH)).labels == (1.0, 0.0, IGNORED)
    assert only(read_processbench(BENCH | {"label": 2})).labels == (1.0, 1.0, 0.0)
    assert only(read_processbench(BENCH | {"label": -1})).labels == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("label", [3, -2, True, 1.0, None, "1"])
def test_processbench_label_must_point_at_a_step(label) -> None:
    with pytest.raises(ValueError, match="'label'"):
        read_processbench(BENCH | {"label": label})


def test_processbench_says_what_it_loses() -> None:
    soft = write_processbench(LabelledSteps("p", ("a", "b"), (0.9, 0.2)))
    assert (soft.rows[0]["label"], soft.lost) == (1, ("soft labels",))
    later = write_processbench(LabelledSteps("p", ("a", "b", "c"), (0, 1, 0)))
    assert later.lost == ("labels other than 0 behind the first error",)
    negative = write_processbench(LabelledSteps("p", ("a", "b"), (0, 0)))
    assert (negative.lost, negative.notes) == ((), ("labels 0 behind the first error are not written",))
    for labels in ((1, IGNORED), (IGNORED, 0)):
        with pytest.raises(ValueError, match="first wrong step is not known"):
            write_processbench(LabelledSteps("p", ("a", "b"), labels))
    with pytest.raises(ValueError, match="nothing to write"):
        write_processbench(LabelledSteps("p", ("a", "b")))


def test_a_field_that_would_be_overwritten_is_refused() -> None:
    with pytest.raises(ValueError, match="field 'label' of the row means something else"):
        write_processbench(only(read_trl(TRL | {"label": "x"})))


# --- Math-Shepherd


def test_math_shepherd_by_hand_and_round_trip() -> None:
    one = only(read_math_shepherd(SHEPHERD))
    assert one.problem == "What is 2 + 3 * 4?"
    assert one.steps == ("Step 1: 3 * 4 = <<3*4=12>>12.", "Step 2: 2 + 12 = 15. The answer is: 15")
    assert (one.labels, one.first_error, one.extra) == ((1.0, 0.0), 1, {"task": "GSM8K"})
    assert only(write_math_shepherd(one)) == SHEPHERD


def test_L58_L59_tags_and_signs_must_match_one_to_one() -> None:
    text = SHEPHERD["label"]
    for label, seen in (
        (text[:-1], "''"),  # the last sign is missing
        (text.replace("+\n", "ки\n").replace("15 -", "15 ки"), None),  # no sign at all: the letters are text
        (text + " +", "' \\+'"),
        (text.replace("<<3*4=12>>12", "12"), "differs from 'input'"),
        (text[:-1] + "0", "'0'"),
    ):
        with pytest.raises(ValueError, match=seen or "no step tag"):
            read_math_shepherd(SHEPHERD | {"label": label})


def test_openr25_spaces_around_the_tag_hide_nothing() -> None:
    row = {"input": "Q? Step 1: aки\n\n  Step 2: b   ки ", "label": "Q? Step 1: a+\n\n  Step 2: b   - "}
    one = only(read_math_shepherd(row))
    assert (one.problem, one.steps, one.labels) == ("Q?", ("Step 1: a", "Step 2: b"), (1.0, 0.0))


def test_L62_letters_of_the_tag_in_a_text_are_no_tag() -> None:
    """The label repeats letters that are text; a look-alike in Latin letters is no tag either."""
    row = {"input": "В руки? Step 1: руки kи ки", "label": "В руки? Step 1: руки kи +"}
    one = only(read_math_shepherd(row))
    assert (one.problem, one.steps, one.labels) == ("В руки?", ("Step 1: руки kи",), (1.0,))
    with pytest.raises(ValueError, match="holds the step tag"):
        write_math_shepherd(one)
    with pytest.raises(ValueError, match="differs from 'input'"):
        read_math_shepherd({"input": "Q? Step 1: a kи", "label": "Q? Step 1: a +"})


def test_tag_inside_the_problem_is_taken_out_with_its_label() -> None:
    """Annotation errors of the published rows, e.g. the one about Mr. Rocky."""
    row = {
        "input": "He runs. ки\nHow far? Step 1: a ки\nStep 2: b ки",
        "label": "He runs. -\nHow far? Step 1: a +\nStep 2: b -",
    }
    converted = read_math_shepherd(row)
    assert converted.notes == ("step tag inside the problem: taken out with its label",)
    (one,) = converted.rows
    assert (one.problem, one.steps, one.labels) == ("He runs. How far?", ("Step 1: a", "Step 2: b"), (1.0, 0.0))


def test_solution_without_step_1_begins_behind_the_question() -> None:
    row = {"input": "Is it? So: a ки\nStep 2: as in step 1: b ки", "label": "Is it? So: a +\nStep 2: as in step 1: b -"}
    converted = read_math_shepherd(row)
    assert converted.notes == ("no 'Step 1:': the problem ends at its last question mark",)
    assert (converted.rows[0].problem, converted.rows[0].steps) == ("Is it?", ("So: a", "Step 2: as in step 1: b"))
    with pytest.raises(ValueError, match="where do the steps begin"):
        read_math_shepherd({"input": "Tell me. a ки", "label": "Tell me. a +"})


def test_L62_text_behind_the_last_tag_becomes_a_step_without_label() -> None:
    cut = read_math_shepherd({"input": "Q? Step 1: a ки\nStep 2: b", "label": "Q? Step 1: a +\nStep 2: b"})
    assert (cut.rows[0].labels, len(cut.notes)) == ((1.0, IGNORED), 1)
    again = write_math_shepherd(cut.rows[0])
    assert again.lost == ("steps behind the last label",)
    assert again.rows[0]["input"] == "Q? Step 1: a ки"


def test_math_shepherd_says_what_it_loses() -> None:
    one = LabelledSteps("Q", (" a", "b", "c"), (0.9, 0.4, IGNORED))
    written = write_math_shepherd(one)
    assert written.lost == ("soft labels", "steps behind the last label", "white space around a text")
    assert written.notes == ("step numbers were added",)
    assert written.rows[0] == {"input": "Q Step 1: a ки\nStep 2: b ки", "label": "Q Step 1: a +\nStep 2: b -"}
    with pytest.raises(ValueError, match="step 0 has no label, but a later step has"):
        write_math_shepherd(LabelledSteps("Q", ("a", "b"), (IGNORED, 1)))
    with pytest.raises(ValueError, match="would not read back"):
        write_math_shepherd(LabelledSteps("Q", ("Step 1: so Step 1: is", "b"), (1, 1)))


# --- PRM800K


def test_prm800k_path_and_alternatives_by_hand() -> None:
    row = record(
        step(completion("a", 1), chosen=0),
        step(completion("b", -1), completion("c", 0), completion("d", 1), chosen=2),
        step(completion("e\n\n# Answer\n\n14", 1), chosen=0),
    )
    converted = read_prm800k(row, neutral="right")
    assert [(one.steps, one.labels, one.extra["path"]) for one in converted.rows] == [
        (("a", "d", "e\n\n# Answer\n\n14"), (1.0, 1.0, 1.0), "taken"),
        (("a", "b"), (1.0, 0.0), "alternative"),
        (("a", "c"), (1.0, 1.0), "alternative"),
    ]
    assert converted.rows[0].extra["answer"] == "14"
    assert len(read_prm800k(row, neutral="right", alternatives=False).rows) == 1


@pytest.mark.parametrize(("neutral", "label"), [("right", 1.0), ("wrong", 0.0), ("ignore", IGNORED)])
def test_prm800k_neutral_policy_is_explicit(neutral: str, label: float) -> None:
    assert taken(record(step(completion("a", 0), chosen=0)), neutral=neutral).labels == (label,)
    with pytest.raises(TypeError, match="neutral"):
        read_prm800k(record(step(completion("a", 0), chosen=0)))


def test_prm800k_a_step_of_the_labeler_goes_on() -> None:
    row = record(step(completion("b", -1), human="mine"), step(completion("c", 1), chosen=0))
    rows = read_prm800k(row, neutral="right").rows
    assert [(one.steps, one.labels) for one in rows] == [(("mine", "c"), (1.0, 1.0)), (("b",), (0.0,))]


def test_prm800k_found_error_ends_with_the_models_own_step() -> None:
    row = record(
        step(completion("a", 1), chosen=0), step(completion("b", -1), completion("c", 1)), finish="found_error"
    )
    converted = read_prm800k(row, neutral="right")
    assert [(one.steps, one.first_error) for one in converted.rows] == [(("a", "b"), 1), (("a", "c"), None)]
    assert converted.notes == ()


def test_prm800k_given_up_records_end_at_the_null_step() -> None:
    null = {"completions": None, "human_completion": None, "chosen_completion": None}
    converted = read_prm800k(record(step(completion("a", 1), chosen=0), null, finish="give_up"), neutral="right")
    assert [one.steps for one in converted.rows] == [("a",)]
    assert converted.notes == (
        "labeler gave up: rated steps kept",
        "step without completion: the path ends before it",
    )


def test_prm800k_a_bad_problem_gives_no_row_and_is_counted() -> None:
    converted = read_prm800k(record(step(completion("a", 1), chosen=0), finish="bad_problem"), neutral="right")
    assert (converted.rows, converted.notes) == ((), ("bad problem: record left out",))


def test_prm800k_unrated_completions_are_ignored_and_counted() -> None:
    row = record(step(completion("a", None), completion("b", None, flagged=True), chosen=0))
    converted = read_prm800k(row, neutral="right")
    assert [one.labels for one in converted.rows] == [(IGNORED,)]
    assert sorted(converted.notes) == [
        "alternative that is blank or has no label left out",
        "flagged completion: rating kept",
        "unrated completion: label ignored",
        "unrated completion: label ignored",
    ]


def test_prm800k_7_11_no_rating_reaches_the_text() -> None:
    row = record(step(completion("a", -1), completion("b", 1), chosen=1), step(completion("c", 0), chosen=0))
    for one in read_prm800k(row, neutral="right").rows:
        assert set(one.steps) <= {"a", "b", "c"}
        assert one.problem == "What is 2 + 3 * 4?"


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        (record(step(completion("a", 2), chosen=0)), "'rating', step 0, completion 0: 2"),
        (record(step(completion("a", 1), chosen=1)), "'chosen_completion', step 0: 1"),
        (record(step(completion("a", 1), chosen=0), finish="done"), "'finish_reason': 'done'"),
        ({"question": {"problem": "p"}}, "'label': missing"),
    ],
)
def test_prm800k_bad_records_name_field_and_value(row: dict, seen: str) -> None:
    with pytest.raises(ValueError, match=seen):
        read_prm800k(row, neutral="right")


# --- SimpleRL, runs


def test_simplerl_problems() -> None:
    chat = "<|im_start|>system\nBox it.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant"
    row = {"input": chat, "answer": "4", "gt_answer": "4", "subject": "Algebra", "level": 5, "target": "4"}
    converted = read_simplerl(row, source="s.json")
    assert converted.rows == (Problem.create("What is 2 + 2?", "4", source="s.json", topic="Algebra"),)
    assert converted.rows[0].level is None  # difficulty is no number of steps
    assert converted.notes == ("field 'level' is not kept", "chat template taken off 'input'")
    asked = read_simplerl({"input": chat, "question": "Two?", "gt_answer": 4}, source="s").rows[0]
    assert (asked.text, asked.answer) == ("Two?", "4")


def test_L70_simplerl_gold_is_gt_answer_and_a_difference_is_counted() -> None:
    converted = read_simplerl({"input": "Q", "answer": "so $x=8$, hence 64", "gt_answer": "64"}, source="s")
    assert converted.rows[0].answer == "64"
    assert converted.notes == ("gold answers differ: 'gt_answer' kept",)
    with pytest.raises(ValueError, match="no gold answer"):
        read_simplerl({"input": "Q", "gt_answer": ""}, source="s")


def labelled_path(labels: tuple[int, ...], verdict: Verdict) -> LabelledPath:
    text = "\n".join("abc"[: len(labels)])
    steps = tuple(Step(text[2 * k], 2 * k, 2 * k + 1) for k in range(len(labels)))
    path = SampledPath("p", "path-1", text, (), steps, "5", verdict, FinishReason.STOP)
    return LabelledPath(path, labels, None, (0,) * len(labels), ("value",) * len(labels), "frequency:forward")


def test_paths_of_a_run_reach_every_format() -> None:
    problem = Problem("p", "What?", "4", "s", "t")
    one = from_labelled_path(labelled_path((1, 0, 0), Verdict.WRONG), problem)
    bench = write_processbench(one)
    assert (bench.rows[0]["label"], bench.rows[0]["final_answer_correct"], bench.rows[0]["id"]) == (1, False, "path-1")
    assert write_trl(one).rows[0]["completions"] == ["a", "b", "c"]
    assert write_math_shepherd(one).rows[0]["label"] == "What? Step 1: a +\nStep 2: b -\nStep 3: c -"
    assert "final_answer_correct" not in from_labelled_path(labelled_path((1,), Verdict.TIMEOUT), problem).extra


# --- command line


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

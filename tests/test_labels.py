"""Step keys and labels against pools labelled by hand, and against the exact oracle on generated pools."""

from __future__ import annotations

import json
import random

import pytest

from common.records import IGNORED, FinishReason, LabelledPath, Path, Problem, Verdict, content_id
from data_gen.label_quality import QualityCounts, count_quality, label_quality
from data_gen.labels import (
    LabelSettings,
    can_be_labelled,
    first_error_by_rule,
    label_paths,
    labels_from_first_error,
    merged,
)
from data_gen.rows import label_rows
from data_gen.step_keys import falsehoods, step_key
from data_gen.steps import cut_steps
from data_gen.support import states
from data_gen.synthetic import completion, generate, judge, solve

PLAIN = LabelSettings(sources=("frequency",))


def path(
    steps: str, verdict: Verdict = Verdict.CORRECT, *, problem: str = "p", name: str = "", cut: bool = False
) -> Path:
    """A path from steps divided by semicolons."""
    text = "\n".join(steps.split(";")) if steps else ""
    reason = FinishReason.LENGTH if cut else FinishReason.STOP
    return Path(
        problem, content_id(problem, name or text, verdict), text, (), tuple(cut_steps(text)), None, verdict, reason
    )


GOOD = "3*4=12;8-12=-4"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("3*4=12", "4 * 3 = 12", True),
        ("3*4=12", "3\\times 4=12.", True),
        ("3+5=8", "5+3=8", True),
        ("8-3=5", "3-8=5", False),
        ("3*4=12", "2*6=12", False),
        ("2n+6=-6", "2n + 6 = -6", True),
        ("So he has 12 apples.", "In total there are 12.", True),
        ("So he has 12 apples.", "So he has 13 apples.", False),
        ("1,200 + 3 = 1203", "1200+3=1203", True),
    ],
)
def test_keys_are_equal_when_steps_claim_the_same(one, other, same):
    assert (step_key(one).key == step_key(other).key) is same
    assert step_key(one).kind == step_key(other).kind


def test_kinds_of_keys():
    assert step_key("3*4=12").kind == "equation"
    assert step_key("Adding gives 12.").kind == "value"
    assert step_key("Let x be the number of apples.").kind == "none"


@pytest.mark.parametrize(
    ("text", "is_false"),
    [
        ("3*4=12", False),
        ("3*4=13", True),
        ("-4+9=5", False),
        ("1/2+1/3=2/5", True),
        ("1/2+1/3=3/6+2/6", False),
        ("8=1*8+0", False),
        ("2n+6=-6", False),
        ("6(n+1)=6n+6", False),
        ("1/2:3/4=1/2*4/3", False),
        ("10/3 = 3.33", False),
        ("10/3 = 3.43", True),
        ("20% of 50 = 10", False),
        ("In total that is 48+24 = 72 clips.", False),
        ("In total that is 48+24 = 73 clips.", True),
        ("He sold 48/2 = <<48/2=24>>24 clips.", False),
        ("He sold 48/2 = <<48/2=25>>25 clips.", True),
        ("$3 \\times 4 = 12$", False),
        ("$3 \\times 4 = 14$", True),
        ("2 + 3 = 5 = 6", True),
        ("x = 2*3 = 6", False),
        ("3 = 5 (mod 2)", False),
        ("1,000 + 1 = 1,001", False),
        ("5 = 5x - 10", False),
    ],
)
def test_false_numeric_equations(text, is_false):
    assert step_key(text).is_false is is_false


def test_states_forget_order_and_keep_counts():
    keys = [step_key(text) for text in ("1+1=2", "2+2=4", "Let us see.", "1+1=2")]
    other = [step_key(text) for text in ("2+2=4", "1+1=2", "3+3=6")]
    assert states(keys)[0] == frozenset()
    assert states(keys)[2] == states(other)[2] == states(keys)[3]
    assert dict(states([*keys, keys[0]])[4])["=".join(["(1+1)", "2"])] == 2


@pytest.mark.parametrize(
    ("unsupported", "forward", "backward"),
    [
        ([0, 0, 0], None, 2),
        ([0, 1, 0], 1, 2),
        ([0, 1, 1], 1, 1),
        ([1, 0, 1], 0, 2),
        ([1, 1, 1], 0, 0),
        ([], None, None),
    ],
)
def test_rules(unsupported, forward, backward):
    assert first_error_by_rule(list(map(bool, unsupported)), "forward") == forward
    assert first_error_by_rule(list(map(bool, unsupported)), "backward") == backward


def test_l68_labels_behind_the_first_error():
    assert labels_from_first_error(4, 1, "negative") == (1, 0, 0, 0)
    assert labels_from_first_error(4, 1, "ignore") == (1, 0, IGNORED, IGNORED)
    assert labels_from_first_error(2, None, "negative") == (1, 1)
    assert labels_from_first_error(2, 0, "negative") == (0, 0)


def test_a_wrong_path_is_wrong_from_its_first_unsupported_step():
    paths = [path(GOOD), path(GOOD, name="b"), path("3*4=12;8-12=4;4+1=5", Verdict.WRONG)]
    labelled, summary = label_paths(paths, PLAIN)
    assert [row.labels for row in labelled] == [(1, 1), (1, 1), (1, 0, 0)]
    assert [row.first_error for row in labelled] == [None, None, 1]
    assert labelled[0].support == (1, 1)
    assert labelled[2].support == (2, 0, 0)
    assert labelled[2].keys == ("state+equation", "state+equation", "equation")
    assert labelled[2].source == "frequency:forward"
    assert summary.coverage == 1.0
    assert summary.unsupported_in_correct == 0.0
    assert summary.steps == {"1": 5, "0": 2}


def test_right_arithmetic_at_the_wrong_place_is_not_supported():
    """5+1=6 is a step of the right solution, but not from the start."""
    right = "2*3=6;6-1=5;5+1=6"
    labelled, _ = label_paths([path(right), path(right, name="b"), path("5+1=6;6-1=5", Verdict.WRONG)], PLAIN)
    assert labelled[2].labels == (0, 0)
    assert labelled[2].support[0] == 0


def test_an_equation_is_looked_up_alone_where_no_correct_path_has_been():
    labelled, _ = label_paths([path("1+1=2;2+2=4;4+4=8"), path("9+9=18;2+2=4", Verdict.WRONG)], LabelSettings())
    assert labelled[1].support == (0, 1)
    assert labelled[1].keys == ("state+equation", "equation")


def test_min_support_asks_for_more_paths():
    paths = [path(GOOD), path("8-12=-4", name="x"), path("3*4=12;8-12=4", Verdict.WRONG)]
    zero = label_paths(paths, PLAIN)[0][2]
    one = label_paths(paths, LabelSettings(sources=("frequency",), min_support=1))[0][2]
    assert zero.first_error == 1
    assert one.first_error == 0


def test_a_correct_path_that_hides_a_wrong_step_does_not_vouch_for_it():
    """Three correct paths go on with 5+5=10, one with 5*2=10 (no such step follows): it is 1 of 4 from that state."""
    paths = [path("2+3=5;5+5=10", name=str(k)) for k in range(3)]
    paths += [path("2+3=5;5*2=10"), path("2+3=5;5*2=10;10+1=11", Verdict.WRONG)]
    assert label_paths(paths, PLAIN)[0][4].labels == (1, 0, 0)
    assert label_paths(paths, PLAIN)[0][3].labels == (1, 1)  # itself stays right: frequency lowers no correct path
    loose = LabelSettings(sources=("frequency",), min_share=0.25)
    assert label_paths(paths, loose)[0][4].first_error == 2


@pytest.mark.parametrize(
    ("steps", "refuted"),
    [
        ("6x-30+13=4x-29;6x-17=4x-29;2x-17=-29;2x=-12;x=-6", [0, 0, 0, 0, 0]),
        ("6x-30+13=4x-29;6x-7=4x-29;x=-11", [0, 1, 0]),
        ("2x=6;y=4;x=4", [0, 0, 1]),
        ("x^2=4;x=2;x=-2", [0, 0, 0]),
        ("x+y=3;x=2", [0, 0]),
        ("2x=2x+1;x=1", [0, 0]),
        ("3*4=13;x=1", [1, 0]),
        ("So x is 3.;2x=8", [0, 0]),
    ],
)
def test_exact_algebra_refutes_a_linear_equation_with_another_solution(steps, refuted):
    assert falsehoods([step_key(text) for text in steps.split(";")]) == list(map(bool, refuted))


def test_frequency_never_lowers_a_correct_path():
    labelled, summary = label_paths([path("1*1=1"), path("2*2=4"), path("Let x be 3;x=3")], PLAIN)
    assert all(row.labels == (1,) * len(row.path.steps) and row.first_error is None for row in labelled)
    assert summary.unsupported_in_correct == 1.0


def test_a_step_without_a_number_claims_nothing():
    paths = [path("So 5+1 is 6"), path("Let us begin;so it is 7", Verdict.WRONG)]
    row = label_paths(paths, PLAIN)[0][1]
    assert row.labels == (1, 0)
    assert row.keys == ("none", "value")


def test_arithmetic_finds_a_false_equation_whatever_its_support():
    wrong = "2+2=5;5+1=6"
    paths = [path("2+2=4;4+1=5"), path(wrong, name="lucky"), path("2+2=5;5+2=7", Verdict.WRONG)]
    by_frequency = label_paths(paths, PLAIN)[0]
    assert by_frequency[2].first_error == 1
    both, _ = label_paths(paths, LabelSettings())
    assert both[2].first_error == 0
    assert both[2].keys[0] == "arithmetic"
    assert both[1].labels == (0, 0)  # a correct answer by two errors
    assert label_paths(paths, LabelSettings(false_in_correct="keep"))[0][1].labels == (1, 1)
    dropped, summary = label_paths(paths, LabelSettings(false_in_correct="drop"))
    assert len(dropped) == 2
    assert summary.left_out == {"false_equation_in_correct": 1}


def test_what_is_not_labelled_is_counted():
    paths = [
        path(GOOD, problem="a"),
        path(GOOD, Verdict.UNPARSED, problem="a"),
        path(GOOD, Verdict.TIMEOUT, problem="a"),
        path(GOOD, Verdict.TOO_LONG, problem="a"),
        path(GOOD, Verdict.NO_GOLD, problem="a"),
        path(GOOD, Verdict.WRONG, problem="a", cut=True),
        path(GOOD, Verdict.WRONG, problem="a"),
        path("", problem="a"),
        path("1+1=3", Verdict.WRONG, problem="b"),
    ]
    labelled, summary = label_paths(paths)
    assert [row.path.path_id for row in labelled] == [paths[0].path_id]
    assert summary.left_out == {
        "NO_GOLD": 1,
        "TIMEOUT": 1,
        "TOO_LONG": 1,
        "UNPARSED": 1,
        "no_correct_path": 1,
        "no_error_found": 1,
        "no_steps": 1,
        "truncated": 1,
    }
    assert (summary.problems, summary.problems_without_correct) == (2, 1)
    assert summary.coverage == pytest.approx(1 / 4)
    assert label_paths([])[0] == []


def test_problems_lend_each_other_no_support():
    paths = [path(GOOD, problem="a"), path("1+1=2", problem="b"), path(GOOD, Verdict.WRONG, problem="b")]
    assert label_paths(paths, PLAIN)[0][2].first_error == 0


def test_quality_by_hand():
    def row(labels: tuple[int, ...], verdict: Verdict) -> LabelledPath:
        owner = path(";".join(f"{k}+0={k}" for k in range(len(labels))), verdict, name=str(labels))
        error = labels.index(0) if 0 in labels else None
        return LabelledPath(owner, labels, error, (0,) * len(labels), ("equation",) * len(labels), "test")

    rows = [
        row((1, 0, 0), Verdict.WRONG),  # truth 1: exact
        row((0, 0, 0), Verdict.WRONG),  # truth 2: two steps too early
        row((1, 1), Verdict.CORRECT),  # truth 1: hidden
        row((1, 0, IGNORED), Verdict.WRONG),  # truth 1: exact, the last step counts nowhere
    ]
    quality = label_quality(rows, [1, 2, 1, 1])
    assert quality["first_error_exact"] == pytest.approx(2 / 3)
    assert quality["negative_precision"] == pytest.approx(4 / 6)
    assert quality["negative_recall"] == pytest.approx(4 / 5)
    assert quality["label_accuracy"] == pytest.approx(7 / 10)
    assert quality["hidden_wrong_in_correct"] == 1.0
    with pytest.raises(ValueError, match="shorter"):
        label_quality(rows, [1])


def generated_pool(count: int, paths_a_problem: int, levels: range) -> tuple[list[Path], list[int | None]]:
    paths, truth = [], []
    for problem in generate("train", 3, count, levels=levels):
        rng = random.Random(problem.id)
        for index in range(paths_a_problem):
            solution = solve(problem.text, rng)
            text = completion(solution).rsplit("\n", 1)[0]
            verdict = Verdict.CORRECT if solution.answer == problem.answer else Verdict.WRONG
            steps = tuple(cut_steps(text))
            identity = content_id(problem.id, index)
            paths.append(Path(problem.id, identity, text, (), steps, solution.answer, verdict, FinishReason.STOP))
            truth.append(judge(problem.text, [step.text for step in steps]).first_error)
    return paths, truth


def test_parts_add_up_to_the_whole():
    paths, truth = generated_pool(12, 5, range(5, 9))
    paths.append(path("", problem="z"))  # an empty path and a cut one: left out, for two reasons
    paths.append(path(GOOD, problem="z", cut=True))
    paths += [path(GOOD, problem="y"), path("2*6=12;8-12=-4", problem="y")]  # neither supports the other's first step
    whole_rows, whole = label_paths(paths)
    names = list(dict.fromkeys(one.problem_id for one in paths))
    groups = [[one for one in paths if one.problem_id in names[start : start + 5]] for start in range(0, len(names), 5)]
    found = [label_paths(group) for group in groups]
    judged = sum(can_be_labelled(one) for one in paths)
    assert merged([summary for _, summary in found], judged) == whole
    assert 0 < whole.unsupported_in_correct < 1
    assert [row for rows, _ in found for row in rows] == whole_rows
    errors = {one.path_id: error for one, error in zip(paths, truth, strict=False)}
    counts = [count_quality(rows, [errors.get(row.path.path_id) for row in rows]) for rows, _ in found]
    total = sum(counts, QualityCounts())
    assert total == count_quality(whole_rows, [errors.get(row.path.path_id) for row in whole_rows])
    assert all(count.paths for count in counts)


def test_labels_of_generated_pools_against_the_oracle():
    paths, truth = generated_pool(60, 16, range(4, 9))
    true_error = {p.path_id: error for p, error in zip(paths, truth, strict=True)}
    rights: dict[str, int] = {}
    for p in paths:
        rights[p.problem_id] = rights.get(p.problem_id, 0) + (p.verdict is Verdict.CORRECT)
    band = [p for p in paths if 3 <= rights[p.problem_id] <= 13]
    labelled, summary = label_paths(band)
    quality = label_quality(labelled, [true_error[row.path.path_id] for row in labelled])
    assert quality["first_error_exact"] > 0.95
    assert quality["negative_precision"] > 0.95  # harsher than the base's own paths (0.998, LOG.md): no habit is rare
    assert quality["negative_recall"] > 0.95
    assert summary.coverage > 0.9
    plain = label_paths(band, PLAIN)[0]
    assert label_quality(plain, [true_error[row.path.path_id] for row in plain])["label_accuracy"] > 0.93


def test_unknown_sources_are_refused():
    with pytest.raises(ValueError, match="'frequency'"):
        LabelSettings(sources=("magic",))


def test_command_line(tmp_path, capsys):
    rows, out = tmp_path / "pools.jsonl", tmp_path / "out.jsonl"
    pool = {"problem": "3*4+1", "answer": "13", "samples": ["3*4=12\n12+1=13\n#### 13", "3*4=11\n11+1=12\n#### 12"]}
    rows.write_text(json.dumps(pool) + "\n")
    assert label_rows(["--input", str(rows), "--output", str(out), "--rule", "forward"]) == 0
    labelled = [LabelledPath.from_row(json.loads(line)) for line in out.read_text().splitlines()]
    assert [row.labels for row in labelled] == [(1, 1), (0, 0)]
    assert json.loads(capsys.readouterr().out)["labelled"] == 2
    rows.write_text(json.dumps({"problem": "x", "samples": "y"}) + "\n")
    assert label_rows(["--input", str(rows), "--output", str(out)]) == 2
    assert "field 'samples'" in capsys.readouterr().err


def test_records_survive_a_row():
    labelled, _ = label_paths([path(GOOD), path("3*4=13", Verdict.WRONG)])
    assert [LabelledPath.from_row(json.loads(json.dumps(row.to_row()))) for row in labelled] == labelled
    assert Problem.create("a", "1", source="s", topic="t").difficulty is None

"""The answer checker: the collected cases, each rung of the ladder by hand, and the faults of public checkers."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from common.errors import InputError
from common.records import Verdict
from grading.__main__ import main
from grading.equivalence import grade, grade_batch, grade_completion, vote_key
from grading.extract import extract
from grading.normalise import clean, plain_text, split_unit
from grading.parse import ExpressionParser, ParseError, TooDeep
from grading.settings import GradingSettings
from grading.structure import parse_answer
from grading.values import TooLarge, Undefined, approximate, clearly_differ, exact, symbols

FOLDER = Path(__file__).parent / "cases"
CASES = [json.loads(line) for line in (FOLDER / "answers.jsonl").open(encoding="utf-8")]
WRITTEN = [json.loads(line) for line in (FOLDER / "answers_written.jsonl").open(encoding="utf-8")]
RIGHT, WRONG, UNPARSED = Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSED
DECLINED = {"A318"}
"""Cases whose answer the checker declines to evaluate (never counted as correct by mistake)."""


def parsed(text: str):
    return ExpressionParser(text).parse()


def test_collected_cases_are_as_expected():
    assert len(CASES) > 170
    other = {}
    for case in CASES:
        got = grade_completion(case["output"], case["gold"]).verdict is RIGHT
        if got != case["equal"]:
            other[case["id"]] = case["output"]
    assert set(other) <= DECLINED, other
    assert not list(Path.cwd().glob("PWNED*"))


def test_further_cases_and_near_misses():
    assert len(WRITTEN) > 650
    other = {c["id"] for c in WRITTEN if (grade_completion(c["output"], c["gold"]).verdict is RIGHT) != c["equal"]}
    assert other == set()
    assert not list(Path.cwd().glob("PWNED*"))


@pytest.mark.parametrize(
    ("answer", "gold", "verdict"),
    [
        ("12", "12", RIGHT),
        ("012", "12", RIGHT),
        ("-0", "0", RIGHT),
        ("13", "12", WRONG),
        ("1,000", "1000", RIGHT),
        ("3/4", "0.75", RIGHT),
        ("6/8", "3/4", RIGHT),
        ("2/3", "0.66", WRONG),
        ("2 1/2", "5/2", RIGHT),
        ("n=-6", "-6", RIGHT),
        ("n=-6", "x=-6", WRONG),
        ("\\text{odd}", "odd", RIGHT),
        ("\\cos \\angle PQR = \\frac{1}{2}", "1/2", RIGHT),
        ("3x = 12", "12", WRONG),
        ("\\frac{-1 \\pm \\sqrt{5}}{2}", "\\frac{-1-\\sqrt{5}}{2}, \\frac{-1+\\sqrt{5}}{2}", RIGHT),
        ("\\cos 60^\\circ", "1/2", RIGHT),
        ("\\cos 60", "1/2", WRONG),
        ("-37_8", "-37_{8}", RIGHT),
        ("3:15 PM", "3:15", RIGHT),
        ("3:15 PM", "3:15 a.m.", WRONG),
        ("\\$0.50", "50 cents", RIGHT),
        ("x \\ne 2", "(-\\infty,2) \\cup (2,\\infty)", RIGHT),
        ("\\begin{pmatrix} 1/3 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} \\frac{1}{3} \\\\ 2 \\end{pmatrix}", RIGHT),
        ("7", "\\triangle ABC = 3 \\nabla", Verdict.NO_GOLD),
        ("50%", "0.5", RIGHT),
        ("1/0", "1/0 ", RIGHT),
        ("1/0", "5", WRONG),
        ("(1, 2)", "(2, 1)", WRONG),
        ("1, 2", "2, 1", RIGHT),
        ("\\{1, 2, 2\\}", "\\{1, 2\\}", RIGHT),
        ("1728", "1331 and 1728", WRONG),
        ("[0, 1)", "0 \\le x < 1", RIGHT),
        ("x < 3", "(-\\infty, 3)", RIGHT),
        ("(x+1)^2", "x^2 + 2x + 1", RIGHT),
        ("(x+1)^2", "x^2 + 2x - 1", WRONG),
        ("\\sin^2 x + \\cos^2 x", "1", RIGHT),
        ("2y = x", "x - 2y = 0", RIGHT),
        ("2y = x", "x + 2y = 0", WRONG),
        ("\\sqrt{x^2}", "x", WRONG),
        ("\\text{Monday}", "monday", RIGHT),
        ("5 cm", "5 m", WRONG),
        ("5 cm", "0.05 m", RIGHT),
        ("5 cm", "5", RIGHT),
        ("\\text{(B)} 12", "B", RIGHT),
        ("B: the text", "(B)", RIGHT),
        ("B", "A", WRONG),
        ("(B), (C)", "B", WRONG),
        ("(B) 12, 13", "B", RIGHT),
        ("(B) or (C)", "B", WRONG),
        ("$\\boxed{(1, 2)}$", "(1,2)", RIGHT),
        ("7 = 9", "5 = 6", WRONG),
        ("A bird", "A", WRONG),
        (None, "5", UNPARSED),
        ("", "5", UNPARSED),
        ("(3-9", "-6", UNPARSED),
        ("none", "5", WRONG),
        ("5", "", Verdict.NO_GOLD),
        ("", "", Verdict.NO_GOLD),
        (None, "  ", Verdict.NO_GOLD),
        ("5", "((", Verdict.NO_GOLD),
        ("1" * 30_000, "1", Verdict.TOO_LONG),
        ("(" * 1500 + "1", "1", Verdict.TOO_LONG),
        ("1000000!", "5", Verdict.TOO_LONG),
    ],
)
def test_verdict(answer, gold, verdict):
    assert grade(answer, gold).verdict is verdict


def test_l06_l07_unusable_gold_is_never_right():
    for gold in ("", " ", "$$", "{", "##"):
        for answer in ("", None, "5", gold):
            assert grade(answer, gold).verdict in (Verdict.NO_GOLD, UNPARSED), (gold, answer)


def test_l05_batch_gives_one_verdict_a_row_in_order():
    texts = ["Answer: 5", "I don't know.", "Answer: 5", "", "Answer: 5"]
    grades = grade_batch([(extract(text).answer, "5") for text in texts])
    assert [result.verdict for result in grades] == [RIGHT, UNPARSED, RIGHT, UNPARSED, RIGHT]
    assert extract("Answer: 137").answer == "137"


def test_l09_all_required_answers_and_no_more():
    for answer in ("1728", "1331", "1331 and 1728 and 2197", "\\{1331\\}"):
        assert grade(answer, "1331 and 1728").verdict is WRONG
    assert grade("1728, 1331", "1331 and 1728").verdict is RIGHT
    assert grade_completion("\\boxed{5 \\text{ or } 6}", "5").verdict is WRONG


@pytest.mark.parametrize(
    ("settings", "answer", "gold", "usual", "switched"),
    [
        ({"percent": "exact"}, "50%", "50", RIGHT, WRONG),
        ({"percent": "exact"}, "50%", "0.5", RIGHT, RIGHT),
        ({"percent": "ignore"}, "50%", "0.5", RIGHT, WRONG),
        ({"percent": "ignore"}, "50%", "50", RIGHT, RIGHT),
        ({"units": "ignore"}, "5 cm", "5 m", WRONG, RIGHT),
        ({"units": "ignore"}, "500 cm", "5 m", RIGHT, WRONG),
        ({"units": "required"}, "5", "5 cm", RIGHT, WRONG),
        ({"units": "required"}, "5 cm", "5", RIGHT, WRONG),
        ({"units": "required"}, "50 mm", "5 cm", RIGHT, RIGHT),
        ({"units": "required"}, "5%", "5", RIGHT, RIGHT),
        ({"sets": "ordered"}, "1, 2", "2, 1", RIGHT, WRONG),
        ({"sets": "ordered"}, "1, 2", "1, 2.0", RIGHT, RIGHT),
        ({"sets": "ordered"}, "\\{1, 2\\}", "\\{2, 1\\}", RIGHT, RIGHT),
        ({"mixed_numbers": "product"}, "2\\frac{1}{2}", "5/2", RIGHT, WRONG),
        ({"mixed_numbers": "product"}, "2\\frac{1}{2}", "1", WRONG, RIGHT),
        ({"rounding_digits": 3}, "0.333", "1/3", WRONG, RIGHT),
        ({"rounding_digits": 3}, "0.33", "1/3", WRONG, WRONG),
        ({"rounding_digits": 3}, "0.334", "1/3", WRONG, WRONG),
        ({"rounding_digits": 0}, "0.333333333333333", "1/3", RIGHT, WRONG),
        ({"relative_tolerance": 0.01}, "9.51", "9.6", WRONG, RIGHT),
        ({"relative_tolerance": 0.01}, "9.5", "9.6", WRONG, WRONG),
        ({"relative_tolerance": 0.01}, "-9.6", "9.6", WRONG, WRONG),
        ({"relative_tolerance": 0.01}, "100", "101", WRONG, RIGHT),
        ({"relative_tolerance": 0.01}, "\\$100", "101", WRONG, RIGHT),
        ({"relative_tolerance": 0.01}, "1.41", "\\sqrt{2}", WRONG, RIGHT),
        ({"relative_tolerance": 0.001}, "1.41", "\\sqrt{2}", WRONG, WRONG),
        ({"relative_tolerance": 0.01}, "\\pi", "\\sqrt{10}", WRONG, RIGHT),
        ({"relative_tolerance": 0.01}, "x", "1.001x", WRONG, WRONG),
        ({"absolute_tolerance": 0.1}, "2.9, 1", "1, 3", WRONG, RIGHT),
        ({"absolute_tolerance": 0.1}, "2.8, 1", "1, 3", WRONG, WRONG),
    ],
)
def test_conventions_can_be_switched(settings, answer, gold, usual, switched):
    assert grade(answer, gold).verdict is usual
    assert grade(answer, gold, GradingSettings(**settings)).verdict is switched
    assert grade_batch([(answer, gold)], GradingSettings(**settings))[0].verdict is switched


def test_a_setting_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="grading setting units: 'metric', want one of shared, ignore, required"):
        GradingSettings(units="metric")
    with pytest.raises(InputError, match="rounding_digits: -1"):
        GradingSettings(rounding_digits=-1)
    with pytest.raises(InputError, match=r"relative_tolerance: -0\.1, want a number of 0 or more"):
        GradingSettings(relative_tolerance=-0.1)
    with pytest.raises(InputError, match="absolute_tolerance: nan"):
        GradingSettings(absolute_tolerance=float("nan"))


def test_l08_a_decision_is_final_when_the_texts_are_equal_but_have_no_value():
    assert grade_completion("Answer: \\frac{0}{0}", "0").verdict is WRONG


def test_expressions_are_read_by_precedence():
    assert exact(parsed("2+3*4")) == 14
    assert exact(parsed("2-3-4")) == -5
    assert exact(parsed("-2^2")) == -4
    assert exact(parsed("2^{-1}")) == Fraction(1, 2)
    assert exact(parsed("8/2/2")) == 2
    assert exact(parsed("2(3+4)")) == 14
    assert exact(parsed("\\frac12")) == Fraction(1, 2)
    assert exact(parsed("\\frac123")) == Fraction(3, 2)
    assert exact(parsed("2\\frac{1}{2}")) == Fraction(5, 2)
    assert exact(parsed("11 5/6")) == Fraction(71, 6)
    assert exact(parsed("0.1\\overline{6}")) == Fraction(1, 6)
    assert exact(parsed("\\sqrt{49}")) == 7
    assert exact(parsed("5!")) == 120
    assert exact(parsed("3e2")) == 300
    assert exact(parsed("\\binom{5}{2}")) == 10
    assert exact(parsed("\\sqrt{2}")) is None
    assert abs(approximate(parsed("\\sqrt[3]{-8} + e^0 + \\log_2 8"), {}) - 2) < 1e-12
    assert abs(approximate(parsed("2x^2y"), {"x": 3.0, "y": 2.0}) - 36) < 1e-12
    assert symbols(parsed("x_1 + \\theta y' + 2")) == {"x_1", "theta", "y'"}


@pytest.mark.parametrize("text", ["", "3 5", "4 10/3", "x -", "(1", "1)", "1_0", "2 \\foo", "\\frac{1}", "hello"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ParseError):
        parsed(text)


def test_limits_are_errors_of_their_own():
    with pytest.raises(TooDeep):
        parsed("(" * 100 + "1" + ")" * 100)
    with pytest.raises(TooDeep):
        parsed("-" * 100 + "1")
    with pytest.raises(TooLarge):
        exact(parsed("2^{3000000}"))
    with pytest.raises(TooLarge):
        exact(parsed("9^9^9"))
    with pytest.raises(Undefined):
        exact(parsed("1/(2-2)"))


def test_sample_points_tell_expressions_apart():
    assert clearly_differ(parsed("x^2"), parsed("x^3")) is True
    assert clearly_differ(parsed("(x+1)^2"), parsed("x^2+2x+1")) is False
    assert clearly_differ(parsed("\\ln(-1-x)"), parsed("x")) is None


def test_spelling():
    assert clean("\\left( \\dfrac{1}{2} , 3\\right)") == "( \\frac{1}{2} , 3)"
    assert clean("$1{,}234$.") == "1234"
    assert clean("(1,234)") == "(1,234)"
    assert clean("x²") == "x^{2}"
    assert clean("٤٢") == "42"
    assert clean("−5") == "-5"
    assert plain_text("\\text{Monday}.") == "monday"
    assert split_unit("35 cm") == ("35", ("length", 1, Fraction(1, 100)), False)
    assert split_unit("25\\text{ cm}^2") == ("25", ("length", 2, Fraction(1, 10_000)), False)
    assert split_unit("72 clips") == ("72", None, False)
    assert split_unit("28 percent") == ("28", None, True)
    assert split_unit("2\\sin x") == ("2\\sin x", None, False)


def test_structures():
    one, two = ("num", 1, 1), ("num", 2, 1)
    assert parse_answer("1, 2") == ("list", (one, two))
    assert parse_answer("(1, 2)") == ("tuple", (one, two))
    assert parse_answer("[1, 2)") == ("interval", one, two, True, False)
    assert parse_answer("\\{1, 2\\}") == ("set", (one, two))
    assert parse_answer("x = 1 \\text{ or } x = 2") == ("list", (one, two))
    assert parse_answer("1:2") == ("ratio", (one, two))
    assert parse_answer("12:30") == ("clock", 750, "")
    assert parse_answer("3:15 \\text{ p.m.}") == ("clock", 195, "pm")
    assert parse_answer("52_8") == ("base", "52", 8)
    assert parse_answer("\\begin{pmatrix}1&2\\end{pmatrix}") == ("matrix", ((one, two),))
    assert parse_answer("y = 2") == ("named", "y", two)
    with pytest.raises(ParseError):
        parse_answer("59_8")


def test_command_line(tmp_path, capsys):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text("".join(json.dumps({"gold": "5", "output": f"Answer: {k}", "k": k}) + "\n" for k in (5, 6)))
    assert main(["--input", str(rows), "--output", str(out)]) == 0
    first, second = map(json.loads, out.read_text().splitlines())
    assert (first["verdict"], first["extracted"], first["how"], first["k"]) == ("CORRECT", "5", "phrase/exact", 5)
    assert second["verdict"] == "WRONG"
    assert second["seconds"] < 1
    rows.write_text(json.dumps({"gold": "0.33", "output": "Answer: 1/3"}) + "\n")
    assert main(["--input", str(rows), "--output", str(out), "--rounding-digits", "2", "--units", "ignore"]) == 0
    assert json.loads(out.read_text())["verdict"] == "CORRECT"
    assert main(["--input", str(rows), "--output", str(out), "--rounding-digits", "-1"]) == 2
    assert "rounding_digits: -1" in capsys.readouterr().err
    rows.write_text(json.dumps({"gold": "5"}) + "\n")
    out.unlink()
    assert main(["--input", str(rows), "--output", str(out)]) == 2
    assert "row 1, field 'output': None, want text" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ("1/2", Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        (r"\frac{1}{2}", Fraction(1, 2)),
        ("1,000", Fraction(1000)),
        ("-3", Fraction(-3)),
        ("x + 1", "x+1"),
        ("", ""),
        ("1/0", "1/0"),
    ],
)
def test_vote_key_merges_equal_values(answer, key):
    assert vote_key(answer) == key

"""The oracle on hand-made paths, and on hostile text."""

import time

import pytest

from data_gen.synthetic import StepJudgement, judge, solve

UNKNOWN = StepJudgement(None, True, None)
CHAIN = "Compute 8-3*4+(6-2)*5."
STORY = "Ann has 12 pens. Ann buys 3 boxes of 4. Ann now has 6 more than Ben. How many pens does Ben have?"

RIGHT = [
    (CHAIN, ["3*4=12", "8-12=-4", "6-2=4", "4*5=20", "-4+20=16"]),
    (CHAIN, ["6-2=4", "4*5=20", "4*3=12", "8-12=-4", "20+(-4)=16"]),  # another order, operands of * and + swapped
    (CHAIN, ["3*4=12", "3*4=12", "8-12=-4"]),  # a step may be repeated
    ("Compute 2+3+4.", ["3+4=7", "2+7=9"]),  # regrouping that changes nothing
    ("Compute 9-2+5-1.", ["5-1=4", "9-2=7", "7+4=11"]),
    ("Compute 2*(3+4)*5.", ["3+4=7", "7*5=35", "2*35=70"]),
    ("Solve 3(x-4)+5=2x+10.", ["3x-12+5=2x+10", "3x-7=2x+10", "x-7=10", "x=17"]),
    ("Solve 3(x-4)+5=2x+10.", ["x=17", "2x=34", "17=x"]),
    ("Solve 3y=10.", ["y=10/3"]),
    ("Compute 1/2+1/3.", ["1/2+1/3=3/6+2/6", "3/6+2/6=5/6"]),
    ("Compute 1/2+1/3.", ["1/3+1/2=4/12+6/12", "6/12+4/12=10/12", "10/12=5/6"]),
    ("Compute 1/2-1/4:3/4.", ["1/4:3/4=1/4*4/3", "1/4*4/3=4/12", "4/12=1/3", "1/2-1/3=1/6"]),
    ("Compute 1/2-2/3.", ["1/2-2/3=-1/6"]),
    (STORY, ["3*4=12", "12+12=24", "24-6=18"]),
    ("Find the gcd of 84 and 36.", ["84=2*36+12", "36=3*12+0"]),
    ("Find the quotient of 8374 by 7.", ["8=1*7+1", "13=1*7+6", "67=9*7+4", "44=6*7+2"]),
]

WRONG = [
    # (problem, steps, index of the first error, habit)
    (CHAIN, ["8-3=5", "5*4=20"], 0, "wrong_precedence"),  # right arithmetic, wrong order
    (CHAIN, ["3*4=12", "8-12=4"], 1, "sign_slip_difference"),
    (CHAIN, ["3*4=12", "9-12=-3"], 1, "misread"),  # a true equation with a miscopied number
    (CHAIN, ["3*4=12", "8-12=-4", "-4+20=16"], 2, None),  # 20 is not derived yet
    (CHAIN, ["3*4=12", "12-8=4"], 1, None),  # a difference does not commute
    ("Compute 9-2+5.", ["2+5=7", "9-7=2"], 0, None),  # the grouping changes the value
    ("Compute 2*(9+3+4).", ["3+4=7", "2*7=14"], 1, None),  # a part of the bracket is not the bracket
    ("Compute 27+8-2.", ["27+8=25"], 0, "lost_carry"),
    ("Compute 7*8-2.", ["7*8=63"], 0, "table_slip"),
    ("Solve 3(x-4)=9.", ["3x-4=9"], 0, "half_bracket"),
    ("Solve 2x-3=9.", ["2x=6"], 0, "sign_not_flipped"),
    ("Solve 2x-3=9.", ["2x=12", "x=5"], 1, None),
    ("Solve 2x-3=9.", ["2x=2x"], 0, None),  # true for every x: another solution set
    ("Solve 2x-3=9.", ["0=0"], 0, None),
    ("Compute 1/2+1/3.", ["1/2+1/3=2/5"], 0, "added_denominators"),
    ("Compute 1/2:3/4.", ["1/2:3/4=2/1*3/4"], 0, None),
    ("Compute 1/2:3/4.", ["1/2:3/4=2*3/4"], 0, "inverted_wrong"),
    ("Compute 1/2+1/3*3/4.", ["1/2+1/3=5/6"], 0, None),  # the product comes first
    (STORY, ["12+3=15"], 0, None),
    (STORY, ["3*4=12", "12+12=24", "24+6=30"], 2, "inverse_comparison"),
    (STORY, ["3+4=7"], 0, "boxes_as_sum"),
    (STORY, ["12+12=24"], 0, None),  # the boxes are not counted yet
    ("Find the gcd of 84 and 36.", ["84=1*36+48"], 0, None),  # the remainder is not below the divisor
    ("Find the gcd of 84 and 36.", ["84=2*36+12", "36=18*2+0"], 1, "quotient_for_remainder"),
    ("Find the gcd of 84 and 36.", ["36=3*12+0"], 0, None),  # true, but not the division that is due
    ("Find the gcd of 84 and 36.", ["84=2*36+12", "36=3*12+0", "84=7*12+0"], 2, None),
    ("Find the quotient of 724 by 7.", ["7=1*7+0", "24=3*7+3"], 1, "lost_zero"),
]


@pytest.mark.parametrize(("problem", "steps"), RIGHT)
def test_right_paths(problem, steps):
    assert judge(problem, steps) == StepJudgement(None, False, None)


@pytest.mark.parametrize(("problem", "steps", "index", "habit"), WRONG)
def test_wrong_paths(problem, steps, index, habit):
    assert judge(problem, steps) == StepJudgement(index, False, habit)


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        (CHAIN, ["3*4=12", "so we get 8-12=-4"]),
        (CHAIN, ["٣*٤=١٢"]),
        (CHAIN, ["3*4"]),
        (CHAIN, [""]),
        (CHAIN, ["3=4=12"]),
        (CHAIN, ["1/0=3"]),
        ("Solve 2x-3=9.", ["2z=12"]),
        ("Solve 2x-3=9.", ["x*x=36"]),
        ("Solve 2x-3=9.", ["x=6/0"]),
        ("What is the weather?", ["3*4=12"]),
        ("", []),
    ],
)
def test_text_outside_the_grammar_is_unknown(problem, steps):
    assert judge(problem, steps) == UNKNOWN


def test_an_error_before_unknown_text_counts():
    assert judge(CHAIN, ["8-3=5", "???"]).first_error == 0


HOSTILE = [
    "9" * 100_000,
    "(" * 100_000,
    "((((((((((1+1)+1)+1)+1)+1)+1)+1)+1)+1)+1)",
    "1+" * 50_000 + "1",
    "1+" * 150 + "1=2",
    "=" * 100_000,
    "-" * 100_000 + "=1",
    "x" * 100_000,
    "３+４=７",
    "\x00\ud800",
    "1" * 390 + "=1",
    "3x" * 190 + "=1",
    "(x" * 190 + "=1",
    " " * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_neither_crashes_nor_takes_long(text):
    start = time.perf_counter()
    problems = (CHAIN, "Solve 2x-3=9.", "Compute 1/2+1/3.", STORY, "Find the gcd of 84 and 36.")
    for problem in problems:
        judged = judge(problem, [text])
        assert judged.unknown or judged.first_error == 0
    for template in ("Compute {}.", "Solve {}.", "Find the gcd of {} and 3.", "Ann has {} pens. {}?", "{}"):
        judge(template.format(text, text), ["1+1=2", text])
    assert time.perf_counter() - start < 2.0


def test_many_steps_stay_linear():
    steps = list(solve(CHAIN).steps)
    start = time.perf_counter()
    assert judge(CHAIN, steps * 2000) == StepJudgement(None, False, None)
    assert time.perf_counter() - start < 5.0

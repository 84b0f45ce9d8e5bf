"""The exact check of equations: what it must find, and the kinds of text it must not misread, most of them met in
solutions that people had marked as right."""

from __future__ import annotations

import time

import pytest

from data_gen.arithmetic import false_equation
from data_gen.step_keys import falsehoods, step_key

FALSE = {
    "whole expression": ("194 * 490 = 94,860 pages", "194 * 490 = 94860"),
    "behind a word": ("The total is then 10 + 24 + 12 + 14 = 50 miles.", "10 + 24 + 12 + 14 = 50"),
    "units read over": ("5 apples + 3 apples = 9 apples", "5 + 3 = 9"),
    "units and prices": ("12 books * $3 each = $37", "12 * 3 = 37"),
    "latex units": (r"\(40 \text{ tiles} \div 5 \text{ per row} = 9 \text{ rows}\)", None),
    "latex fraction": (r"\[ \frac{1}{2} + \frac{1}{3} = \frac{2}{5} \]", "((1)/(2)) + ((1)/(3)) = ((2)/(5))"),
    "latex power": (r"$2^{3} \times 5 = 45$", "2^(3) * 5 = 45"),
    "currency": ("She has $52,500 + ($52,500 * 0.05) = $55,625.", "52500 + (52500 * 0.05) = 55625"),
    "displayed formula": ("We get\n$$4060 \\times 91390 = 371251400$$\nways.", "4060 * 91390 = 371251400"),
    "behind be": ("His cousin will be 2 * 22 - 8 = 46 - 8 = 38 years old.", "2 * 22 - 8 = 46 - 8"),
    "operator between two formulas": (r"20 \(\times\) \$2.00 = \$41.00", "20  *  2.00 = 41.00"),
    "percent of": ("20% of 50 = 12", "20% * 50 = 12"),
    "percentage": ("10/4 = 25%", "10/4 = 25%"),
    "brackets of prose": ("(since 3+4 = 8)", "3+4 = 8"),
    "bold": ("**3 + 4 = 8**", "3 + 4 = 8"),
    "list item": ("Costs:\n- 4 watermelons × $45 = $185", "4 * 45 = 185"),
    "factorial": ("4! = 25", "4! = 25"),
    "aligned rows": (r"\begin{align*} 3+4 &= 7 \\ &= 8 \end{align*}", "7 = 8"),
    "middle of a chain": ("7 * 70 - 40 = 470 - 40 = 430", "7 * 70 - 40 = 470 - 40"),
    "rounded too far": ("10/3 = 3.43", "10/3 = 3.43"),
    "boxed": (r"so $4 - 12 + 9 = \boxed{-1}$", None),
}
TRUE_OR_UNSAID = {
    "derivative": "F'(3) = -4",
    "function of two": "C(9, 7) = 36",
    "new operation": r"That gives us $7\,\S\, 2 = 3(7) + 5(2)$.",
    "new operation with a sign": "11 # 5 = 5 # 11",
    "doubled escapes": r"so $5\\ \#\\ 0=5$.",
    "product of letters": "43 = 3ab",
    "letter at a number": "the coefficient gives $36=2ab+0$.",
    "subscript in front": r"\[c_s (24 - 24) + c_v (8 - 4) = 6.80 - 5.20.\]",
    "pi in front": "The volume is (4/3)π(2)^3 = (32/3)π.",
    "choose": "5 choose 3 = 10 ways",
    "year": "Total expenses in 2014 = 20,000 pounds * $0.24/pound",
    "percent of": "20% of 50 = 10",
    "percent both ways": "10/40 * 100 = 25%",
    "percent taken off": "100 - 20% = 80",
    "remainder": r"For example, $17\%5=2$",
    "cents": "$9.90 - $9 = $0.90 = 90 cents",
    "minutes": "2.5 hours = 150 minutes",
    "feet": "2 * 3 feet = 72 inches",
    "minutes of several": "4 trips * 15 minutes = 1 hour",
    "inches of several": "3 boards * 2 feet = 72 inches",
    "made-up units": "Multiplying both sides gives 42 * 20/21 daps = 42 baps",
    "unlike units added": "5 feet + 3 inches = 63 inches",
    "unit stated": r"\[ 1 \text{ inch} = 2 \times 20 \text{ miles} = 40 \text{ miles} \]",
    "coins": "- 1 nickel = $0.05",
    "list item": "Costs:\n- 4 watermelons × $45 per watermelon = $180.",
    "difference goes on from the line before": "32 pens\n- 4 pens = 28 pens",
    "sum goes on from the line before": "32 pens\n+ 54 pens + 12 pens = 98 pens",
    "sum behind long units": r"\[ 32 \text{ green and yellow pens} + 54 \text{ pens} + 12 \text{ pens} = 98 \]",
    "negative first number": "The total of these 3 countries is -48+21+-3=-30 degrees",
    "ellipsis": "24 + 23 + ... + 1 = 300",
    "enumeration": "The sum of 1, 2, 3 = 6",
    "congruence": r"\(4^4 = 256 = 1 \pmod{17}\)",
    "other base": "In base 7, 5 + 4 = 12",
    "clock": "11 + 3 = 2 o'clock",
    "question": "So, $125^2+120^2=117^2$?",
    "denial": "Our calculation that $9^2+2^2=97$ was wrong.",
    "denial behind": "Then 8 - 16 = -3, which is not true.",
    "not equal": r"$3 + 4 \neq 8$ and $3+4 != 8$",
    "approximate": r"\(10/3 \approx 3.3\) or about 10/3 = 3",
    "rounded": "10/3 = 3.33",
    "rounded operand": "0.333 * 3000 = 1000",
    "runs on": "5 * 3 = 15 + 2 = 17",
    "factorials": r"there are $\frac{5!}{5} = 4! = 24$ ways",
    "mixed number": r"$2\frac{1}{2} = 2.5$",
    "matrix": r"\begin{pmatrix} 1 & -2 \\ 3 & 4 \end{pmatrix} = 5",
    "implication": "2x = 6 => 3 = 3",
    "one formula goes on in the next": r"Price = 20 \(\times\) \$2.00 = \$40.00.",
    "division by zero": "4/0 = 7",
}


@pytest.mark.parametrize(("text", "equation"), FALSE.values(), ids=FALSE)
def test_a_false_equation_is_found(text, equation):
    found = false_equation(text)
    assert found is not None
    assert equation in (None, found)


@pytest.mark.parametrize("text", TRUE_OR_UNSAID.values(), ids=TRUE_OR_UNSAID)
def test_nothing_is_said_of(text):
    assert false_equation(text) is None


@pytest.mark.parametrize("text", [text for text, _ in FALSE.values()], ids=FALSE)
def test_step_keys_follow(text):
    assert step_key(text).is_false


def test_a_name_with_a_number_is_no_product():
    """x8 is one of x1 … x8; read as x * 8 the second equation would have another solution than the first."""
    keys = [step_key(text) for text in ("(97 + x8) / 8 = 12", "(105 + x8) / 8 = 12")]
    assert falsehoods(keys) == [False, False]


@pytest.mark.parametrize("text", ["1 + " * 40_000 + "1 = 3", "1 " * 900 + "x = 3. " + "((" * 400 + "1 = 1. " * 2000])
def test_long_text_takes_no_long_time(text):
    started = time.process_time()
    assert false_equation(text) is None
    assert time.process_time() - started < 2


def test_a_text_beyond_the_limit_is_left_alone():
    assert false_equation("word " * 2000 + ". So 1+1 = 3") == "1+1 = 3"
    assert false_equation("word " * 4000 + ". So 1+1 = 3") is None

"""Proof trees: LaTeX whose stack works out and whose formulas parse, figures, what is discharged and what is shared."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.mathtext import MathTextParser

from math_env import kernel
from math_env.formulas import latex
from math_env.problems import FAMILIES
from math_env.render import figure, latex_document, latex_tree, tree
from math_env.terms import Expr, num, var
from tests.test_math_env_coq import proved

X, Y = var("x"), var("y")
LINE = re.compile(r"  \\(?:hypo|infer(\d+)\[\\textsf\{[a-z ]+\}\])\{(.*)\}")


@pytest.mark.parametrize("topic", list(FAMILIES))
def test_the_latex_stack_ends_with_the_conclusion(topic):
    theorem = proved(topic, 3)[1]
    stack = []
    begin, *lines, end = latex_tree(theorem).splitlines()
    assert (begin, end) == (r"\begin{prooftree}", r"\end{prooftree}")
    for line in lines:
        count, formula = LINE.fullmatch(line).groups()
        for _ in range(int(count or 0)):
            stack.pop()
        stack.append(formula)
        MathTextParser("path").parse(f"${formula}$")
    assert stack == [latex(theorem.concl)]
    assert latex_document(theorem).startswith("\\documentclass")


def test_only_discharged_assumptions_are_in_brackets():
    given, case = Expr("ge", Y, num(1)), Expr("eq", X, num(2))
    both = kernel.conj_intro(kernel.assume(given), kernel.assume(case))
    assert [node.text for node in tree(both)] == [latex(given), latex(case), rf"{latex(given)} \wedge {latex(case)}"]
    goal = Expr("ge", X, num(0))
    branch = kernel.restate(kernel.assume(case), goal)
    whole = kernel.cases(kernel.assume(Expr("or", case, case)), branch, branch)
    texts = [node.text for node in tree(whole)]
    assert texts == [r"x = 2 \vee x = 2", "[x = 2]", r"x \geq 0\ \ (1)", r"x \geq 0\ \ (1)", r"x \geq 0"]


def test_products_and_signs_in_latex():
    def mul(a, b):
        return Expr("mul", a, b)

    two, minus = num(2), num(-3)
    assert latex(Expr("eq", Expr("add", mul(two, X), mul(minus, Y)), minus)) == "2 x - 3 y = -3"
    assert latex(Expr("gt", mul(two, minus), mul(num(-1), mul(X, Y)))) == r"2 \cdot (-3) > -x y"
    assert latex(Expr("ne", Expr("pow", minus, 2), Expr("pow", Expr("add", X, two), 3))) == r"(-3)^{2} \neq (x + 2)^{3}"
    assert latex(Expr("eq", mul(num(-1), two), Expr("div", X, two))) == r"-2 = \frac{x}{2}"


def test_figures_are_files_of_their_kind_and_the_same_each_time():
    theorem = proved("rational", 1)[1]
    svg, png = figure(theorem), figure(theorem, "png")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg == figure(theorem)
    assert png.startswith(b"\x89PNG")

"""The proof kernel: every rule with right and wrong side conditions, and no false theorem at rational points."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from math_env import kernel, terms
from math_env.kernel import RULES, Theorem, assume
from math_env.terms import FALSE, Expr, Refused, num, var
from math_env.tokens import show
from tests.math_env_terms import add, div, mul, rel
from tests.math_env_truth import is_sound_at

X, Y, N, M, U = var("x"), var("y"), var("n"), var("m"), var("u")


SQUARE = Expr("pow", X, 2)
QUADRATIC = add(SQUARE, mul(-5, X), 6)  # (x - 2)(x - 3)
FACTORED = mul(add(X, -2), add(X, -3))
X2, X3 = rel("eq", X, 2), rel("eq", X, 3)
EITHER = Expr("or", X2, X3)
ODD, EVEN = Expr("dvd", 2, add(N, -1)), Expr("dvd", 2, N)
EVEN_SQUARE = Expr("dvd", 2, Expr("pow", N, 2))

RIGHT = [
    ("conj_elim", (assume(Expr("and", X2, X3)), 1), "x = 3"),
    ("conj_intro", (assume(X2), assume(rel("eq", Y, 1))), "x = 2 and y = 1"),
    ("disj_intro", (assume(X2), EITHER), "x = 2 or x = 3"),
    (
        "cases",
        (assume(EITHER), kernel.disj_intro(assume(X2), EITHER), kernel.disj_intro(assume(X3), EITHER)),
        show(EITHER),
    ),
    ("iff_intro", (assume(X2), assume(X2), X2, X2), "x = 2 <=> x = 2"),
    ("absurd", (assume(rel("gt", add(X, mul(-1, X)))), X2), "x = 2"),
    ("absurd", (assume(Expr("dvd", 2, num(7))), X2), "x = 2"),
    ("clash", (assume(rel("eq", add(X, -2))), assume(rel("ne", mul(3, X), 6))), "false"),
    ("square_nonneg", (add(X, mul(-1, Y)),), "x^2 - 2*x*y + y^2 >= 0"),
    ("residues", ("n", 3), "3 | n or 3 | n - 1 or 3 | n - 2"),
    ("ring", (rel("eq", QUADRATIC, FACTORED),), show(rel("eq", QUADRATIC, FACTORED))),
    (
        "ring",
        (rel("eq", div(FACTORED, add(X, -2)), add(X, -3)), assume(rel("ne", X, 2))),
        "((x - 2)*(x - 3))/(x - 2) = x - 3",
    ),
    ("decide", (rel("gt", num(3), 2),), "3 > 2"),
    ("decide", (Expr("dvd", 3, num(-9)),), "3 | -9"),
    ("to_zero", (assume(rel("ge", mul(-2, X), 4)),), "-x - 2 >= 0"),
    ("to_zero", (assume(rel("eq", div(QUADRATIC, add(X, -2)), 0)),), "x^2 - 5*x + 6 = 0"),
    ("restate", (assume(rel("ge", X, 2)), rel("gt", mul(2, X), 3)), "2*x > 3"),
    ("restate", (assume(rel("eq", X, 2)), rel("ge", num(2), mul(1, X))), "2 >= 1*x"),
    ("factor_as", (assume(rel("eq", QUADRATIC)), FACTORED), "(x - 2)*(x - 3) = 0"),
    ("zero_product", (assume(rel("eq", FACTORED)),), "x - 2 = 0 or x - 3 = 0"),
    ("zero_product", (assume(rel("eq", Expr("pow", X, 3))),), "x = 0"),
    ("solve_linear", (assume(rel("eq", add(mul(2, X), Y), 6)), "x"), "x = -(1/2)*y + 3"),
    ("defined", (assume(rel("eq", div(1, add(X, -2)), Y)), 0), "x - 2 != 0"),
    ("cancel", (assume(rel("eq", QUADRATIC)), assume(rel("ne", X, 2)), add(X, -3)), "x - 3 = 0"),
    ("add", (assume(rel("ge", X)), assume(rel("gt", Y))), "x + y > 0"),
    ("add", (assume(EVEN), assume(ODD)), "2 | 2*n - 1"),
    ("scale", (assume(rel("ge", X)), Fraction(1, 2)), "(1/2)*x >= 0"),
    ("scale", (assume(rel("eq", X)), -1), "-x = 0"),
    ("multiply", (assume(rel("ne", X)), assume(rel("ne", Y))), "x*y != 0"),
    ("substitute", (assume(rel("eq", X, add(Y, 1))), assume(rel("eq", add(X, Y), 3))), "y - 1 = 0"),
    ("rewrite", (assume(X2), kernel.decide(rel("gt", num(2), 1)), rel("gt", X, 1)), "x > 1"),
    ("undeclare", (kernel.restate(assume(rel("eq", X)), rel("eq", mul(2, X))), "u", SQUARE), "2*x = 0"),
    ("reduce", (assume(ODD), assume(EVEN_SQUARE)), "2 | 1"),
    ("unreduce", (assume(EVEN), kernel.decide(Expr("dvd", 2, num(0))), EVEN_SQUARE), "2 | n^2"),
]
WRONG = [
    ("conj_elim", (assume(Expr("and", X2, X3)), 2)),
    ("conj_elim", (assume(EITHER), 0)),
    ("conj_intro", (assume(X2), X3)),
    ("disj_intro", (assume(rel("eq", X, 4)), EITHER)),
    ("cases", (assume(EITHER), assume(X2), assume(X3))),  # two different conclusions
    ("cases", (assume(EITHER), kernel.disj_intro(assume(X2), EITHER))),  # a branch is missing
    ("iff_intro", (assume(X2), assume(X3), X2, X3)),
    ("absurd", (assume(X2), X3)),
    ("absurd", (assume(Expr("dvd", 2, num(8))), X2)),
    ("clash", (assume(X2), assume(rel("ne", X, 3)))),
    ("clash", (assume(X2), assume(X2))),
    ("square_nonneg", (div(1, X),)),
    ("residues", ("x", 2)),
    ("residues", ("n", 1)),
    ("ring", (rel("eq", SQUARE, X),)),
    ("ring", (rel("ge", X, X),)),
    ("ring", (rel("eq", div(X, X), 1),)),  # x may be 0
    ("ring", (rel("eq", div(X, X), 1), assume(rel("ne", Y)))),
    ("ring", (rel("eq", mul(0, div(1, X)), 0),)),  # 0·(1/x) is not defined at 0
    ("decide", (rel("eq", div(1, num(0)), div(1, num(0))),)),
    ("decide", (rel("ne", div(1, num(0)), 1),)),  # not defined, so not even ≠
    ("decide", (rel("gt", num(2), 2),)),
    ("decide", (rel("eq", X, X),)),
    ("to_zero", (assume(rel("ge", div(1, X))),)),  # the sign of x is not known
    ("to_zero", (assume(EITHER),)),
    ("restate", (assume(rel("ge", X, 2)), rel("gt", X, 2))),
    ("restate", (assume(rel("ge", X, 2)), rel("ge", mul(-1, X), -2))),
    ("restate", (assume(rel("ne", X, 2)), rel("gt", X, 2))),
    ("restate", (assume(rel("ge", X, 2)), rel("eq", X, 2))),
    ("restate", (assume(rel("eq", X, 2)), rel("eq", num(0), 0))),
    ("restate", (assume(rel("eq", X, 2)), rel("eq", add(X, div(0, Y)), 2))),  # y may be 0
    ("factor_as", (assume(rel("eq", QUADRATIC)), mul(add(X, -2), add(X, 3)))),
    ("factor_as", (assume(rel("eq", QUADRATIC)), num(0))),
    ("factor_as", (assume(rel("ge", QUADRATIC)), FACTORED)),
    ("zero_product", (assume(rel("eq", FACTORED, 1)),)),
    ("zero_product", (assume(rel("ne", FACTORED)),)),
    ("zero_product", (assume(rel("eq", Expr("pow", X, 0))),)),
    ("solve_linear", (assume(rel("eq", SQUARE, X)), "x")),
    ("solve_linear", (assume(rel("eq", mul(X, Y), 1)), "x")),
    ("solve_linear", (assume(rel("ge", X, 1)), "x")),
    ("defined", (assume(rel("eq", div(1, num(2)), Y)), 0)),
    ("defined", (assume(Expr("or", rel("eq", div(1, X), 1), X2)), 0)),
    ("cancel", (assume(rel("eq", QUADRATIC)), assume(rel("ne", X, 2)), add(X, -2))),
    ("cancel", (assume(rel("eq", QUADRATIC)), assume(rel("eq", X, 2)), add(X, -3))),
    ("add", (assume(rel("ne", X)), assume(rel("ge", Y)))),
    ("add", (assume(EVEN), assume(Expr("dvd", 3, N)))),
    ("scale", (assume(rel("ge", X)), -1)),
    ("scale", (assume(rel("eq", X)), 0)),
    ("scale", (assume(rel("eq", X)), 0.5)),
    ("multiply", (assume(rel("ge", X)), assume(rel("gt", Y)))),
    ("multiply", (assume(rel("eq", X)), assume(rel("eq", Y)))),
    ("substitute", (assume(rel("eq", X, add(X, 1))), assume(rel("eq", X, 3)))),
    ("substitute", (assume(rel("eq", X, div(1, Y))), assume(rel("eq", X, 3)))),
    ("substitute", (assume(X2), assume(rel("eq", Y, 3)))),
    ("substitute", (assume(rel("eq", N, div(1, num(2)))), assume(EVEN_SQUARE))),
    ("rewrite", (assume(X2), kernel.decide(rel("gt", num(3), 1)), rel("gt", X, 1))),
    ("undeclare", (assume(rel("eq", U, SQUARE)), "u", SQUARE)),  # u is in the conclusion
    ("undeclare", (assume(X2), "u", div(1, X))),
    ("undeclare", (assume(X2), "n", num(2))),  # an integer cannot be any real
    ("reduce", (assume(Expr("dvd", 3, N)), assume(EVEN_SQUARE))),
    ("reduce", (assume(EVEN_SQUARE), assume(EVEN))),
    ("reduce", (assume(Expr("dvd", 4, mul(2, N))), assume(Expr("dvd", 4, N)))),
    ("unreduce", (assume(ODD), kernel.decide(Expr("dvd", 2, num(0))), EVEN_SQUARE)),
]


@pytest.mark.parametrize(
    ("rule", "inputs", "conclusion"), RIGHT, ids=lambda item: item if isinstance(item, str) else ""
)
def test_a_rule_concludes_what_it_says(rule, inputs, conclusion):
    theorem = RULES[rule](*inputs)
    assert show(theorem.concl) == conclusion
    assert (theorem.rule, theorem.inputs) == (rule, inputs)
    premises = frozenset().union(*(item.hyps for item in inputs if isinstance(item, Theorem)))
    assert theorem.hyps <= premises


@pytest.mark.parametrize(("rule", "inputs"), WRONG, ids=lambda item: item if isinstance(item, str) else "")
def test_a_rule_refuses_a_wrong_side_condition(rule, inputs):
    with pytest.raises(Refused):
        RULES[rule](*inputs)


def test_every_rule_has_both_kinds_of_cases():
    assert {rule for rule, *_ in RIGHT} == {rule for rule, *_ in WRONG} == set(RULES) - {"assume"}


def test_cases_and_iff_discharge_only_their_own_hypotheses():
    goal = rel("ge", mul(1, X), 2)
    both = [kernel.restate(assume(part), goal) for part in (X2, X3)]
    assert kernel.cases(assume(EITHER), *both).hyps == {EITHER}
    stolen = kernel.absurd(kernel.clash(assume(X2), assume(rel("ne", X, 2))), goal)
    assert kernel.cases(assume(EITHER), stolen, both[1]).hyps == {EITHER, rel("ne", X, 2)}


def test_only_rules_make_theorems_and_nothing_changes_one():
    for mint in (None, object(), "mint"):
        with pytest.raises(Refused):
            Theorem(mint, (frozenset(), FALSE), "assume", ())
    theorem = assume(X2)
    for owner, name in ((theorem, "concl"), (X2, "args")):
        with pytest.raises(AttributeError):
            setattr(owner, name, FALSE)
    with pytest.raises(Refused):
        kernel.conj_intro(theorem, X3)


@pytest.mark.parametrize("args", [("num", 0.5), ("num", 1), ("num", True), ("pow", X, True), ("pow", X, Fraction(2))])
def test_inexact_and_equal_looking_numbers_are_refused(args):
    with pytest.raises(Refused):
        Expr(*args)


@pytest.mark.parametrize(
    "formula",
    [
        rel("eq", Expr("pow", X, 9)),
        rel("eq", Expr("pow", X, -1)),
        rel("eq", var("w")),
        rel("eq", num(2**300)),
        Expr("dvd", 2, X),
        Expr("dvd", 0, N),
        Expr("dvd", 2, mul(num(Fraction(1, 2)), N)),
        Expr("dvd", 2, div(mul(2, N), num(1))),
        Expr("or", X2),
        Expr("eq", X2, X),
        Expr("axiom", X2),
    ],
    ids=lambda formula: formula.op,
)
def test_ill_formed_and_oversized_formulas_are_refused(formula):
    with pytest.raises(Refused):
        assume(formula)


def test_limits_are_counted():
    tower = X
    for _ in range(4):
        tower = Expr("pow", tower, 8)
    with pytest.raises(Refused):
        kernel.to_zero(assume(rel("eq", tower)))
    closed = num(2)
    for _ in range(12):
        closed = Expr("pow", closed, 8)
    with pytest.raises(Refused):
        kernel.decide(rel("gt", closed, 1))


small = st.integers(-3, 3)


@st.composite
def term(draw, divides=True):
    kind = draw(st.sampled_from(["line", "square", "product"] + (["ratio"] if divides else [])))
    line = add(mul(draw(small), X), mul(draw(small), Y), draw(small))
    if kind == "line":
        return line
    if kind == "square":
        return Expr("pow", line, 2)
    other = add(mul(draw(small), X), draw(small))
    return mul(line, other) if kind == "product" else div(line, other)


@st.composite
def atom(draw):
    op = draw(st.sampled_from(["eq", "ne", "ge", "gt", "dvd"]))
    if op == "dvd":
        p = add(mul(draw(small), Expr("pow", N, 2)), mul(draw(small), N), draw(small))
        return Expr("dvd", draw(st.sampled_from([2, 3])), draw(st.sampled_from([p, add(N, draw(small))])))
    left = draw(st.sampled_from([X, Y])) if draw(st.booleans()) else draw(term())
    return Expr(op, left, draw(st.sampled_from([num(0), num(draw(small)), draw(term())])))


GRID = [
    {"x": x, "y": y, "n": Fraction(n), "m": Fraction(0), "k": Fraction(0), "z": Fraction(0), "u": Fraction(0)}
    for (x, y), n in zip(
        itertools.product([Fraction(v, 2) for v in range(-6, 7, 2)], [Fraction(v) for v in range(-3, 4)]),
        itertools.cycle(range(-6, 7)),
        strict=False,
    )
]


@settings(max_examples=30, deadline=None)
@given(atom(), atom(), atom(), term(divides=False), small)
def test_no_rule_makes_a_false_theorem(first, second, third, product, number):
    """Every rule on every pair of random atoms: where the hypotheses hold, the conclusion does."""
    a, b = assume(first), assume(second)
    trials = [("restate", (a, third)), ("factor_as", (a, product)), ("cancel", (a, b, product)), ("scale", (a, number))]
    trials += [(rule, (a, b)) for rule in ("add", "multiply", "substitute", "reduce", "clash", "conj_intro")]
    trials += [(rule, (a,)) for rule in ("to_zero", "zero_product")]
    trials += [("solve_linear", (a, name)) for name in "xyn"] + [("defined", (a, i)) for i in (0, 1)]
    trials += [("absurd", (a, third)), ("ring", (third, a)), ("decide", (third,)), ("square_nonneg", (product,))]
    trials += [("rewrite", (a, b, third)), ("unreduce", (a, b, third)), ("disj_intro", (a, Expr("or", third, first)))]
    for rule, inputs in trials:
        try:
            theorem = RULES[rule](*inputs)
        except Refused:
            continue
        false = [point for point in GRID if is_sound_at(theorem, point) is False]
        assert not false, (rule, theorem.hyps, theorem.concl, false[0])


@settings(max_examples=30, deadline=None)
@given(term(), st.sampled_from(GRID))
def test_the_normal_form_is_the_term(t, point):
    top, bottom, guards = terms.ratio(t)
    at = {name: point[name] for name in terms.VARIABLES}
    values = [terms.evaluate(terms.term_of(p), at) for p in (top, bottom)]
    is_defined = all(terms.evaluate(terms.term_of(guard), at) != 0 for guard in guards)
    assert terms.evaluate(t, at) == (values[0] / values[1] if is_defined else None)

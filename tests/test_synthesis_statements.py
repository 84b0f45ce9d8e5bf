"""Formal statements: what the language takes and refuses, and its two derivations against answers known by hand."""

import time
from fractions import Fraction

import pytest

from data_gen.synthesis.by_arithmetic import derive_again
from data_gen.synthesis.by_sympy import derive_safely
from data_gen.synthesis.check import Refused, derive_answer
from data_gen.synthesis.language import EXAMPLES
from data_gen.synthesis.polynomials import real_roots
from data_gen.synthesis.results import Result, agree
from data_gen.synthesis.solve_exactly import NoSecondWay
from data_gen.synthesis.statement import FIELDS, StatementError, canonical, read_statement
from grading.equivalence import grade


@pytest.mark.parametrize(("meaning", "statement", "answer"), EXAMPLES, ids=lambda value: str(value)[:30])
def test_the_language_is_what_the_model_is_told_and_both_ways_agree_on_it(meaning, statement, answer):
    derived = derive_answer(statement, twice=True)
    assert grade(derived.answer, answer).verdict == "CORRECT"
    assert derived.ways == ("sympy", "arithmetic")


def test_the_model_is_told_of_every_kind():
    assert {statement["kind"] for _, statement, _ in EXAMPLES} == set(FIELDS)


KNOWN = [
    ({"kind": "value", "of": "gcd(84, 126, 210) + lcm(4, 6, 9)"}, "78"),
    ({"kind": "value", "of": "\\sqrt{50} + \\sqrt{2}"}, "6\\sqrt{2}"),
    ({"kind": "solve", "equations": ["|2x - 3| = 7"]}, "-2, 5"),
    ({"kind": "solve", "equations": ["\\sqrt{x + 3} = x - 3"]}, "6"),  # x = 1 comes from squaring
    ({"kind": "solve", "equations": ["\\frac{x^2 - 4}{x - 2} = 5"]}, "3"),
    ({"kind": "solve", "equations": ["x^2 - 4x + 1 = 0"]}, "2 - \\sqrt{3}, 2 + \\sqrt{3}"),
    ({"kind": "solve", "equations": ["w(w + 3) = 40"], "domain": "positive"}, "5"),
    ({"kind": "solve", "equations": ["x + y = 5", "xy = 6"], "find": "x^2 + y^2"}, "13"),
    ({"kind": "solve", "equations": ["2^{n} = 1024"], "domain": "integer"}, "10"),
    ({"kind": "inequality", "relations": ["\\frac{x + 1}{x - 2} <= 0"]}, "[-1, 2)"),
    ({"kind": "inequality", "relations": ["x^2 >= 9"]}, "(-\\infty, -3] \\cup [3, \\infty)"),
    ({"kind": "inequality", "relations": ["|x| > 2", "x^2 < 25"]}, "(-5, -2) \\cup (2, 5)"),
    ({"kind": "inequality", "relations": ["x^2 <= 10"], "ask": "integers"}, "7"),
    ({"kind": "extremum", "of": "x^3 - 3x", "in": "x", "ask": "max", "from": "-3", "to": "1"}, "2"),
    ({"kind": "congruences", "pairs": [[2, 3], [3, 5], [2, 7]], "above": 0}, "23"),  # Sun Zi
    ({"kind": "recurrence", "start": ["1"], "next": "2p + 1", "term": 10}, "1023"),
    ({"kind": "count", "ranges": {"a": [1, 10], "b": [1, 10], "c": [1, 10]}, "order": "increasing"}, "120"),
    ({"kind": "divisors", "of": 28, "ask": "sum"}, "56"),  # a perfect number
]


@pytest.mark.parametrize(("statement", "answer"), KNOWN, ids=lambda value: str(value)[:50])
def test_answers_known_by_hand(statement, answer):
    derived = derive_answer(statement, twice=True)
    assert grade(derived.answer, answer).verdict == "CORRECT", derived


REFUSED = [
    (["x"], "bad_statement"),
    ({"kind": "exec", "of": "1"}, "bad_statement"),
    ({"kind": "value"}, "bad_statement"),
    ({"kind": "value", "of": "1", "hint": "2"}, "bad_statement"),
    ({"kind": "value", "of": "__import__('os').system('true')"}, "bad_statement"),
    ({"kind": "value", "of": "9^{9^{9^{9}}}"}, "bad_statement"),
    ({"kind": "value", "of": "2^{100000}"}, "bad_statement"),
    ({"kind": "value", "of": "100000!"}, "bad_statement"),
    ({"kind": "value", "of": "1+" * 200 + "1"}, "bad_statement"),
    ({"kind": "value", "of": "(" * 100 + "1" + ")" * 100}, "bad_statement"),
    ({"kind": "value", "of": "\\pm 3"}, "bad_statement"),
    ({"kind": "value", "of": float("nan")}, "bad_statement"),
    ({"kind": "value", "of": True}, "bad_statement"),
    ({"kind": "value", "of": "x + 1"}, "not_derived"),
    ({"kind": "value", "of": "1/0"}, "not_derived"),
    ({"kind": "value", "of": "\\sqrt{-1}"}, "not_derived"),
    ({"kind": "solve", "equations": ["a_{__import__('os')} = 1"]}, "bad_statement"),
    ({"kind": "solve", "equations": ["x = x"]}, "not_derived"),
    ({"kind": "solve", "equations": ["x = x + 1"]}, "not_derived"),
    ({"kind": "solve", "equations": ["x^2 = -1"]}, "not_derived"),
    ({"kind": "solve", "equations": ["x + y = 3"], "find": "x"}, "not_derived"),
    ({"kind": "solve", "equations": ["x < 3"]}, "bad_statement"),
    ({"kind": "solve", "equations": ["x = 1 = 2"]}, "bad_statement"),
    ({"kind": "roots", "of": "x^2 - 5x + 6", "ask": "r - s"}, "not_derived"),  # depends on which is which
    ({"kind": "inequality", "relations": ["x > 0"], "ask": "integers"}, "not_derived"),
    ({"kind": "count", "ranges": {"a": [1, 10**9]}}, "bad_statement"),
    ({"kind": "count", "ranges": {"a": [1, 6]}, "such_that": ["b > 2"]}, "not_derived"),
    ({"kind": "recurrence", "start": ["1"], "next": "p^2 + 1", "term": 100}, "not_derived"),
    ({"kind": "recurrence", "start": ["1"], "next": "p + 1", "term": 10**9}, "not_derived"),
    ({"kind": "polygon", "points": [["0", "0"], ["1", "1"]]}, "not_derived"),
]


@pytest.mark.parametrize(("statement", "reason"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_is_no_statement_or_has_no_answer_is_refused_by_reason_and_at_once(statement, reason):
    started = time.perf_counter()
    with pytest.raises(Refused) as refused:
        derive_answer(statement, twice=False)
    assert refused.value.reason == reason
    assert time.perf_counter() - started < 5


def test_statements_that_disagree_are_refused():
    right = {"kind": "value", "of": "\\binom{5}{2}"}
    assert derive_answer(right, {"kind": "value", "of": "4 + 3 + 2 + 1"}, twice=True).ways[-1] == "second statement"
    with pytest.raises(Refused, match="ways_differ"):
        derive_answer(right, {"kind": "value", "of": "4 + 3 + 2"}, twice=False)


def test_hard_problems_with_one_way_only_are_refused():
    once = {"kind": "solve", "equations": ["2^x = 8"]}  # the second derivation does not do powers over the reals
    assert derive_answer(once, twice=False).ways == ("sympy",)
    with pytest.raises(Refused, match="derived_once"):
        derive_answer(once, twice=True)


def test_a_wrong_first_derivation_would_be_noticed():
    """The second way does not read the first: it answers statements that are off by one otherwise."""
    for _, statement, _ in EXAMPLES:
        found = derive_again(read_statement(statement))
        assert agree(found, derive_safely(read_statement(statement))[0])
        assert not agree(found, Result.of(Fraction(10**6)))


def test_the_second_way_says_when_it_has_none():
    with pytest.raises(NoSecondWay):
        derive_again(read_statement({"kind": "solve", "equations": ["x^2 + y^2 = 5", "xy = 2"], "find": "x + y"}))


def test_real_roots_of_a_polynomial():
    half, third = Fraction(1, 2), Fraction(-1, 3)
    product = (-half * third, half + third, Fraction(-1))  # -(x - 1/2)(x + 1/3) = 1/6 + x/6 - x^2
    assert real_roots((Fraction(1, 6), Fraction(1, 6), Fraction(-1))) == [third, half]
    assert product[0] == Fraction(1, 6)
    assert real_roots(tuple(map(Fraction, (-2, 0, 1)))) == pytest.approx([-(2**0.5), 2**0.5], abs=1e-12)
    assert real_roots(tuple(map(Fraction, (0, 0, 1)))) == [0]  # a double root comes once
    assert real_roots(tuple(map(Fraction, (1, 0, 1)))) == []


def test_money_has_two_decimals_or_is_refused():
    assert derive_answer({"kind": "value", "of": "265*70/100*108/100"}, twice=False, form="money").answer == "200.34"
    with pytest.raises(Refused, match="not_money"):
        derive_answer({"kind": "value", "of": "10/3"}, twice=False, form="money")


def test_statements_that_differ_in_letters_and_order_are_one():
    a = {"kind": "solve", "equations": ["x + y = 7", "2x - y = 2"], "find": "x"}
    b = {"find": "a", "equations": ["a + b=7", "2a - b = 2"], "kind": "solve"}
    assert canonical(a) == canonical(b)
    assert canonical(a) != canonical({**a, "find": "y"})
    assert canonical(a) != canonical({**a, "equations": ["x + y = 8", "2x - y = 2"]})


def test_reading_names_field_and_value():
    with pytest.raises(StatementError, match=r"solve.domain: 'complex', want one of real, positive, integer"):
        read_statement({"kind": "solve", "equations": ["x = 1"], "domain": "complex"})

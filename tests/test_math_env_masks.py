"""The quick mask against trying every action, and the sparse polynomials against the kernel's."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.math_env import compare_masks
from math_env import facts, masks, rules, sparse, terms, tokens
from math_env.rules import INDEX, SCHEMAS
from math_env.terms import Expr, Refused, num, var

X, Y, N, M = var("x"), var("y"), var("n"), var("m")


def add(a, b):
    return Expr("add", a, b if isinstance(b, Expr) else num(b))


def mul(a, b):
    return Expr("mul", a if isinstance(a, Expr) else num(a), b)


def div(a, b):
    return Expr("div", a if isinstance(a, Expr) else num(a), b)


def rel(op, a, b=0):
    return Expr(op, a, b if isinstance(b, Expr) else num(b))


def power(a, exponent):
    return Expr("pow", a, exponent)


BIG = num(9999)
ODD = [
    ([rel("eq", X, Y), rel("eq", Y, power(X, 2)), rel("eq", X, 3), rel("eq", X)], rel("eq", X, Y)),
    ([rel("eq", X), rel("ne", mul(2, X)), rel("eq", mul(3, X))], rel("ge", X)),
    ([rel("eq", Y, div(1, X)), rel("ge", div(1, X)), rel("ne", div(X, Y), 2)], rel("eq", mul(X, Y), num(1))),
    ([rel("eq", X, mul(add(Y, 1), num(2))), rel("ge", X, 3), rel("gt", mul(X, Y))], rel("gt", add(X, Y), 1)),
    ([rel("ge", power(add(X, Y), 8)), rel("gt", power(X, 8)), rel("ne", power(Y, 8))], rel("ge", power(X, 8))),
    ([rel("eq", mul(BIG, X), 1), rel("ge", mul(BIG, Y), -1), rel("ge", add(Y, X))], rel("ge", num(1), 0)),
    ([rel("eq", X, mul(BIG, Y)), rel("eq", power(X, 8), power(Y, 2)), rel("eq", mul(power(X, 3), Y))], rel("eq", X)),
    ([rel("eq", X, add(mul(num(Fraction(1, 7)), Y), num(Fraction(2, 9)))),
      rel("eq", mul(num(Fraction(3, 5)), power(X, 2)), Y), rel("ne", add(X, mul(num(Fraction(-1, 7)), Y)))],
     rel("eq", Y, X)),
    ([Expr("dvd", 2, add(N, -1)), Expr("dvd", 2, mul(N, M)), rel("eq", N, add(M, 3)), Expr("dvd", 4, power(N, 8))],
     Expr("dvd", 2, M)),
    ([Expr("dvd", 3, add(N, 9000)), Expr("dvd", 3, mul(9998, N)), rel("eq", N, mul(num(Fraction(1, 2)), M))],
     Expr("dvd", 3, add(power(N, 2), M))),
    ([Expr("or", rel("eq", X, 1), rel("eq", X, 2)), rel("eq", X, 1), rel("eq", X, X)],
     Expr("or", rel("eq", X, 1), rel("eq", X, 2))),
    ([Expr("or", Expr("and", rel("eq", X, 1), rel("eq", Y, 1)), rel("eq", X, 2))],
     Expr("iff", Expr("and", rel("eq", X, 1), rel("eq", Y, 2), rel("gt", X)), rel("ge", X, Y))),
    ([rel("eq", mul(add(X, -1), add(X, -2))), rel("ne", X, 1), rel("ne", mul(add(X, -1), Y))],
     Expr("and", rel("eq", X, 2), rel("ne", Y))),
    ([rel("eq", num(0), 1), rel("ne", num(0)), rel("eq", num(0))], rel("eq", X, Y)),
    ([rel("eq", power(mul(BIG, X), 8), mul(div(1, power(BIG, 8)), X)), rel("ne", mul(power(BIG, 8), X))], rel("eq", X)),
]  # fmt: skip
"""Statements that no generator draws: no normal forms, divisors, large numbers, duplicates, contradictions."""


def names_of(indices):
    return [rules.NAMES[index] for index in indices]


def walk(state, rng, steps):
    """States along actions drawn by schema first, so that rare schemas are played."""
    for _ in range(steps):
        yield state
        valid = np.flatnonzero(masks.mask(state))
        if not len(valid):
            return
        schemas = [rules.ACTIONS[index][0].name for index in valid]
        chosen = rng.choice(sorted(set(schemas)))
        state = rules.apply(
            state, int(rng.choice([i for i, name in zip(valid, schemas, strict=True) if name == chosen]))
        )
        if state.goal is None:
            return


@pytest.mark.parametrize("case", range(len(ODD)))
def test_the_mask_is_exact_on_statements_that_no_generator_draws(case):
    hypotheses, target = ODD[case]
    for state in walk(rules.start(tuple(hypotheses), target), np.random.default_rng(case), 4):
        quick, tried = masks.mask(state), masks.mask_by_trial(state)
        assert names_of(np.flatnonzero(quick & ~tried)) == names_of(np.flatnonzero(tried & ~quick)) == []


def test_the_mask_is_what_trying_every_action_finds():
    """As `python -m bench.math_env --states 2000`, on a few."""
    outcome = compare_masks(states=60, seed=4)
    assert outcome["states"] == 60
    assert outcome["wrong_bits"] == 0
    assert outcome["valid_bits"] > 60 * 10


def test_a_wrong_mask_is_noticed(monkeypatch):
    state = rules.start((rel("eq", X, 3),), rel("eq", Y))
    try:
        monkeypatch.setattr(facts, "SCALES", facts.SCALES[:-1])
        facts.fact_of.cache_clear(), masks.context_of.cache_clear()
        wrong = np.flatnonzero(masks.mask(state) != masks.mask_by_trial(state))
    finally:
        facts.fact_of.cache_clear(), masks.context_of.cache_clear()
    assert names_of(wrong) == ["scale(f0,5)"]


coefficient = st.sampled_from([Fraction(v) for v in (-3, -1, 1, 2)] + [Fraction(1, 2), Fraction(-5, 3)])
monomial = st.dictionaries(st.sampled_from(["x", "y", "u", "n"]), st.integers(1, 4), max_size=2)
polynomial = st.lists(st.tuples(monomial, coefficient), max_size=4).map(
    lambda parts: terms.pack({tuple(sorted(mono.items())): coef for mono, coef in parts})
)


@settings(max_examples=60, deadline=None)
@given(polynomial, polynomial)
def test_sparse_polynomials_are_the_kernel_s(p, q):
    a, b = sparse.encode(p), sparse.encode(q)
    assert sparse.add(a, b, Fraction(2)) == sparse.encode(terms.combine(p, q, b=Fraction(2)))
    assert sparse.times(a, b) == sparse.encode(terms.times(p, q))
    for keep_sign in (False, True):
        assert sparse.primitive(a, keep_sign) == sparse.encode(terms.primitive(p, keep_sign))
    assert (sparse.key(a) == sparse.key(b)) == (p == q)
    if p:
        assert max(a) == sparse.code(terms.lead(p)[0])
    ints = [sparse.primitive(item) for item in (a, b, sparse.times(a, b))]
    if p and q:
        assert sparse.may_divide(sparse.values(ints[0]), sparse.values(ints[2]))
    assert sparse.names(a) == set(terms.variables(terms.term_of(p)))


@settings(max_examples=60, deadline=None)
@given(polynomial, polynomial)
def test_sparse_substitution_and_length_are_the_terms_(p, q):
    term = terms.term_of(p)
    expected = terms.substituted(term, "x", terms.term_of(q))
    try:
        value = sparse.encode(terms.poly(expected))
    except Refused:
        return
    assert sparse.substituted(sparse.encode(p), "x", sparse.encode(q)) == value
    length = len(tokens.tokens(term))
    assert sparse.tokens(sparse.encode(p)) == length


@settings(max_examples=60, deadline=None)
@given(polynomial)
def test_the_form_that_a_canonical_term_remembers_is_what_its_tree_gives(p):
    term = terms.term_of(p)
    if len(p) > 1:  # built again by hand, the pieces cannot remember the whole
        again = add(add(term.args[0], 1), add(term.args[1], -1))
        assert terms.poly(again) == p
    assert terms.ratio(term) == (p, terms.constant(1), ())


def test_caches_are_bounded_and_counted():
    fact, target = facts.fact_of(rel("eq", X, 1234)), masks.target_of(rel("eq", Y, 4321))
    before = masks.caches()
    for _ in range(3):
        masks.on_goal(fact, target)
    after = masks.caches()
    assert after["on_goal"]["entries"] in (before["on_goal"]["entries"] + 1, before["on_goal"]["bound"])
    assert all(0 <= found["hits"] <= 1 and 0 <= found["entries"] <= found["bound"] for found in after.values())
    assert after["on_goal"]["hits"] > 0


def test_every_schema_is_met():
    """The odd statements and short walks reach each schema at least once as valid."""
    seen = set()
    for case, (hypotheses, target) in enumerate(ODD):
        for state in walk(rules.start(tuple(hypotheses), target), np.random.default_rng(case + 100), 8):
            seen |= {rules.ACTIONS[index][0].name for index in np.flatnonzero(masks.mask(state))}
    state = rules.start((), Expr("eq", add(X, X), mul(2, X)))
    seen |= {rules.ACTIONS[index][0].name for index in np.flatnonzero(masks.mask(state))}
    assert seen == {schema.name for schema in SCHEMAS}
    assert INDEX["ring()"] == 0

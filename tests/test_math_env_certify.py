"""Certificates: the kernel replays them, and a changed one is refused."""

import copy
import json

import numpy as np
import pytest

from math_env import kernel, rules
from math_env.certify import certificate, replay, steps_of, z3_opinion
from math_env.problems import FAMILIES, generate
from math_env.rules import INDEX
from math_env.terms import Expr, Refused, num, var


def proved(topic, level=1):
    problem = generate(np.random.default_rng(7), topic, level)
    state = problem.start()
    for name in problem.script:
        state = rules.apply(state, INDEX[name])
    return problem, state.theorem


@pytest.mark.parametrize("topic", list(FAMILIES))
def test_a_certificate_survives_json_and_is_replayed(topic):
    problem, theorem = proved(topic)
    again = replay(json.loads(json.dumps(certificate(theorem))))
    assert problem.is_proved_by(again)
    assert len(steps_of(again)) == len(steps_of(theorem))


def changed(record, change):
    other = copy.deepcopy(record)
    change(other)
    return other


def test_every_changed_certificate_is_refused():
    record = certificate(proved("quadratic", 2)[1])
    changes = [
        lambda r: r.update(conclusion=["false"]),
        lambda r: r.update(hypotheses=[["false"]]),
        lambda r: r.update(version=2),
        lambda r: r.update(steps=[]),
        lambda r: r["steps"].pop(0),
        lambda r: r["steps"].pop(),
        lambda r: r["steps"][-1].update(rule="axiom"),
        lambda r: r["steps"][-1].update(rule="__class__"),
        lambda r: r["steps"][-1].update(inputs=[{"step": -1}]),
        lambda r: r["steps"][-1].update(inputs=[{"step": 10**6}]),
        lambda r: r["steps"][-1].update(inputs=[{"code": "1"}]),
        lambda r: r.pop("steps"),
    ]
    for change in changes:
        with pytest.raises(Refused):
            replay(changed(record, change))


def test_only_the_steps_that_a_theorem_needs_are_written():
    problem, _ = proved("linear")
    state = problem.start()
    for name in ("square(x)", "split_goal()", "solve_linear(f1,x)", "conclude(f2)"):
        state = rules.apply(state, INDEX[name])
    assert [step.rule for step in steps_of(state.proved[0])] == ["assume", "solve_linear"]


def test_z3_agrees_with_true_steps_and_finds_a_false_one():
    pytest.importorskip("z3")
    for topic in ("linear", "rational", "parity"):
        answers = z3_opinion(proved(topic)[1])
        assert "sat" not in answers
        assert answers.count("unsat") > len(answers) / 2
    x = var("x")
    false = kernel.assume(Expr("eq", x, num(1)))
    object.__setattr__(false, "concl", Expr("eq", x, num(2)))  # as a kernel with a bug would
    assert z3_opinion(false) == ["sat"]

"""Certificates: the kernel replays them, and a changed one is refused."""

import copy
import dataclasses
import json

import numpy as np
import pytest

from math_env import kernel, rules
from math_env.audit import Finding, audit, read_proofs, summary, witnessed, write_bundle
from math_env.certify import certificate, read_problem, replay, replay_fresh, steps_of, verdict
from math_env.env import MathEnv
from math_env.problems import FAMILIES, generate
from math_env.record import RecordProofs
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


def test_z3_finds_a_false_step():
    pytest.importorskip("z3", reason="z3-solver is not installed (pip install '.[z3]')")
    from math_env.second_opinion import opinion

    x = var("x")
    false = kernel.assume(Expr("eq", x, num(1)))
    object.__setattr__(false, "concl", Expr("eq", x, num(2)))  # as a kernel with a bug would
    assert opinion(false, false.hyps, false.concl).answers == ("sat", "unsat")
    assert opinion(false, (), false.concl).answers == ("sat", "sat")


def test_a_fresh_process_replays_and_refuses():
    problem, theorem = proved("quadratic")
    other = proved("linear")[0]
    records = [certificate(theorem, problem), certificate(theorem, other), certificate(theorem)]
    records.append(changed(records[0], lambda r: r["steps"].pop()))
    answers = replay_fresh(records)
    assert [answer == "accepted" for answer in answers] == [True, False, True, False]
    assert answers[1] == "refused: the theorem does not state the problem"
    assert answers[0] == verdict(json.dumps(records[0]))
    assert verdict("[1]") == "refused: no certificate"
    assert verdict("[" * 10_000).startswith("refused")


def test_a_problem_in_a_certificate_is_read_back():
    problem, theorem = proved("rational")
    record = json.loads(json.dumps(certificate(theorem, problem)))
    assert read_problem(record) == dataclasses.replace(problem, script=())
    for change in (
        lambda r: r["problem"].pop("goal"),
        lambda r: r["problem"].update(goal=["var", "x"]),
        lambda r: r["problem"].update(witness=[1]),
        lambda r: r.update(problem=None),
    ):
        with pytest.raises(Refused):
            replay(changed(record, change))


def test_paid_proofs_are_recorded_and_audited(tmp_path):
    env = RecordProofs(MathEnv(), tmp_path / "proofs.jsonl")
    problem, _ = proved("identity", 3)
    env.reset(seed=0, options={"problem": problem})
    env.step(INDEX["decide()"])  # not valid
    assert not env.path.exists()
    for topic in ("identity", "rational"):
        problem, _ = proved(topic, 3)
        env.reset(seed=0, options={"problem": problem})
        for name in problem.script:
            env.step(INDEX[name])
    proofs = read_proofs(env.path)
    assert [p.topic for p, _ in proofs] == ["identity", "rational"]
    findings = audit(proofs, z3=False, coq=False)
    assert summary(findings) == {
        "proofs": 2,
        "replayed": 2,
        "true_at_witness": 2,
        "z3": {"not asked": 2},
        "coq": {"not asked": 2},
        "failed": [],
    }
    write_bundle(tmp_path / "proof", *proofs[0])
    assert sorted(file.suffix for file in (tmp_path / "proof").iterdir()) == [
        ".json", ".lean", ".png", ".svg", ".tex", ".v",
    ]  # fmt: skip


def test_a_step_that_is_false_at_the_witness_is_named():
    problem, theorem = proved("linear")
    wrong = dataclasses.replace(problem, witness={"x": problem.witness["x"] + 1})
    assert witnessed(problem, theorem) == witnessed(wrong, theorem) == "true"  # steps are true everywhere
    false = kernel.decide(Expr("eq", num(1), num(1)))
    object.__setattr__(false, "concl", Expr("eq", num(1), num(2)))
    assert witnessed(problem, false) == "step 0, decide"
    finding = Finding("q", "accepted", "step 0, decide")
    assert not finding.is_sound

"""Coq's certificates: every rule and topic, false statements, kernels with a bug. Skips say what they want."""

import functools
from fractions import Fraction

import numpy as np
import pytest

from bench.math_env_faults import BUGS, corrupted, is_false, patched
from common.errors import InputError
from math_env import rules
from math_env.certify import certificate, replay
from math_env.coq import run
from math_env.coq.rules import WRITERS
from math_env.coq.run import AXIOMS, axioms_in, certify, is_available, rejected_steps, run_coqc
from math_env.coq.script import Claim, script, step_lemmas
from math_env.formulas import LEAN, written
from math_env.kernel import RULES
from math_env.latex import custom
from math_env.lean import lean_text
from math_env.problems import FAMILIES, generate
from math_env.rules import INDEX
from math_env.terms import Expr, Refused, num, var
from tests.math_env_steps import STEPS
from tests.test_math_env_kernel import RIGHT

needs_coq = pytest.mark.skipif(not is_available(), reason="coqc is not installed (apt-get install coq)")
X = var("x")


def proved(topic, level, seed=7):
    problem = generate(np.random.default_rng([seed, level]), topic, level)
    state = problem.start()
    for name in problem.script:
        state = rules.apply(state, INDEX[name])
    return problem, state.theorem


def declared():
    """(x − 3)² = 0 ⊢ x = 3 by way of u = x − 3."""
    problem = custom(r"x^2 - 6x + 9 = 0 \vdash x = 3")
    names = "declare(x-3) solve_linear(f1,x) substitute(f2,f0) zero_product(f3) substitute(f4,f2) conclude(f5)"
    state = problem.start()
    for name in names.split():
        state = rules.apply(state, INDEX[name])
    return problem, state.theorem


def claim(name, theorem, problem=None):
    if problem is None:
        return Claim(name, tuple(theorem.hyps), theorem.concl, theorem)
    return Claim(name, problem.hypotheses, problem.goal, theorem)


@functools.cache
def false_claims():
    """(claims that Coq has to reject, what the kernels with a bug proved among them)."""
    rng = np.random.default_rng(1)
    spoilt = [corrupted(*proved(topic, 2), rng) for topic in FAMILIES]
    claims = [Claim(f"c{i}", c.hypotheses, c.goal, c.theorem) for i, c in enumerate(spoilt)]
    made = []
    for index, bug in enumerate(BUGS):
        with patched(bug):
            made.append(Claim(f"b{index}", *bug.prove()))
    return claims, made


def test_every_rule_has_a_tactic():
    assert set(WRITERS) == set(RULES)


def test_atoms_are_written_with_their_meaning():
    third = Expr("eq", Expr("div", num(1), Expr("add", X, num(-1))), num(Fraction(-1, 3)))
    assert written(third) == r"(1 / (x + (-1)) = (-1 / 3) /\ x + (-1) <> 0)"
    assert written(Expr("eq", Expr("div", X, num(2)), Expr("pow", X, 2))) == "(x / 2 = x ^ 2)"
    assert written(Expr("dvd", 3, Expr("mul", num(2), var("n")))) == "(divides 3 (2 * (IZR n)))"
    either = Expr("or", Expr("eq", X, num(2)), Expr("eq", X, num(3)))
    assert written(either, LEAN) == "((x = 2) ∨ (x = 3))"
    with pytest.raises(Refused):
        written(Expr("eq", Expr("var", "x). Admitted"), num(1)))


def test_a_script_states_the_problem_and_each_step():
    problem, theorem = proved("linear", 1)
    text = script([claim("solved", theorem, problem)])
    assert f"Theorem solved : forall (x : R), {written(problem.goal)}.\n" in text
    assert text.count("Lemma solved_s_") == text.count("Lemma solved_t_") == len(certificate(theorem)["steps"])
    assert not any(word in text for word in ("Axiom", "Admitted", "admit", "Parameter", "Hypothesis"))


def test_the_lean_text_says_that_nobody_checked_it():
    problem, theorem = proved("quadratic", 1)
    text = lean_text(claim("solved", theorem, problem))
    assert text.startswith("-- UNVERIFIED")
    assert f"theorem solved (x : ℝ) : {written(problem.goal, LEAN)} := by" in text


def test_axioms_are_read_from_what_coq_prints():
    output = "Axioms:\nClassical_Prop.classic : forall P : Prop, P \\/ ~ P\ncheat : False\nlong\n  : nat ->\n    nat\n"
    assert axioms_in(output) == {"Classical_Prop.classic", "cheat", "long"}
    assert not axioms_in("Closed under the global context\n")


@needs_coq
def test_an_axiom_of_ones_own_is_seen():
    is_compiled, output = run_coqc(
        "Axiom cheat : False.\nLemma l : 1 = 2. destruct cheat. Qed.\nPrint Assumptions l.\n"
    )
    assert is_compiled
    assert axioms_in(output) == {"cheat"}
    assert not axioms_in(output) <= AXIOMS


@needs_coq
def test_coq_certifies_every_rule_and_every_topic():
    claims = [claim(f"r{i}", RULES[rule](*inputs)) for i, (rule, inputs, _) in enumerate(RIGHT)]
    claims += [claim(f"s{i}", theorem) for i, theorem in enumerate(STEPS)]
    for topic in FAMILIES:
        for level in (1, 3):
            problem, theorem = proved(topic, level, seed=0)
            claims.append(claim(f"{topic}{level}", theorem, problem))
    problem, theorem = declared()
    claims.append(claim("declared", theorem, problem))
    verdicts = certify(claims, batch=len(claims))
    failed = {c.name: verdict for c, verdict in zip(claims, verdicts, strict=True) if not verdict.is_certified}
    assert not failed
    assert all(verdict.axioms for verdict in verdicts)  # the real numbers rest on some


@needs_coq
def test_coq_rejects_false_statements_and_what_a_kernel_with_a_bug_proves():
    spoilt, made = false_claims()
    good = claim("good", proved("linear", 1)[1])
    rejected = rejected_steps([good, *spoilt, *made])
    assert rejected[0] == ()
    assert all(rejected[1:])
    for names in rejected[1 : 1 + len(spoilt)]:
        assert any("_s_" in name for name in names)  # a step, not the statement alone


def test_one_bad_proof_does_not_spoil_its_batch(monkeypatch):
    """With a coqc that rejects step 0 of `bad` and rests on one axiom too many where `odd` is."""
    theorem = proved("linear", 1)[1]
    claims = [claim(name, theorem) for name in ("good", "bad", "odd", "last")]
    runs = []

    def coqc(text):
        names = [c.name for c in claims if f"{c.name}_s_0" in text]
        runs.append(names)
        if "tryif" in text:
            lemmas = [lemma.name for c in claims if c.name in names for lemma in step_lemmas(c)]
            return True, "".join(f"{'no' if name == 'bad_s_0' else 'yes'} {name}\n" for name in lemmas)
        return "bad" not in names, "Axioms:\n" + ("cheat : False\n" if "odd" in names else "")

    monkeypatch.setattr(run, "run_coqc", coqc)
    verdicts = certify(claims, batch=2)
    assert runs == [["good", "bad"], ["good", "bad"], ["good"], ["odd", "last"]]
    assert [verdict.is_certified for verdict in verdicts] == [True, False, False, False]
    assert [verdict.rejected for verdict in verdicts] == [(), ("bad_s_0",), (), ()]
    assert verdicts[2].axioms == {"cheat"}


def test_a_silent_coqc_is_no_verdict(monkeypatch):
    monkeypatch.setattr(run, "run_coqc", lambda text: (False, "stopped after 1 seconds"))
    with pytest.raises(InputError, match="no answer for good"):
        certify([claim("good", proved("linear", 1)[1])])


def test_z3_finds_what_a_kernel_with_a_bug_proves_and_agrees_with_the_sound_one():
    pytest.importorskip("z3", reason="z3-solver is not installed (pip install '.[z3]')")
    from math_env.second_opinion import opinion

    for made in false_claims()[1]:
        assert opinion(made.theorem, made.hypotheses, made.goal).is_refuted
    for theorem in [*STEPS, *(RULES[rule](*inputs) for rule, inputs, _ in RIGHT)]:
        assert set(opinion(theorem, theorem.hyps, theorem.concl).answers) == {"unsat"}
    for topic in FAMILIES:
        problem, theorem = proved(topic, 1)
        assert not opinion(theorem, problem.hypotheses, problem.goal).is_refuted
    problem, theorem = declared()
    assert set(opinion(theorem, problem.hypotheses, problem.goal).answers) == {"unsat"}


def test_the_kernel_refuses_corrupted_proofs():
    for spoilt in false_claims()[0]:
        with pytest.raises(Refused):
            replay(certificate(spoilt.theorem))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_patch_makes_the_kernel_prove_something_false_and_is_taken_back(bug):
    def stated():
        try:
            return bug.prove()[:2]
        except Refused:
            return (), Expr("eq", num(1), num(1))

    before = (dict(vars(bug.module)), dict(RULES))
    sound = stated()
    with patched(bug):
        unsound = stated()
    assert [is_false(*statement, {}) for statement in (sound, unsound, stated())] == [False, True, False]
    assert (vars(bug.module), RULES) == before

"""The training demo without training: what the network sees, the curriculum, the evaluation and its table."""

import numpy as np
import pytest

from common.errors import InputError
from math_env import evaluation, train
from math_env.curriculum import SIZE, SLACK, WINDOW, Curriculum, FromCurriculum, View
from math_env.env import MAX_STEPS, MathEnv
from math_env.problems import LEVELS, generate
from math_env.rules import ACTIONS, INDEX
from math_env.terms import VARIABLES
from math_env.tokens import CODES, show


class FirstValid:
    """A model that takes the valid action with the smallest index."""

    def predict(self, observations, action_masks, deterministic):
        assert observations.shape == (len(action_masks), SIZE)
        return action_masks.argmax(axis=1), None


def test_the_view_is_in_its_space_and_shows_the_mask():
    env, rng = View(MathEnv(levels=LEVELS)), np.random.default_rng(0)
    seen, info = env.reset(seed=0)
    for _ in range(150):
        assert env.observation_space.contains(seen)
        assert np.array_equal(seen[: len(ACTIONS)], info["action_mask"])
        seen, _, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        if terminated or truncated:
            seen, info = env.reset()


def test_the_view_shows_variables_coefficients_and_the_modulus():
    def shown(text, start):
        env = View(MathEnv())
        seen, _ = env.reset(options={"problem": text})
        return [i - start for i in np.flatnonzero(seen) if start <= i < SIZE - 3]

    names = len(ACTIONS) + 13 * (len(CODES) + 1)
    coefficients = names + 13 * 2 * len(VARIABLES)
    assert [i for i in shown(r"y = 2x,\; x > z \vdash n = 3", names) if i < 13 * 14] == [
        0, 1, 7 + 1, 14 + 0, 14 + 2, 12 * 14 + 4,
    ]  # fmt: skip
    found = [i for i in shown(r"2 x^2 - 3 x y \geq 40", coefficients) if i % 19 != 9]
    assert found == [0, 4 * 19 + 9 + 2, 5 * 19 + 9 - 3]  # −9 or less at 1, 2 at xx, −3 at xy
    assert shown(r"3 \mid n", coefficients + 190) == [1]  # of the moduli 2, 3, 4, 5


def test_an_episode_of_the_curriculum_starts_so_many_actions_before_the_end():
    curriculum = Curriculum(["quadratic"], (1,), seed=0)
    curriculum.left["quadratic", 1] = 4
    env, lengths = FromCurriculum(MathEnv(), curriculum), set()
    for _ in range(30):
        env.reset()
        assert env.env.max_steps == min(MAX_STEPS, 2 * env.left + SLACK)
        rest = env.problem.script[len(env.problem.script) - env.left :]
        lengths.add(min(env.left, 5))
        assert [env.step(INDEX[name])[1] for name in rest] == [0.0] * (len(rest) - 1) + [1.0]
    assert {4, 5} <= lengths  # the longest start and the whole script, beside nearer ones
    assert lengths & {1, 2, 3}


def test_the_curriculum_goes_on_when_the_longest_starts_are_solved():
    curriculum = Curriculum(["linear"], (1,), seed=0)
    problem, _ = curriculum.draw()
    for _ in range(WINDOW):
        curriculum.record(problem, 1, is_solved=False)
    assert curriculum.left == {("linear", 1): 1}
    for _ in range(WINDOW):
        curriculum.record(problem, 1, is_solved=True)
    assert curriculum.left == {("linear", 1): 2}
    for _ in range(WINDOW):
        curriculum.record(problem, 1, is_solved=True)  # not the longest start any more
    assert curriculum.left == {("linear", 1): 2}
    curriculum.left["linear", 1] = len(problem.script)
    for _ in range(2 * WINDOW):
        curriculum.record(problem, len(problem.script), is_solved=True)
    assert curriculum.left == {("linear", 1): len(problem.script)}  # there is nothing before the beginning


def test_what_is_solved_is_drawn_less_often():
    curriculum = Curriculum(["identity", "linear"], (1,), seed=0)
    curriculum.left["identity", 1] = 3
    curriculum.pool["identity", 1].append(generate(np.random.default_rng(0), "identity", 1))
    for is_solved, weight in ((False, 1.0), (True, 0.15 + 0.85 / 2)):
        curriculum.recent["identity", 1].append(is_solved)
        assert curriculum.weight(("identity", 1)) == pytest.approx(weight)
    assert curriculum.weight(("linear", 1)) == 1.0
    curriculum.recent["identity", 1].extend([True] * WINDOW)
    topics = [curriculum.draw()[0].topic for _ in range(60)]
    assert 0 < topics.count("identity") < 20  # 0.15 of 1.15 are expected


def test_evaluation_counts_proofs_and_audits_them(monkeypatch):
    monkeypatch.setattr(evaluation, "find_spec", lambda name: None)
    monkeypatch.setattr(evaluation.coqc, "is_available", lambda: False)
    problems = evaluation.unseen(["identity", "parity"], (1,), 3, seed=0)
    attempts = evaluation.evaluate(FirstValid(), problems)
    assert evaluation.summary(attempts)["identity"] == (3, 3, 1.0)  # ring()
    assert all(a.actions == ("ring()",) for a in attempts[:3])
    solved = evaluation.summary(attempts)["parity"][1]
    findings = evaluation.certified(attempts)
    assert findings["proofs"] == findings["replayed"] == findings["true_at_witness"] == 3 + solved
    assert findings["failed"] == []
    table = evaluation.table(attempts, attempts).splitlines()
    assert table[1].split() == ["identity", "3/3", "3/3", "1.0", "1.0", "3/3"]
    shown = evaluation.longest_proof(attempts[:3]).splitlines()
    assert shown[1].split() == ["ring()", "proved"]
    assert shown[-1] == f"{show(attempts[0].problem.goal)}    by ring"
    assert evaluation.longest_proof(attempts, at_most=0) == "no proof"


def test_without_the_extra_training_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(train, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="wanted: pip install"):
        train.learner(Curriculum(["linear"], (1,), 0), seed=0)


def test_a_few_steps_of_training_move_the_policy_and_the_clock_stops_it():
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed: pip install -e '.[env]'")
    curriculum = Curriculum(["identity"], (1,), seed=0)
    model = train.learner(curriculum, seed=0, environments=2)
    before = [p.detach().clone() for p in model.policy.parameters()]
    assert train.train(model, curriculum, seconds=60, steps=128) == 128
    assert any((p != q).any() for p, q in zip(before, model.policy.parameters(), strict=True))
    assert train.train(model, curriculum, seconds=0) < 10

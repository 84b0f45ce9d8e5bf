"""The training demo without training: what the network sees, the curriculum, the evaluation and its table."""

import numpy as np
import pytest

from common.errors import InputError
from math_env import train
from math_env.env import MathEnv
from math_env.problems import LEVELS
from math_env.rules import ACTIONS, INDEX


class FirstValid:
    """A model that takes the valid action with the smallest index."""

    def predict(self, observations, action_masks, deterministic):
        assert observations.shape == (len(action_masks), train.SIZE)
        return action_masks.argmax(axis=1), None


def test_the_view_is_in_its_space_and_shows_the_mask():
    env, rng = train.View(MathEnv(levels=LEVELS)), np.random.default_rng(0)
    seen, info = env.reset(seed=0)
    for _ in range(60):
        assert env.observation_space.contains(seen)
        assert np.array_equal(seen[: len(ACTIONS)], info["action_mask"])
        seen, _, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        if terminated or truncated:
            seen, info = env.reset()


def test_an_episode_of_the_curriculum_starts_so_many_actions_before_the_end():
    curriculum = train.Curriculum(["quadratic"], (1,), seed=0)
    curriculum.left["quadratic", 1] = 4
    env, lengths = train.FromCurriculum(MathEnv(), curriculum), set()
    for _ in range(12):
        env.reset()
        rest = env.problem.script[len(env.problem.script) - env.left :]
        lengths.add(min(env.left, 5))
        assert [env.step(INDEX[name])[1] for name in rest] == [0.0] * (len(rest) - 1) + [1.0]
    assert {4, 5} <= lengths  # the longest start and the whole script, beside nearer ones
    assert lengths & {1, 2, 3}


def test_the_curriculum_goes_on_when_the_longest_starts_are_solved():
    curriculum = train.Curriculum(["linear"], (1,), seed=0)
    problem, _ = curriculum.draw()
    for _ in range(train.WINDOW):
        curriculum.record(problem, 1, is_solved=False)
    assert curriculum.left == {("linear", 1): 1}
    for _ in range(train.WINDOW):
        curriculum.record(problem, 1, is_solved=True)
    assert curriculum.left == {("linear", 1): 2}
    for _ in range(train.WINDOW):
        curriculum.record(problem, 1, is_solved=True)  # not the longest start any more
    assert curriculum.left == {("linear", 1): 2}


def test_evaluation_counts_proofs_and_replays_them():
    problems = train.unseen(["identity", "parity"], (1,), 3, seed=0)
    attempts = train.evaluate(FirstValid(), problems)
    assert train.summary(attempts)["identity"] == (3, 3, 1.0)  # ring()
    assert all(a.actions == ("ring()",) for a in attempts[:3])
    solved = train.summary(attempts)["parity"][1]
    assert train.certified(attempts) == 3 + solved
    table = train.table(attempts, attempts).splitlines()
    assert table[1].split() == ["identity", "3/3", "3/3", "1.0", "1.0"]
    assert train.longest_proof(attempts[:3]).splitlines()[1].split() == ["ring()", "proved"]
    assert train.longest_proof(attempts, at_most=0) == "no proof"


def test_without_the_extra_training_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(train, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="wanted: pip install"):
        train.learner(train.Curriculum(["linear"], (1,), 0), seed=0)


def test_a_few_steps_of_training_move_the_policy_and_the_clock_stops_it():
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed: pip install -e '.[env]'")
    curriculum = train.Curriculum(["identity"], (1,), seed=0)
    model = train.learner(curriculum, seed=0, environments=2)
    before = [p.detach().clone() for p in model.policy.parameters()]
    assert train.train(model, curriculum, seconds=60, steps=128) == 128
    assert any((p != q).any() for p, q in zip(before, model.policy.parameters(), strict=True))
    assert train.train(model, curriculum, seconds=0) < 10

"""The environment: exact masks, clean resets, scripts, seeds, splits, rewards, text, play without a false theorem."""

import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from common.errors import InputError
from math_env import problems, rules, terms
from math_env.env import MathEnv
from math_env.problems import FAMILIES, LEVELS, SPLITS, generate, split_of
from math_env.rules import ACTIONS, INDEX, NAMES
from math_env.terms import Refused
from math_env.text import INVALID, TextObservation, action_table, parse, prompt
from tests.math_env_truth import holds, is_sound_at, points

CASES = [(topic, level) for topic in FAMILIES for level in LEVELS]


def draw(topic, level, seed=0, split="train"):
    return generate(np.random.default_rng([seed, level]), topic, level, split)


def play(env, problem, names):
    env.reset(seed=0, options={"problem": problem})
    return [env.step(INDEX[name]) for name in names]


@pytest.mark.parametrize(("topic", "level"), CASES)
def test_scripted_proofs_earn_1_and_statements_are_true(topic, level):
    env = MathEnv()
    for seed in range(3):
        problem = draw(topic, level, seed)
        outcome = play(env, problem, problem.script)
        assert [reward for _, reward, *_ in outcome] == [0.0] * (len(outcome) - 1) + [1.0]
        assert outcome[-1][2:4] == (True, False)
        theorem = env.state.theorem
        assert theorem.concl == problem.goal
        assert theorem.hyps <= set(problem.hypotheses)
        tried = [is_sound_at(theorem, p) for p in points([*problem.hypotheses, problem.goal], problem.witness)]
        assert False not in tried
        assert tried[-1] is True  # at the witness the hypotheses hold


def proves(names, goal):
    state = rules.start((), goal)
    try:
        for name in names:
            state = rules.apply(state, INDEX[name])
    except Refused:
        return False
    return state.theorem is not None


def test_a_wrong_root_a_lost_root_and_an_extraneous_root_cannot_be_proved_by_the_script():
    drawn = (draw("quadratic", 1, seed) for seed in range(9))
    problem = next(problem for problem in drawn if problem.goal.args[1].op == "or")
    assert proves(problem.script, problem.goal)
    equation, answer = problem.goal.args
    first, second = answer.args
    wrong = terms.Expr("or", first, terms.Expr("eq", first.args[0], terms.num(99)))
    for other in (wrong, first, terms.Expr("or", first, second, wrong.args[1])):
        assert not proves(problem.script, terms.Expr("iff", equation, other))


def random_play(steps, seed):
    """Random valid actions, now and then an invalid one; every theorem made is tried at points. Returns the counts."""
    env = MathEnv(levels=LEVELS, invalid_ends=False)
    rng = np.random.default_rng(seed)
    seen, tried, proved = set(), 0, 0
    _, info = env.reset(seed=seed)
    for _ in range(steps):
        index = (
            int(rng.integers(len(ACTIONS)))
            if rng.random() < 0.1
            else int(rng.choice(np.flatnonzero(info["action_mask"])))
        )
        was_valid = bool(info["action_mask"][index])
        observation, reward, terminated, truncated, info = env.step(index)
        assert env.observation_space.contains(observation)
        assert (reward == -0.1) == (truncated or not was_valid)
        made = [*(env.state.goal.facts[-1:] if env.state.goal else ()), *env.state.proved]
        for theorem in made:
            if theorem in seen:
                continue
            seen.add(theorem)
            for point in points([*theorem.hyps, env.problem.goal], env.problem.witness, count=4):
                truth = is_sound_at(theorem, point)
                assert truth is not False, (theorem.hyps, theorem.concl, point)
                tried += truth is True
        proved += terminated
        if terminated or truncated:
            seen.clear()
            _, info = env.reset()
    return tried, proved


def test_random_play_raises_nothing_and_proves_nothing_false():
    tried, _ = random_play(steps=250, seed=1)
    assert tried > 250


@pytest.mark.parametrize("invalid_ends", [True, False])
def test_gymnasium_finds_nothing_to_warn_about(invalid_ends):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("Math-v0", levels=(1, 2), invalid_ends=invalid_ends).unwrapped)


def test_same_seed_same_episode_and_resets_are_clean():
    def episode(env, seed):
        rng = np.random.default_rng(seed)
        observation, info = env.reset(seed=seed)
        rows = [(observation, info)]
        for _ in range(12):
            observation, _, terminated, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
            rows.append((observation, info))
            if terminated:
                break
        return rows

    used, first = MathEnv(levels=LEVELS), None
    for seed in (1, 2, 3, 1):
        rows = episode(used, seed)
        first = first or rows
    for other in (rows, episode(MathEnv(levels=LEVELS), 1)):
        assert len(other) == len(first)
        for (observation, info), (same, also) in zip(first, other, strict=True):
            assert all(np.array_equal(observation[key], same[key]) for key in observation)
            assert np.array_equal(info["action_mask"], also["action_mask"])
            assert info["question_id"] == also["question_id"]
    assert len({draw("linear", 1, seed).question_id for seed in range(5)}) > 1


def test_splits_are_disjoint_by_statement():
    ids = {split: {draw("linear", 1, seed, split).question_id for seed in range(12)} for split in SPLITS}
    assert all(len(found) > 6 for found in ids.values())
    assert len(set().union(*ids.values())) == sum(map(len, ids.values()))
    equation, answer = draw("linear", 2).goal.args
    twin = terms.Expr("eq", equation.args[1], equation.args[0])  # the same equation read from the right
    assert split_of((), terms.Expr("iff", twin, answer)) == split_of((), terms.Expr("iff", equation, answer))


def test_rewards():
    problem = draw("linear", 1)
    wrong = INDEX["conclude(f7)"]
    env = MathEnv()
    env.reset(seed=0, options={"problem": problem})
    assert env.step(wrong)[1:4] == (-0.1, True, False)
    env = MathEnv(invalid_ends=False, max_steps=3)
    env.reset(seed=0, options={"problem": problem})
    before = env.state
    for action in (-1, len(ACTIONS)):
        assert env.step(action)[1:4] == (-0.1, False, False)
    assert env.state is before
    assert env.step(INDEX["split_goal()"])[1:4] == (-0.1, False, True)
    assert play(MathEnv(step_discount=True), problem, problem.script)[-1][1] == pytest.approx(1 / 1.5)  # 5 steps


def test_prefix_leaves_the_rest_of_the_script():
    problem = draw("quadratic", 2)
    for prefix, left in (
        (0, len(problem.script)),
        (3, len(problem.script) - 3),
        (-2, 2),
        (-99, len(problem.script)),
        (99, 1),
    ):
        env = MathEnv()
        env.reset(seed=0, options={"problem": problem, "prefix": prefix})
        for name in problem.script[len(problem.script) - left :]:
            _, reward, *_ = env.step(INDEX[name])
        assert reward == 1.0


def test_backtrack_undoes_one_action_and_costs_a_step():
    problem = draw("linear", 1)
    env = MathEnv()
    first = env.reset(seed=0, options={"problem": problem})[0]
    env.step(INDEX["split_goal()"])
    observation, reward, *_ = env.step(INDEX["backtrack()"])
    assert reward == 0
    assert np.array_equal(observation["goal"], first["goal"])
    assert observation["counts"].tolist() == [1, 0, 2]
    assert "backtrack()" not in [NAMES[index] for index in env.get_valid_actions()]


def test_a_declared_variable_is_new_and_gone_from_the_theorem():
    env = MathEnv()
    _, info = env.reset(options={"problem": r"x^2 - 6x + 9 = 0 \vdash x = 3"})
    names = ["declare(x-3)", "solve_linear(f1,x)", "substitute(f2,f0)", "zero_product(f3)", "substitute(f4,f2)"]
    for name in names[:1]:
        assert info["action_mask"][INDEX[name]]
        _, _, _, _, info = env.step(INDEX[name])
    assert env.state_str().splitlines()[1] == "f1: u = x - 3"
    assert not any(info["action_mask"][INDEX[name]] for name in NAMES if name.startswith("declare("))
    outcome = [env.step(INDEX[name]) for name in [*names[1:], "conclude(f5)"]]
    assert [reward for _, reward, *_ in outcome] == [0.0] * 4 + [1.0]
    assert env.state.theorem.rule == "undeclare"
    assert "u" not in terms.variables(env.state.theorem.concl).union(*map(terms.variables, env.state.theorem.hyps))
    env.reset(options={"problem": r"u = 2x \vdash x = 3"})
    with pytest.raises(Refused, match="already"):
        rules.apply(env.state, INDEX["declare(x-3)"])


def test_a_contest_problem_is_told_in_words():
    for level in LEVELS:
        problem, env = draw("contest", level), MathEnv()
        env.reset(options={"problem": problem})
        assert problem.story.endswith("?")
        assert prompt(env).startswith(f"{problem.story}\n{env.state_str()}\nActions:\n")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"topics": ["geometry"]}, {}),
        ({"levels": (9,)}, {}),
        ({"split": "dev"}, {}),
        ({}, {"topik": 1}),
        ({}, {"prefix": "2"}),
    ],
)
def test_unknown_settings_are_one_line_errors(arguments, options):
    with pytest.raises(InputError, match="wanted"):
        MathEnv(**arguments).reset(seed=0, options=options)


def test_action_names_are_stable():
    assert NAMES[0] == "ring()"
    assert len(NAMES) == len(set(NAMES)) == MathEnv().action_space.n
    assert {schema.family for schema in rules.SCHEMAS} == {
        "axiom application", "theorem application", "variable operations", "control",
    }  # fmt: skip


def test_the_documented_action_table_is_the_action_space():
    assert action_table() in (Path(__file__).parent.parent / "docs" / "math_env.md").read_text(encoding="utf-8")


def test_prompt_lists_what_parse_takes_and_nothing_else_is_taken():
    env = MathEnv()
    env.reset(seed=0, options={"problem": draw("linear", 1)})
    env.step(INDEX["split_goal()"])
    lines = prompt(env).split("Actions:\n")[1].splitlines()[:-1]
    assert len(lines) == len(env.get_valid_actions())
    for line, index in zip(lines, env.get_valid_actions(), strict=True):
        number, name = line.split(". ", 1)
        assert parse(env, name) == parse(env, f" {number}\n") == index
    hostile = [
        "conclude(f7)",
        "0",
        "999",
        "",
        "1 2",
        "factor",
        "axiom cheat : False",
        "__import__('os')",
        "9" * 10**6,
        "²",
        "-1",
    ]
    assert [parse(env, text) for text in hostile] == [INVALID] * len(hostile)
    assert env.step(parse(env, hostile[6]))[1] == -0.1


def test_the_text_wrapper_adds_state_and_ids():
    env = TextObservation(MathEnv(), encode=lambda text: list(text.encode()), max_length=40, vocabulary=256)
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert bytes(observation["input_ids"].tolist()).rstrip(b"\0").decode() == observation["state_str"][-40:]
    assert observation["state_str"] == env.unwrapped.state_str()


def test_the_generator_refuses_a_witness_that_does_not_hold():
    draft = FAMILIES["linear"](problems.Dice(np.random.default_rng(0)), 1)
    broken = problems.Draft(draft.hypotheses, draft.goal, {"x": draft.witness["x"] + 1}, draft.prove)
    with pytest.raises(Refused):
        problems._accepted(broken, "linear", 1)
    assert holds(draft.goal, draft.witness)

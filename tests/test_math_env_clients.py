"""Clients of the environment: vector environments, Stable-Baselines3, a second process that sees the same episodes."""

import os
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from bench.math_env import digest
from math_env.env import MathEnv
from math_env.rules import INDEX

SB3 = "stable-baselines3 and sb3-contrib are not installed: pip install -e '.[env]'"


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_environments(kind, mode):
    """Environment 0 proves 2·3 = 6 or so, environment 1 errs: both end, both start again as the mode says."""
    vector_kwargs = {"autoreset_mode": mode} | ({"context": "fork"} if kind == "async" else {})
    envs = gym.make_vec("Math-v0", 2, kind, vector_kwargs=vector_kwargs, topics=["identity"], levels=(1,))
    try:
        observations, infos = envs.reset(seed=[1, 2])
        assert infos["action_mask"].shape == (2, len(INDEX))
        assert infos["action_mask"].dtype == np.int8
        first = observations["goal"].copy()
        observations, rewards, terminated, truncated, infos = envs.step(np.array([INDEX["ring()"], INDEX["decide()"]]))
        assert rewards.tolist() == [1.0, -0.1]
        assert terminated.tolist() == [True, True]
        assert truncated.tolist() == [False, False]
        if mode is AutoresetMode.SAME_STEP:
            assert infos["final_info"]["is_proved"].tolist() == [True, False]
            assert not infos["is_proved"].any()
        else:
            assert infos["is_proved"].tolist() == [True, False]
            observations, rewards, terminated, truncated, infos = envs.step(np.array([0, 0]))
            assert rewards.tolist() == [0.0, 0.0]  # the action after the end is not played
            assert not terminated.any()
        assert (observations["counts"] == [[1, 0, 0], [1, 0, 0]]).all()
        assert (observations["goal"] != first).any(axis=1).all()
        assert infos["action_mask"][:, INDEX["ring()"]].tolist() == [1, 1]
    finally:
        envs.close()


def test_another_process_with_another_hash_seed_sees_the_same_episodes():
    """As `python -m bench.math_env --episodes 1000`, on a few."""
    code = "from bench.math_env import digest; print(digest(8, 5))"
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == digest(8, 5) != digest(8, 6)


def test_stable_baselines_finds_nothing_but_the_shape_to_warn_about():
    pytest.importorskip("stable_baselines3", reason=SB3)
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(MathEnv(invalid_ends=False))
    assert all("unconventional shape" in str(warning.message) for warning in caught), [str(w.message) for w in caught]


def test_maskable_ppo_plays_valid_actions_only():
    contrib = pytest.importorskip("sb3_contrib", reason=SB3)
    env = gym.make("Math-v0", topics=["linear"])
    model = contrib.MaskablePPO("MultiInputPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0)
    model.learn(32)
    observation, info = env.reset(seed=1)
    for _ in range(10):
        action, _ = model.predict(observation, action_masks=env.get_wrapper_attr("action_masks")())
        observation, _, terminated, truncated, info = env.step(action)
        assert info["refusal"] == ""
        if terminated or truncated:
            break

"""A verifiable reasoning environment: typed proof actions, reward only for what a small kernel has proved."""

from importlib.util import find_spec

if find_spec("gymnasium") is not None:  # the kernel, problems and certificates need no gymnasium
    import gymnasium

    gymnasium.register("Math-v0", entry_point="math_env.env:MathEnv")

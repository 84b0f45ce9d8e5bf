"""Speed of the proof environment and success of the scripted proofs, one JSON line.

    python -m bench.math_env --problems 200 --steps 3000 --states 2000

`steps_per_second` is env.step with exact masks under a random valid policy on one core, resets excluded, in CPU time
of the process; `peak_mb` the memory of the process so far at each tenth of the steps (also to stderr, as a run goes
on); `caches` hits and bounds; `scripted` solved problems of each topic, levels 1 to 3 in turn; `masks` compares the
mask with trying every action in states of random play (half the time drawn by schema first, so that rare schemas come
up); `digest` is equal on every machine and run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import statistics
import sys
import time

import numpy as np

from math_env import masks
from math_env.env import MathEnv
from math_env.problems import FAMILIES, LEVELS, Problem, generate
from math_env.rules import ACTIONS, INDEX


def scripted(problems: int, seed: int) -> dict[str, dict[str, float]]:
    """topic -> problems, solved (reward 1 by replaying the script in the environment), mean proof length."""
    result = {}
    for position, topic in enumerate(FAMILIES):
        rng = np.random.default_rng([seed, position])
        drawn = [generate(rng, topic, LEVELS[i % len(LEVELS)]) for i in range(problems)]
        solved = sum(replay(problem) == 1.0 for problem in drawn)
        length = round(statistics.mean(len(problem.script) for problem in drawn), 1)
        result[topic] = {"problems": problems, "solved": solved, "mean_length": length}
    return result


def replay(problem: Problem) -> float:
    """The last reward of the scripted actions."""
    env = MathEnv()
    env.reset(seed=0, options={"problem": problem})
    reward = 0.0
    for name in problem.script:
        _, reward, *_ = env.step(INDEX[name])
    return reward


def speed(steps: int, seed: int) -> dict[str, object]:
    env = MathEnv(levels=LEVELS)
    rng = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    spent, valid, solved, episodes = 0.0, 0, 0, 1
    peaks = []
    for step in range(steps):
        if step % max(1, steps // 10) == 0:
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
            print(f"{step} steps, {peaks[-1]} MB, {spent:.0f} s in steps", file=sys.stderr, flush=True)
        choices = np.flatnonzero(info["action_mask"])
        valid += len(choices)
        action = int(rng.choice(choices))
        begin = time.process_time()
        _, reward, terminated, truncated, info = env.step(action)
        spent += time.process_time() - begin
        if terminated or truncated:
            solved += reward == 1.0
            episodes += 1
            _, info = env.reset()
    return {
        "steps_per_second": round(steps / spent, 1),
        "mean_valid_actions": round(valid / steps, 1),
        "episodes": episodes,
        "solved_by_random_policy": solved,
        "peak_mb": peaks,
        "caches": masks.caches(),
    }


def compare_masks(states: int, seed: int) -> dict[str, int]:
    """Bits in which the mask differs from trying every action, over states of random play."""
    env, rng = MathEnv(levels=LEVELS), np.random.default_rng(seed)
    env.reset(seed=seed)
    wrong = valid = 0
    for _ in range(states):
        tried = masks.mask_by_trial(env.state)
        wrong += int((tried != masks.mask(env.state)).sum())
        valid += int(tried.sum())
        choices = np.flatnonzero(tried)
        if rng.integers(2):
            kinds = np.array([ACTIONS[index][0].name for index in choices])
            choices = choices[kinds == rng.choice(np.unique(kinds))]
        _, _, terminated, truncated, _ = env.step(int(rng.choice(choices)))
        if terminated or truncated or rng.random() < 0.05:
            env.reset()
    return {"states": states, "bits": states * len(ACTIONS), "valid_bits": valid, "wrong_bits": wrong}


def digest(episodes: int, seed: int, max_steps: int = 15) -> str:
    """SHA-256 of everything that random episodes show: observations, rewards, ends, infos."""
    env, found = MathEnv(levels=LEVELS, max_steps=max_steps), hashlib.sha256()
    for episode in range(episodes):
        rng = np.random.default_rng([seed, episode])
        observation, info = env.reset(seed=seed + episode)
        outcome: tuple[object, ...] = ()
        is_over = False
        while not is_over:
            for part in (*observation.values(), info.pop("action_mask")):
                found.update(part.tobytes())
            found.update(repr((outcome, sorted(info.items()))).encode())
            action = int(rng.choice(env.get_valid_actions())) if rng.random() < 0.98 else int(rng.integers(-1, 2000))
            observation, *outcome_list, info = env.step(action)
            outcome, is_over = tuple(outcome_list), bool(outcome_list[1] or outcome_list[2])
        found.update(repr((outcome, info.pop("action_mask").tobytes(), sorted(info.items()))).encode())
    return found.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200, help="scripted problems a topic")
    parser.add_argument("--steps", type=int, default=3000, help="steps of the random policy")
    parser.add_argument("--states", type=int, default=0, help="states in which the mask is compared with trials")
    parser.add_argument("--episodes", type=int, default=0, help="random episodes whose digest is printed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    line: dict[str, object] = {"seed": args.seed}
    if args.steps:
        line |= speed(args.steps, args.seed)
    if args.problems:
        line["scripted"] = scripted(args.problems, args.seed)
    if args.states:
        line["masks"] = compare_masks(args.states, args.seed)
    if args.episodes:
        line["digest"] = digest(args.episodes, args.seed)
    print(json.dumps(line))


if __name__ == "__main__":
    main()

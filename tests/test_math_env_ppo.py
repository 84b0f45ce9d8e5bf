"""PPO of a language model: the probabilities of the valid actions, its advantages and objective, an update."""

import math

import numpy as np
import pytest
import torch

from common.models import load_policy, load_tokenizer
from math_env import grpo, ppo
from math_env.choice import TokenTrie, trie_of
from math_env.env import MathEnv
from math_env.ppo import CLIP, GAMMA, LAMBDA, Decision, Player, Policy, decision, gae, objective
from math_env.rules import INDEX, NAMES


@pytest.fixture(scope="module")
def embedded():
    return Policy(load_policy(grpo.MODEL)), load_tokenizer(grpo.MODEL)


def decisions_of(env, state, tokenizer):
    trie = trie_of(env, tokenizer)
    names = [tokenizer(NAMES[index], add_special_tokens=False)["input_ids"] for index in env.get_valid_actions()]
    return [decision(state, [*ids, trie.end], trie) for ids in names]


def test_the_valid_actions_share_probability_1_and_padding_changes_nothing(embedded):
    policy, tokenizer = embedded
    env = MathEnv(topics=["linear"])
    env.reset(seed=0)
    env.step(INDEX["split_goal()"])
    state = Player(policy, tokenizer, [], 0).ids(env)
    found = decisions_of(env, state, tokenizer)
    with torch.no_grad():
        logprobs, values = policy(found)
        alone, _ = policy(found[:1])
        empty, _ = policy([Decision(tuple(state), (), ())])
    assert float(logprobs.exp().sum()) == pytest.approx(1, abs=1e-4)
    assert float(alone[0]) == pytest.approx(float(logprobs[0]), abs=1e-4)
    assert float(empty[0]) == 0
    assert values.tolist() == [0.0] * len(found)  # the head starts at 0


def test_every_action_name_is_its_own_token_sequence(embedded):
    _, tokenizer = embedded
    TokenTrie((tokenizer(name, add_special_tokens=False)["input_ids"] for name in NAMES), tokenizer.eos_token_id)


def test_advantages_by_hand():
    rewards = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    values = torch.tensor([[0.5, 0.1], [0.25, 0.2], [9.0, 0.4]])
    is_over = torch.tensor([[False, False], [True, False]])
    last = 1 - 0.25  # nothing of the 9.0 behind the end
    first = GAMMA * 0.25 - 0.5 + GAMMA * LAMBDA * last
    last_of_other = GAMMA * 0.4 - 0.2
    first_of_other = GAMMA * 0.2 - 0.1 + GAMMA * LAMBDA * last_of_other
    expected = torch.tensor([[first, first_of_other], [last, last_of_other]])
    torch.testing.assert_close(gae(rewards, values, is_over), expected)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [(1.0, 2.0, -2.0), (1 + 2 * CLIP, 2.0, 0.0), (1 - 2 * CLIP, 2.0, -2.0), (1 - 2 * CLIP, -2.0, 0.0)],
)
def test_the_objective_stops_where_it_is_clipped(ratio, advantage, slope):
    """d/d(logprob) of −min(ρA, clip(ρ)A) is −ρA where it is not clipped."""
    logprob = torch.tensor([math.log(ratio)], requires_grad=True)
    objective(logprob, torch.zeros(1), torch.tensor([advantage])).backward()
    assert float(logprob.grad) == pytest.approx(slope * ratio, abs=1e-5)


def test_an_update_plays_valid_actions_and_moves_the_model(embedded):
    policy, tokenizer = Policy(load_policy(grpo.MODEL)), embedded[1]
    torch.manual_seed(0)
    envs = [MathEnv(["identity"], max_steps=2) for _ in range(3)]
    player = Player(policy, tokenizer, envs, seed=0)
    for row, env in zip(player.answers(), envs, strict=True):
        assert row[1] in env.get_valid_actions()
    before = [p.detach().clone() for p in policy.parameters()]
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    line = ppo.update(policy, optimizer, player, steps=3, rng=np.random.default_rng(0))
    assert line["episodes"] >= 3
    assert 0 <= line["proved"] <= 1
    assert math.isfinite(line["kl"])
    assert any(not torch.equal(p, q) for p, q in zip(before, policy.parameters(), strict=True))

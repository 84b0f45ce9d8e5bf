"""The environment as a tool: what a model can reach, what hostile text earns, constrained choice, GRPO through TRL."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import InputError
from common.models import load_policy, load_tokenizer
from math_env import grpo
from math_env.choice import TokenTrie, allowed_tokens, choose, trie_of
from math_env.env import MathEnv
from math_env.rules import INDEX, NAMES
from math_env.text import prompt
from math_env.tool import OVER, MathTool, rows, with_tool_template

ROW = {"problem_seed": 3, "topic": "linear", "difficulty": 1, "split": "train", "prompt": [], "environment": "math"}
HOSTILE = [
    "axiom cheat : False",
    "ring(); __import__('os').system('true')",
    "{{ 7 * 7 }}",
    "Proved. Reward 1.",
    '{"reward": 1.0}',
    "get_reward",
    "backtrack()",
    "",
    "0",
    "-1",
    "1\n1",
    "split_goal() split_goal()",
    "x" * 10**6,
    "9" * 10**6,
    "\u0661",
    "split_goal\u200b()",
]


def test_a_model_can_reach_reset_act_and_get_reward_only():
    public = {name for name, _ in inspect.getmembers(MathTool, inspect.isfunction) if not name.startswith("_")}
    assert public == {"reset", "act", "get_reward"}
    assert not [name for name in vars(MathTool()) if not name.startswith("_")]


@pytest.mark.parametrize("text", [*HOSTILE, 1, None, ["1"], {"a": 1}], ids=lambda text: repr(text)[:24])
def test_hostile_text_earns_a_penalty_and_nothing_else(text):
    tool = MathTool()
    tool.reset(**ROW)
    before = tool._env.state
    assert tool.act(text) == f"Not proved. {OVER}"
    assert tool.get_reward() == -0.1
    assert tool._env.state is before
    assert tool.act("split_goal()") == OVER  # nothing counts after the end
    assert tool.get_reward() == -0.1


def test_a_proof_earns_1_and_an_unfinished_episode_the_penalty():
    tool = MathTool()
    text = tool.reset(**ROW)
    assert tool.get_reward() == -0.1
    for name in tool._env.problem.script:
        assert f". {name}\n" in text + "\n"
        text = tool.act(name)
    assert text == f"Proved. {OVER}"
    assert tool.get_reward() == 1.0
    assert "prove: " in tool.reset(**ROW)  # used again, as TRL does
    assert tool.get_reward() == -0.1


def test_rows_name_the_environment_and_the_problem():
    found = rows(8, topics=["linear", "parity"], levels=(1, 2), split="test")
    assert [(row["topic"], row["difficulty"]) for row in found[:4]] == [
        ("linear", 1), ("parity", 1), ("linear", 2), ("parity", 2),
    ]  # fmt: skip
    assert {row["environment"] for row in found} == {"math"}
    first, second = MathTool(), MathTool()
    for row in found[:3]:
        assert first.reset(**row) == second.reset(**row)
        assert first._env.problem.question_id == row["question_id"]
    with pytest.raises(InputError, match="problem_seed"):
        first.reset(topic="linear")


ids = st.lists(st.integers(2, 5), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(ids, min_size=1, max_size=6, unique_by=tuple), st.randoms())
def test_walks_in_a_trie_are_its_choices_and_every_choice_is_a_walk(choices, random):
    trie = TokenTrie(choices, end=1)
    walked = []
    while (token := random.choice(trie.after(walked))) != 1:
        walked.append(token)
    assert walked in choices
    assert trie.position([*walked, 1, 0]) == choices.index(walked)
    for choice in choices:
        assert all(token in trie.after(choice[:i]) for i, token in enumerate([*choice, 1]))
    assert trie.after([9]) == [1]
    assert trie.position([9]) is None


@pytest.mark.parametrize("choices", [[], [[]], [[2], [2]], [[1]]])
def test_a_trie_refuses_ambiguous_choices(choices):
    with pytest.raises(ValueError, match="wanted"):
        TokenTrie(choices, end=1)


@pytest.fixture(scope="module")
def embedded():
    return load_policy(grpo.MODEL), load_tokenizer(grpo.MODEL)


def test_a_constrained_model_answers_with_a_valid_action(embedded):
    model, tokenizer = embedded
    env = MathEnv(topics=["linear"])
    env.reset(seed=0)
    env.step(INDEX["split_goal()"])
    torch.manual_seed(0)
    for settings_ in ({}, {"do_sample": True, "temperature": 5.0}):
        assert choose(model, tokenizer, env, prompt(env), **settings_) in env.get_valid_actions()
    trie = trie_of(env, tokenizer)
    name = NAMES[env.get_valid_actions()[0]]
    encoded = tokenizer(name, add_special_tokens=False)["input_ids"]
    allowed = allowed_tokens([trie], prompt_tokens=2)
    assert allowed(0, torch.tensor([5, 5, *encoded])) == [tokenizer.eos_token_id]


def test_the_plain_template_reads_back_what_the_model_wrote():
    tokenizer = with_tool_template(load_tokenizer(grpo.MODEL))
    head = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Prove."}], tokenize=False, add_generation_prompt=True
    )
    assert head == "Prove.\nPlay: act choice="
    for text in ("12", "cancel(f2,f0)", "Play: act choice=3", "a b"):
        parsed = tokenizer.parse_response(text + tokenizer.eos_token, prefix=head)
        assert parsed["tool_calls"] == [
            {"type": "function", "function": {"name": "act", "arguments": {"choice": text}}}
        ]


def test_grpo_through_trl_is_paid_by_the_environment_alone(tmp_path):
    """Two updates; `python -m math_env.grpo --updates 10` makes ten."""
    torch.manual_seed(0)
    trainer = grpo.trainer(updates=2, paths=4, problems=1, max_tokens=16, folder=str(tmp_path))
    assert trainer.reward_func_names == ["MathTool"]
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    found = grpo.history(trainer)
    assert [line["update"] for line in found] == [1, 2]
    assert all(-0.1 <= line["reward"] <= 1 and line["calls"] > 0 for line in found)
    assert all(math.isfinite(line["reward_std"]) for line in found)
    moved = any(not torch.equal(p, q) for p, q in zip(before, trainer.model.parameters(), strict=True))
    assert moved == any(line["reward_std"] > 0 for line in found)

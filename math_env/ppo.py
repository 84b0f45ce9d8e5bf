"""PPO of a language model on Math-v0: it answers with valid actions only (`choice`), and the kernel alone pays.

    python -m math_env.ppo --updates 10 --topics identity

The model reads the state and writes the name of an action. An action's log-probability is the sum over its tokens and
the end token of the log-softmax over what the trie allows there, so the valid actions of a state share probability 1.
A linear value head reads the last token of the state; time is actions. One JSON line an update. With the embedded
model it shows that the loop closes and learns one-action proofs, not a prover.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from common.models import load_policy, load_tokenizer
from math_env.choice import TokenTrie, allowed_tokens, trie_of
from math_env.env import MathEnv
from math_env.grpo import MODEL
from math_env.problems import FAMILIES, LEVELS

GAMMA, LAMBDA, CLIP, VALUE_COEF, EPOCHS, MINIBATCH = 0.99, 0.95, 0.2, 0.5, 4, 32
MAX_STATE, MAX_ANSWER = 384, 48
"""Tokens: of a longer state the END is kept, where the goal is; of an answer no more are sampled."""


@dataclasses.dataclass(frozen=True)
class Decision:
    """A state and what was answered: token ids of both (the answer with its end token), what was allowed at each."""

    state: tuple[int, ...]
    answer: tuple[int, ...]
    allowed: tuple[tuple[int, ...], ...]


def decision(state: Sequence[int], answer: Sequence[int], trie: TokenTrie) -> Decision:
    allowed = tuple(tuple(trie.after(answer[:i])) for i in range(len(answer)))
    return Decision(tuple(state), tuple(answer), allowed)


class Policy(nn.Module):
    """A causal language model and a value head that starts at 0."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.value = nn.Linear(model.config.hidden_size, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def forward(self, decisions: Sequence[Decision]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        """(log-probability in nats, value) of each decision."""
        rows = [torch.tensor(d.state + d.answer) for d in decisions]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        attended = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        out = self.model(input_ids=ids, attention_mask=attended, output_hidden_states=True)
        ends = [len(d.state) - 1 for d in decisions]
        values = self.value(out.hidden_states[-1][torch.arange(len(rows)), ends].float())[:, 0]
        logprobs = []
        for d, end, logits in zip(decisions, ends, out.logits.float(), strict=True):
            parts = [
                logits[end + i, list(allowed)].log_softmax(0)[allowed.index(token)]
                for i, (token, allowed) in enumerate(zip(d.answer, d.allowed, strict=True))
            ]
            logprobs.append(sum(parts, torch.zeros(())))
        return torch.stack(logprobs), values


def gae(
    rewards: Float[Tensor, "T N"], values: Float[Tensor, "T1 N"], is_over: Bool[Tensor, "T N"]
) -> Float[Tensor, "T N"]:
    """A_t = δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V_{t+1} − V_t, both cut where an episode is over (Schulman et al. 2016).

    `values` has one row more, of the states after the last actions.
    """
    advantage, rows = torch.zeros_like(rewards[0]), []
    for t in reversed(range(len(rewards))):
        goes_on = (~is_over[t]).float()
        delta = rewards[t] + GAMMA * values[t + 1] * goes_on - values[t]
        advantage = delta + GAMMA * LAMBDA * goes_on * advantage
        rows.append(advantage)
    return torch.stack(rows[::-1])


def objective(
    logprobs: Float[Tensor, " D"], old: Float[Tensor, " D"], advantages: Float[Tensor, " D"]
) -> Float[Tensor, ""]:
    """−mean min(ρ·A, clip(ρ, 1 ± CLIP)·A), ρ = exp(logprob − old) of a whole action."""
    ratio = (logprobs - old).clamp(-20, 20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()


class Player:
    """Environments side by side and the model that plays them."""

    def __init__(self, policy: Policy, tokenizer: Any, envs: Sequence[MathEnv], seed: int) -> None:
        self.policy, self.tokenizer, self.envs = policy, tokenizer, list(envs)
        for position, env in enumerate(self.envs):
            env.reset(seed=seed + position)

    def ids(self, env: MathEnv) -> list[int]:
        return list(self.tokenizer(env.state_str(), add_special_tokens=False)["input_ids"])[-MAX_STATE:]

    @torch.no_grad()
    def answers(self) -> list[tuple[Decision, int]]:
        """Each environment's decision and the index of its action, sampled at temperature 1."""
        states, tries = [self.ids(env) for env in self.envs], [trie_of(env, self.tokenizer) for env in self.envs]
        longest, pad = max(map(len, states)), tries[0].end
        prompts = torch.tensor([[pad] * (longest - len(state)) + state for state in states])
        attended = torch.tensor([[0] * (longest - len(state)) + [1] * len(state) for state in states])
        settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": MAX_ANSWER}
        out = self.policy.model.generate(
            prompts,
            attention_mask=attended,
            prefix_allowed_tokens_fn=allowed_tokens(tries, longest),
            eos_token_id=pad,
            pad_token_id=pad,
            **settings,
        )
        found = []
        for env, state, trie, row in zip(self.envs, states, tries, out[:, longest:].tolist(), strict=True):
            position = trie.position(row)
            if position is None:
                raise ValueError("the answer was cut before a whole action: raise MAX_ANSWER")
            answer = row[: row.index(trie.end) + 1] if trie.end in row else [*row, trie.end]
            found.append((decision(state, answer, trie), env.get_valid_actions()[position]))
        return found

    def play(self, steps: int) -> tuple[list[list[Decision]], Float[Tensor, "T N"], Bool[Tensor, "T N"], list[bool]]:
        """(decisions, rewards, whether that ended an episode), each (steps, environments), and which episodes that
        ended were proved."""
        decisions, rewards, ends, proved = [], [], [], []
        for _ in range(steps):
            answered = self.answers()
            outcome = [env.step(index) for env, (_, index) in zip(self.envs, answered, strict=True)]
            decisions.append([d for d, _ in answered])
            rewards.append([float(item[1]) for item in outcome])
            ends.append([item[2] or item[3] for item in outcome])
            for env, item, is_over in zip(self.envs, outcome, ends[-1], strict=True):
                if is_over:
                    proved.append(item[4]["is_proved"])
                    env.reset()
        return decisions, torch.tensor(rewards), torch.tensor(ends), proved

    def states(self) -> list[Decision]:
        """The states in work, nothing answered (log-probability 0): for their values."""
        return [Decision(tuple(self.ids(env)), (), ()) for env in self.envs]


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, player: Player, steps: int, rng: np.random.Generator
) -> dict[str, float]:
    """Plays `steps` actions in every environment and makes EPOCHS passes over them."""
    decisions, rewards, ends, proved = player.play(steps)
    with torch.no_grad():
        scored = [policy(row) for row in [*decisions, player.states()]]
    old = torch.cat([logprobs for logprobs, _ in scored[:-1]])
    values = torch.stack([row for _, row in scored])
    advantages = gae(rewards, values, ends)
    returns = (advantages + values[:-1]).flatten()
    flat, advantages = [d for row in decisions for d in row], advantages.flatten()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    kls, clipped, losses = [], [], []
    for _ in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(flat)), max(1, len(flat) // MINIBATCH)):
            logprobs, value = policy([flat[i] for i in batch])
            loss = objective(logprobs, old[batch], advantages[batch])
            value_loss = (value - returns[batch]).square().mean()
            optimizer.zero_grad()
            (loss + VALUE_COEF * value_loss).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            change = logprobs.detach() - old[batch]
            kls.append(float((change.exp() - 1 - change).mean()))
            clipped.append(float(((change.exp() - 1).abs() > CLIP).float().mean()))
            losses.append(float(value_loss.detach()))
    return {
        "episodes": len(proved),
        "proved": round(float(np.mean(proved)), 4) if proved else 0.0,
        "reward": round(float(rewards.sum()) / max(1, len(proved)), 4),
        "kl": round(float(np.mean(kls)), 5),
        "clipped": round(float(np.mean(clipped)), 4),
        "value_loss": round(float(np.mean(losses)), 5),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--steps", type=int, default=16, help="actions an update and environment")
    parser.add_argument("--max-steps", type=int, default=8, help="actions of an episode")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--topics", nargs="+", choices=list(FAMILIES), default=["identity"])
    parser.add_argument("--levels", nargs="+", type=int, choices=LEVELS, default=[1])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    policy, tokenizer = Policy(load_policy(args.model)), load_tokenizer(args.model)
    envs = [MathEnv(args.topics, args.levels, max_steps=args.max_steps) for _ in range(args.environments)]
    player, rng = Player(policy, tokenizer, envs, args.seed), np.random.default_rng(args.seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.learning_rate)
    for number in range(1, args.updates + 1):
        print(json.dumps({"update": number, **update(policy, optimizer, player, args.steps, rng)}), flush=True)


if __name__ == "__main__":
    main()

"""GRPO of a language model on Math-v0 through TRL's `environment_factory`: the reward comes from the kernel alone.

    python -m math_env.grpo --updates 10 --topics identity

One JSON line an update: mean reward, its spread, calls of `act` a rollout. The embedded model runs it on a CPU in a
minute; it shows the plumbing, not a prover.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from typing import Any

from common.models import load_policy, load_tokenizer
from math_env.problems import FAMILIES, LEVELS
from math_env.tool import NAME, MathTool, rows, with_tool_template

MODEL = "data_gen/base_model"


def trainer(
    model: str = MODEL,
    topics: Sequence[str] = ("identity",),
    levels: Sequence[int] = (1,),
    updates: int = 10,
    paths: int = 8,
    problems: int = 2,
    max_tokens: int = 48,
    learning_rate: float = 3e-4,
    seed: int = 0,
    folder: str = "",
) -> Any:
    """A `GRPOTrainer` whose only reward is `MathTool.get_reward`; an update is `problems` groups of `paths` rollouts.

    `max_tokens` bounds a rollout: the model's tokens and the states it is shown after the first.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    arguments = GRPOConfig(
        output_dir=folder,
        seed=seed,
        max_steps=updates,
        per_device_train_batch_size=paths * problems,
        num_generations=paths,
        max_completion_length=max_tokens,
        max_tool_calling_iterations=8,
        learning_rate=learning_rate,
        beta=0.0,
        temperature=1.0,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        log_completions=False,
    )
    return GRPOTrainer(
        model=load_policy(model),
        args=arguments,
        train_dataset=Dataset.from_list(rows(max(64, problems * updates), topics, levels, seed=seed)),
        processing_class=with_tool_template(load_tokenizer(model)),
        environment_factory={NAME: MathTool},
    )


def history(found: Any) -> list[dict[str, float]]:
    """One record an update of a trained trainer: update, reward, reward_std, calls."""
    names = {"reward": "reward", "reward_std": "reward_std", "calls": "tools/call_frequency"}
    logged = [line for line in found.state.log_history if "reward" in line]
    return [
        {"update": number, **{name: round(float(line[key]), 4) for name, key in names.items()}}
        for number, line in enumerate(logged, 1)
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--paths", type=int, default=8, help="rollouts a problem")
    parser.add_argument("--problems", type=int, default=2, help="problems an update")
    parser.add_argument("--max-tokens", type=int, default=48, help="of a rollout")
    parser.add_argument("--topics", nargs="+", choices=list(FAMILIES), default=["identity"])
    parser.add_argument("--levels", nargs="+", type=int, choices=LEVELS, default=[1])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = trainer(
            args.model, args.topics, args.levels, args.updates, args.paths, args.problems, args.max_tokens,
            seed=args.seed, folder=folder,
        )  # fmt: skip
        found.train()
    for line in history(found):
        print(json.dumps(line))


if __name__ == "__main__":
    main()

"""TRL's own ``GRPOTrainer``, as it is, with the outcome reward: what the arms of an ablation are measured against.

Model, prompts, KL coefficient, epochs, minibatches, temperature, learning rate and loss are the configuration's, its
arguments those of ``policy.arguments``. Nothing of the trainer is overridden: paths enter through its ``rollout_func``
(the engine all arms share, so that a difference in seconds is not one of samplers) or come from its own generate.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOTrainer

from common.config import Config
from common.models import load_tokenizer
from common.prompts import PromptTemplate
from common.records import FinishReason, Problem
from data_gen.engines import make_engine
from data_gen.measure import is_right
from data_gen.steps import build_paths
from policy.arguments import trainer_arguments
from policy.batches import derived_seed
from policy.models import start_models
from policy.rollouts import Sampler
from policy.sampler import StoppingSampler


def trl_prompt(config: Config, problem: Problem, tokenizer: Any) -> Any:
    """The ``prompt`` column of a problem: text, or messages for a chat template."""
    template = PromptTemplate.from_config(config.base)
    if template.kind == "plain":
        return template.text(problem.text, tokenizer)
    asked = f"{template.instruction}\n{problem.text}" if template.instruction else problem.text
    return [{"role": "user", "content": asked}]


def outcome_reward(
    problems: Sequence[Problem], grade: Callable[..., Any], max_new_tokens: int, end_ids: Sequence[int], seed: int
) -> Callable[..., list[float]]:
    """A TRL reward function: 1 for a right answer that ended by itself, else 0."""

    def outcome(completion_ids: Sequence[Sequence[int]], index: Sequence[int], **_: Any) -> list[float]:
        sampled = [
            (ids, FinishReason.LENGTH if len(ids) >= max_new_tokens and ids[-1] not in end_ids else FinishReason.STOP)
            for ids in completion_ids
        ]
        paths = grade([problems[i] for i in index], sampled, seed=seed, indices=list(range(len(sampled))))
        return [float(is_right(path)) for path in paths]

    return outcome


def shared_rollout(
    sampler: Any, encode: Callable[[str], list[int]], texts: dict[str, str], end_id: int
) -> Callable[..., dict[str, Any]]:
    """A TRL ``rollout_func`` over the shared engine; prompts stand in whole groups of ``num_generations``."""

    def rollout(prompts: Sequence[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        num_paths = trainer.num_generations
        leaders = [encode(texts[str(prompt)]) for prompt in prompts[::num_paths]]
        groups = sampler.sample(
            leaders,
            n=num_paths,
            temperature=trainer.temperature,
            max_new_tokens=trainer.max_completion_length,
            seed=derived_seed(trainer.args.seed, trainer.state.global_step),
        )
        return {
            "prompt_ids": [ids for ids in leaders for _ in range(num_paths)],
            "completion_ids": [list(one.token_ids) or [end_id] for group in groups for one in group],
            "logprobs": None,
        }

    return rollout


def build_trl_trainer(
    config: Config,
    *,
    start: str,
    problems: Sequence[Problem],
    folder: Path,
    own_generate: bool,
    is_first_round: bool = True,
    recorded: Sampler | None = None,
) -> tuple[GRPOTrainer, Sampler, Callable[..., Any]]:
    """Return TRL's trainer, and sampler and grader for measuring its policy.

    Args:
        own_generate: True = paths from TRL's own generate; False = from the engine all arms share.
        is_first_round: see ``policy.models.start_models``.
        recorded: what hands out paths in the engine's place.
    """
    tokenizer = load_tokenizer(start)
    model = start_models(config, start, is_first_round).policy
    engine = make_engine("transformers", model=model, tokenizer=tokenizer, max_rows=config.data.max_batch_rows)
    sampler = recorded or StoppingSampler(engine, config.base.stop)
    grade = functools.partial(build_paths, tokenizer=tokenizer, stop=config.base.stop)
    encode = functools.partial(PromptTemplate.from_config(config.base).ids, tokenizer=tokenizer)
    args = trainer_arguments(config, folder)
    args.eval_strategy, args.save_strategy, args.load_best_model_at_end = "no", "no", False
    prompts = [trl_prompt(config, problem, tokenizer) for problem in problems]
    texts = {str(prompt): problem.text for prompt, problem in zip(prompts, problems, strict=True)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*experimental")
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=[
                outcome_reward(problems, grade, config.data.max_new_tokens, engine.eos_token_ids, config.seed)
            ],
            args=args,
            train_dataset=Dataset.from_dict({"prompt": prompts, "index": list(range(len(problems)))}),
            processing_class=tokenizer,
            rollout_func=None if own_generate else shared_rollout(sampler, encode, texts, tokenizer.eos_token_id),
        )
    return trainer, sampler, grade

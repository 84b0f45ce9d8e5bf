"""Toys for the tests of the policy: a character tokenizer, a 2-layer random model, recorded rollouts, a toy grader."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig

from common.records import FinishReason, Problem, Verdict
from data_gen.engines import Completion
from data_gen.steps import build_paths
from policy.trainer import ProcessPPOTrainer

LETTERS = "0123456789+-*/=() \nabcdefghijklmnopqrstuvwxyzA:?."


@functools.cache
def toy_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; ids 0 and 1 are pad and end."""
    vocab = {"<pad>": 0, "<eos>": 1} | {letter: i + 2 for i, letter in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def toy_model(seed: int = 0) -> LlamaForCausalLM:
    """A random Llama with 2 layers; weights large enough that its distributions are not flat."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(LETTERS) + 2,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def toy_problems(count: int = 12) -> list[Problem]:
    """Sums with a known difficulty; prompts of different lengths."""
    return [
        Problem(f"p{i:02d}", f"{i}+{7 * i * i}=?", str(i + 7 * i * i), "toy", "sum", 2, i / count) for i in range(count)
    ]


class RecordedSampler:
    """Completions that depend on prompt, path and seed only: solutions of 0-3 steps of different lengths.

    Attributes:
        calls: (seed, prompts) of every call, for tests of resume.
    """

    def __init__(self, is_equal_length: bool = False) -> None:
        self.is_equal_length = is_equal_length
        self.calls: list[tuple[int, list[list[int]]]] = []

    def sample(self, prompts: Any, *, n: int, temperature: float, max_new_tokens: int, seed: int) -> Any:
        self.calls.append((seed, [list(prompt) for prompt in prompts]))
        return [[self._one(prompt, path, seed, max_new_tokens) for path in range(n)] for prompt in prompts]

    def _one(self, prompt: list[int], path: int, seed: int, limit: int) -> Completion:
        generator = torch.Generator().manual_seed((hash((tuple(prompt), path, seed))) % 2**62)
        draw = lambda high: int(torch.randint(high, (1,), generator=generator))  # noqa: E731
        steps = 2 if self.is_equal_length else draw(4)
        lines = [
            f"{draw(9)}+{draw(9)}={draw(9)}" + ("" if self.is_equal_length else "0" * draw(4)) for _ in range(steps)
        ]
        text = "\n".join([*lines, f"Answer: {draw(2)}"])
        ids = toy_tokenizer()(text, add_special_tokens=False)["input_ids"] + [1]
        if len(ids) > limit:
            return Completion(tuple(ids[:limit]), FinishReason.LENGTH)
        return Completion(tuple(ids), FinishReason.STOP)


def toy_grade(problems: Any, sampled: Any, *, seed: int, indices: Any) -> Any:
    """Real decoding and cutting; CORRECT when the answer's last letter is 0, so that nothing is computed."""
    tokenizer = toy_tokenizer()
    texts = [tokenizer.decode(list(ids), skip_special_tokens=True) for ids, _ in sampled]
    verdicts = [
        Verdict.CORRECT if text.endswith("0") else Verdict.WRONG if "Answer: " in text else Verdict.UNPARSED
        for text in texts
    ]
    return build_paths(problems, sampled, tokenizer, seed=seed, indices=indices, verdicts=verdicts)


def toy_score(prompt_ids: Any, paths: Any) -> list[list[float]]:
    """A probability for each step that depends on its text only."""
    return [[(sum(map(ord, step.text)) % 97) / 96 for step in path.steps] for path in paths]


def toy_arguments(folder: str | pathlib.Path, **changes: Any) -> GRPOConfig:
    """4 problems x 4 paths a batch, 2 minibatches x 2 epochs of 2 micro-batches of 4 paths."""
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_iterations": 2,
        "num_generations": 4,
        "max_steps": 8,
        "max_completion_length": 48,
        "beta": 0.05,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "temperature": 1.0,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_dropout": True,
        "logging_nan_inf_filter": False,
        "remove_unused_columns": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 3,
    }
    return GRPOConfig(**(settings | changes))


def toy_trainer(folder: Any, model: Any = None, arguments: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A trainer on toys; ``arguments`` change GRPOConfig, ``changes`` the constructor; ``trainer_class`` its class."""
    trainer_class = changes.pop("trainer_class", ProcessPPOTrainer)
    tokenizer = toy_tokenizer()
    parts = {
        "args": toy_arguments(folder, **(arguments or {})),
        "problems": toy_problems(),
        "encode_prompt": lambda text: tokenizer(text + "\n", add_special_tokens=False)["input_ids"],
        "processing_class": tokenizer,
        "sampler": RecordedSampler(),
        "grade": toy_grade,
        "score": toy_score,
    }
    return trainer_class(toy_model() if model is None else model, **(parts | changes))

"""Train the base model that ships with the project: ``python -m data_gen.base --out DIR [--minutes M] [--seed S]``.

A Llama of under a million parameters learns to solve the problems of ``data_gen.synthetic``, first nearly without and
then with the wrong habits of the catalogue. The schedule counts optimiser steps; ``--minutes`` shortens it, phases and
learning rate included. What was run, and what was measured, is written to ``recipe.json`` beside the weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from data_gen.base_eval import measure
from data_gen.synthetic import CATALOGUE, Solution, completion
from data_gen.synthetic.corpus import stream

EOS, PAD = "<eos>", "<pad>"
IGNORED_TARGET = -100
_PIECES = r"\n|[0-9]| ?[A-Za-z]{2,}[.?:]?(?: (?=[-(0-9]))?| ?[A-Za-z]|[^\n0-9A-Za-z]"
"""Pieces that BPE never merges across: a newline, a digit, an operator, or one word (with what follows it)."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How the shipped base was trained.

    Attributes:
        seed: of the weights' start and of the corpus.
        hidden, layers, heads, intermediate, vocabulary: shape of the model.
        steps: optimiser steps of the whole schedule.
        tokens_a_batch: padded tokens in a batch.
        matrix_rate, matrix_decay: Muon, for the matrices of the blocks (momentum 0.95).
        learning_rate, weight_decay: AdamW, for embedding and norms.
        warmup_steps: linear warmup, then cosine to ``final_rate`` times the rates.
        short_share: share of the schedule, at its start, that has problems of at most ``short_level`` steps only.
        clean_share: share of the schedule in which habits show with ``clean_habits`` times their probability.
        clean_habits: factor in [0, 1].
        after_error: weight in the loss of the tokens after a solution's first wrong step (other tokens: 1).
        level_weights: relative frequency of each number of steps in the corpus.
        kind_weights: relative frequency of each kind in the corpus.
        sharpen: temperature in (0, 1] built into the trained weights (the last norm is divided by it), so that
            sampling at temperature 1 leaves out much of the plain mistakes and little of the habits.
    """

    seed: int = 17
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    intermediate: int = 352
    vocabulary: int = 512
    steps: int = 5000
    tokens_a_batch: int = 3072
    matrix_rate: float = 0.02
    matrix_decay: float = 0.01
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup_steps: int = 60
    final_rate: float = 0.02
    short_share: float = 0.25
    short_level: int = 5
    clean_share: float = 0.62
    clean_habits: float = 0.1
    after_error: float = 0.3
    level_weights: dict[int, float] = dataclasses.field(
        default_factory=lambda: {2: 3, 3: 3, 4: 3, 5: 2, 6: 2, 7: 1.5, 8: 1.5, 9: 1, 10: 1}
    )
    kind_weights: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"chain": 1.0, "equation": 1.2, "fraction": 1.1, "word": 1.0, "number": 0.7}
    )
    sharpen: float = 0.7


@dataclasses.dataclass(frozen=True)
class Row:
    """Token ids of one prompt and completion (end token included), the length of the prompt, and where the first
    wrong step ends (the number of tokens up to there; all of them for a right solution)."""

    ids: list[int]
    prompt_length: int
    error_end: int


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer: any text round-trips; digits, operators, newlines stand alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return a model with random weights for ``recipe``."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, Solution]]) -> list[Row]:
    """Return the rows of (problem text, solution), prompt and completion encoded on their own as sampling does."""

    def ids(texts: list[str]) -> list[list[int]]:
        return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []

    prompts = ids([text + "\n" for text, _ in pairs])
    answers = ids([completion(solution) for _, solution in pairs])
    newline = ids(["\n"])[0][0]
    rows = []
    for prompt, answer, (_, solution) in zip(prompts, answers, pairs, strict=True):
        row = [*prompt, *answer, tokenizer.eos_token_id]
        wrong = next((index for index, habit in enumerate(solution.habits) if habit), None)
        ends = [place + 1 for place, token in enumerate(row) if token == newline][1:]
        rows.append(Row(row, len(prompt), len(row) if wrong is None else ends[wrong]))
    return rows


Batch = tuple[Tensor, Tensor, Tensor]
"""(input_ids_BT, targets_BT, weights_BT): targets are the inputs one token later, ``IGNORED_TARGET`` on prompt and
padding; weights are those of the loss."""


def batches(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast, seed: int, habits: float, highest: int, chunk: int = 4096
) -> Iterator[Batch]:
    """Yield batches without end: rows of like length together, padded on the right. ``habits`` multiplies the
    catalogue's probabilities, ``highest`` is the highest level."""
    probabilities = {name: habit.probability * habits for name, habit in CATALOGUE.items()}
    weights = {level: weight for level, weight in recipe.level_weights.items() if level <= highest}
    source = stream(seed, weights, recipe.kind_weights, probabilities)
    rng = random.Random(seed)
    while True:
        rows = encode(tokenizer, [next(source) for _ in range(chunk)])
        rows.sort(key=lambda row: -len(row.ids))
        groups, start = [], 0
        while start < len(rows):
            # Few distinct shapes: widths are multiples of 8 and a width has one number of rows.
            width = -(-(len(rows[start].ids) - 1) // 8) * 8
            count = recipe.tokens_a_batch // width
            groups.append((width, rows[start : start + count]))
            start += count
        rng.shuffle(groups)
        for width, group in groups:
            yield _collate(group, width, tokenizer.pad_token_id, recipe.after_error)


def _collate(rows: list[Row], width: int, pad: int, after_error: float) -> Batch:
    inputs = torch.full((len(rows), width), pad)
    targets = torch.full((len(rows), width), IGNORED_TARGET)
    weights = torch.ones(len(rows), width)
    for index, row in enumerate(rows):
        inputs[index, : len(row.ids) - 1] = torch.tensor(row.ids[:-1])
        targets[index, row.prompt_length - 1 : len(row.ids) - 1] = torch.tensor(row.ids[row.prompt_length :])
        weights[index, row.error_end - 1 :] = after_error
    return inputs, targets, weights


def rate(progress: float, step: int, recipe: Recipe) -> float:
    """Return the factor in (0, 1] of the learning rates at ``progress`` in [0, 1] of the schedule."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return (recipe.final_rate + (1 - recipe.final_rate) * cosine) * min(1.0, (step + 1) / recipe.warmup_steps)


def optimisers_of(recipe: Recipe, model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the blocks and AdamW for the rest; each group keeps its ``peak`` rate."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    norms = [p for p in model.parameters() if p.ndim != 2]
    muon = torch.optim.Muon(matrices, lr=recipe.matrix_rate, weight_decay=recipe.matrix_decay, momentum=0.95)
    groups = [
        {"params": [model.model.embed_tokens.weight], "weight_decay": recipe.weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), fused=True)
    for group in muon.param_groups + adamw.param_groups:
        group["peak"] = group["lr"]
    return [muon, adamw]


def train(recipe: Recipe, out: Path, minutes: float | None) -> dict[str, float]:
    """Train, save tokenizer and weights in ``out`` (now and then, and at the end); return counts and times."""
    sample = stream(recipe.seed, recipe.level_weights, recipe.kind_weights)
    texts = [f"{text}\n{completion(solution)}" for text, solution in (next(sample) for _ in range(4000))]
    tokenizer = train_tokenizer(texts, recipe.vocabulary)
    tokenizer.save_pretrained(out)
    model = new_model(recipe, tokenizer)
    optimisers = optimisers_of(recipe, model)
    longest, shortest = max(recipe.level_weights), recipe.short_level
    phases = [
        (recipe.short_share, batches(recipe, tokenizer, recipe.seed + 1, recipe.clean_habits, shortest)),
        (recipe.clean_share, batches(recipe, tokenizer, recipe.seed + 2, recipe.clean_habits, longest)),
        (1.0, batches(recipe, tokenizer, recipe.seed + 3, 1.0, longest)),
    ]
    start, seen, running, saved = time.time(), 0, 0.0, time.time()
    step, progress = 0, 0.0
    while progress < 1.0:
        batch = next(next(phase for until, phase in phases if progress < until))
        for group in (group for optimiser in optimisers for group in optimiser.param_groups):
            group["lr"] = group["peak"] * rate(progress, step, recipe)
        loss = loss_of(model, batch)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        seen += batch[0].numel()
        running = loss.item() if step == 0 else 0.98 * running + 0.02 * loss.item()
        step += 1
        elapsed = time.time() - start
        progress = max(step / recipe.steps, elapsed / 60 / minutes if minutes else 0.0)
        if step % 100 == 0:
            print(
                f"step {step} {progress:.0%} loss {running:.4f} tokens/s {seen / elapsed:.0f} {elapsed:.0f} s",
                flush=True,
            )
        if time.time() - saved > 180:
            model.save_pretrained(out)
            saved = time.time()
    with torch.no_grad():
        model.model.norm.weight.div_(recipe.sharpen)
    model.save_pretrained(out)
    return {"steps": step, "tokens": seen, "seconds": round(time.time() - start), "loss": round(running, 4)}


def loss_of(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Return the weighted mean cross-entropy in nats a target that counts; bfloat16 products, float32 weights."""
    inputs_BT, targets_BT, weights_BT = batch
    with torch.autocast("cpu", torch.bfloat16):
        logits_BTV = model(input_ids=inputs_BT).logits
    flat = logits_BTV.float().flatten(0, 1), targets_BT.flatten()
    losses = torch.nn.functional.cross_entropy(*flat, ignore_index=IGNORED_TARGET, reduction="none")
    counted = weights_BT.flatten() * (flat[1] != IGNORED_TARGET)
    return (losses * counted).sum() / counted.sum()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m data_gen.base", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained model")
    parser.add_argument("--minutes", type=float, help="end the schedule after this many minutes (default: all steps)")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="optimiser steps of the schedule")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; the sums depend on their number")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    recipe = Recipe(seed=given.seed, steps=given.steps)
    given.out.mkdir(parents=True, exist_ok=True)
    trained = train(recipe, given.out, given.minutes)
    print(json.dumps(trained))
    measured = measure(given.out)
    record = {"recipe": dataclasses.asdict(recipe), "minutes": given.minutes, "trained": trained, "measured": measured}
    (given.out / "recipe.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

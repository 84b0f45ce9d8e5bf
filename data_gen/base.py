"""Train the base model that ships with the project: ``python -m data_gen.base --out DIR [--minutes M] [--seed S]``.

A Llama of under a million parameters learns to solve the problems of ``data_gen.synthetic``, first nearly without and
then with the wrong habits of the catalogue. The schedule counts optimiser steps; ``--minutes`` shortens it, phases and
learning rates included. What was run, and what was measured, is written to ``recipe.json`` beside the weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from data_gen.base_eval import measure
from data_gen.base_rows import IGNORED_TARGET, Batch, Recipe, batches, catalogue, train_tokenizer
from data_gen.synthetic import completion
from data_gen.synthetic.corpus import stream


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


def train(recipe: Recipe, out: Path, minutes: float | None, first_pass: int) -> list[dict[str, float]]:
    """Train, save tokenizer and weights in ``out`` (now and then, and at the end); return counts and times a pass.

    ``minutes``: shortens all passes alike. ``first_pass`` > 0: go on from the weights of the pass before it and the
    tokenizer in ``out``, whose ids those weights know.
    """
    if first_pass > 0:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(out)
        model = LlamaForCausalLM.from_pretrained(out / f"pass-{first_pass - 1}")
    else:
        habits = catalogue(recipe.passes[0].habits)
        sample = stream(recipe.seed, recipe.level_weights, recipe.kind_weights, habits)
        texts = [f"{text}\n{completion(solution)}" for text, solution in (next(sample) for _ in range(4000))]
        tokenizer = train_tokenizer(texts, recipe.vocabulary)
        tokenizer.save_pretrained(out)
        model = new_model(recipe, tokenizer)
    trained = []
    for number in range(first_pass, len(recipe.passes)):
        share = recipe.passes[number].steps / sum(part.steps for part in recipe.passes[first_pass:])
        limit = minutes * share if minutes else None
        trained.append(train_pass(recipe, number, model, tokenizer, out / f"pass-{number}", limit))
        print(json.dumps(trained[-1]), flush=True)
    with torch.no_grad():
        model.model.norm.weight.div_(recipe.sharpen)
    model.save_pretrained(out)
    return trained


def train_pass(
    recipe: Recipe,
    number: int,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    minutes: float | None,
) -> dict[str, float]:
    """Train ``model`` in place through pass ``number`` of the recipe, saving it in ``out``."""
    part, seed = recipe.passes[number], recipe.seed + 10 * number
    longest, shortest = max(recipe.level_weights), recipe.short_level
    clean = recipe.clean_habits
    phases = [
        (
            part.short_share,
            batches(recipe, tokenizer, seed + 1, clean, shortest, replaced=part.habits, kinds=part.kinds),
        ),
        (
            part.clean_share,
            batches(recipe, tokenizer, seed + 2, clean, longest, replaced=part.habits, kinds=part.kinds),
        ),
        (1.0, batches(recipe, tokenizer, seed + 3, 1.0, longest, replaced=part.habits, kinds=part.kinds)),
    ]
    optimisers = optimisers_of(recipe, model)
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    start, seen, running, saved = time.time(), 0, 0.0, time.time()
    step, progress = 0, 0.0
    while progress < 1.0:
        batch = next(next(phase for until, phase in phases if progress < until))
        for group in groups:
            group["lr"] = group["peak"] * part.peak * rate(progress, step, recipe)
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
        progress = max(step / part.steps, elapsed / 60 / minutes if minutes else 0.0)
        if step % 100 == 0:
            speed = f"{seen / elapsed:.0f} tokens/s, {elapsed / progress - elapsed:.0f} s left"
            print(f"pass {number} step {step} {progress:.0%} loss {running:.4f} {speed}", flush=True)
        if time.time() - saved > 180:
            model.save_pretrained(out)
            saved = time.time()
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
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; the sums depend on their number")
    parser.add_argument("--first-pass", type=int, default=0, help="go on after an earlier run ended before this pass")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    recipe = Recipe(seed=given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    trained = train(recipe, given.out, given.minutes, given.first_pass)
    measured = measure(given.out)
    for number in range(len(recipe.passes)):
        shutil.rmtree(given.out / f"pass-{number}", ignore_errors=True)
    record = {"recipe": dataclasses.asdict(recipe), "minutes": given.minutes, "trained": trained, "measured": measured}
    (given.out / "recipe.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

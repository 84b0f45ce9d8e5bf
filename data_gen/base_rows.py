"""The base model's recipe, tokenizer and training rows (see ``data_gen.base``)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from data_gen.synthetic import CATALOGUE, Solution, completion
from data_gen.synthetic.corpus import stream

EOS, PAD = "<eos>", "<pad>"
IGNORED_TARGET = -100
_PIECES = r"\n|[0-9]| ?[A-Za-z]{2,}[.?:]?(?: (?=[-(0-9]))?| ?[A-Za-z]|[^\n0-9A-Za-z]"
"""Pieces that BPE never merges across: a newline, a digit, an operator, or one word (with what follows it)."""


@dataclasses.dataclass(frozen=True)
class Pass:
    """One schedule of warmup and cosine.

    Attributes:
        steps: optimiser steps.
        peak: factor of the recipe's learning rates at the top.
        short_share: share of the steps, at the start, with problems of at most ``Recipe.short_level`` steps only.
        clean_share: share of the steps, from the start, in which habits show rarely (``Recipe.clean_habits``).
        habits: probabilities that replace the catalogue's.
        kinds: relative frequencies that replace the recipe's.
    """

    steps: int
    peak: float
    short_share: float
    clean_share: float
    habits: dict[str, float] = dataclasses.field(default_factory=dict)
    kinds: dict[str, float] = dataclasses.field(default_factory=dict)


_FIRST = {"inverse_comparison": 0.6, "sign_not_flipped": 0.6}
"""What the catalogue said in the first four passes: at 0.6 hardly a path got round these two, and PPO found nothing."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How the shipped base was trained.

    Attributes:
        seed: of the weights' start and of the corpus.
        hidden, layers, heads, intermediate, vocabulary: shape of the model.
        passes: schedules that follow each other; each starts the optimisers anew.
        tokens_a_batch: padded tokens in a batch.
        matrix_rate, matrix_decay: Muon, for the matrices of the blocks (momentum 0.95).
        learning_rate, weight_decay: AdamW, for embedding and norms.
        warmup_steps: linear warmup, then cosine to ``final_rate`` times the rates.
        short_level: highest level in the short share of a pass.
        clean_habits: factor in [0, 1] of the habits' probabilities in the clean share of a pass.
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
    passes: tuple[Pass, ...] = (
        Pass(4889, 1.0, 0.25, 0.62, _FIRST),
        Pass(2200, 0.4, 0.0, 0.4, _FIRST),
        Pass(3600, 0.5, 0.0, 0.5, _FIRST),
        Pass(3600, 0.5, 0.0, 0.5, _FIRST),
        Pass(1200, 0.3, 0.0, 0.0, {"inverse_comparison": 0.4}),
        Pass(4000, 0.5, 0.0, 0.4, kinds={"word": 1.6, "equation": 1.4, "fraction": 1.4}),
    )
    tokens_a_batch: int = 3072
    matrix_rate: float = 0.02
    matrix_decay: float = 0.01
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup_steps: int = 60
    final_rate: float = 0.02
    short_level: int = 5
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


def catalogue(replaced: Mapping[str, float] | None = None) -> dict[str, float]:
    """The probabilities of the habits, some of them ``replaced``."""
    return {name: habit.probability for name, habit in CATALOGUE.items()} | dict(replaced or {})


Batch = tuple[Tensor, Tensor, Tensor]
"""(input_ids_BT, targets_BT, weights_BT): targets are the inputs one token later, ``IGNORED_TARGET`` on prompt and
padding; weights are those of the loss."""


def batches(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    habits: float,
    highest: int,
    chunk: int = 4096,
    replaced: Mapping[str, float] | None = None,
    kinds: Mapping[str, float] | None = None,
) -> Iterator[Batch]:
    """Yield batches without end: rows of like length together, padded on the right. ``habits`` multiplies the
    catalogue's probabilities, some of which may be ``replaced`` first; ``highest`` is the highest level; ``kinds``
    replaces frequencies of the recipe."""
    probabilities = {name: probability * habits for name, probability in catalogue(replaced).items()}
    weights = {level: weight for level, weight in recipe.level_weights.items() if level <= highest}
    source = stream(seed, weights, recipe.kind_weights | dict(kinds or {}), probabilities)
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

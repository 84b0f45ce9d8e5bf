"""Tokenizers, tiny models and paths that the tests of the PRM share; built here, nothing is fetched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path as FilePath

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from common.records import FinishReason, Path, Step, Verdict
from prm.inputs import PRMInput, prm_input
from prm.model import build_prm, head_parameters

CHARACTERS = "\n 0123456789+-*=.:()abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?,ки"


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; pad is eos."""
    vocab = {"<eos>": 0, "<unk>": 1, **{character: 2 + k for k, character in enumerate(CHARACTERS)}}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>")


def byte_tokenizer(merges: Sequence[tuple[str, str]] = (), *, bos: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the given merges (byte-level alphabet: newline is ``Ċ``, space ``Ġ``)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: k for k, token in enumerate(["<s>", "</s>", *alphabet, *(a + b for a, b in merges)])}
    core = Tokenizer(models.BPE(vocab, list(merges)))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    if bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="</s>")


def sentencepiece_tokenizer(*, is_unigram: bool = False) -> PreTrainedTokenizerFast:
    """The Llama kind: a ``▁`` in front of the text and for each space, the newline as a byte.

    BPE with merges as Llama, or Unigram as T5 and XLM-R.
    """
    fallback = ["<0x0A>"]
    characters = ["▁", *(character for character in CHARACTERS if character not in "\n ")]
    merges = [("▁", "1"), ("▁", "A"), ("1", "2"), ("=", "7"), ("▁", "3")]
    pieces = ["<unk>", "<s>", "</s>", *fallback, *characters, *(a + b for a, b in merges)]
    if is_unigram:
        scores = [(piece, -20.0 if piece in fallback else -10.0 + len(piece)) for piece in pieces]
        core = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    else:
        vocabulary = {piece: k for k, piece in enumerate(pieces)}
        core = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )


TOKENIZERS = {
    "character": character_tokenizer,
    "bytes": byte_tokenizer,
    "bytes_bos": lambda: byte_tokenizer(bos=True),
    "newline_with_token_before": lambda: byte_tokenizer([("7", "Ċ"), ("5", "Ċ"), (".", "Ċ"), ("1", "2")]),
    "newline_with_token_after": lambda: byte_tokenizer([("Ċ", "7"), ("Ċ", "s"), ("1", "2")]),
    "sentencepiece": sentencepiece_tokenizer,
    "unigram": lambda: sentencepiece_tokenizer(is_unigram=True),
}

PROMPT = "Compute 3+4-5.\n"
STEPS = ("3+4=7.", "7-5=2", "so 12-5=7")


def rollout(tokenizer: PreTrainedTokenizerFast, steps: Sequence[str] = STEPS) -> Path:
    """A path as a sampler gives it: ids of the whole text at once, then spans by character offsets."""
    text = "\n".join(steps) + "\nAnswer: 2"
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans, start = [], 0
    for step in steps:
        end = start + len(step)
        inside = [k for k, (low, high) in enumerate(encoded["offset_mapping"]) if low < end and high > start]
        spans.append(Step(step, start, end, inside[0], inside[-1] + 1))
        start = end + 1
    ids = (*encoded["input_ids"], tokenizer.eos_token_id)
    return Path("p", "p-0", text, ids, tuple(spans), "2", Verdict.CORRECT, FinishReason.STOP)


def tiny_policy(folder: FilePath, *, vocab: int = 300, hidden: int = 32, layers: int = 2, seed: int = 0) -> FilePath:
    """Write a random Llama of a few thousand parameters to ``folder`` and return it."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def tiny_prm(folder: FilePath, *, surprise: bool = True, **options: int) -> PreTrainedModel:
    """A PRM on ``tiny_policy`` whose heads are not zero, so that scores differ and lie off the ends of [0, 1]."""
    prm = build_prm(tiny_policy(folder, **options), surprise=surprise, head_std=1.0, seed=3)
    with torch.no_grad():
        for name, weight in head_parameters(prm).items():
            if name == "gate.weight":
                weight.normal_(std=0.3, generator=torch.Generator().manual_seed(4))
            elif name == "gate.bias":
                weight.fill_(-3.0)
    return prm


def toy_inputs(count: int, *, seed: int = 0, steps: int = 4, problems: int = 20) -> list[PRMInput]:
    """Paths of ``a = a`` steps over single-token numbers: a step is wrong when its two sides differ; later ones too."""
    rng = random.Random(seed)
    inputs = []
    for index in range(count):
        ids: list[int] = []
        spans, labels, is_wrong = [], [], False
        for _ in range(rng.randint(2, steps)):
            left = rng.randint(10, 29)
            is_wrong = is_wrong or rng.random() < 0.25
            right = rng.choice([n for n in range(10, 30) if n != left]) if is_wrong else left
            spans.append(Step("", 0, 0, len(ids), len(ids) + 3))
            ids += [left, 5, right, 6]
            labels.append(0 if is_wrong else 1)
        inputs.append(prm_input([3, 4], ids, spans, labels=labels, problem_id=f"problem {index % problems}"))
    return inputs

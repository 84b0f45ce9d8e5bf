"""Small tokenizers and models built in the tests: no hub, no files."""

from __future__ import annotations

import json
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, EOS = "<pad>", "<eos>"
CHARACTERS = "0123456789+-*/=()., :#xyzabcdefghijklmnopqrstuvwABCDEFGHIJKLMNOPQRSTUVWXYZ\n?'%$\\{}"
CORPUS = [
    "First, 3 * 4 = 12.\n\nThen 12 + 1 = 13.\n\nSo the answer is 13.",
    "Hello there, π is near 3.14.\nAnswer: 12",
] * 20


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; ids 0 pad, 1 end."""
    vocabulary = {PAD: 0, EOS: 1} | {character: i + 2 for i, character in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS)


def byte_level_tokenizer(merges: list[tuple[str, str]] | None = None) -> PreTrainedTokenizerFast:
    """The GPT-2 and Qwen kind: bytes, with merges learnt on a small corpus or given. `Ġ` is the space, `Ċ` the
    newline.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if merges is None:
        trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=[PAD, EOS])
        tokenizer.train_from_iterator(CORPUS, trainer)
    else:
        vocabulary = {PAD: 0, EOS: 1}
        for piece in [*sorted(alphabet), *("".join(pair) for pair in merges)]:
            vocabulary.setdefault(piece, len(vocabulary))
        tokenizer.model = models.BPE(vocab=vocabulary, merges=merges)
        tokenizer.add_special_tokens([AddedToken(PAD, special=True), AddedToken(EOS, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS)


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """The Llama kind: `▁` for the space, and a decoder that drops the first space."""
    words = [word for text in CORPUS for word in text.replace("\n", " ").split()]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trained.train_from_iterator(words, trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>", PAD, EOS]))
    learnt = json.loads(trained.to_str())["model"]
    vocabulary = learnt["vocab"]
    for piece in ["\n", "x", *(f"<0x{byte:02X}>" for byte in range(256))]:
        vocabulary.setdefault(piece, len(vocabulary))
    merges = [tuple(pair) for pair in learnt["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token="<unk>")


def tiny_llama(tokenizer: Any, seed: int = 0, scale: float = 1.0) -> LlamaForCausalLM:
    """A random Llama of two layers; `scale` multiplies the output weights, so that its distribution is less flat."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight *= scale
    return model


def tiny_gpt2(tokenizer: Any, seed: int = 0) -> GPT2LMHeadModel:
    """A random GPT-2 of two layers: absolute positions, so that padding must come with position ids."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return GPT2LMHeadModel(config)

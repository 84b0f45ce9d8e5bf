"""Model shapes as local folders: published ones from public numbers, and tiny ones that can be built."""

import dataclasses
import json

from transformers import AutoConfig, AutoModelForCausalLM

from policy.plan_shape import ModelShape, read_shape

PUBLISHED = {
    "qwen2.5-0.5b": (("qwen2", 896, 4864, 24, 14, 2, 151936, True), 494_032_768),
    "qwen2.5-1.5b": (("qwen2", 1536, 8960, 28, 12, 2, 151936, True), 1_543_714_304),
    "qwen2.5-7b": (("qwen2", 3584, 18944, 28, 28, 4, 152064, False), 7_615_616_512),
    "smollm2-135m": (("llama", 576, 1536, 30, 9, 3, 49152, True), 134_515_008),
}
"""Fields of each model's ``config.json`` on the hub, and the number of weights in its safetensors files."""

NAMES = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "tie_word_embeddings",
)


def write_config(folder, fields):
    """Write a ``config.json`` and return the folder's name."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(zip(NAMES, fields, strict=True))))
    return str(folder)


def tiny_model(folder, kind, kv_heads=2, vocab=300):
    """Return a model of three layers with random weights, and its shape as read from ``folder``."""
    shape = read_shape(write_config(folder, (kind, 64, 160, 3, 4, kv_heads, vocab, True)))
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)), shape


def hand_shape(**changes):
    """A shape small enough to work with by hand: 2 layers of 4, one head of 4, MLP of 8, 10 words, 100 weights."""
    base = ModelShape(100, 40, True, 2, 4, 8, 10, 1, 1, 4, (("q_proj", 4, 4, 2), ("up_proj", 4, 8, 2)))
    return dataclasses.replace(base, **changes)

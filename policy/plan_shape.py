"""What of a model a plan depends on: its shape, read from ``config.json``; no weights are loaded."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from common.errors import InputError
from common.models import locate


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """Counts of a decoder-only language model.

    Attributes:
        parameters: all weights, tied ones once. embedding: of them the input embedding, V * hidden.
        is_tied: the output embedding is the input embedding.
        layers, hidden, intermediate, vocab: as in ``config.json``.
        heads, kv_heads, head_dim: query heads, key/value heads (fewer with grouped queries), size of a head.
        linears: (name, inputs, outputs, how many) of the linear layers of the backbone: what LoRA adapts.
    """

    parameters: int
    embedding: int
    is_tied: bool
    layers: int
    hidden: int
    intermediate: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    linears: tuple[tuple[str, int, int, int], ...]

    @property
    def backbone(self) -> int:
        """Weights without an output embedding of its own."""
        return self.parameters - (0 if self.is_tied else self.embedding)

    @property
    def multiplied(self) -> int:
        """Weights that a token is multiplied with, output embedding included: N of "2 N operations a token"."""
        return self.backbone - self.embedding + self.vocab * self.hidden

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    def adapter(self, rank: int, targets: tuple[str, ...] = ()) -> int:
        """Weights of LoRA adapters: A is (rank, inputs), B (outputs, rank) (Hu et al. 2021, arXiv:2106.09685).

        Args:
            targets: names of the adapted layers; empty: every linear layer of the backbone.
        """
        return sum(
            rank * (inputs + outputs) * count
            for name, inputs, outputs, count in self.linears
            if not targets or name in targets
        )


def read_shape(model: str) -> ModelShape:
    """Read the shape of a local folder's or a hub id's ``config.json``; weights are counted on the meta device.

    Raises:
        InputError: no configuration there, or not one of a causal language model.
    """
    try:
        config = AutoConfig.from_pretrained(locate(model))
        with torch.device("meta"):
            return shape_of(AutoModelForCausalLM.from_config(config))
    except Exception as error:  # transformers passes on whatever a bad value in a foreign file breaks
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"base.model = {model!r}: no config.json of a causal language model to read ({reason})"
        ) from error


def shape_of(empty: PreTrainedModel) -> ModelShape:
    """Count a causal language model; its weights may be on the meta device."""
    text = empty.config.get_text_config()
    heads = text.num_attention_heads
    linears: dict[tuple[str, int, int], int] = {}
    for name, module in empty.base_model.named_modules():
        if isinstance(module, nn.Linear):
            key = (name.rsplit(".", 1)[-1], module.in_features, module.out_features)
            linears[key] = linears.get(key, 0) + 1
    embedding, head = empty.get_input_embeddings().weight, empty.get_output_embeddings().weight
    return ModelShape(
        parameters=sum(weight.numel() for weight in empty.parameters()),
        embedding=embedding.numel(),
        is_tied=embedding is head,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        vocab=text.vocab_size,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        linears=tuple((*key, count) for key, count in linears.items()),
    )

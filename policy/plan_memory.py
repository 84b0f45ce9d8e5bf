"""Memory of training and sampling, in bytes on one device, from a model's shape. Pure.

Letters: N weights, D devices, b bytes of a number (4 float32, 2 bfloat16), T tokens of a forward pass with its padding.
What is not a tensor (CUDA's context, fragmentation) is ``policy.plan_report.RUNTIME``.
"""

from __future__ import annotations

import dataclasses

from policy.plan_shape import ModelShape

MASTER_BYTES = 12
"""K of Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, 3.1): float32 copy, momentum and variance of a weight."""

LIVE_WEIGHTS = 1_000_000_000
"""Weights that ZeRO-3 holds whole at a time: DeepSpeed's default of ``stage3_max_live_parameters``."""

BUCKET = 500_000_000
"""Gradients in flight between devices: DeepSpeed's default of ``reduce_bucket_size``, elements."""

TILE = (4096, 32768)
"""Tokens and words of a tile of logits in TRL 1.16's fused output head (``trl/kernels/chunked_logprob.py``)."""

CPU_TILES = 7
"""Float32 copies of a tile in TRL's form for devices without Triton; counted on a CPU."""

LOGITS_AT_ONCE = 2**26
"""Logits of a piece of the PRM's next-token pass (``prm.objective.LOGITS_AT_ONCE``)."""


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """Bytes on one device that last from update to update, and what communication holds beside them."""

    weights: float
    gradients: float
    optimiser: float
    buffers: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimiser + self.buffers


def training_state(
    trained: int, frozen: int, b: int, zero: int, devices: int, trained_b: int | None = None
) -> TrainingState:
    """Weights, gradients and Adam's states of one device.

    Without ZeRO (plain AdamW) each trained weight takes ``b`` as weight, ``b`` as gradient and ``2 b`` as moments. ZeRO
    in DeepSpeed keeps a float32 copy besides, so with b = 2 it is 2 + 2 + 12 bytes; stage 1 divides the 12 by D, stage
    2 the gradient too, stage 3 the weight too (arXiv:1910.02054, figure 1). Stage 3 gathers up to ``LIVE_WEIGHTS``.

    Args:
        trained, frozen: weights with and without gradient. trained_b: bytes of a trained one, None for ``b``.
        zero: 0 to 3.

    Raises:
        ValueError: another stage, or no device.
    """
    if zero not in (0, 1, 2, 3) or devices < 1:
        raise ValueError(f"zero {zero}, devices {devices}: want a stage from 0 to 3 and at least one device")
    own = b if trained_b is None else trained_b
    weights, gradients = float(trained * own + frozen * b), float(trained * own)
    optimiser = float(trained * (2 * own if zero == 0 else MASTER_BYTES))
    buffers = 0.0
    if zero:
        optimiser /= devices
    if zero >= 2:
        gradients /= devices
        buffers += min(trained, BUCKET) * own
    if zero == 3:
        weights /= devices
        buffers += min(trained + frozen, LIVE_WEIGHTS) * b
    return TrainingState(weights, gradients, optimiser, buffers)


def layer_activations(shape: ModelShape) -> int:
    """Numbers a token of one layer that backward needs: ``6 h + 2 q + 2 k + 4 f + heads + 2``.

    The count of Korthikanti et al. 2022 (arXiv:2205.05198, 4.1) for a layer without dropout, with gated MLP and unfused
    RMSNorm, its term in sequence length squared gone with fused attention (Dao et al. 2022, arXiv:2205.14135):

        6 h: two residual inputs, two normalised, two scaled ones (inputs of projections and MLP)
        2 q + 2 k: queries, keys, values and the attention's output, which is the output projection's input
        4 f: gate, its activation, up, their product;  heads + 2: log-sum-exp of attention, two deviations

    h hidden, q ``heads * head_dim``, k ``kv_heads * head_dim``, f intermediate. A test counts them in real models.
    """
    return 6 * shape.hidden + 2 * shape.query_width + 2 * shape.kv_width + 4 * shape.intermediate + shape.heads + 2


def activations(shape: ModelShape, tokens: int, b: int, is_checkpointed: bool = False) -> float:
    """Bytes of activations at the start of backward; every token also keeps ``3 h + 1`` for last norm and head.

    Args:
        is_checkpointed: a layer keeps its input alone (h), and one layer at a time is computed again (Chen et al. 2016,
            arXiv:1604.06174).
    """
    last = 3 * shape.hidden + 1
    layer = layer_activations(shape)
    kept = shape.layers * shape.hidden + layer if is_checkpointed else shape.layers * layer
    return float(tokens * (kept + last) * b)


def backward_extra(shape: ModelShape, tokens: int, b: int) -> float:
    """Bytes of the gradients of activations of the layer at hand: of its MLP's three inner tensors and two streams."""
    return float(tokens * (3 * shape.intermediate + 2 * shape.hidden) * b)


def update_logits(shape: ModelShape, tokens: int, b: int, is_head_trained: bool = True, copies: int = 0) -> float:
    """Bytes of the output head in an update: a tile of logits, and in float32 the gradients of head and states.

    The tile has ``TILE[1]`` columns however small the vocabulary is.

    Args:
        copies: float32 copies of the tile; 0 with TRL's Triton kernel, ``CPU_TILES`` without it.
    """
    rows, words = min(tokens, TILE[0]), min(shape.vocab, TILE[1])
    head = shape.vocab * shape.hidden * 4 if is_head_trained else 0
    return float(rows * TILE[1] * b + 4 * copies * rows * words + tokens * shape.hidden * 4 + head)


def forward_extra(shape: ModelShape, tokens: int, b: int) -> float:
    """Bytes alive in a forward pass without gradient: residual, normalised and projected streams, gate, up, product."""
    return float(tokens * (2 * shape.hidden + shape.query_width + 2 * shape.kv_width + 3 * shape.intermediate) * b)


def kv_cache(shape: ModelShape, rows: int, tokens: int, b: int) -> float:
    """Keys and values of every layer: ``2 * layers * kv_heads * head_dim * b`` a token (Pope et al., arXiv:2211.05102).

    Args:
        rows: paths sampled at once. tokens: prompt and path at their longest.
    """
    return 2.0 * shape.layers * shape.kv_width * b * rows * tokens


def sampling_logits(shape: ModelShape, rows: int, b: int) -> float:
    """Bytes of one token's choice: logits, their float32 copy, probabilities, and a float64 running sum."""
    return float(rows * shape.vocab * (b + 4 + 4 + 8))


def prm_weights(shape: ModelShape, adapter: int, reads_surprise: bool = True) -> float:
    """Bytes of the frozen PRM beside a policy, in float32.

    Args:
        adapter: weights of its LoRA adapter; above 0 its base is the policy's and costs nothing.
        reads_surprise: with an output embedding of its own (``prm.network.StepPRM``).
    """
    return 4.0 * (adapter if adapter else shape.backbone + reads_surprise * shape.vocab * shape.hidden)


def prm_logits(shape: ModelShape, tokens: int) -> float:
    """Bytes of the PRM's next-token pass: a piece of float32 logits and its log-softmax."""
    return 2.0 * 4 * min(LOGITS_AT_ONCE, tokens * shape.vocab)

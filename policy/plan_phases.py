"""What each stage holds in memory while it does what: the settings laid over ``policy.plan_memory``."""

from __future__ import annotations

import dataclasses

from common.config import Config
from policy.plan_memory import (
    CPU_TILES,
    TrainingState,
    activations,
    backward_extra,
    forward_extra,
    kv_cache,
    prm_logits,
    prm_weights,
    sampling_logits,
    training_state,
    update_logits,
)
from policy.plan_shape import ModelShape
from policy.plan_work import uses_prm

MAX_CACHE_TOKENS = 2**18
"""Most cached tokens of the transformers engine (``data_gen.engines.TransformersEngine``)."""

VLLM_SHARE = 0.9
"""Share of a device that vLLM takes when nothing else is said (its ``gpu_memory_utilization``)."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the devices are used.

    Attributes:
        devices: in all. device_bytes: memory of one.
        zero: ZeRO stage, 0 for DDP. offload: ``none``; ``optimiser`` keeps Adam's states on the host, ``all`` the
            sharded weights too.
        vllm_share: share of a device kept for a vLLM engine beside the trainer of ``ppo``; 0: transformers samples.
        longest_prompt: tokens of the longest problem.
        is_cpu: no Triton kernels. is_first_round: the base is the reference; later the base is held besides.
    """

    devices: int
    device_bytes: float
    zero: int = 0
    offload: str = "none"
    vllm_share: float = 0.0
    longest_prompt: int = 300
    is_cpu: bool = False
    is_first_round: bool = True


@dataclasses.dataclass(frozen=True)
class Phase:
    """Bytes of one device at one point of a stage, by part; ``host``: what was moved to the host's memory."""

    stage: str
    name: str
    parts: dict[str, float]
    host: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def weight_bytes(config: Config) -> int:
    """Bytes of a weight as it is loaded."""
    return 2 if config.base.dtype == "bfloat16" else 4


def frozen_weights(config: Config, shape: ModelShape) -> int:
    """Weights that ``ppo.frozen_layers`` keeps: input embedding and lowest layers."""
    if not config.ppo.frozen_layers:
        return 0
    a_layer = (shape.backbone - shape.embedding) // shape.layers
    return shape.embedding + min(config.ppo.frozen_layers, shape.layers) * a_layer


def phases(config: Config, shape: ModelShape, layout: Layout) -> list[Phase]:
    """Every stage of a round at the points where it holds most."""
    found = [_data(config, shape, layout)]
    if uses_prm(config):
        found.append(_prm(config, shape, layout))
    return [*found, *_ppo(config, shape, layout), _eval(config, shape, layout)]


def _sampler(config: Config, shape: ModelShape, layout: Layout, paths: int) -> dict[str, float]:
    b, tokens = weight_bytes(config), layout.longest_prompt + config.data.max_new_tokens
    rows = max(1, min(config.data.max_batch_rows, paths, MAX_CACHE_TOKENS // tokens))
    return {"KV cache": kv_cache(shape, rows, tokens, b), "logits": sampling_logits(shape, rows, b)}


def _data(config: Config, shape: ModelShape, layout: Layout) -> Phase:
    if config.data.engine == "vllm":
        return Phase("data", "sampling", {"vLLM": VLLM_SHARE * layout.device_bytes})
    weights = {"weights": float(shape.parameters * weight_bytes(config)) * config.data.workers}
    return Phase("data", "sampling", weights | _sampler(config, shape, layout, config.data.max_batch_rows))


def _moved(state: TrainingState, layout: Layout) -> tuple[TrainingState, float]:
    if layout.offload == "none":
        return state, 0.0
    weights = state.weights if layout.offload == "all" else 0.0
    kept = dataclasses.replace(state, optimiser=0.0, weights=state.weights - weights)
    return kept, (state.optimiser + weights) * layout.devices


def _prm(config: Config, shape: ModelShape, layout: Layout) -> Phase:
    prm, lora = config.prm, config.lora
    head = 2 * (shape.hidden + 1) if prm.surprise else shape.hidden + 1
    fixed = shape.vocab * shape.hidden if prm.surprise or prm.lm_weight else 0
    if lora.rank:
        adapter = shape.adapter(lora.rank, lora.targets) + head
        b = weight_bytes(config)
        state = training_state(adapter, shape.parameters, b, layout.zero, layout.devices, trained_b=4)
    else:
        b = 4
        state = training_state(shape.backbone + head, fixed, 4, layout.zero, layout.devices)
    state, host = _moved(state, layout)
    tokens = prm.batch_paths * min(prm.max_length, layout.longest_prompt + config.data.max_new_tokens)
    parts = {
        "weights": state.weights,
        "gradients": state.gradients,
        "optimiser": state.optimiser,
        "ZeRO buffers": state.buffers,
        "activations": activations(shape, tokens, b) + backward_extra(shape, tokens, b),
    }
    return Phase("prm", "fit", parts | ({"logits": prm_logits(shape, tokens)} if fixed else {}), host)


def _ppo(config: Config, shape: ModelShape, layout: Layout) -> list[Phase]:
    ppo, lora, b = config.ppo, config.lora, weight_bytes(config)
    adapter = shape.adapter(lora.rank, lora.targets) if lora.rank else 0
    fixed = shape.parameters if lora.rank else frozen_weights(config, shape)
    trained = adapter or shape.parameters - fixed
    own_b = 4 if lora.rank else None
    state, host = _moved(training_state(trained, fixed, b, layout.zero, layout.devices, own_b), layout)
    shards = layout.devices if layout.zero == 3 else 1
    copies = int(ppo.kl_coef > 0) + int(not layout.is_first_round)
    if lora.rank:
        reference = 4.0 * adapter * int(not layout.is_first_round and ppo.reference == "round")
    else:
        reference = (shape.parameters - fixed) * b * copies / shards
    held = {"weights": state.weights, "optimiser": state.optimiser, "ZeRO buffers": state.buffers}
    held |= {
        "reference": reference,
        "PRM": prm_weights(shape, adapter, config.prm.surprise) if uses_prm(config) else 0.0,
    }
    if ppo.baseline == "gae" and ppo.critic_trunk == "own":
        critic = training_state(shape.backbone, 0, 4, 0, 1)
        held["critic"] = critic.total
    paths = ppo.problems * ppo.paths // layout.devices
    if layout.vllm_share:
        held["vLLM"] = layout.vllm_share * layout.device_bytes
    sampling = {} if layout.vllm_share else _sampler(config, shape, layout, paths)
    micro = min(ppo.micro_batch, max(1, paths // ppo.minibatches))
    tokens = micro * (layout.longest_prompt + config.data.max_new_tokens)
    logits = update_logits(shape, tokens, b, not lora.rank, CPU_TILES if layout.is_cpu else 0)
    update = {
        "gradients": state.gradients,
        "activations": activations(shape, tokens, b, ppo.gradient_checkpointing),
        "logits": max(logits, backward_extra(shape, tokens, b)),
    }
    if layout.zero == 3:  # gathered once for a batch of sampling
        sampling["gathered weights"] = float((trained + fixed) * b)
    found = [Phase("ppo", "sampling", held | sampling, host), Phase("ppo", "update", held | update, host)]
    if uses_prm(config):
        read = min(config.prm.max_batch_tokens, paths * (layout.longest_prompt + config.data.max_new_tokens))
        width = b if lora.rank else 4
        scoring = {"activations": forward_extra(shape, read, width)}
        scoring |= {"logits": prm_logits(shape, read)} if config.prm.surprise else {}
        found.insert(1, Phase("ppo", "PRM scores", held | scoring, host))
    return found


def _eval(config: Config, shape: ModelShape, layout: Layout) -> Phase:
    parts = {"weights": float(shape.parameters * weight_bytes(config))}
    parts |= {"PRM": prm_weights(shape, 0, config.prm.surprise)} if uses_prm(config) else {}
    return Phase("eval", "sampling", parts | _sampler(config, shape, layout, config.data.max_batch_rows))

"""Who samples in ``ppo``: an engine on the trained module itself, or vLLM beside it with weights of its own.

The second kind has ``update_weights``. Its weights are made the policy's before every use, and its log-probs are never
quite the trainer's: other kernels, other rounding. ``policy.importance`` weighs the difference, and it is logged:

    sampling/logp_difference      mean over sampled tokens of abs(log pi - log mu), nats; the alarm ``sampler_mismatch``
    sampling/max_logp_difference  largest of the batch, nats
    sampling/importance_ratio     mean weight of the surrogate; 1 = no difference
    sampling/bounded_share        share of the tokens whose weight met a bound
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from common.config import Config
from common.errors import InputError
from common.sharding import is_fsdp, zero_stage
from data_gen.engines import Completion, Engine, make_engine
from policy.importance import importance_ratio, mismatch


@dataclasses.dataclass(frozen=True)
class StoppingSampler:
    """An engine whose completions end at the configured stop strings."""

    engine: Engine
    stop: tuple[str, ...]

    def sample(self, prompts: Sequence[Sequence[int]], **settings: Any) -> list[list[Completion]]:
        """See ``data_gen.engines.Engine.sample``."""
        return self.engine.sample(prompts, stop=self.stop, **settings)


@dataclasses.dataclass(frozen=True)
class ColocatedSampler(StoppingSampler):
    """A ``StoppingSampler`` over an engine with weights of its own."""

    engine: Any

    def update_weights(self, model: Any) -> None:
        """Give the engine the policy's weights, an adapter merged."""
        self.engine.update_weights(model)


def make_sampler(
    config: Config, model: Any, tokenizer: Any, start: str, prompts: Iterable[Sequence[int]]
) -> StoppingSampler:
    """Return the sampler of ``ppo.engine``.

    Call it when the trainer's arguments are made: they start the process group of several ranks, or none, and vLLM
    takes what it finds.

    Args:
        model: the policy. start: folder of the model the round starts from; vLLM builds its own from it.
        prompts: the longest one, with ``data.max_new_tokens``, is the room that a sequence gets in vLLM.
    """
    rows, stop = config.data.max_batch_rows, config.base.stop
    if config.ppo.engine == "transformers":
        return StoppingSampler(make_engine("transformers", model, tokenizer, max_rows=rows), stop)
    engine = make_engine(
        "vllm",
        start,
        tokenizer,
        max_rows=rows,
        dtype=config.base.dtype,
        memory=config.ppo.vllm_memory,
        max_model_len=max(map(len, prompts)) + config.data.max_new_tokens,
        is_synced=True,
    )
    return ColocatedSampler(engine, stop)


def refuse_colocation(trainer: Any) -> None:
    """vLLM beside the trainer takes whole weights.

    Raises:
        InputError: the trainer shards them and the sampler has weights of its own.
    """
    if hasattr(trainer.sampler, "update_weights") and (
        is_fsdp(trainer.accelerator) or zero_stage(trainer.accelerator) == 3
    ):
        raise InputError(
            "ppo.engine = 'vllm' is not supported under FSDP or ZeRO-3: no test covers weights that are gathered for"
            " it; use DDP, ZeRO-1 or ZeRO-2, or ppo.engine=transformers"
        )


def sync_weights(sampler: Any, policy: Any) -> float | None:
    """Give a sampler with weights of its own those of ``policy``; return the wall seconds, None for another sampler."""
    if not hasattr(sampler, "update_weights"):
        return None
    started = time.perf_counter()
    sampler.update_weights(policy)
    return time.perf_counter() - started


def correct_sampler(trainer: Any, batch: dict[str, Any]) -> dict[str, float]:
    """Put ``importance_sampling_ratio`` (B, T) into a generation batch and return what is logged, over all ranks.

    Without log-probs of the sampler (it is the policy) nothing is put in and nothing returned. TRL's argument
    ``vllm_importance_sampling_correction`` False: logged, and the surrogate is not weighted.
    """
    sampling_BT = batch.get("sampling_per_token_logps")
    if sampling_BT is None:
        return {}
    args = trainer.args
    bounds = {
        "mode": args.vllm_importance_sampling_mode,
        "clip_min": args.vllm_importance_sampling_clip_min,
        "clip_max": args.vllm_importance_sampling_clip_max,
    }
    tensors = trainer.sampled_logprobs(batch), sampling_BT, batch["completion_mask"].bool()
    if args.vllm_importance_sampling_correction:
        batch["importance_sampling_ratio"] = importance_ratio(*tensors, **bounds)
    found = mismatch(*tensors, **bounds)
    local = [found.num_tokens, found.difference_sum, found.ratio_sum, found.bounded_sum]
    tokens, difference, ratio, bounded = trainer._reduce_sum(torch.tensor(local, dtype=torch.float64)).tolist()
    tokens = max(tokens, 1)
    return {
        "sampling/logp_difference": difference / tokens,
        "sampling/max_logp_difference": trainer._reduce_max(found.difference_max),
        "sampling/importance_ratio": ratio / tokens,
        "sampling/bounded_share": bounded / tokens,
    }

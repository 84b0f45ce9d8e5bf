"""The vLLM engine: samples in this process, from saved weights or, beside a trainer, from the policy's (docs/vllm.md).

Not imported unless chosen; install with ``pip install '.[vllm]'``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import AutoConfig

from common.adapters import plain_weights
from common.errors import InputError, RunError
from common.ranks import world_size
from common.records import FinishReason
from data_gen.engines import Completion, EngineStats
from data_gen.token_choice import request_seed

CPU_MEMORY = 0.3
"""Share of a machine's memory on a CPU, where vLLM's own 0.9 is more than a machine in use has free."""


class VllmEngine:
    """Samples with vLLM; ids come back as sampled, end token and stop strings kept.

    Args:
        model: directory (or hub id) of weights and tokenizer. tokenizer: used for the default end ids only.
        eos_token_ids: extra end ids; vLLM adds those of the generation config.
        max_rows: paths decoded at once.
        dtype: of the weights; vLLM by itself would run a float32 checkpoint in bfloat16.
        memory: share of the device's memory for weights and cache, in (0, 1); None: vLLM's own, ``CPU_MEMORY`` on a
            CPU. The variable VLLM_CPU_KVCACHE_SPACE (GiB) goes before it there.
        max_model_len: tokens of prompt and completion together; None: what the model has positions for.
        is_synced: weights will be replaced (``update_weights``), and completions carry the log-probs they were drawn
            with. On a CPU this turns oneDNN's packed matrices off (about 10 % slower): they keep the old weights.
        settings: further arguments of ``vllm.LLM``.

    Raises:
        InputError: vLLM is not installed, or has no kernel for this model on this machine.
    """

    def __init__(
        self,
        model: str,
        tokenizer: Any,
        *,
        eos_token_ids: Sequence[int] | None = None,
        max_rows: int = 256,
        dtype: str = "auto",
        memory: float | None = None,
        max_model_len: int | None = None,
        is_synced: bool = False,
        **settings: Any,
    ) -> None:
        self._vllm = import_vllm()
        is_cpu = self._vllm.platforms.current_platform.is_cpu()
        refuse_unserved(model, max_model_len, is_cpu)
        if is_cpu:
            settings = {"enforce_eager": True} | settings
            memory = memory or CPU_MEMORY
            if is_synced:
                turn_packing_off()
        self.tokenizer = tokenizer
        self.eos_token_ids = tuple(eos_token_ids) if eos_token_ids is not None else (tokenizer.eos_token_id,)
        self.is_synced = is_synced
        if memory is not None:
            settings["gpu_memory_utilization"] = memory
        try:
            self.llm = self._vllm.LLM(
                model=model,
                max_num_seqs=max_rows,
                dtype=dtype,
                max_model_len=max_model_len,
                logprobs_mode="processed_logprobs",  # with the temperature, as the trainer's
                distributed_executor_backend="external_launcher" if world_size() > 1 else "uni",
                **settings,
            )
        except ValueError as error:  # of its checks of memory, lengths and the model
            raise InputError(f"vLLM does not start with {model}: {' '.join(str(error).split())[:400]}") from error
        self.stats = EngineStats()

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        n: int,
        temperature: float,
        max_new_tokens: int,
        seed: int,
        top_p: float = 1.0,
        top_k: int = 0,
        stop: Sequence[str] = (),
    ) -> list[list[Completion]]:
        """See `data_gen.engines.Engine.sample`. Each prompt has its own seed, from (seed, prompt, its k-th
        occurrence).
        """
        started = time.perf_counter()
        seen: dict[tuple[int, ...], int] = {}
        parameters = []
        for prompt in prompts:
            occurrence = seen[tuple(prompt)] = seen.get(tuple(prompt), -1) + 1
            parameters.append(
                self._vllm.SamplingParams(
                    n=1 if temperature == 0 else n,
                    temperature=temperature,
                    max_tokens=max_new_tokens,
                    seed=request_seed(seed, prompt, occurrence),
                    top_p=top_p,
                    top_k=top_k if top_k > 0 else -1,
                    stop=list(stop) or None,
                    stop_token_ids=list(self.eos_token_ids),
                    include_stop_str_in_output=True,
                    detokenize=bool(stop),
                    skip_special_tokens=False,
                    logprobs=0 if self.is_synced else None,  # 0: of the sampled token alone
                )
            )
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        results = self.llm.generate(requests, parameters, use_tqdm=False)
        done = []
        for result in results:
            paths = [_completion(out) for out in result.outputs]
            done.append(paths * n if temperature == 0 else paths)
        self.stats.sampled_tokens += sum(len(out.token_ids) for result in results for out in result.outputs)
        self.stats.prompt_tokens += sum(map(len, prompts))
        self.stats.seconds += time.perf_counter() - started
        return done

    def update_weights(self, model: nn.Module) -> None:
        """Give the engine the weights of a `transformers` model, an adapter merged, and forget cached keys and values
        of the old ones. The model stays as it is; its weights must be whole.

        Raises:
            RunError: a weight of the engine got no new value.
        """
        kept = self.llm.apply_model(lambda own: load_weights(own, model))[0]
        if kept:
            raise RunError(
                f"vLLM kept its old {', '.join(kept[:3])} ({len(kept)} weights); use ppo.engine=transformers"
            )
        self.llm.reset_prefix_cache()


def load_weights(own: nn.Module, model: nn.Module) -> list[str]:
    """Put the weights of ``model`` into vLLM's module; return the names of those that got no new value."""
    loaded = own.load_weights(plain_weights(model))  # type: ignore[operator]  # of every vLLM model
    return sorted(name for name, _ in own.named_parameters() if name not in loaded)


def import_vllm() -> Any:
    """Return the package, told to run in this process, to say little and to send nothing.

    Raises:
        InputError: it is not installed. An installation that breaks on import raises what it raises.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        import vllm
        import vllm.platforms
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise InputError(
            "engine 'vllm' needs vLLM, which is not installed: pip install 'stepwise-ppo[vllm]', or choose engine"
            " 'transformers'"
        ) from error
    return vllm


def refuse_unserved(model: str, max_model_len: int | None, is_cpu: bool) -> None:
    """Look at the model before vLLM does: its attention on a CPU is compiled for some sizes of a head.

    Raises:
        InputError: no configuration there, another head size, or fewer positions than ``max_model_len``.
    """
    try:
        config = AutoConfig.from_pretrained(model).get_text_config()
    except (OSError, ValueError) as error:
        raise InputError(f"{model}: no model for vLLM to load ({str(error).splitlines()[0]})") from error
    room = getattr(config, "max_position_embeddings", None)
    if max_model_len is not None and room is not None and max_model_len > room:
        raise InputError(
            f"{model}: prompt and completion of up to {max_model_len} tokens do not fit its {room} positions; want a"
            " smaller data.max_new_tokens, or engine 'transformers'"
        )
    if not is_cpu:
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    served = CPUAttentionBackend.get_supported_head_sizes()
    if size not in served:
        raise InputError(
            f"{model}: head_dim {size} is not served by vLLM on a CPU (it has {', '.join(map(str, served))}); choose"
            " engine 'transformers'"
        )


def turn_packing_off() -> None:
    """On a CPU vLLM packs matrices for oneDNN when it loads them, and new weights do not reach the packed copies.

    Raises:
        InputError: this version of vLLM has no such switch.
    """
    import vllm._custom_ops as operators

    if not hasattr(operators, "_supports_onednn"):
        raise InputError(
            "this vLLM has no switch for packed matrices on a CPU, which keep old weights; use ppo.engine=transformers,"
            " or vLLM 0.31"
        )
    operators._supports_onednn = False


def _completion(out: Any) -> Completion:
    ids = tuple(out.token_ids)
    if out.logprobs is None:
        return Completion(ids, _reason(out.finish_reason))
    logprobs = tuple(place[token].logprob for token, place in zip(ids, out.logprobs, strict=True))
    return Completion(ids, _reason(out.finish_reason), logprobs)


def _reason(reason: str | None) -> FinishReason:
    """Return why a path ended. Raises RuntimeError for a request vLLM gave up ("abort")."""
    if reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended a request with {reason!r}; wanted 'stop' or 'length'")
    return FinishReason(reason)

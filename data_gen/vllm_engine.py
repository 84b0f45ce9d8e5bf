"""The vLLM engine: offline batch sampling from saved weights, and weight reload between rounds.

Not imported unless chosen; install with ``pip install '.[vllm]'``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from common.records import FinishReason
from data_gen.engines import Completion, EngineStats


class VllmEngine:
    """Samples with vLLM from a directory of saved weights; ids come back as sampled, end token and stop strings kept.

    Args:
        model: directory (or hub id) of weights and tokenizer. tokenizer: used for the default end ids only.
        eos_token_ids: extra end ids; vLLM adds those of the generation config.
        settings: further arguments of ``vllm.LLM``, e.g. ``dtype`` (vLLM runs a float32 checkpoint in bfloat16
            unless told), ``tensor_parallel_size``, ``gpu_memory_utilization``, ``max_model_len``.

    Raises ImportError, naming the extra, when vLLM is not installed.
    """

    def __init__(
        self,
        model: str,
        tokenizer: Any,
        *,
        eos_token_ids: Sequence[int] | None = None,
        max_rows: int = 256,
        **settings: Any,
    ) -> None:
        try:
            import vllm
        except ImportError as error:
            raise ImportError(
                "engine 'vllm' needs vLLM: pip install '.[vllm]', or choose engine 'transformers'"
            ) from error
        self._vllm = vllm
        self.tokenizer = tokenizer
        self.eos_token_ids = tuple(eos_token_ids) if eos_token_ids is not None else (tokenizer.eos_token_id,)
        self.llm = vllm.LLM(model=model, max_num_seqs=max_rows, **settings)
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
        from data_gen.token_choice import request_seed

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
                )
            )
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        results = self.llm.generate(requests, parameters, use_tqdm=False)
        done = []
        for result in results:
            paths = [Completion(tuple(out.token_ids), _reason(out.finish_reason)) for out in result.outputs]
            done.append(paths * n if temperature == 0 else paths)
        self.stats.sampled_tokens += sum(len(out.token_ids) for result in results for out in result.outputs)
        self.stats.prompt_tokens += sum(map(len, prompts))
        self.stats.seconds += time.perf_counter() - started
        return done

    def reload_weights(self, directory: str) -> None:
        """Load new weights saved in `directory` and forget cached keys and values of the old ones."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": directory})
        self.llm.reset_prefix_cache()


def _reason(reason: str | None) -> FinishReason:
    """Return why a path ended. Raises RuntimeError for a request vLLM gave up ("abort")."""
    if reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended a request with {reason!r}; wanted 'stop' or 'length'")
    return FinishReason(reason)

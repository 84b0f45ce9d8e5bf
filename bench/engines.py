"""vLLM beside the transformers engine on the same requests: ``python -m bench.engines --model …`` prints one JSON line.

Both sample in this process, in turns, ``--repeats`` times after a short first call; the median counts. Tokens a CPU
second are the fairer figure where other work shares the cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from common.models import load_policy, load_tokenizer, locate, sampling_device
from data_gen.engines import make_engine
from data_gen.problems import ProblemSource, load_problems


def timed(engine: Any, prompts: list[list[int]], tokens: int, seed: int) -> dict[str, float]:
    """Sample one path a prompt; return tokens a second of wall and of CPU time."""
    before, cpu, wall = engine.stats.sampled_tokens, time.process_time(), time.perf_counter()
    engine.sample(prompts, n=1, temperature=0.9, max_new_tokens=tokens, seed=seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count = engine.stats.sampled_tokens - before
    return {"tokens": count, "wall": count / wall, "cpu": count / cpu}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engines", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="data_gen/base_model")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="longest completion")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--synced", action="store_true", help="as ppo.engine=vllm: log-probs, no packed matrices")
    options = parser.parse_args(argv)
    model, tokenizer = locate(options.model), load_tokenizer(options.model)
    problems = load_problems(ProblemSource("synthetic", (2, 8), ()), "train", 0, options.prompts)
    prompts = [tokenizer(problem.text + "\n", add_special_tokens=False)["input_ids"] for problem in problems]
    rows = {"max_rows": options.prompts}
    engines = {
        "vllm": make_engine("vllm", model, tokenizer, dtype=options.dtype, is_synced=options.synced, **rows),
        "transformers": make_engine(
            "transformers", load_policy(model, options.dtype).to(sampling_device()), tokenizer, **rows
        ),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
    for engine in engines.values():
        timed(engine, prompts[:4], 8, seed=0)
    for repeat in range(options.repeats):
        for name, engine in engines.items():
            found[name].append(timed(engine, prompts, options.tokens, seed=repeat + 1))
    result: dict[str, Any] = {"model": options.model, "dtype": options.dtype, "synced": options.synced}
    result |= {"prompts": options.prompts, "threads": torch.get_num_threads()}
    for name, runs in found.items():
        median = {key: statistics.median(run[key] for run in runs) for key in ("tokens", "wall", "cpu")}
        result[name] = {
            "tokens": int(median["tokens"]),
            "tokens_per_second": round(median["wall"], 1),
            "tokens_per_cpu_second": round(median["cpu"], 1),
        }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

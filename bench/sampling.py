"""Tokens a second of the `transformers` engine beside a plain padded `generate` loop over the same requests.

    python -m bench.sampling [--model DIR] [--problems 32] [--paths 16] [--rows 512] [--repeats 3]

The loop is what one writes first: rows in the order given, `--rows` of them at once, padded on the left, each with
its own prompt, until all have ended. Both sample at the same temperature and limit; tokens behind an end are not
counted. Each repeat runs both, one after the other, in CPU seconds of this process with one thread (the machine may
have other work). One JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from common.cli import seed_everything
from common.config import Config
from common.models import load_policy, load_tokenizer
from common.prompts import PromptTemplate
from data_gen.engines import TransformersEngine
from data_gen.problems import ProblemSource, load_problems


def plain_loop(model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], n: int, rows: int, limit: int) -> int:
    """Sample `n` paths a prompt with `model.generate`; return the number of sampled tokens, ends included."""
    asked = [list(prompt) for prompt in prompts for _ in range(n)]
    total = 0
    for start in range(0, len(asked), rows):
        batch = tokenizer.pad({"input_ids": asked[start : start + rows]}, return_tensors="pt")
        with torch.no_grad():
            found = model.generate(
                **batch,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=limit,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        sampled = found[:, batch["input_ids"].shape[1] :]
        is_end = sampled == tokenizer.eos_token_id
        total += int((is_end.cumsum(1) - is_end.int() == 0).sum())
    return total


def engine_run(model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], n: int, rows: int, limit: int) -> int:
    """The same requests through the engine."""
    engine = TransformersEngine(model, tokenizer, max_rows=rows)
    engine.sample(prompts, n=n, temperature=1.0, max_new_tokens=limit, seed=0)
    return engine.stats.sampled_tokens


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sampling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="data_gen/base_model", help="folder of a causal language model")
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--paths", type=int, default=16, help="paths a problem")
    parser.add_argument("--rows", type=int, default=512, help="paths decoded at once, by both")
    parser.add_argument("--max-new-tokens", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(argv)
    seed_everything(Config())
    torch.set_num_threads(1)
    tokenizer, model = load_tokenizer(options.model), load_policy(options.model)
    template = PromptTemplate()
    problems = load_problems(ProblemSource(), "test", 0, options.problems)
    prompts = [template.ids(problem.text, tokenizer) for problem in problems]
    rates: dict[str, list[float]] = {"loop": [], "engine": []}
    for _ in range(options.repeats):
        for name, run in (("loop", plain_loop), ("engine", engine_run)):
            started = time.process_time()
            tokens = run(model, tokenizer, prompts, options.paths, options.rows, options.max_new_tokens)
            rates[name].append(tokens / (time.process_time() - started))
    ratios = [engine / loop for engine, loop in zip(rates["engine"], rates["loop"], strict=True)]
    median = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    row = {"requests": options.problems * options.paths, "rows": options.rows, "tokens_per_cpu_second": median}
    print(json.dumps({**row, "ratios": [round(r, 2) for r in ratios], "ratio": round(statistics.median(ratios), 2)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

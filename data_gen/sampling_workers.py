"""Processes that sample chunks of problems side by side, each with its own copy of a small model.

For models that use one core well and two badly; a large model has its own ways to use a machine.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path as FilePath
from types import TracebackType
from typing import Any, Self

from common.models import load_policy, load_tokenizer
from common.processes import end_with_parent
from common.records import Problem
from data_gen.chunks import write_paths
from data_gen.engines import TransformersEngine
from data_gen.measure import RenderPrompt, SampleSettings, sample_paths


class SamplingWorkers:
    """A context in which ``fill`` samples chunks on ``count`` processes of one torch thread each.

    Args:
        count: processes, >= 1.
        model: directory or hub id of the policy. dtype: of its weights.
        max_rows: paths a process decodes at once.
    """

    def __init__(self, count: int, model: str, dtype: str, max_rows: int) -> None:
        if count < 1:
            raise ValueError(f"sampling workers: count {count}, wanted 1 or more")
        self._pool = ProcessPoolExecutor(
            count, multiprocessing.get_context("spawn"), initializer=_load, initargs=(model, dtype, max_rows)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def fill(
        self,
        chunks: Sequence[tuple[FilePath, Sequence[Problem]]],
        render_prompt: RenderPrompt,
        *,
        n: int,
        seed: int,
        settings: SampleSettings,
        first_index: int,
    ) -> Iterator[int]:
        """Sample and write every chunk; yield the number of paths of each as it is done.

        Raises:
            concurrent.futures.process.BrokenProcessPool: a process died; the chunks written so far stay.
        """
        futures = [
            self._pool.submit(
                _fill, file, list(members), [list(render_prompt(p)) for p in members], n, seed, settings, first_index
            )
            for file, members in chunks
        ]
        for future in as_completed(futures):
            yield future.result()


_engine: TransformersEngine | None = None


def _load(model: str, dtype: str, max_rows: int) -> None:
    """Load the model once in a new process, which ends when its parent is killed."""
    end_with_parent()
    import torch
    import transformers

    global _engine
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    _engine = TransformersEngine(load_policy(model, dtype), load_tokenizer(model), max_rows=max_rows)


def _fill(
    file: FilePath,
    members: list[Problem],
    prompts: list[list[int]],
    n: int,
    seed: int,
    settings: SampleSettings,
    first_index: int,
) -> int:
    """Sample one chunk in this process and write its file."""
    assert _engine is not None
    ids: dict[str, Any] = {problem.id: prompt for problem, prompt in zip(members, prompts, strict=True)}
    groups = sample_paths(
        _engine,
        members,
        _engine.tokenizer,
        lambda problem: ids[problem.id],
        n=n,
        seed=seed,
        settings=settings,
        first_index=first_index,
    )
    write_paths(file, groups)
    return n * len(members)

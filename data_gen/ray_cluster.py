"""Sampling and labelling on the nodes of a Ray cluster, by Ray Data.

A chunk is what travels: the name of a file and a place in it. Problems and paths are read and written where they are
needed, in the run folder, which all nodes see. Ray runs a chunk again when its node is gone; a chunk is written by
rename and its bytes depend on nothing but the chunk, so that a second writer changes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from common.checksums import read_checked
from common.config import Config
from common.errors import InputError, RunError
from common.models import load_tokenizer
from common.prompts import PromptTemplate
from data_gen.chunks import Chunk, Draw, sample_chunk
from data_gen.engines import Engine
from data_gen.labels import LabelSettings
from data_gen.measure import RenderPrompt
from data_gen.settings import engine_of
from data_gen.stream_labels import LabelChunk, label_chunk

Sampler = tuple[Engine, Any, RenderPrompt]
"""An engine, its tokenizer, and how a problem becomes prompt ids."""
MOST_BLOCKS = 2_000
"""Ray Data keeps a record of each block; beyond this many chunks a block holds several."""
BLOCK_BYTES = 1 << 20
"""What Ray plans for a block that comes back; rows here are numbers, far from its default of 128 MiB."""


def build_sampler(config: Config, model: str) -> Sampler:
    """What a replica samples with; one torch thread unless ``base.threads`` says otherwise."""
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(config.base.threads or 1)
    tokenizer = load_tokenizer(model)
    template = PromptTemplate.from_config(config.base)
    return engine_of(config, model, tokenizer), tokenizer, lambda problem: template.ids(problem.text, tokenizer)


class Replica:
    """An actor that holds one engine and samples chunk after chunk."""

    def __init__(self, build: Callable[[], Sampler], draw: Draw) -> None:
        self.sampler, self.draw = build(), draw

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        chunk = Chunk(**json.loads(batch["chunk"][0]))
        if read_checked(FilePath(chunk.file)) is None:  # else an earlier try was cut behind its last line
            sample_chunk(*self.sampler, chunk, self.draw)
        return {"paths": [self.draw.n * chunk.count]}


def label_batch(batch: dict[str, Any], settings: LabelSettings, has_oracle: bool) -> dict[str, Any]:
    """The stateless counterpart of `Replica`, for labels."""
    chunk = LabelChunk(**json.loads(batch["chunk"][0]))
    return {"paths": [label_chunk(chunk, settings, has_oracle)]}


class RayCluster:
    """The cluster that ``RAY_ADDRESS`` names, or the one that runs on this machine, or a new one on this machine.

    Args:
        replicas: engines side by side; each takes one GPU where the cluster has any, else one CPU.
        build: makes what a replica samples with, on its node.

    Raises:
        InputError: Ray is not installed.
    """

    def __init__(self, replicas: int, build: Callable[[], Sampler]) -> None:
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise InputError(
                "data.cluster = 'ray': Ray is not installed; pip install 'stepwise-ppo[ray]', or data.cluster=none"
            ) from error
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level=logging.WARNING)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = BLOCK_BYTES
        self._ray, self._replicas, self._build = ray, replicas, build

    def fill(self, chunks: Sequence[Chunk], draw: Draw) -> Iterator[int]:
        """Sample chunks on the replicas; see `data_gen.chunks.Fill`."""
        has_gpu = self._ray.cluster_resources().get("GPU", 0) > 0
        yield from self._map(
            chunks,
            Replica,
            compute=self._ray.data.ActorPoolStrategy(size=min(self._replicas, len(chunks))),
            fn_constructor_kwargs={"build": self._build, "draw": draw},
            num_cpus=0 if has_gpu else 1,
            num_gpus=1 if has_gpu else 0,
        )

    def label(self, chunks: Sequence[LabelChunk], settings: LabelSettings, has_oracle: bool) -> Iterator[int]:
        """Label chunks by tasks of one CPU each; yield the paths of each that is safe."""
        yield from self._map(
            chunks, label_batch, fn_kwargs={"settings": settings, "has_oracle": has_oracle}, num_cpus=1
        )

    def _map(self, chunks: Sequence[Any], function: Any, **how: Any) -> Iterator[int]:
        """Run `function` over chunks in any order; what the user can mend is raised as on one machine."""
        items = [{"chunk": json.dumps(dataclasses.asdict(chunk))} for chunk in chunks]
        rows = self._ray.data.from_items(items, override_num_blocks=min(len(items), MOST_BLOCKS))
        try:
            for row in rows.map_batches(function, batch_size=1, **how).iter_rows():
                yield int(row["paths"])
        except self._ray.exceptions.RayError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, InputError | RunError):
                cause = getattr(cause, "cause", None) or cause.__cause__
            raise cause or error from None

"""What the data stage takes from a configuration: problems, engine, and the settings of sampling and labels."""

from __future__ import annotations

import functools
import zlib
from typing import Any

from common.config import Config
from common.models import load_policy, load_tokenizer, locate, sampling_device
from common.records import Problem
from common.runs import Run
from data_gen.engines import Engine, make_engine
from data_gen.labels import LabelSettings
from data_gen.measure import SampleSettings
from data_gen.problems import ProblemSource, load_problems
from data_gen.sample import PoolSettings


def source_of(config: Config, split: str) -> ProblemSource:
    """Where a split's problems come from; those of validation and test have their own levels."""
    data = config.data
    levels = data.levels if split == "train" or data.test_levels is None else data.test_levels
    return ProblemSource(data.source, levels, data.kinds)


def problems_of(config: Config, split: str, seed: int, count: int) -> list[Problem]:
    """Problems of one split; those of validation and test do not depend on seed or round."""
    return load_problems(source_of(config, split), split, seed, count)


def engine_of(config: Config, model: str, tokenizer: Any) -> Engine:
    """The sampling engine of the data stage."""
    if config.data.engine == "vllm":
        return vllm_engine(model, config.base.dtype, config.data.max_batch_rows)
    policy = load_policy(model, config.base.dtype).to(sampling_device())
    return make_engine("transformers", policy, tokenizer, max_rows=config.data.max_batch_rows)


@functools.lru_cache(maxsize=1)
def vllm_engine(model: str, dtype: str, max_rows: int) -> Engine:
    """The vLLM engine of this process: sampling and labelling share it, as a second one would find no memory."""
    return make_engine("vllm", model, load_tokenizer(model), max_rows=max_rows, dtype=dtype)


def sampled_model(config: Config, run: Run) -> str:
    """The model whose paths are sampled: where a supervised start learns from those paths, the one before it."""
    return locate(run.start_model(config, before_sft=config.sft.source == "right_paths"))


def derived_seed(config: Config, run: Run) -> int:
    """A seed that differs for every run seed and round."""
    return zlib.crc32(f"data/{config.seed}/{run.round}".encode())


def sample_settings(config: Config) -> SampleSettings:
    """How paths are drawn."""
    return SampleSettings(config.data.temperature, config.data.max_new_tokens, stop=config.base.stop)


def pool_settings(config: Config, seed: int) -> PoolSettings:
    """How the pool is made."""
    data = config.data
    return PoolSettings(
        measure_paths=data.measure_paths,
        paths=data.paths,
        pass_low=data.pass_low,
        pass_high=data.pass_high,
        chunk=data.chunk,
        label_measured=data.label_measured,
        seed=seed,
    )


def text_settings(config: Config, sources: tuple[str, ...]) -> LabelSettings:
    """The settings of the sources that read the sampled paths alone."""
    data = config.data
    keys = data.label_keys
    if keys == "auto":
        keys = "equations" if data.source == "synthetic" else "values"
    return LabelSettings(
        rule=data.label_rule,
        sources=sources,
        min_support=data.min_support,
        after_error=data.after_error,
        false_in_correct=data.false_in_correct,
        min_share=data.min_share,
        keys=keys,
    )

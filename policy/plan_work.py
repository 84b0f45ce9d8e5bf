"""Tokens, floating-point operations and seconds of every stage of a round, from the settings; nothing is read.

A stage is a list of ``Work``: so many tokens, sampled one by one (``decode``), read (``forward``) or trained on
(``train``). Operations a token, N the weights it is multiplied with (Kaplan et al. 2020, arXiv:2001.08361, 2.1):

    forward   2 N + 4 layers q c     c = tokens attended on average, q = heads * head_dim (arXiv:2204.02311, B)
    train     3 times forward, 4 times when activations are computed again (``gradient_checkpointing``)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from common.config import Config
from policy.plan_shape import ModelShape

Kind = Literal["decode", "forward", "train"]


@dataclasses.dataclass(frozen=True)
class Lengths:
    """What the settings do not say: assumed, or measured by ``policy.plan_calibrate``.

    Attributes:
        prompt, path: mean tokens of a problem as the model gets it, and of a sampled path.
        steps: mean steps of a path.
        kept: share of the pool inside the pass-rate band.
        read: share of the labelled tokens that an epoch of the PRM fit reads, after equal paths are merged and wrong
            ones cut.
    """

    prompt: float
    path: float
    steps: float
    kept: float = 0.5
    read: float = 0.7


@dataclasses.dataclass(frozen=True)
class Work:
    """One kind of work of a stage.

    Attributes:
        tokens: sampled, read or trained on. operations: floating-point operations in all.
        paths: paths that are sampled (0 for other work).
        everywhere: True = all devices share it; False = the stage runs on one device.
    """

    stage: str
    name: str
    kind: Kind
    tokens: float
    operations: float
    paths: float = 0.0
    everywhere: bool = True


def forward_operations(shape: ModelShape, context: float) -> float:
    """Operations of one token that attends to ``context`` tokens."""
    return 2.0 * shape.multiplied + 4.0 * shape.layers * shape.query_width * context


def round_work(config: Config, shape: ModelShape, lengths: Lengths, is_first_round: bool = True) -> list[Work]:
    """Everything one round computes, in order."""
    return [
        *_data(config, shape, lengths),
        *_prm(config, shape, lengths),
        *_ppo(config, shape, lengths, is_first_round),
        *_eval(config, shape, lengths),
    ]


def _sampled(stage: str, name: str, shape: ModelShape, problems: float, paths: float, lengths: Lengths) -> list[Work]:
    """Sampling: each problem's prompt is read once, each path's tokens come one by one."""
    read, drawn = problems * lengths.prompt, paths * lengths.path
    spent = forward_operations(shape, lengths.prompt + lengths.path / 2)
    where = stage == "ppo"
    return [
        Work(
            stage, f"{name}: prompts", "forward", read, read * forward_operations(shape, lengths.prompt / 2), 0, where
        ),
        Work(stage, name, "decode", drawn, drawn * spent, paths, where),
    ]


def _passes(
    stage: str, name: str, kind: Kind, shape: ModelShape, tokens: float, lengths: Lengths, factor: float = 1.0
) -> Work:
    """Reading or training on whole rows; ``factor``: operations against a forward pass."""
    a_token = forward_operations(shape, (lengths.prompt + lengths.path) / 2)
    return Work(stage, name, kind, tokens, tokens * a_token * factor, everywhere=stage in ("prm", "ppo"))


def _labelled(config: Config, lengths: Lengths) -> float:
    return config.data.pool * lengths.kept * config.data.paths


def _data(config: Config, shape: ModelShape, lengths: Lengths) -> list[Work]:
    data, kept = config.data, config.data.pool * lengths.kept
    work = _sampled("data", "measuring", shape, data.pool, data.pool * data.measure_paths, lengths)
    work += _sampled("data", "sampling", shape, kept, kept * (data.paths - data.measure_paths), lengths)
    if "monte_carlo" in data.label_sources:
        prefixes = lengths.steps if data.mc_search == "linear" else math.log2(max(lengths.steps, 2))
        completions = _labelled(config, lengths) * prefixes * data.mc_completions
        half = dataclasses.replace(lengths, prompt=lengths.prompt + lengths.path / 2, path=lengths.path / 2)
        work += _sampled("data", "labelling", shape, completions / data.mc_completions, completions, half)
    return work


def uses_prm(config: Config) -> bool:
    """False for a run on the outcome or the signals alone: ``ppo`` loads no PRM, and ``prm`` need not be run."""
    return config.ppo.reward == "process" and config.ppo.process_weight > 0 and config.ppo.anchor_fraction < 1


def in_float32(config: Config, work: Work) -> bool:
    """True for work done in float32: all of a float32 model's, and a PRM's that does not lie over the policy's base."""
    is_prm = work.stage == "prm" or work.name == "PRM"
    return config.base.dtype == "float32" or (is_prm and (not config.lora.rank or work.stage == "eval"))


def _prm(config: Config, shape: ModelShape, lengths: Lengths) -> list[Work]:
    if not uses_prm(config):
        return []
    prm, whole = config.prm, lengths.prompt + lengths.path
    train = _labelled(config, lengths) * (1 - prm.holdout) * whole * lengths.read
    held_out = _labelled(config, lengths) * prm.holdout * whole
    checks = 2 + math.ceil(prm.head_epochs) + math.ceil(prm.epochs)
    return [
        _passes("prm", "head", "forward", shape, train * prm.head_epochs, lengths),
        _passes("prm", "all weights", "train", shape, train * prm.epochs, lengths, 3.0),
        _passes("prm", "held-out checks", "forward", shape, held_out * checks, lengths),
    ]


def _ppo(config: Config, shape: ModelShape, lengths: Lengths, is_first_round: bool) -> list[Work]:
    ppo = config.ppo
    problems, paths = ppo.batches * ppo.problems, ppo.batches * ppo.problems * ppo.paths
    tokens = paths * (lengths.prompt + lengths.path)
    work = _sampled("ppo", "sampling", shape, problems, paths, lengths)
    passes = int(ppo.epochs * ppo.minibatches > 1) + int(ppo.kl_coef > 0) + int(not is_first_round)
    work.append(_passes("ppo", "log-probs", "forward", shape, tokens * passes, lengths))
    if uses_prm(config):
        work.append(_passes("ppo", "PRM", "forward", shape, tokens, lengths))
    factor = 4.0 if ppo.gradient_checkpointing else 3.0
    work.append(_passes("ppo", "updates", "train", shape, tokens * ppo.epochs, lengths, factor))
    if ppo.baseline == "gae" and ppo.critic_trunk == "own":
        work.append(_passes("ppo", "critic", "train", shape, tokens * ppo.epochs, lengths, factor))
        work.append(_passes("ppo", "values", "forward", shape, tokens, lengths))
    times = 1 + ppo.batches // ppo.eval_every
    checked = config.data.validation * times
    return work + _sampled("ppo", "validation", shape, checked, checked * (1 + ppo.eval_samples), lengths)


def _eval(config: Config, shape: ModelShape, lengths: Lengths) -> list[Work]:
    data, section = config.data, config.eval
    tried = sum(section.temperature_samples if t > 0 else 1 for t in section.temperatures)
    pools = 1 + any(t not in (0.0, 1.0) for t in section.temperatures)  # one more at a best temperature of its own
    paths = data.test * (1 + section.samples * pools) + data.validation * tried
    work = _sampled("eval", "base and policy", shape, 2 * (data.test + data.validation), 2.0 * paths, lengths)
    if uses_prm(config):
        tokens = 2.0 * data.test * (1 + section.samples * pools) * (lengths.prompt + lengths.path)
        work.append(_passes("eval", "PRM", "forward", shape, tokens, lengths))
    return work


@dataclasses.dataclass(frozen=True)
class Device:
    """What a device does in a second, and how much of it is used.

    Attributes:
        flops: floating-point operations a second at most, in the dtype used. bandwidth: bytes of memory a second.
        utilisation: share of ``flops`` that forward and training passes reach.
        layer_seconds: of launching one layer of one decoding step, whatever its size.
    """

    flops: float
    bandwidth: float
    utilisation: float
    layer_seconds: float


def seconds(work: Work, shape: ModelShape, device: Device, devices: int, rows: int, limit: int, b: int) -> float:
    """Seconds of one piece of work.

    Reading and training: operations / (devices * flops * utilisation). Sampling: groups of ``rows`` paths one after the
    other, each ``limit`` steps long at most (the longest path of a group decides), a step taking the longer of its
    operations and of reading the weights once, and launching its layers.

    Args:
        devices: in all; work of a stage that runs on one device takes no more of them.
        rows: paths a device samples at once. limit: most tokens of a path. b: bytes of a weight.
    """
    used = devices if work.everywhere else 1
    if work.kind != "decode":
        return work.operations / (used * device.flops * device.utilisation)
    if not work.paths:
        return 0.0
    groups = math.ceil(work.paths / used / rows)
    a_step = max(shape.multiplied * b / device.bandwidth, device.layer_seconds * shape.layers)
    return groups * limit * a_step + work.operations / (used * device.flops * device.utilisation)

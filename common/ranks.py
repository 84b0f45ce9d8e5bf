"""The processes of a launched run (``accelerate launch``): which one this is, what they run, waiting for one another.

Without a launcher there is one process, and nothing here does anything.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch.distributed.fsdp import CPUOffloadPolicy

from common.errors import InputError

_ENGINES = {"ACCELERATE_USE_DEEPSPEED": DistributedType.DEEPSPEED, "ACCELERATE_USE_FSDP": DistributedType.FSDP}
"""What ``accelerate launch`` sets for its engines, and the type a trainer must then report."""


def world_size() -> int:
    """Processes of the run, over all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """True in the one process that writes files."""
    return int(os.environ.get("RANK", "0")) == 0


def wants(flag: str) -> bool:
    """True when the launcher was told to use an engine; ``flag`` is a key of ``_ENGINES``."""
    return os.environ.get(flag, "false").lower() == "true"


def start_ranks() -> None:
    """Take this process's device, and start DeepSpeed where accelerate does not: on a machine without GPU.

    Call it before the first trainer's arguments are made. accelerate leaves DeepSpeed's start out on a
    CPU, and ZeRO-3 would then count one process. There the shared-memory operator is off: no compiler is needed.

    Raises:
        InputError: the launcher asks for DeepSpeed and it is not installed.
    """
    if world_size() == 1 and "LOCAL_RANK" not in os.environ:
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not wants("ACCELERATE_USE_DEEPSPEED"):
        return
    if importlib.util.find_spec("deepspeed") is None:
        raise InputError(
            "the launch asks for DeepSpeed, which is not installed: pip install 'stepwise-ppo[deepspeed]', or use"
            " configs/accelerate/ddp.yaml or fsdp2.yaml"
        )
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        import deepspeed
        import deepspeed.ops

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)


def check_engine(accelerator: Any) -> None:
    """Refuse a run that is not the one the launcher was told to start: each rank alone, or plain data parallel.

    Raises:
        InputError: another number of processes or another engine than launched.
    """
    if accelerator.num_processes != world_size():
        raise InputError(
            f"{world_size()} processes were launched and the trainer counts {accelerator.num_processes}: each would"
            " train alone; start them with accelerate launch --config_file configs/accelerate/…"
        )
    for flag, wanted in _ENGINES.items():
        found = accelerator.distributed_type
        if wants(flag) and found != wanted:
            raise InputError(
                f"launched for {wanted.value}, but accelerate runs {found.value}: it has no {wanted.value} for this"
                " device (or ACCELERATE_USE_CPU is set); use configs/accelerate/ddp.yaml or zero2.yaml"
            )
    if wants("ACCELERATE_USE_FSDP"):
        plugin = accelerator.state.fsdp_plugin
        if plugin.fsdp_version != 2:
            raise InputError("FSDP version 1 is not supported; use configs/accelerate/fsdp2.yaml (fsdp_version: 2)")
        if isinstance(plugin.cpu_offload, CPUOffloadPolicy):
            raise InputError("FSDP with offload is not supported; use configs/accelerate/zero3-offload.yaml")
    if wants("ACCELERATE_USE_DEEPSPEED") and accelerator.state.deepspeed_plugin.zero_stage == 0:
        raise InputError("ZeRO stage 0 shards nothing; use configs/accelerate/ddp.yaml, or zero1.yaml to zero3.yaml")


def wait_for_all() -> None:
    """Return when every process has come here."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()

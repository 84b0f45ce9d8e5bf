"""Launched runs, as far as one process can tell; the engines themselves run in test_zero_engines.py."""

from __future__ import annotations

import importlib.util
import pathlib
from types import SimpleNamespace

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from prm_support import toy_inputs

from common.config import Config
from common.errors import InputError
from common.ranks import check_engine, start_ranks
from common.sharding import engine_name, local_weights
from policy.zero_guard import guard_step, has_dropped
from prm.__main__ import fit_settings
from prm.training_set import LengthGrouped, WholeWindows, blank_row

LAUNCH = sorted((pathlib.Path(__file__).parent.parent / "configs/accelerate").glob("*.yaml"))


def accelerator(found, processes=2, zero=None, fsdp=None):
    plugins = SimpleNamespace(
        deepspeed_plugin=None if zero is None else SimpleNamespace(zero_stage=zero),
        fsdp_plugin=None if fsdp is None else SimpleNamespace(fsdp_version=fsdp, cpu_offload=None),
    )
    return SimpleNamespace(num_processes=processes, distributed_type=found, state=plugins)


def test_the_launch_configurations_are_accelerates():
    assert sorted(path.stem for path in LAUNCH) == ["ddp", "fsdp2", "zero1", "zero2", "zero3", "zero3-offload"]
    for path in LAUNCH:
        config = load_config_from_file(str(path))
        kind = {"d": "MULTI_GPU", "f": "FSDP", "z": "DEEPSPEED"}[path.stem[0]]
        assert config.distributed_type.value == kind
        if kind == "DEEPSPEED":
            assert config.deepspeed_config["zero_stage"] == int(path.stem[4])


@pytest.mark.parametrize(
    ("flag", "found", "message"),
    [
        (
            "ACCELERATE_USE_DEEPSPEED",
            accelerator(DistributedType.MULTI_CPU),
            "for DEEPSPEED, but accelerate runs",
        ),
        ("ACCELERATE_USE_FSDP", accelerator(DistributedType.MULTI_CPU), "for FSDP, but accelerate runs MULTI_CPU"),
        ("ACCELERATE_USE_FSDP", accelerator(DistributedType.FSDP, fsdp=1), "FSDP version 1 is not supported"),
        ("ACCELERATE_USE_DEEPSPEED", accelerator(DistributedType.DEEPSPEED, zero=0), "ZeRO stage 0 shards nothing"),
        ("NEITHER", accelerator(DistributedType.NO, processes=1), "each would train alone"),
    ],
)
def test_a_run_that_is_not_the_one_launched_is_refused(monkeypatch, flag, found, message):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(flag, "true")
    with pytest.raises(InputError, match=message):
        check_engine(found)


def test_runs_as_launched_are_taken(monkeypatch):
    check_engine(accelerator(DistributedType.NO, processes=1))
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_engine(accelerator(DistributedType.MULTI_CPU))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    fsdp = accelerator(DistributedType.FSDP, fsdp=2)
    check_engine(fsdp)
    assert engine_name(fsdp) == "fsdp2"
    assert engine_name(accelerator(DistributedType.DEEPSPEED, zero=3)) == "zero3"
    assert engine_name(accelerator(DistributedType.MULTI_CPU)) == "none"


def test_deepspeed_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    start_ranks()  # one process that nobody launched
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"pip install 'stepwise-ppo\[deepspeed\]'"):
        start_ranks()


def test_an_updates_paths_are_over_all_processes(monkeypatch):
    config = Config()
    assert fit_settings(config).batch_paths == 16
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert fit_settings(config).batch_paths == 8
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(InputError, match=r"prm.batch_paths = 16: want a multiple of the 3 processes"):
        fit_settings(config)


@pytest.mark.parametrize("count", [16, 17, 21, 23])
def test_windows_of_several_processes_hold_the_rows_of_one(count):
    ranks, batch, blank = 2, 4, count
    grouped = LengthGrouped([7 * k % 11 for k in range(count)], ranks * batch, seed=3)
    dealt = WholeWindows(grouped, batch, blank)
    for epoch in (0, 1):
        dealt.set_epoch(epoch)
        rows, wanted = list(dealt), list(grouped)
        assert len(rows) == len(dealt)
        assert len(rows) % (ranks * batch) == 0
        for start in range(0, count, ranks * batch):
            window = rows[start : start + ranks * batch]
            assert sorted(row for row in window if row != blank) == sorted(wanted[start : start + ranks * batch])
        sizes = [sum(row != blank for row in rows[at : at + batch]) for at in range(0, len(rows), batch)]
        assert max(sizes[-2:]) - min(sizes[-2:]) <= 1  # the last window is dealt out evenly


def test_a_blank_row_has_no_label():
    inputs = toy_inputs(5)
    blank = blank_row(inputs)
    assert not blank.has_label
    assert len(blank.labels) == len(blank.step_positions)
    assert len(blank.token_ids) == min(len(one.token_ids) for one in inputs)


class Optimizer:
    """Decides as ZeRO's optimisers do: the verdict is told to the scaler, then read again."""

    overflow = False

    def __init__(self, norm):
        self.norm, self.told, self.steps = norm, [], 0

    def _update_scale(self, has_overflow=False):
        self.told.append(has_overflow)

    def step(self):
        self.overflow = self.norm != self.norm
        self._update_scale(self.overflow)
        self.steps += not self.overflow


@pytest.mark.parametrize(
    ("norm", "is_unfit", "is_dropped"), [(1.0, False, False), (1.0, True, True), (float("nan"), False, True)]
)
def test_an_update_is_dropped_for_the_norm_or_for_what_the_ranks_say(norm, is_unfit, is_dropped):
    engine = SimpleNamespace(optimizer=Optimizer(norm))
    guard_step(engine, lambda has_overflow: is_unfit)
    engine.optimizer.step()
    assert has_dropped(engine) is is_dropped
    assert engine.optimizer.told == [is_dropped]
    assert engine.optimizer.steps == (not is_dropped)


def test_an_optimiser_that_decides_elsewhere_is_refused():
    with pytest.raises(RuntimeError, match="is not the ZeRO optimiser"):
        guard_step(SimpleNamespace(optimizer=SimpleNamespace()), bool)


def test_a_weight_in_pieces_is_looked_at_by_its_piece():
    whole, gone = torch.ones(2), torch.empty(0)
    gone.ds_tensor = torch.tensor([1.0, float("nan")])
    assert [(name, piece.tolist()[0]) for name, piece in local_weights([("a", whole), ("b", gone)])] == [
        ("a", 1.0),
        ("b", 1.0),
    ]

"""``python -m policy.plan --config … --gpus N``: memory, tokens, hours and money of a round, before anything is rented.

Reads the configuration and the model's ``config.json``; no weights are loaded and nothing is sampled (docs/plan.md).
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from common.config import Config, load_config
from common.errors import InputError
from common.runs import Run
from policy.arguments import trainer_arguments
from policy.plan_calibrate import Calibration, calibrate
from policy.plan_phases import Layout, phases, weight_bytes
from policy.plan_report import CHIPS, GIB, LAYER_SECONDS, UTILISATION, print_plan, stage_times
from policy.plan_shape import ModelShape, read_shape
from policy.plan_work import Device, Lengths, Work, in_float32, round_work, seconds

LONGEST = 2.0
"""The longest problem of a batch against the mean one: an assumption. GSM8K's longest of all has 4.2 times the mean's
characters."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m policy.plan", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--config", default="configs/tiny.yaml", help="YAML file of the experiment")
    made.add_argument("--gpus", type=int, default=1, help="devices in all")
    made.add_argument("--gpu", choices=(*CHIPS, "cpu"), help="kind of device; default: a100-80g")
    made.add_argument("--gpu-memory-gib", type=float, help="memory of one device; default: what the kind has")
    made.add_argument("--price", type=float, help="EUR for one device and hour")
    made.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0, help="ZeRO stage; 0: DDP. FSDP2: 3")
    made.add_argument(
        "--offload", choices=("none", "optimiser", "all"), default="none", help="to the host: Adam's states, or all"
    )
    made.add_argument(
        "--vllm-share",
        type=float,
        default=0.0,
        help="share of a device kept for vLLM during ppo; default: ppo.vllm_memory with ppo.engine=vllm",
    )
    made.add_argument("--calibrate", type=Path, help="finished run on one device of the kind: its lengths and rates")
    made.add_argument("--prompt-tokens", type=float, help="mean tokens of a problem; default: 150, or the run's")
    made.add_argument(
        "--path-tokens", type=float, help="mean tokens of a path; default: half of data.max_new_tokens, or the run's"
    )
    made.add_argument("--utilisation", type=float, help=f"share of the datasheet's operations; default: {UTILISATION}")
    made.add_argument("--later-round", action="store_true", help="a round after the first: the base is held besides")
    made.add_argument("overrides", nargs="*", help="section.key=value")
    return made


def check(config: Config, options: argparse.Namespace) -> None:
    """Refuse what contradicts itself or what the trainer would refuse later.

    Raises:
        InputError: a sentence that names the setting.
    """
    _require(options.gpus >= 1, f"--gpus {options.gpus}: want at least 1")
    memory = options.gpu_memory_gib
    _require(memory is None or 0 < memory < math.inf, f"--gpu-memory-gib {memory}: want more than 0")
    _require(options.price is None or 0 <= options.price < math.inf, f"--price {options.price}: want 0 or more")
    used = options.utilisation
    _require(used is None or 0 < used <= 1, f"--utilisation {used}: want more than 0, at most 1")
    _require(0 <= options.vllm_share < 1, f"--vllm-share {options.vllm_share}: want at least 0 and less than 1")
    for name in ("prompt_tokens", "path_tokens"):
        value = getattr(options, name)
        _require(value is None or 1 <= value < 1e6, f"--{name.replace('_', '-')} {value}: want at least 1, below 10^6")
    limit = config.data.max_new_tokens
    longer = options.path_tokens is not None and options.path_tokens > limit
    _require(not longer, f"--path-tokens {options.path_tokens} is above data.max_new_tokens = {limit}")
    measured = options.calibrate is not None
    _require(not measured or options.gpu, "--calibrate: want the kind of the run's device, --gpu cpu for a CPU")
    _require(
        not (measured and options.utilisation),
        f"--utilisation {options.utilisation} with --calibrate: the run's rates hold what was used; leave one out",
    )
    _require(
        options.gpu != "cpu" or measured,
        "--gpu cpu: no datasheet says what a CPU reaches; give --calibrate RUN, a finished run on it",
    )
    _require(options.gpu != "cpu" or memory is not None, "--gpu cpu: want its memory, --gpu-memory-gib")
    zero = options.zero
    _require(options.offload == "none" or zero > 0, f"--offload {options.offload} needs --zero 1, 2 or 3")
    _require(options.offload != "all" or zero == 3, f"--offload all with --zero {zero}: only ZeRO-3 moves weights")
    _require(
        zero == 0 or options.gpus > 1 or options.offload != "none",
        f"--zero {zero} with --gpus 1: there is nothing to divide; use --zero 0, or --offload",
    )
    _require(
        zero == 0 or config.ppo.baseline != "gae",
        f"--zero {zero} with ppo.baseline = 'gae': a critic is not served under DeepSpeed or FSDP; use --zero 0",
    )
    _require(
        zero < 3 or config.ppo.engine == "transformers",
        "--zero 3 with ppo.engine = 'vllm': its weights are not gathered for an engine beside it; use --zero 2",
    )
    for name, value in (("lora.rank", config.lora.rank), ("ppo.frozen_layers", config.ppo.frozen_layers)):
        _require(
            zero < 3 or value == 0, f"--zero 3 with {name} = {value}: shared weights are refused there; use --zero 2"
        )
    groups = f"--gpus {options.gpus} with ppo.problems = {config.ppo.problems} and ppo.paths = {config.ppo.paths}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            args = trainer_arguments(config, Path(folder), options.gpus)
        except InputError:
            raise
        except ValueError as error:  # TRL's own checks
            raise InputError(f"{groups}: {str(error).splitlines()[0]}") from error
    local = args.per_device_train_batch_size * args.steps_per_generation
    _require(
        local % config.ppo.paths == 0, f"{groups}: {local} paths a device; a problem's paths must not span devices"
    )


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise InputError(message)


def make_lengths(config: Config, options: argparse.Namespace, calibration: Calibration | None) -> Lengths:
    """Mean lengths: given, else measured, else assumed."""
    limit = config.data.max_new_tokens
    found = calibration.lengths if calibration else Lengths(150.0, limit / 2, max(2.0, limit / 80))
    return Lengths(
        prompt=options.prompt_tokens or found.prompt,
        path=min(options.path_tokens or found.path, limit),
        steps=found.steps,
        kept=found.kept,
        read=found.read,
    )


def timer(
    config: Config, shape: ModelShape, options: argparse.Namespace, calibration: Calibration | None
) -> Callable[[Work], float]:
    """The function that gives the seconds of a piece of work."""
    if calibration is not None:
        return lambda work: calibration.seconds(work) / (options.gpus if work.everywhere else 1)
    chip, b = CHIPS[options.gpu or "a100-80g"], weight_bytes(config)

    def timed(work: Work) -> float:
        is_vllm = {"data": config.data.engine == "vllm", "ppo": options.vllm_share > 0}.get(work.stage, False)
        flops = chip.float32 if in_float32(config, work) else chip.bfloat16
        device = Device(
            flops,
            chip.bandwidth,
            options.utilisation or UTILISATION,
            LAYER_SECONDS["vllm" if is_vllm else "transformers"],
        )
        return seconds(work, shape, device, options.gpus, config.data.max_batch_rows, config.data.max_new_tokens, b)

    return timed


def plan(options: argparse.Namespace) -> None:
    """Read, check, compute and print."""
    config = load_config(options.config, options.overrides)
    if config.ppo.engine == "vllm":
        options.vllm_share = options.vllm_share or config.ppo.vllm_memory
    check(config, options)
    calibration = calibrate(Run(options.calibrate)) if options.calibrate else None
    shape = read_shape(config.base.model)
    lengths = make_lengths(config, options, calibration)
    kind = options.gpu or "a100-80g"
    layout = Layout(
        devices=options.gpus,
        device_bytes=(options.gpu_memory_gib or CHIPS[kind].gib) * GIB,
        zero=options.zero,
        offload=options.offload,
        vllm_share=options.vllm_share,
        longest_prompt=round(LONGEST * lengths.prompt),
        is_cpu=kind == "cpu",
        is_first_round=not (options.later_round or config.sft.is_on),
    )
    works = round_work(config, shape, lengths, layout.is_first_round)
    found = phases(config, shape, layout)
    times = stage_times(works, timer(config, shape, options, calibration), options.gpus)
    source = f"measured in {options.calibrate}" if calibration else "assumed"
    print(
        f"{options.config}: {options.gpus} x {kind}, {config.base.dtype}, ZeRO-{options.zero}; lengths {source}:"
        f" problem {lengths.prompt:.0f} tokens, path {lengths.path:.0f}, {lengths.kept:.0%} of the pool kept"
    )
    print_plan(shape, found, layout, times, options.price)


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code (2: input that the message says how to mend)."""
    try:
        plan(parser().parse_intermixed_args(argv))
    except InputError as error:
        print(f"plan: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A plan as tables: memory by part, tokens, hours, money; and the constants behind them, each with its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from policy.plan_phases import Layout, Phase
from policy.plan_shape import ModelShape
from policy.plan_work import Work

GIB = 2.0**30

RUNTIME = 1.5 * GIB
"""Beside tensors on a GPU: CUDA context, cuBLAS, allocator's rest. An assumption."""

RUNTIME_CPU = 0.6 * GIB
"""Beside tensors on a CPU: Python with torch, transformers and TRL loaded (0.51 GiB measured), allocator's rest."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """Datasheet figures of a device: dense operations a second in bfloat16 and float32, bytes a second, GiB."""

    bfloat16: float
    float32: float
    bandwidth: float
    gib: float


CHIPS = {
    "a100-80g": Chip(312e12, 19.5e12, 2039e9, 80),  # NVIDIA A100 datasheet, SXM 80GB; float32 without TF32
    "h100": Chip(989e12, 67e12, 3350e9, 80),  # NVIDIA H100 datasheet, SXM, without sparsity
    "rtx-4090": Chip(165e12, 82.6e12, 1008e9, 24),  # NVIDIA Ada whitepaper, float32 accumulation, without sparsity
    "rtx-3090": Chip(71e12, 35.6e12, 936e9, 24),  # NVIDIA GA102 whitepaper, float32 accumulation, without sparsity
}

UTILISATION = 0.3
"""Share of the datasheet's operations that passes reach. An assumption: 0.46 is published for PaLM's pretraining
(arXiv:2204.02311, table 3); short padded rows reach less."""

LAYER_SECONDS = {"transformers": 1.2e-3, "vllm": 1.2e-4}
"""Launching a layer of a decoding step: 25.5 tokens a second of Llama-7B in eager PyTorch on an A100 are 1.2 ms for
each of its 32 layers (pytorch.org/blog/accelerating-generative-ai-2). For vLLM a tenth of it: an assumption."""

PUBLISHED = (
    "published case: full RL of a 7B model wants at least 4 x 80 GB and takes 200 to 400 GPU-hours a round;"
    " SimpleRL-Zoo: Qwen2.5-7B on 2 x 8 H100-80G in 15 hours, 240 GPU-hours (github.com/hkust-nlp/simpleRL-reason)"
)


@dataclasses.dataclass(frozen=True)
class StageTime:
    """A stage's work: seconds on the clock, and GPU-hours while all devices are rented, busy or not."""

    stage: str
    tokens: float
    operations: float
    seconds: float
    gpu_hours: float


def stage_times(works: Sequence[Work], seconds_of: Callable[[Work], float], devices: int) -> list[StageTime]:
    """Sum works by stage, in order; ``seconds_of`` gives the seconds of one piece of work."""
    stages: dict[str, list[Work]] = {}
    for work in works:
        stages.setdefault(work.stage, []).append(work)
    found = []
    for stage, own in stages.items():
        seconds = sum(map(seconds_of, own))
        tokens, operations = sum(work.tokens for work in own), sum(work.operations for work in own)
        found.append(StageTime(stage, tokens, operations, seconds, seconds * devices / 3600))
    return found


def fits(phases: Sequence[Phase], layout: Layout) -> bool:
    """True when every phase, with what is not a tensor, fits a device."""
    return max(phase.total for phase in phases) + runtime(layout) <= layout.device_bytes


def runtime(layout: Layout) -> float:
    return RUNTIME_CPU if layout.is_cpu else RUNTIME


def memory_table(phases: Sequence[Phase], layout: Layout) -> Table:
    """One row a part, one column a phase, GiB."""
    table = Table(title=f"memory of a device, GiB (of {layout.device_bytes / GIB:g})")
    table.add_column("part")
    for phase in phases:
        table.add_column(f"{phase.stage}: {phase.name}", justify="right")
    for part in dict.fromkeys(part for phase in phases for part in phase.parts):
        table.add_row(part, *(_gib(phase.parts.get(part, 0.0)) for phase in phases))
    table.add_row("beside tensors", *(_gib(runtime(layout)) for _ in phases))
    totals = [phase.total + runtime(layout) for phase in phases]
    table.add_row("all", *(f"{total / GIB:.2f}" for total in totals))
    table.add_row("fits", *("yes" if total <= layout.device_bytes else "NO" for total in totals))
    if any(phase.host for phase in phases):
        table.add_row("on the host, all devices", *(_gib(phase.host) for phase in phases))
    return table


def _gib(count: float) -> str:
    return f"{count / GIB:.2f}" if count else "-"


def time_table(times: Sequence[StageTime], price: float | None) -> Table:
    """One row a stage and the round."""
    table = Table(title="a round")
    for name in ("stage", "tokens, M", "PFLOP", "hours", "GPU-hours", *(["EUR"] if price is not None else [])):
        table.add_column(name, justify="left" if name == "stage" else "right")
    whole = StageTime(
        "round",
        sum(t.tokens for t in times),
        sum(t.operations for t in times),
        sum(t.seconds for t in times),
        sum(t.gpu_hours for t in times),
    )
    for one in (*times, whole):
        money = [f"{one.gpu_hours * price:,.2f}"] if price is not None else []
        table.add_row(
            one.stage,
            f"{one.tokens / 1e6:.3g}",
            f"{one.operations / 1e15:.3g}",
            f"{one.seconds / 3600:.3g}",
            f"{one.gpu_hours:.3g}",
            *money,
        )
    return table


def print_plan(
    shape: ModelShape, phases: Sequence[Phase], layout: Layout, times: Sequence[StageTime], price: float | None
) -> None:
    """Print model, memory, time, money and the published case."""
    console = Console(width=max(100, 22 + 14 * len(phases)))
    print(
        f"model: {shape.parameters:,} weights, {shape.layers} layers of {shape.hidden}, {shape.kv_heads} key/value"
        f" heads of {shape.head_dim}, {shape.vocab:,} words{', tied' if shape.is_tied else ''}"
    )
    console.print(memory_table(phases, layout))
    console.print("It fits." if fits(phases, layout) else "It does NOT fit.")
    console.print(time_table(times, price))
    if layout.devices > 1:
        print("data and eval run on one device; the others are idle then, and are counted, because they are rented")
    print(PUBLISHED)

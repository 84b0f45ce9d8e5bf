"""Peak memory of the data stage on a Ray cluster of this machine, with a synthetic sampler in the place of the model.

    python -m bench.ray_memory --problems 10000 100000

Each size runs in a process of its own and prints one JSON object: peak resident memory in MB (2^20 bytes) of the
driver, of the largest worker and of the object store; what is grouped, selected and written is what
`data.cluster=ray` runs.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from common.models import load_tokenizer
from common.records import FinishReason, Problem
from common.runs import write_rows
from data_gen.engines import Completion, EngineStats
from data_gen.labels import LabelSettings
from data_gen.measure import SampleSettings
from data_gen.ray_cluster import RayCluster, Sampler
from data_gen.sample import PoolSettings
from data_gen.stream_labels import cut_label_chunks, label_missing, labelled_rows
from data_gen.stream_pool import stream_pool

RIGHT = "3*4=12\n12-8=4\n4-1=3\nAnswer: 3"
WRONG = "3*4=12\n12-8=6\n6-1=5\nAnswer: 5"
MB = 1 << 20


class SyntheticEngine:
    """Answers at once; which paths are right is drawn from seed, prompt and path, half of them."""

    def __init__(self, tokenizer: Any) -> None:
        self.stats = EngineStats()
        self._texts = [(*tokenizer(text)["input_ids"], tokenizer.eos_token_id) for text in (WRONG, RIGHT)]

    def sample(self, prompts: Sequence[Sequence[int]], *, n: int, seed: int, **settings: Any) -> list[list[Completion]]:
        """See `data_gen.engines.Engine.sample`."""
        return [
            [Completion(self._text(seed, prompt, path), FinishReason.STOP) for path in range(n)] for prompt in prompts
        ]

    def _text(self, seed: int, prompt: Sequence[int], path: int) -> tuple[int, ...]:
        drawn = hashlib.blake2b(f"{seed} {path} {prompt}".encode(), digest_size=1).digest()
        return self._texts[drawn[0] % 2]


def synthetic_sampler() -> Sampler:
    tokenizer = load_tokenizer("data_gen/base_model")
    return SyntheticEngine(tokenizer), tokenizer, lambda problem: tokenizer(problem.text)["input_ids"]


def synthetic_problems(count: int) -> Iterator[Problem]:
    for number in range(count):
        yield Problem.create(f"Compute 3*4-8-1, number {number}.", "3", source="bench", topic="ab"[number % 2], level=3)


class Peaks(threading.Thread):
    """Watches the processes below this one, Ray's workers, until stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worker = self.store = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                try:
                    name, memory = process.name(), process.memory_info()
                except psutil.NoSuchProcess:
                    continue
                if name.startswith("ray::"):
                    self.worker = max(self.worker, memory.rss - memory.shared)
                elif name == "raylet":
                    self.store = max(self.store, memory.shared)

    def stop(self) -> None:
        self._ended.set()
        self.join()


def measure(count: int, measure_paths: int, paths: int, chunk: int, root: Path) -> dict[str, Any]:
    """Run both halves of the stage on `count` problems below `root`; return peaks, counts and seconds."""
    import ray

    ray.init("local", num_cpus=2, object_store_memory=200 * MB, include_dashboard=False, log_to_driver=False)
    peaks = Peaks()
    peaks.start()
    started = time.perf_counter()
    cluster = RayCluster(2, synthetic_sampler)
    counts = stream_pool(
        synthetic_problems(count),
        root / "chunks",
        PoolSettings(measure_paths=measure_paths, paths=paths, chunk=chunk),
        SampleSettings(),
        cluster.fill,
        problems_file=root / "problems.jsonl",
        paths_file=root / "paths.jsonl",
    )
    chunks = cut_label_chunks(root / "paths.jsonl", root / "problems.jsonl", root / "labels", chunk)
    label = functools.partial(cluster.label, settings=LabelSettings(), has_oracle=False)
    totals = label_missing(chunks, label)
    write_rows(root / "labelled.jsonl", labelled_rows(chunks))
    peaks.stop()
    return {
        "problems": count,
        "kept": counts.kept,
        "paths": count * measure_paths + counts.kept * (paths - measure_paths),
        "labelled": totals.summary.labelled,
        "driver_mb": _peak_of_this_process() // MB,
        "worker_mb": peaks.worker // MB,
        "store_mb": peaks.store // MB,
        "written_mb": sum(file.stat().st_size for file in root.rglob("*.jsonl")) // MB,
        "seconds": round(time.perf_counter() - started, 1),
    }


def _peak_of_this_process() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    """Run one process a size and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--measure-paths", type=int, default=8)
    parser.add_argument("--paths", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="where it writes; default: a temporary folder")
    options = parser.parse_args()
    if len(options.problems) == 1:
        with tempfile.TemporaryDirectory(dir=options.folder) as root:
            found = measure(options.problems[0], options.measure_paths, options.paths, options.chunk, Path(root))
        print(json.dumps(found))
        return
    for count in options.problems:
        command = [sys.executable, "-m", "bench.ray_memory", "--problems", str(count)]
        command += ["--measure-paths", str(options.measure_paths), "--paths", str(options.paths)]
        command += ["--chunk", str(options.chunk)] + (["--folder", str(options.folder)] if options.folder else [])
        subprocess.run(command, check=True)


if __name__ == "__main__":
    from bench.ray_memory import main as importable  # so that workers import the sampler by its module's name

    importable()

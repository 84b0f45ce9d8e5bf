"""Mutation check of the pure modules: flip one sign, mask or index at a time; a test must notice each.

``python -m bench.mutants`` copies the project to a temporary folder, applies each flip of ``bench/mutants.yaml`` there
alone, runs the named test file and prints one JSON line; exit code 1 when a flip survives.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from omegaconf import OmegaConf
from tqdm import tqdm

PROJECT = Path(__file__).parent.parent
PACKAGES = ("common", "grading", "data_gen", "prm", "policy", "eval", "pipeline", "bench", "tests", "configs")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One flip: in ``file`` the only occurrence of ``old`` becomes ``new``; ``test`` must then fail."""

    file: str
    old: str
    new: str
    test: str

    def mutated(self, source: str) -> str:
        """Return the flipped source.

        Raises:
            ValueError: ``old`` does not occur exactly once, so the list has fallen behind the code.
        """
        count = source.count(self.old)
        if count != 1 or self.old == self.new:
            raise ValueError(f"{self.file}: {self.old!r} occurs {count} times, want exactly one that changes")
        return source.replace(self.old, self.new)


def load_mutants(path: Path = PROJECT / "bench" / "mutants.yaml") -> list[Mutant]:
    """Read the list; rows are grouped as file -> test -> [[old, new], …]."""
    tree = OmegaConf.to_container(OmegaConf.load(path))
    return [
        Mutant(file, old, new, test)
        for file, tests in tree.items()
        for test, flips in tests.items()
        for old, new in flips
    ]


def run_tests(folder: Path, test: str) -> tuple[int, str]:
    """Run one test file, stopping at the first failure; return pytest's exit code and last line."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def survivors(mutants: list[Mutant], folder: Path) -> list[Mutant]:
    """Apply each flip to the copy in ``folder``, run its test, undo it; return the flips no test noticed.

    Raises:
        RuntimeError: pytest could not run the tests (exit code other than passed or failed), so nothing was shown.
    """
    alive = []
    for mutant in tqdm(mutants, unit="flip", disable=None):
        path = folder / mutant.file
        source = path.read_text(encoding="utf-8")
        path.write_text(mutant.mutated(source), encoding="utf-8")
        try:
            code, last = run_tests(folder, mutant.test)
        finally:
            path.write_text(source, encoding="utf-8")
        if code not in (0, 1):
            raise RuntimeError(f"{mutant}: pytest ended with exit code {code}: {last}")
        if code == 0:
            alive.append(mutant)
    return alive


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="flips of files whose name holds this text")
    options = parser.parse_args()
    mutants = [mutant for mutant in load_mutants() if options.only in mutant.file]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in PACKAGES:
            shutil.copytree(PROJECT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "pyproject.toml", folder)
        for test in sorted({mutant.test for mutant in mutants}):
            code, last = run_tests(folder, test)
            if code != 0:
                print(f"{test} does not pass on the code as it is: {last}", file=sys.stderr)
                return 2
        alive = survivors(mutants, folder)
    for mutant in alive:
        print(f"SURVIVED {mutant.file}: {mutant.old!r} -> {mutant.new!r} ({mutant.test})")
    seconds = round(time.perf_counter() - started, 1)
    print(json.dumps({"mutants": len(mutants), "killed": len(mutants) - len(alive), "seconds": seconds}))
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main())

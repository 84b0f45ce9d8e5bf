"""Runs coqc on the scripts of `coq.script`. An audit of what the kernel accepted: no reward depends on it."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from common.errors import InputError
from math_env.coq.script import Claim, probe_script, script, step_lemmas

BATCH = 100
"""Proofs in one file: loading the libraries (0.5 s) and walking their axioms (2 s) is shared."""
TIMEOUT = 1800.0
"""Seconds of wall clock that a file may take before coqc is killed (a batch needs some ten on a free core)."""
AXIOMS = frozenset(
    {
        "ClassicalDedekindReals.sig_forall_dec",
        "ClassicalDedekindReals.sig_not_dec",
        "FunctionalExtensionality.functional_extensionality_dep",
        "Classical_Prop.classic",
    }
)
"""What a proof over Coq's real numbers may rest on; each comes with the standard library."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Coq's answer about one claim.

    Attributes:
        is_certified: coqc compiled its file and the axioms are all in AXIOMS.
        rejected: names of the step lemmas that Coq did not prove, from a second run; empty when certified.
        axioms: what the file rests on.
    """

    is_certified: bool
    rejected: tuple[str, ...] = ()
    axioms: frozenset[str] = frozenset()


@cache
def is_available() -> bool:
    """Whether coqc is there and has the real numbers (an installation that broke off does not)."""
    return shutil.which("coqc") is not None and run_coqc("Require Import Reals Lra.\n")[0]


def run_coqc(text: str, timeout: float = TIMEOUT) -> tuple[bool, str]:
    """(whether the file compiles, standard output and error); a run over `timeout` seconds does not."""
    coqc = shutil.which("coqc")
    if coqc is None:
        raise InputError("coqc is not installed; Debian and Ubuntu: apt-get install coq")
    with tempfile.TemporaryDirectory(prefix="coq-") as folder:
        (Path(folder) / "proofs.v").write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [coqc, "-q", "proofs.v"], cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return False, f"stopped after {timeout} seconds"
    return done.returncode == 0, done.stdout + done.stderr


def certify(claims: Sequence[Claim], batch: int = BATCH) -> list[Verdict]:
    """One verdict a claim. A file that does not compile is probed step by step, and its other claims are run again."""
    verdicts: dict[int, Verdict] = {}
    for start in range(0, len(claims), batch):
        pending = list(range(start, min(start + batch, len(claims))))
        is_compiled, output = run_coqc(script([claims[i] for i in pending]))
        if not is_compiled:
            rejected = rejected_steps([claims[i] for i in pending])
            for i, names in zip(pending, rejected, strict=True):
                if names:
                    verdicts[i] = Verdict(False, names)
            pending = [i for i in pending if i not in verdicts]
            is_compiled, output = run_coqc(script([claims[i] for i in pending]))
        axioms = axioms_in(output) if is_compiled else frozenset()
        verdicts |= {i: Verdict(is_compiled and axioms <= AXIOMS, (), axioms) for i in pending}
    return [verdicts[i] for i in range(len(claims))]


def rejected_steps(claims: Sequence[Claim], batch: int = BATCH) -> list[tuple[str, ...]]:
    """For each claim the lemmas (steps, the whole) that Coq does not prove.

    Raises:
        InputError: Coq did not answer for every lemma (a malformed script, the time limit).
    """
    found: list[tuple[str, ...]] = []
    for start in range(0, len(claims), batch):
        part = claims[start : start + batch]
        is_compiled, output = run_coqc(probe_script(part))
        lines = [line.split() for line in output.splitlines() if line.startswith(("yes ", "no "))]
        answers = {name: answer for answer, name in lines}
        for claim in part:
            names = [lemma.name for lemma in step_lemmas(claim)]
            if not is_compiled or not set(names) <= set(answers):
                raise InputError(f"coqc gave no answer for {claim.name}: {output[-500:]}")
            found.append(tuple(name for name in names if answers[name] == "no"))
    return found


def axioms_in(output: str) -> frozenset[str]:
    """The names that `Print Assumptions` listed."""
    _, _, listed = output.partition("Axioms:\n")
    names = (line.split(" ")[0].rstrip(":") for line in listed.splitlines() if line and not line[0].isspace())
    return frozenset(name for name in names if name)

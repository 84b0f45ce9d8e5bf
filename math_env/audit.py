"""Audits proofs that the kernel accepted, from their certificates (record.RecordProofs writes them):

    python -m math_env.audit proofs.jsonl --out audit

Each is replayed by a kernel in a fresh process, held against the problem's witness, asked of z3 step by step (extra
`z3`) and certified by Coq (`apt-get install coq`). With --out every proof gets a folder: proof.json, proof.v,
proof.tex, proof.svg, proof.png, proof.lean. Prints one JSON line; the exit code is 1 when a proof failed. No reward
depends on any of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from math_env import certify, terms
from math_env.coq import run as coqc
from math_env.coq.script import Claim, script
from math_env.kernel import Theorem
from math_env.lean import lean_text
from math_env.problems import Problem
from math_env.render import figure, latex_document
from math_env.terms import Refused

NOT_ASKED = "not asked"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the checks say of one proof.

    Attributes:
        question_id: of the problem.
        replay: "accepted" or "refused: why", by the kernel of a fresh process.
        witness: "true", or the first step that is false at the problem's witness.
        z3: "agrees", "sat" (some step is false), "not asked".
        coq: "certified", the names of what Coq rejected, "not asked".
    """

    question_id: str
    replay: str
    witness: str
    z3: str = NOT_ASKED
    coq: str = NOT_ASKED

    @property
    def is_sound(self) -> bool:
        is_agreed = self.z3 in ("agrees", NOT_ASKED) and self.coq in ("certified", NOT_ASKED)
        return self.replay == "accepted" and self.witness == "true" and is_agreed


def claim_of(problem: Problem, theorem: Theorem, name: str = "proof") -> Claim:
    return Claim(name, problem.hypotheses, problem.goal, theorem)


def witnessed(problem: Problem, theorem: Theorem) -> str:
    """Whether every step is true at the problem's witness (variables that it does not name are 0)."""
    point = dict.fromkeys(terms.VARIABLES, Fraction(0)) | problem.witness
    for index, step in enumerate(certify.steps_of(theorem)):
        if all(terms.is_true(h, point) for h in step.hyps) and not terms.is_true(step.concl, point):
            return f"step {index}, {step.rule}"
    return "true"


def audit(proofs: Sequence[tuple[Problem, Theorem]], z3: bool = True, coq: bool = True) -> list[Finding]:
    """One finding a proof; `z3` and `coq` need what they are named after."""
    replays = certify.replay_fresh([certify.certificate(theorem, problem) for problem, theorem in proofs])
    claims = [claim_of(problem, theorem, f"p{i}") for i, (problem, theorem) in enumerate(proofs)]
    opinions = [_z3_says(claim) if z3 else NOT_ASKED for claim in claims]
    verdicts = [_coq_says(verdict) for verdict in coqc.certify(claims)] if coq else [NOT_ASKED] * len(claims)
    witnesses = [witnessed(problem, theorem) for problem, theorem in proofs]
    names = [problem.question_id for problem, _ in proofs]
    return [Finding(*row) for row in zip(names, replays, witnesses, opinions, verdicts, strict=True)]


def _z3_says(claim: Claim) -> str:
    from math_env.second_opinion import opinion

    return "sat" if opinion(claim.theorem, claim.hypotheses, claim.goal).is_refuted else "agrees"


def _coq_says(verdict: coqc.Verdict) -> str:
    if verdict.is_certified:
        return "certified"
    return " ".join(verdict.rejected) or f"rests on {' '.join(sorted(verdict.axioms - coqc.AXIOMS))}"


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """Counts of each answer; answers other than the good ones are under "failed", one line each."""
    failed = [dataclasses.asdict(finding) for finding in findings if not finding.is_sound]
    return {
        "proofs": len(findings),
        "replayed": sum(finding.replay == "accepted" for finding in findings),
        "true_at_witness": sum(finding.witness == "true" for finding in findings),
        "z3": dict(Counter(finding.z3 for finding in findings)),
        "coq": dict(Counter(finding.coq if finding.coq in ("certified", NOT_ASKED) else "no" for finding in findings)),
        "failed": failed,
    }


def write_bundle(folder: Path, problem: Problem, theorem: Theorem) -> None:
    """proof.json, .v, .tex, .svg, .png and .lean (unverified) of one proof."""
    folder.mkdir(parents=True, exist_ok=True)
    claim = claim_of(problem, theorem)
    record = json.dumps(certify.certificate(theorem, problem)) + "\n"
    texts = {"json": record, "v": script([claim]), "tex": latex_document(theorem), "lean": lean_text(claim)}
    for ending, text in texts.items():
        (folder / f"proof.{ending}").write_text(text, encoding="utf-8")
    for form in ("svg", "png"):
        (folder / f"proof.{form}").write_bytes(figure(theorem, form))


def read_proofs(path: Path) -> list[tuple[Problem, Theorem]]:
    """The problems and proofs of a file of certificates, replayed.

    Raises:
        Refused: the kernel refuses one, or it names no problem.
    """
    proofs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        problem = certify.read_problem(record)
        if problem is None:
            raise Refused("a certificate without a problem")
        proofs.append((problem, certify.replay(record)))
    return proofs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="certificates, one a line of JSON")
    parser.add_argument("--out", type=Path, help="folder for what is written of each proof")
    args = parser.parse_args()
    proofs = read_proofs(args.file)
    findings = audit(proofs, z3=find_spec("z3") is not None, coq=coqc.is_available())
    if args.out is not None:
        for index, (problem, theorem) in enumerate(proofs):
            write_bundle(args.out / f"{index:05d}_{problem.question_id}", problem, theorem)
    print(json.dumps(summary(findings)))
    return int(not all(finding.is_sound for finding in findings))


if __name__ == "__main__":
    raise SystemExit(main())

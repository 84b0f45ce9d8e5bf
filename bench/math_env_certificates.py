"""Do the certificates hold, and do they find faults? One JSON line.

    python -m bench.math_env_certificates --proofs 500

- accepted: proofs that the environment pays for, four of five scripted, the fifth finished by a random policy from two
  to six actions before its end; every topic and level in turn, held-out statements. Each is replayed in a fresh
  process, asked of z3 and certified by Coq.
- corrupted: their statements with one number changed so that they are false, their proofs changed alike. The kernel
  must refuse to replay each, and Coq must reject a step of each. `whole_only` counts those where Coq took every step
  and rejected the statement alone.
- bugs: kernels with one edit each prove something false; whether z3 and Coq notice.

Needs coqc and z3-solver. CPU seconds are those of this process, the replaying one and coqc; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.math_env_faults import BUGS, corrupted, is_false, patched
from math_env import rules
from math_env.audit import Finding, audit, summary
from math_env.certify import certificate, replay
from math_env.coq import run as coqc
from math_env.coq.script import Claim
from math_env.env import MathEnv
from math_env.kernel import Theorem
from math_env.problems import FAMILIES, LEVELS, Problem, generate
from math_env.rules import INDEX
from math_env.second_opinion import opinion
from math_env.terms import Refused

Proof = tuple[Problem, Theorem]
PARTS = ("accepted", "corrupted", "bugs")
TRIES = 40
"""Random ends of a proof before another problem is taken."""


def scripted(problem: Problem) -> Proof:
    state = problem.start()
    for name in problem.script:
        state = rules.apply(state, INDEX[name])
    assert state.theorem is not None
    assert problem.is_proved_by(state.theorem)
    return problem, state.theorem


def random_end(problem: Problem, rng: np.random.Generator) -> Proof | None:
    """The problem's script without its last actions, then random valid ones until it is paid; None if it never is."""
    env = MathEnv(max_steps=12)
    for attempt in range(TRIES):
        _, info = env.reset(seed=attempt, options={"problem": problem, "prefix": -int(rng.integers(2, 7))})
        is_over, reward = False, 0.0
        while not is_over:
            action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            _, reward, terminated, truncated, info = env.step(action)
            is_over = terminated or truncated
        if reward == 1.0:
            assert env.state.theorem is not None
            return problem, env.state.theorem
    return None


def accepted(seed: int) -> Iterator[Proof]:
    rng = np.random.default_rng(seed)
    kinds = itertools.cycle([(topic, level) for level in LEVELS for topic in FAMILIES])
    for position in itertools.count():
        problem = generate(rng, *next(kinds), "test")
        proof = random_end(problem, rng) if position % 5 == 4 else scripted(problem)
        if proof is not None:
            yield proof


def check_corrupted(proofs: Sequence[Proof], seed: int) -> Counter[str]:
    rng = np.random.default_rng(seed)
    claims = []
    for index, (problem, theorem) in enumerate(proofs):
        claim = corrupted(problem, theorem, rng)
        claims.append(Claim(f"c{index}", claim.hypotheses, claim.goal, claim.theorem))
    rejected = coqc.rejected_steps(claims, len(claims))
    return Counter(
        {
            "statements": len(claims),
            "kernel_refused": sum(not _replays(claim) for claim in claims),
            "coq_rejected": sum(bool(names) for names in rejected),
            "whole_only": sum(len(names) == 1 and names[0].endswith("whole") for names in rejected),
        }
    )


def _replays(claim: Claim) -> bool:
    try:
        theorem = replay(certificate(claim.theorem))
    except Refused:
        return False
    return theorem.concl == claim.goal and theorem.hyps <= frozenset(claim.hypotheses)


def check_bugs() -> dict[str, Any]:
    """Bug -> who noticed; a bug that proves nothing false is an error."""
    claims, by_z3 = [], []
    for index, bug in enumerate(BUGS):
        with patched(bug):
            hypotheses, goal, theorem = bug.prove()
        assert is_false(hypotheses, goal, {}), f"{bug.name}: nothing false was proved"
        claims.append(Claim(f"b{index}", hypotheses, goal, theorem))
        by_z3.append(opinion(theorem, hypotheses, goal).is_refuted)
    by_coq = [bool(names) for names in coqc.rejected_steps(claims)]
    table = {bug.name: {"z3": z, "coq": c} for bug, z, c in zip(BUGS, by_z3, by_coq, strict=True)}
    return {"bugs": len(BUGS), "z3": sum(by_z3), "coq": sum(by_coq), "table": table}


def _cpu() -> float:
    return sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in (0, -1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proofs", type=int, default=500)
    parser.add_argument("--batch", type=int, default=100, help="proofs that go to Coq in one file")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="of the three checks")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin, source = _cpu(), accepted(args.seed)
    bugs = check_bugs() if "bugs" in args.only else {}
    print(bugs, file=sys.stderr, flush=True)
    topics: Counter[str] = Counter()
    findings: list[Finding] = []
    spoilt: Counter[str] = Counter()
    drawn = 0
    while drawn < args.proofs and args.only != ["bugs"]:
        proofs = list(itertools.islice(source, min(args.batch, args.proofs - drawn)))
        drawn += len(proofs)
        topics.update(problem.topic for problem, _ in proofs)
        findings += audit(proofs) if "accepted" in args.only else []
        print(summary(findings), round(_cpu() - begin, 1), file=sys.stderr, flush=True)
        spoilt += check_corrupted(proofs, args.seed + drawn) if "corrupted" in args.only else Counter()
        print(dict(spoilt), round(_cpu() - begin, 1), file=sys.stderr, flush=True)
    line = {"seed": args.seed, "topics": topics, "accepted": summary(findings), "corrupted": spoilt, "bugs": bugs}
    line["cpu_seconds"] = round(_cpu() - begin, 1)
    print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()

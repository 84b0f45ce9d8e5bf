"""Certificates of proofs: JSON that a fresh kernel replays.

A certificate lists the kernel steps a theorem needs, premises first; an input is {"step": i}, {"expr": tree},
{"number": "p/q"}, {"int": i} or {"name": v}. `python -m math_env.certify FILE…` replays files with
one certificate a line and answers with a line for each; its exit code is 1 when one was refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from math_env import terms
from math_env.kernel import RULES, Theorem
from math_env.problems import Problem
from math_env.terms import Expr, Refused

VERSION = 1
MAX_STEPS = 10_000
MAX_DEPTH = 200


def steps_of(theorem: Theorem) -> list[Theorem]:
    """The theorem and all it rests on, premises first, each once."""
    order: dict[int, Theorem] = {}
    pending: list[tuple[Theorem, bool]] = [(theorem, False)]
    while pending:
        current, is_ready = pending.pop()
        if id(current) in order:
            continue
        if is_ready:
            order[id(current)] = current
            continue
        pending.append((current, True))
        pending += [(item, False) for item in current.inputs if isinstance(item, Theorem)]
    return list(order.values())


# ---------------------------------------------------------------- JSON


def certificate(theorem: Theorem, problem: Problem | None = None) -> dict[str, Any]:
    """JSON-able record: version, hypotheses, conclusion, steps, and the problem that the theorem is said to solve."""
    steps = steps_of(theorem)
    number = {id(step): index for index, step in enumerate(steps)}
    stated = {} if problem is None else {"problem": _written_problem(problem)}
    return {
        "version": VERSION,
        **stated,
        "hypotheses": sorted((_written(h) for h in theorem.hyps), key=repr),
        "conclusion": _written(theorem.concl),
        "steps": [
            {
                "rule": step.rule,
                "inputs": [
                    {"step": number[id(item)]} if isinstance(item, Theorem) else _input(item) for item in step.inputs
                ],
            }
            for step in steps
        ],
    }


def _written_problem(problem: Problem) -> dict[str, Any]:
    return {
        "question_id": problem.question_id,
        "topic": problem.topic,
        "difficulty": problem.difficulty,
        "hypotheses": [_written(hypothesis) for hypothesis in problem.hypotheses],
        "goal": _written(problem.goal),
        "witness": {name: str(value) for name, value in problem.witness.items()},
    }


def read_problem(record: dict[str, Any]) -> Problem | None:
    """The problem of a certificate, without its script; None when there is none; Refused when malformed."""
    if "problem" not in record:
        return None
    try:
        found = record["problem"]
        return Problem(
            str(found["question_id"]),
            str(found["topic"]),
            int(found["difficulty"]),
            tuple(_formula(hypothesis) for hypothesis in found["hypotheses"]),
            _formula(found["goal"]),
            {str(name): Fraction(value) for name, value in found["witness"].items()},
            (),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise Refused(f"a malformed problem: {type(error).__name__} {error}") from error


def _formula(tree: Any) -> Expr:
    formula = _read(tree)
    terms.check(formula)
    return formula


def _input(item: Expr | Fraction | int | str) -> dict[str, Any]:
    if isinstance(item, Expr):
        return {"expr": _written(item)}
    if isinstance(item, Fraction):
        return {"number": str(item)}
    return {"int": item} if isinstance(item, int) else {"name": item}


def _written(expr: Expr) -> list[Any]:
    return [expr.op, *(_written(a) if isinstance(a, Expr) else str(a) if expr.op == "num" else a for a in expr.args)]


def replay(record: dict[str, Any]) -> Theorem:
    """The theorem of a certificate, made again by the kernel.

    Raises:
        Refused: a step fails, the last one is not the theorem stated, or that does not state the problem.
    """
    try:
        if record["version"] != VERSION or not 0 < len(record["steps"]) <= MAX_STEPS:
            raise Refused("unknown version or number of steps")
        made: list[Theorem] = []
        for step in record["steps"]:
            made.append(RULES[step["rule"]](*(_read_input(item, made) for item in step["inputs"])))
        stated = frozenset(_read(h) for h in record["hypotheses"]), _read(record["conclusion"])
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        raise Refused(f"a malformed certificate: {type(error).__name__} {error}") from error
    if (made[-1].hyps, made[-1].concl) != stated:
        raise Refused("the last step is not the theorem stated")
    problem = read_problem(record)
    if problem is not None and not problem.is_proved_by(made[-1]):
        raise Refused("the theorem does not state the problem")
    return made[-1]


def _read_input(item: dict[str, Any], made: list[Theorem]) -> Theorem | Expr | Fraction | int | str:
    ((kind, content),) = item.items()
    if kind == "step" and type(content) is int and content >= 0:
        return made[content]
    if kind == "expr":
        return _read(content)
    if kind == "number" and type(content) is str:
        return Fraction(content)
    if (kind == "int" and type(content) is int) or (kind == "name" and type(content) is str):
        return content  # type: ignore[no-any-return]
    raise Refused(f"an unknown input {kind}")


def _read(tree: Any, depth: int = 0) -> Expr:
    if type(tree) is not list or not tree or depth > MAX_DEPTH:
        raise Refused("a malformed or too deep expression")
    op, *args = tree
    if op == "num":
        return Expr("num", *(Fraction(arg) for arg in args))
    return Expr(op, *(_read(arg, depth + 1) if isinstance(arg, list) else arg for arg in args))


# ---------------------------------------------------------------- a fresh kernel


def verdict(line: str) -> str:
    """What replaying a line of JSON gives: `accepted`, or `refused: why`."""
    try:
        record = json.loads(line)
        if type(record) is not dict:
            raise Refused("no certificate")
        replay(record)
    except (Refused, ValueError, RecursionError) as error:
        return f"refused: {error or type(error).__name__}".replace("\n", " ")
    return "accepted"


def replay_fresh(records: Sequence[dict[str, Any]], timeout: float = 600.0) -> list[str]:
    """The verdicts of a kernel in a process of its own, which has seen nothing but these certificates.

    Raises:
        subprocess.SubprocessError: the process failed or took more than `timeout` seconds.
    """
    lines = "".join(json.dumps(record) + "\n" for record in records)
    command = [sys.executable, "-m", "math_env.certify", "--stdin"]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=timeout, check=False, cwd=root)
    answers = done.stdout.splitlines()
    if len(answers) != len(records):
        raise subprocess.SubprocessError(f"the replaying process failed: {done.stderr[-500:]}")
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay certificates, one a line of JSON, with the kernel.")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--stdin", action="store_true", help="read standard input")
    args = parser.parse_args()
    lines = [line for file in args.files for line in file.read_text(encoding="utf-8").splitlines()]
    answers = [verdict(line) for line in [*lines, *(sys.stdin if args.stdin else ())]]
    print(*answers, sep="\n")
    return int(any(answer != "accepted" for answer in answers))


if __name__ == "__main__":
    raise SystemExit(main())

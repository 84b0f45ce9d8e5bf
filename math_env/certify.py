"""Certificates of proofs: JSON that a fresh kernel replays.

A certificate lists the kernel steps a theorem needs, premises first; an input is {"step": i}, {"expr": tree},
{"number": "p/q"}, {"int": i} or {"name": v}. `python -m math_env.certify FILE…` replays files, or standard input with
one certificate a line, and answers with one line each; 1 is its exit code when one was refused.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from math_env.kernel import RULES, Theorem
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


def certificate(theorem: Theorem) -> dict[str, Any]:
    """JSON-able record: version, hypotheses, conclusion, steps."""
    steps = steps_of(theorem)
    number = {id(step): index for index, step in enumerate(steps)}
    return {
        "version": VERSION,
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


def _input(item: Expr | Fraction | int | str) -> dict[str, Any]:
    if isinstance(item, Expr):
        return {"expr": _written(item)}
    if isinstance(item, Fraction):
        return {"number": str(item)}
    return {"int": item} if isinstance(item, int) else {"name": item}


def _written(expr: Expr) -> list[Any]:
    return [expr.op, *(_written(a) if isinstance(a, Expr) else str(a) if expr.op == "num" else a for a in expr.args)]


def replay(record: dict[str, Any]) -> Theorem:
    """The theorem of a certificate, made again by the kernel; Refused when a step fails or another one is stated."""
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

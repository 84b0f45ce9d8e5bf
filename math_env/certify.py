"""Certificates of proofs: JSON that the kernel replays, and z3's opinion of each step.

A certificate lists the kernel steps a theorem needs, premises first; an input is {"step": i}, {"expr": tree},
{"number": "p/q"}, {"int": i} or {"name": v}. z3 is a second opinion; the reward rests on the kernel alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from math_env.kernel import RULES, Theorem
from math_env.terms import INTEGER_VARIABLES, Expr, Refused

VERSION = 1
MAX_STEPS = 10_000
MAX_DEPTH = 200
Z3_RLIMIT = 2_000_000
"""z3's own count of work a step: the same on every machine."""


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


# ---------------------------------------------------------------- z3


def z3_opinion(theorem: Theorem, rlimit: int = Z3_RLIMIT) -> list[str]:
    """z3's answer for each kernel step: "unsat" = it cannot be false, "sat" = it is false somewhere, else "unknown".

    Each step is asked alone, from its premises' sequents, with a counted limit. Needs the `z3` extra.
    """
    import z3

    answers = []
    for step in steps_of(theorem):
        solver = z3.Solver()
        solver.set("rlimit", rlimit)
        for premise in (item for item in step.inputs if isinstance(item, Theorem)):
            solver.add(_z3_sequent(premise, z3))
        solver.add(z3.Not(_z3_sequent(step, z3)))
        answers.append(str(solver.check()))
    return answers


def _z3_sequent(theorem: Theorem, z3: Any) -> Any:
    return z3.Implies(z3.And(*(_z3(h, z3) for h in theorem.hyps)), _z3(theorem.concl, z3))


def _z3(formula: Expr, z3: Any) -> Any:
    op, args = formula.op, formula.args
    if op == "false":
        return z3.BoolVal(False)
    if op in ("or", "and"):
        return {"or": z3.Or, "and": z3.And}[op](*(_z3(arg, z3) for arg in args))
    if op == "iff":
        return _z3(args[0], z3) == _z3(args[1], z3)
    if op == "dvd":
        return _z3_term(args[1], z3, False) % args[0] == 0
    left, right = (_z3_term(arg, z3, True) for arg in args)
    relation = {"eq": left == right, "ne": left != right, "ge": left >= right, "gt": left > right}[op]
    return z3.And(relation, *(_z3_term(divisor, z3, True) != 0 for divisor in _divisors(formula)))


def _z3_term(term: Expr, z3: Any, is_real: bool) -> Any:
    op, args = term.op, term.args
    if op == "num":
        return z3.RealVal(str(args[0])) if is_real else z3.IntVal(int(args[0]))
    if op == "var":
        if args[0] not in INTEGER_VARIABLES:
            return z3.Real(args[0])
        return z3.ToReal(z3.Int(args[0])) if is_real else z3.Int(args[0])
    if op == "pow":
        product = z3.RealVal(1) if is_real else z3.IntVal(1)
        for _ in range(args[1]):
            product = product * _z3_term(args[0], z3, is_real)
        return product
    left, right = (_z3_term(arg, z3, is_real) for arg in args)
    return left + right if op == "add" else left * right if op == "mul" else left / right


def _divisors(expr: Expr) -> Iterator[Expr]:
    for arg in expr.args:
        if isinstance(arg, Expr):
            yield from _divisors(arg)
    if expr.op == "div":
        yield expr.args[1]

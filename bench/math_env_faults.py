"""Faults for the certificates to find: statements made false together with their proofs, and a kernel with a bug.

A corrupted proof is consistent: an atom of the statement is changed wherever the proof has it, so the logic still
fits and what is wrong is arithmetic. A patched kernel proves something false; each patch is one edit of the source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np

from math_env import kernel, problems, terms
from math_env.certify import steps_of
from math_env.coq.script import Claim
from math_env.kernel import Theorem, assume
from math_env.problems import Problem
from math_env.terms import Expr, Refused, num, var

# ---------------------------------------------------------------- corrupted statements


def corrupted(problem: Problem, theorem: Theorem, rng: np.random.Generator) -> Claim:
    """A claim of the problem with one number changed, false at some point, with the proof changed alike.

    Raises:
        Refused: no change of one number was seen to be false.
    """
    atoms = sorted({a for f in (*problem.hypotheses, problem.goal) for a in _atoms(f)}, key=repr)
    choices = [(atom, path) for atom in atoms for path in _numbers(atom)]
    for index in rng.permutation(len(choices)):
        atom, path = choices[int(index)]
        for shift in (1, -1, 2, -7, 30, -30):
            change = {atom: _shifted(atom, path, shift)}
            hypotheses = tuple(_replaced(h, change) for h in problem.hypotheses)
            goal = _replaced(problem.goal, change)
            if is_false(hypotheses, goal, problem.witness):
                return Claim("corrupted", hypotheses, goal, forged(theorem, change))
    raise Refused("no change makes it false")


def is_false(hypotheses: tuple[Expr, ...], goal: Expr, witness: dict[str, Fraction]) -> bool:
    """Whether a point with true hypotheses and a false goal was found among small ones and the witness."""
    names = sorted(terms.variables(goal).union(*map(terms.variables, hypotheses)))
    rng = np.random.default_rng(0)
    rows = rng.integers(-9, 10, (60, len(names)))
    drawn = [{name: Fraction(int(v)) for name, v in zip(names, row, strict=True)} for row in rows]
    for point in [dict.fromkeys(names, Fraction(0)) | witness, *drawn]:
        if all(terms.is_true(h, point) for h in hypotheses) and not terms.is_true(goal, point):
            return True
    return False


def forged(theorem: Theorem, change: dict[Expr, Expr]) -> Theorem:
    """The same steps with atoms replaced everywhere, made past the kernel."""
    made: dict[int, Theorem] = {}
    for step in steps_of(theorem):
        copy = object.__new__(Theorem)
        inputs = tuple(
            made[id(item)] if isinstance(item, Theorem) else _replaced(item, change) if isinstance(item, Expr) else item
            for item in step.inputs
        )
        parts = {"hyps": frozenset(_replaced(h, change) for h in step.hyps), "concl": _replaced(step.concl, change)}
        for name, value in {**parts, "rule": step.rule, "inputs": inputs}.items():
            object.__setattr__(copy, name, value)
        made[id(step)] = copy
    return made[id(theorem)]


def _atoms(formula: Expr) -> Iterator[Expr]:
    if formula.op in ("or", "and", "iff"):
        for arg in formula.args:
            yield from _atoms(arg)
    else:
        yield formula


def _numbers(expr: Expr, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where the numbers of an expression are."""
    if expr.op == "num":
        yield path
    for index, arg in enumerate(expr.args):
        if isinstance(arg, Expr):
            yield from _numbers(arg, (*path, index))


def _shifted(expr: Expr, path: tuple[int, ...], shift: int) -> Expr:
    if not path:
        return num(expr.args[0] + shift)
    args = [_shifted(a, path[1:], shift) if i == path[0] else a for i, a in enumerate(expr.args)]
    return Expr(expr.op, *args)


def _replaced(expr: Expr, change: dict[Expr, Expr]) -> Expr:
    if expr in change:
        return change[expr]
    return Expr(expr.op, *(_replaced(arg, change) if isinstance(arg, Expr) else arg for arg in expr.args))


# ---------------------------------------------------------------- kernels with a bug


@dataclasses.dataclass(frozen=True)
class Bug:
    """In `module` the only occurrence of `old` becomes `new`; then `prove` makes a false theorem, or claims one.

    `prove` gives what the theorem is said to state (hypotheses, goal) and the theorem. With the sound kernel it raises
    Refused, or what it gives is true.
    """

    name: str
    module: ModuleType
    old: str
    new: str
    prove: Callable[[], tuple[tuple[Expr, ...], Expr, Theorem]]


@contextlib.contextmanager
def patched(bug: Bug) -> Iterator[None]:
    """The module with the bug: the one function or method that holds `old` is compiled again in its own namespace."""
    names, rules = dict(vars(bug.module)), dict(kernel.RULES)
    owner, function = _holder(bug)
    source = textwrap.dedent(inspect.getsource(function))
    saved = vars(owner)[function.__name__] if owner is not bug.module else None
    scope: dict[str, Any] = vars(bug.module) if owner is bug.module else dict(vars(bug.module))
    exec(compile("from __future__ import annotations\n" + source.replace(bug.old, bug.new), bug.name, "exec"), scope)
    if saved is not None:
        setattr(owner, function.__name__, scope[function.__name__])
    _forget()
    try:
        yield
    finally:
        vars(bug.module).update(names)
        kernel.RULES.update(rules)
        if saved is not None:
            setattr(owner, function.__name__, saved)
        _forget()


def _forget() -> None:
    """Empties the caches of the trusted modules."""
    for item in (*vars(terms).values(), *vars(kernel).values()):
        if hasattr(item, "cache_clear"):
            item.cache_clear()


def _holder(bug: Bug) -> tuple[Any, Any]:
    """(module or class, function) whose source holds `old`; ValueError unless there is exactly one."""
    text = inspect.getsource(bug.module)
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.old!r} occurs {text.count(bug.old)} times in {bug.module.__name__}")
    owners = [bug.module, *(c for c in vars(bug.module).values() if inspect.isclass(c))]
    for owner in owners:
        for item in vars(owner).values():
            function = _source(item)
            if function is None or function.__module__ != bug.module.__name__:
                continue
            if bug.old in inspect.getsource(function):
                return owner, function
    raise ValueError(f"{bug.name}: no function holds {bug.old!r}")


def _source(item: Any) -> Any:
    """The function behind a rule, a cache or a plain function; None for anything else."""
    item = inspect.unwrap(item) if callable(item) else item
    if not inspect.isfunction(item):
        return None
    inner = inspect.getclosurevars(item).nonlocals.get("infer") if item.__qualname__.startswith("_rule.") else None
    return inner or item


def _plus(term: Expr, value: int) -> Expr:
    return Expr("add", term, num(value))


def _times(left: Expr | int, right: Expr) -> Expr:
    return Expr("mul", num(left) if isinstance(left, int) else left, right)


def _is(op: str, left: Expr, right: Expr | int = 0) -> Expr:
    return Expr(op, left, right if isinstance(right, Expr) else num(right))


X, Y, N = var("x"), var("y"), var("n")
PRODUCT = _times(_plus(X, -2), _plus(X, -3))
TWO, THREE = _is("eq", X, 2), _is("eq", X, 3)


Stated = tuple[tuple[Expr, ...], Expr, Theorem]


def _owned(prove: Callable[[], Theorem]) -> Callable[[], Stated]:
    """The theorem is said to state itself."""

    def stated() -> Stated:
        theorem = prove()
        return tuple(theorem.hyps), theorem.concl, theorem

    return stated


def _unguarded_ring() -> Theorem:
    return kernel.ring(_is("eq", Expr("div", X, X), 1))


def _unguarded_cancel() -> Theorem:
    return kernel.cancel(assume(_is("eq", PRODUCT)), assume(TWO), _plus(X, -3))


def _stolen_case() -> Theorem:
    """x = 2 ∨ x = 3 ⊢ x > 2: the first branch needs x ≠ 2, which is lost."""
    goal = _is("gt", X, 2)
    bad = kernel.absurd(kernel.clash(assume(TWO), assume(_is("ne", X, 2))), goal)
    good = kernel.restate(assume(THREE), goal)
    return kernel.cases(assume(Expr("or", TWO, THREE)), bad, good)


def _lost_hypothesis() -> Stated:
    """x = 2 claimed of no hypothesis."""
    problem = Problem("q", "linear", 1, (), TWO, {"x": Fraction(2)}, ())
    theorem = assume(TWO)
    if not problem.is_proved_by(theorem):
        raise Refused("the theorem does not state the problem")
    return problem.hypotheses, problem.goal, theorem


def _bugs() -> list[Bug]:
    even, odd = Expr("dvd", 2, N), Expr("dvd", 2, _plus(N, -1))
    k, large = kernel, _is("ge", X, 2)
    mixed = _plus(Expr("add", Expr("pow", X, 2), X), 1)
    table: list[tuple[str, ModuleType, str, str, Callable[[], Theorem]]] = [
        ("ring does not ask for divisors", k, "all(terms.primitive(g) in nonzero for g in _guards(equation))", "True",
         _unguarded_ring),
        ("cancel takes = for ≠", k, '_require(relation == "eq" and other == "ne" and bool(p), "needs P = 0 and Q ≠ 0")',
         "pass", _unguarded_cancel),
        ("≥ is scaled by a negative number", k, 'c != 0 if relation in ("eq", "ne") else c > 0', "c != 0",
         lambda: k.scale(assume(_is("ge", X)), Fraction(-1))),
        ("≥ is restated as >", k, '(d == 0 and (relation, target) != ("ge", "gt"))', "d == 0",
         lambda: k.restate(assume(_is("ge", X)), _is("gt", X))),
        ("a factor is dropped", k, "parts = [Expr(\"eq\", factor, ZERO) for factor in factors]",
         "parts = [Expr(\"eq\", factor, ZERO) for factor in factors[:1]]",
         lambda: k.zero_product(assume(_is("eq", PRODUCT)))),
        ("the sum of ≥ and = is taken as =", k, "max(relation, other, key=order.index)",
         "min(relation, other, key=order.index)", lambda: k.add(assume(_is("ge", X)), assume(_is("eq", Y)))),
        ("a solved equation has its sign wrong", k, "terms.combine(terms.pack(rest), (), -1 / coef)",
         "terms.combine(terms.pack(rest), (), 1 / coef)", lambda: k.solve_linear(assume(_is("eq", _plus(X, -2))), "x")),
        ("≥ is multiplied by ≠", k, 'relation == other and relation in ("ge", "gt", "ne")', "True",
         lambda: k.multiply(assume(_is("ge", X)), assume(_is("ne", Y)))),
        ("a case keeps no hypotheses of its own", k, "hyps |= branch.hyps - {part}", "pass", _stolen_case),
        ("residues forget a class", k, "for r in range(modulus)]", "for r in range(modulus - 1)]",
         lambda: k.residues("n", 3)),
        ("a residue is reduced by any modulus", k, "known.args[0] == target.args[0], \"needs one modulus\"",
         "True, \"needs one modulus\"", lambda: k.reduce(assume(odd), assume(Expr("dvd", 3, _plus(N, -2))))),
        ("an equivalence from one direction", k, " and backward.concl == _formula(left)", "",
         lambda: k.iff_intro(k.restate(assume(TWO), large), assume(large), TWO, large)),
        ("a product forgets the mixed term", terms, " total[key] + coef * factor if key in total else coef * factor",
         " coef * factor", lambda: k.ring(_is("eq", Expr("pow", _plus(X, 1), 2), mixed))),
        ("an undefined number is true", terms, "right is None:\n        return False",
         "right is None:\n        return True", lambda: k.decide(_is("eq", Expr("div", num(1), num(0)), 1))),
        ("anything is no multiple", k, "_require(bool(rest) and terms.is_constant(rest), \"not refuted\")", "pass",
         lambda: k.absurd(assume(even), _is("eq", X, 1))),
    ]  # fmt: skip
    bugs = [Bug(name, module, old, new, _owned(prove)) for name, module, old, new, prove in table]
    bugs.append(Bug("a proof may use any hypothesis", problems, "theorem.hyps <= frozenset(self.hypotheses)", "True",
                    _lost_hypothesis))  # fmt: skip
    return bugs


BUGS = _bugs()

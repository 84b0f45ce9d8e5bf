"""Terms and formulas written for Coq, Lean and LaTeX. Written only from typed expressions; nothing is read back.

The meaning of an atom (see `terms`) is spelled out for the provers: `1/x = 1` becomes `1 / x = 1 /\\ x <> 0`. Divisors
that are nonzero literals are left out. Integer variables occur as reals (`IZR n`), `m | a` says that a is m times an
integer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from fractions import Fraction

from math_env import terms
from math_env.terms import INTEGER_VARIABLES, REAL_VARIABLES, Expr

ADD, MUL, POW, ATOM = range(4)
"""How tightly a written term binds."""


@dataclasses.dataclass(frozen=True)
class Prover:
    """The notation of a prover. `dvd` takes the modulus and the term, `cast` an integer variable."""

    signs: dict[str, str]
    cast: str
    dvd: str
    false: str
    reals: str
    integers: str
    arrow: str
    forall: str


COQ = Prover(
    signs={"eq": "=", "ne": "<>", "ge": ">=", "gt": ">", "and": r"/\ ", "or": r"\/ ", "iff": "<->"},
    cast="IZR {}",
    dvd="divides {} {}",
    false="False",
    reals="R",
    integers="Z",
    arrow="->",
    forall="forall {}, ",
)
LEAN = Prover(
    signs={"eq": "=", "ne": "≠", "ge": "≥", "gt": ">", "and": "∧", "or": "∨", "iff": "↔"},
    cast="({} : ℝ)",
    dvd="∃ q : ℤ, {1} = {0} * (q : ℝ)",
    false="False",
    reals="ℝ",
    integers="ℤ",
    arrow="→",
    forall="∀ {}, ",
)


def divisors(expr: Expr) -> list[Expr]:
    """The divisors that may be 0 (all but nonzero literals), each once, inner ones first."""
    return list(dict.fromkeys(_divisors(expr)))


def _divisors(expr: Expr) -> Iterator[Expr]:
    for arg in expr.args:
        if isinstance(arg, Expr):
            yield from _divisors(arg)
    if expr.op == "div" and not (expr.args[1].op == "num" and expr.args[1].args[0]):
        yield expr.args[1]


def written(formula: Expr, prover: Prover = COQ) -> str:
    """A formula as a proposition of the prover, in brackets where it is not a single relation."""
    terms.check(formula)
    op, args, signs = formula.op, formula.args, prover.signs
    if op == "false":
        return prover.false
    if op == "dvd":
        return "(" + prover.dvd.format(args[0], _bracketed(args[1], ATOM, prover)) + ")"
    if op in ("and", "or", "iff"):
        return "(" + f" {signs[op].strip()} ".join(written(arg, prover) for arg in args) + ")"
    parts = [f"{written_term(args[0], prover)} {signs[op]} {written_term(args[1], prover)}"]
    parts += [f"{written_term(divisor, prover)} {signs['ne']} 0" for divisor in divisors(formula)]
    return "(" + f" {signs['and'].strip()} ".join(parts) + ")"


def written_term(term: Expr, prover: Prover = COQ) -> str:
    return _term(term, prover)[0]


def _bracketed(term: Expr, least: int, prover: Prover) -> str:
    text, binds = _term(term, prover)
    return text if binds >= least else f"({text})"


def _term(term: Expr, prover: Prover) -> tuple[str, int]:
    op, args = term.op, term.args
    if op == "num":
        return _number(args[0])
    if op == "var":
        return (args[0], ATOM) if args[0] in REAL_VARIABLES else (f"({prover.cast.format(args[0])})", ATOM)
    if op == "pow":
        return f"{_bracketed(args[0], ATOM, prover)} ^ {args[1]}", POW
    sign, level = {"add": ("+", ADD), "mul": ("*", MUL), "div": ("/", MUL)}[op]
    return f"{_bracketed(args[0], level, prover)} {sign} {_bracketed(args[1], level + 1, prover)}", level


def _number(value: Fraction) -> tuple[str, int]:
    text = str(value.numerator) if value.denominator == 1 else f"{value.numerator} / {value.denominator}"
    return (text, ATOM) if value >= 0 and value.denominator == 1 else (f"({text})", ATOM)


def bound(names: Iterable[str], prover: Prover = COQ) -> str:
    """`forall (x y : R) (n : Z), ` for the variables among names; empty for none."""
    chosen = set(names)
    groups = ((REAL_VARIABLES, prover.reals), (INTEGER_VARIABLES, prover.integers))
    parts = [f"({' '.join(v for v in group if v in chosen)} : {kind})" for group, kind in groups if chosen & set(group)]
    return prover.forall.format(" ".join(parts)) if parts else ""


def implied(hypotheses: Iterable[Expr], conclusion: Expr, prover: Prover = COQ) -> str:
    """`H -> … -> C`"""
    return f" {prover.arrow} ".join(written(formula, prover) for formula in (*hypotheses, conclusion))


# ---------------------------------------------------------------- LaTeX

LATEX_SIGNS = {"eq": "=", "ne": r"\neq", "ge": r"\geq", "gt": ">", "and": r"\wedge", "or": r"\vee"}


def latex(formula: Expr) -> str:
    """A formula in LaTeX mathematics (the subset that matplotlib's mathtext reads as well), without guards."""
    op, args = formula.op, formula.args
    if op == "false":
        return r"\bot"
    if op == "dvd":
        return rf"{args[0]} \mid {latex_term(args[1])}"
    if op in ("and", "or"):
        return rf" {LATEX_SIGNS[op]} ".join(_latex_part(arg, ("and", "or", "iff")) for arg in args)
    if op == "iff":
        return r" \Leftrightarrow ".join(_latex_part(arg, ("iff",)) for arg in args)
    return f"{latex_term(args[0])} {LATEX_SIGNS[op]} {latex_term(args[1])}"


def _latex_part(formula: Expr, weaker: tuple[str, ...]) -> str:
    return f"({latex(formula)})" if formula.op in weaker else latex(formula)


def latex_term(term: Expr) -> str:
    op, args = term.op, term.args
    if op == "num":
        value = abs(args[0])
        digits = str(value) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
        return digits if args[0] >= 0 else f"-{digits}"
    if op == "var":
        return str(args[0])
    if op == "div":
        return rf"\frac{{{latex_term(args[0])}}}{{{latex_term(args[1])}}}"
    if op == "pow":
        base = latex_term(args[0])
        is_plain = args[0].op == "var" or (args[0].op == "num" and base.isdigit())
        return f"{base}^{{{args[1]}}}" if is_plain else f"({base})^{{{args[1]}}}"
    if op == "add":
        right = latex_term(args[1])
        right = f"({right})" if args[1].op == "add" else right
        return f"{latex_term(args[0])} - {right[1:]}" if right.startswith("-") else f"{latex_term(args[0])} + {right}"
    return _latex_product(*args)


def _latex_product(left: Expr, right: Expr) -> str:
    first = f"({latex_term(left)})" if left.op == "add" else latex_term(left)
    if left == terms.num(-1):
        first = "-"
    second = latex_term(right)
    if right.op == "add" or second.startswith("-"):
        second = f"({second})"
    is_number = second[0].isdigit() or (left != terms.num(-1) and right.op in ("div", "num"))
    return (
        rf"{first} \cdot {second}"
        if is_number and first != "-"
        else f"{first}{second}"
        if first == "-"
        else (f"{first} {second}")
    )

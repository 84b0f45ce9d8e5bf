"""Symbolic equality by SymPy, for the worker process only: builds SymPy objects from trees, never from text."""

from __future__ import annotations

import random
from typing import Any

import sympy

from grading.parse import Node

_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_FUNCTIONS = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "sec": sympy.sec, "csc": sympy.csc, "cot": sympy.cot,
    "ln": sympy.log, "exp": sympy.exp, "abs": sympy.Abs, "arcsin": sympy.asin, "arccos": sympy.acos,
    "arctan": sympy.atan, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh, "floor": sympy.floor,
    "ceil": sympy.ceiling,
}  # fmt: skip


def build(node: Node) -> Any:
    """Return the SymPy object of an expression tree. Raises KeyError for a node without one."""
    kind = node[0]
    if kind == "num":
        return sympy.Rational(node[1], node[2])
    if kind == "sym":
        return sympy.Symbol(node[1], real=True)
    if kind == "const":
        return _CONSTANTS[node[1]]
    if kind in ("add", "mul"):
        return (sympy.Add if kind == "add" else sympy.Mul)(*map(build, node[1]))
    if kind == "neg":
        return -build(node[1])
    if kind == "div":
        return build(node[1]) / build(node[2])
    if kind == "pow":
        return build(node[1]) ** build(node[2])
    if kind == "root":
        value, index = build(node[1]), build(node[2])
        odd = index.is_Integer and index % 2 == 1
        return sympy.real_root(value, index) if odd and value.is_real and value.is_negative else value ** (1 / index)
    if kind == "log":
        return sympy.log(build(node[2]), build(node[1]))
    if kind == "func":
        return _FUNCTIONS[node[1]](build(node[2]))
    if kind == "fact":
        return sympy.factorial(build(node[1]))
    if kind == "binom":
        return sympy.binomial(build(node[1]), build(node[2]))
    if kind == "pick":
        items = [build(item) for item in node[2]]
        if node[1] in ("gcd", "lcm"):  # of a list: a third argument would be taken for a generator
            return {"gcd": sympy.gcd_list, "lcm": sympy.lcm_list}[node[1]](items)
        return {"max": sympy.Max, "min": sympy.Min}[node[1]](*items)
    if kind == "sum":
        name = sympy.Symbol(node[1], real=True)
        return sympy.summation(build(node[4]), (name, build(node[2]), build(node[3])))
    raise KeyError(kind)


def are_equal(a: Node, b: Node) -> bool:
    """True when two expressions are equal: SymPy simplifies the difference to 0, or it is 0 to 40 digits at several
    points.
    """
    difference = build(a) - build(b)
    if difference == 0 or difference.is_zero:
        return True
    if difference in (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan):
        return False
    numeric = _vanishes(difference)
    if numeric is not None:
        return numeric
    return bool(sympy.simplify(difference) == 0)


def are_proportional(a: Node, b: Node) -> bool:
    """True when a / b is a constant other than 0: two equations a = 0 and b = 0 with the same solutions."""
    x, y = sympy.expand(build(a)), sympy.expand(build(b))
    if x == 0 or y == 0:
        return bool(x == y)
    ratio = sympy.cancel(sympy.together(x / y))
    if ratio.free_symbols:
        ratio = sympy.simplify(ratio)
    return not ratio.free_symbols and ratio.is_finite is not False and ratio != 0


def _sign(generator: random.Random, k: int) -> int:
    """Return 1 at the first three points, -1 at the fourth, either at the others."""
    return 1 if k < 3 else -1 if k == 3 else generator.choice((1, -1))


def _vanishes(expression: Any) -> bool | None:
    """Evaluate at six points to 50 digits: False when it is not 0 at one, True when 0 to 40 digits at all, None if
    unclear.
    """
    names = sorted(expression.free_symbols, key=str)
    is_complex = expression.has(sympy.I)
    generator = random.Random(20240229)
    zeros = 0
    for k in range(6 if names else 1):
        point = {name: sympy.Rational(generator.randint(150, 400) * _sign(generator, k), 113) for name in names}
        value = expression.xreplace(point).evalf(50, maxn=400)
        if not value.is_number or not value.is_finite:
            continue
        size = abs(complex(value))
        if size > 1e-40 and not value.is_comparable and value.as_real_imag()[0].is_comparable is False:
            continue  # no digit of it is known; below 1e-40 the bound itself decides
        if names and not is_complex and abs(complex(value).imag) > 1e-30:
            continue  # compared where both sides are real
        if size > 1e-40:
            return False
        zeros += 1
    return True if zeros else None


def warm_up() -> None:
    """Ask once what is asked often: SymPy's lazy imports and caches are then there before the first question."""
    x, one = ("sym", "x"), ("num", 1, 1)
    square = ("pow", ("add", (x, one)), ("num", 2, 1))
    are_equal(square, ("add", (("pow", x, ("num", 2, 1)), ("mul", (("num", 2, 1), x)), one)))
    squares = [("pow", ("func", name, x), ("num", 2, 1)) for name in ("sin", "cos")]
    are_equal(("add", tuple(squares)), one)
    are_proportional(x, ("mul", (("num", 2, 1), x)))

"""Values of expression trees: exact rationals, and complex floats that tell different expressions apart. Both are
bounded.
"""

from __future__ import annotations

import cmath
import hashlib
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from grading.parse import Node

MAX_BITS = 200_000
"""Size allowed for an exact integer; larger values are beyond the checker's limits."""
MAX_FACTORIAL = 5_000


class TooLarge(ArithmeticError):
    """An exact value would need more than `MAX_BITS` bits."""


class Undefined(ArithmeticError):
    """The expression has no value (division by zero)."""


def exact(node: Node) -> Fraction | None:
    """Return the exact value of an expression, None when it is not rational arithmetic. Raises TooLarge, Undefined."""
    kind = node[0]
    if kind == "num":
        return Fraction(node[1], node[2])
    if kind in ("add", "mul"):
        total = Fraction(0 if kind == "add" else 1)
        for item in node[1]:
            value = exact(item)
            if value is None:
                return None
            total = _bounded(total + value if kind == "add" else total * value)
        return total
    if kind == "neg":
        value = exact(node[1])
        return None if value is None else -value
    if kind == "div":
        top, bottom = exact(node[1]), exact(node[2])
        if top is None or bottom is None:
            return None
        if bottom == 0:
            raise Undefined("division by zero")
        return top / bottom
    if kind == "pow":
        return _exact_power(exact(node[1]), exact(node[2]))
    if kind == "root":
        return _exact_root(exact(node[1]), exact(node[2]))
    if kind == "fact":
        value = exact(node[1])
        if value is None or value.denominator != 1 or value < 0:
            return None
        if value > MAX_FACTORIAL:
            raise TooLarge(f"{value}!")
        return Fraction(math.factorial(int(value)))
    if kind == "binom":
        top, bottom = exact(node[1]), exact(node[2])
        if top is None or bottom is None or top.denominator != 1 or bottom.denominator != 1 or not 0 <= bottom <= top:
            return None
        if top > MAX_FACTORIAL:
            raise TooLarge("binomial")
        return Fraction(math.comb(int(top), int(bottom)))
    if kind == "func" and node[1] in _EXACT_FUNCTIONS:
        value = exact(node[2])
        return None if value is None else Fraction(_EXACT_FUNCTIONS[node[1]](value))
    if kind == "pick":
        return _exact_pick(node[1], [exact(item) for item in node[2]])
    return None


_EXACT_FUNCTIONS: dict[str, Callable[[Fraction], Fraction | int]] = {
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
}
_PICKS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "gcd": math.gcd, "lcm": math.lcm}


def _exact_pick(name: str, values: list[Fraction | None]) -> Fraction | None:
    if name in ("max", "min"):
        known = [value for value in values if value is not None]
        return _PICKS[name](known) if len(known) == len(values) else None
    whole = [int(value) for value in values if value is not None and value.denominator == 1]
    return _bounded(Fraction(_PICKS[name](*whole))) if len(whole) == len(values) else None


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooLarge("too many digits")
    return value


def _exact_power(base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
    if base is None or exponent is None or exponent.denominator != 1:
        return None
    if base == 0 and exponent <= 0:
        raise Undefined("0 to a power that is not positive")
    if base in (0, 1):
        return base
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * bits > MAX_BITS and abs(base) != 1:
        raise TooLarge("power")
    return base ** int(exponent % 2 if base == -1 else exponent)


def _exact_root(value: Fraction | None, index: Fraction | None) -> Fraction | None:
    if value is None or index != 2 or value < 0:
        return None
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return None


def symbols(node: Node) -> frozenset[str]:
    """Return the names of the symbols in a tree."""
    if node[0] == "sym":
        return frozenset([node[1]])
    if node[0] == "sum":
        return symbols(node[2]) | symbols(node[3]) | (symbols(node[4]) - {node[1]})
    found: frozenset[str] = frozenset()
    for part in node[1:]:
        if isinstance(part, tuple):
            parts = part if part and isinstance(part[0], tuple) else (part,)
            for item in parts:
                if isinstance(item, tuple) and item and isinstance(item[0], str):
                    found |= symbols(item)
                elif isinstance(item, tuple):
                    for cell in item:
                        found |= symbols(cell)
    return found


_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "ln": cmath.log, "exp": cmath.exp, "abs": abs,
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan, "sinh": cmath.sinh, "cosh": cmath.cosh,
    "tanh": cmath.tanh, "sec": lambda x: 1 / cmath.cos(x), "csc": lambda x: 1 / cmath.sin(x),
    "cot": lambda x: cmath.cos(x) / cmath.sin(x),
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e, "i": 1j, "inf": math.inf}


def approximate(node: Node, values: Mapping[str, float]) -> complex:
    """Return a float value of an expression at given values of its symbols.

    Raises ArithmeticError (also OverflowError), ValueError where it has none, KeyError for a node that has no value.
    """
    kind = node[0]
    if kind == "num":
        return complex(node[1] / node[2])
    if kind == "sym":
        return complex(values[node[1]])
    if kind == "const":
        return complex(_CONSTANTS[node[1]])
    if kind == "add":
        return sum((approximate(item, values) for item in node[1]), 0j)
    if kind == "mul":
        return math.prod((approximate(item, values) for item in node[1]), start=1 + 0j)
    if kind == "neg":
        value = approximate(node[1], values)
        return complex(-value.real, -value.imag if value.imag else 0.0)  # no -0.0: it would choose the other root
    if kind == "div":
        return approximate(node[1], values) / approximate(node[2], values)
    if kind == "pow":
        return approximate(node[1], values) ** approximate(node[2], values)
    if kind == "root":
        base, index = approximate(node[1], values), approximate(node[2], values)
        if base.imag == 0 and base.real < 0 and index.real % 2 == 1:
            return complex(-((-base.real) ** (1 / index.real)))
        return base ** (1 / index)
    if kind == "log":
        return cmath.log(approximate(node[2], values)) / cmath.log(approximate(node[1], values))
    if kind == "func":
        return complex(_FUNCTIONS[node[1]](approximate(node[2], values)))
    if kind == "fact":
        return complex(math.gamma(approximate(node[1], values).real + 1))
    raise KeyError(kind)


def real_value(node: Node) -> Fraction | None:
    """Return the float value of a real number that is not rational arithmetic, as a fraction; None without one."""
    if symbols(node):
        return None
    try:
        value = approximate(node, {})
    except (ArithmeticError, ValueError, KeyError):
        return None
    is_real = cmath.isfinite(value) and abs(value.imag) <= 1e-15 * abs(value)
    return Fraction(value.real) if is_real else None


def rounds_to(
    decimal: Fraction, node: Node, value: Fraction, wanted_digits: int, slack: Fraction = Fraction(0)
) -> bool:
    """True for a decimal of `wanted_digits` or more significant digits that is the correctly rounded value.

    Args:
        decimal, node: the decimal's value and its tree; a tree that is no decimal gives False.
        value, slack: the value and its error.
        wanted_digits: 0: no decimal counts.
    """
    number = node[1] if node[0] == "neg" else node
    if number[0] != "num":
        return False
    places, denominator = 0, number[2]
    while denominator != 1 and places < 40:
        denominator = (Fraction(1, denominator) * 10).denominator
        places += 1
    digits = len(str(abs(number[1]) * 10**places // number[2])) if places else 0
    return 0 < wanted_digits <= digits and places < 40 and abs(decimal - value) <= Fraction(1, 2 * 10**places) + slack


def clearly_differ(a: Node, b: Node) -> bool | None:
    """Compare two expressions at six points: True when they differ at one, False when they agree, None if no point
    decides.

    Points depend on the symbols' names only; at three of them all are positive. Without the imaginary unit in the
    text, points
    at which a value is not real say nothing: expressions are compared where both are defined.
    """
    names = sorted(symbols(a) | symbols(b))
    is_complex = "('const', 'i')" in repr((a, b))
    agreed = None
    for k in range(6 if names else 1):
        point = {name: _spot(name, k) for name in names}
        try:
            x, y = approximate(a, point), approximate(b, point)
        except (ArithmeticError, ValueError, KeyError):
            continue
        if not (cmath.isfinite(x) and cmath.isfinite(y)):
            continue
        if names and not is_complex and max(abs(x.imag), abs(y.imag)) > 1e-9 * max(abs(x), abs(y)):
            continue
        if abs(x - y) > 1e-7 * max(abs(x), abs(y), 1e-300) and abs(x - y) > 1e-13 * _scale(a, b, point):
            return True
        agreed = False
    return agreed


def _scale(a: Node, b: Node, point: Mapping[str, float]) -> float:
    """Return the size of the terms that cancel: rounding of a sum is relative to its terms, not to its value."""
    sizes = [1e-300]
    for node in (a, b):
        for item in node[1] if node[0] == "add" else ():
            try:
                sizes.append(abs(approximate(item, point)))
            except (ArithmeticError, ValueError, KeyError):
                continue
    return max(sizes)


def _spot(name: str, k: int) -> float:
    digest = hashlib.blake2b(f"{name} {k}".encode(), digest_size=4).digest()
    size = 0.3 + 3 * int.from_bytes(digest, "big") / 2**32
    return -size if k >= 3 and (k == 3 or digest[0] % 2) else size

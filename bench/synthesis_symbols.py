"""Made problems on a formula in their text: is the answer right? By substitution, sampling and python-flint."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat, fmpq_poly

from bench.synthesis_formula import Unread, float_of, same, value_of

_SIGN = re.compile(r"\\leq|\\geq|<|>")
POINTS = [fmpq(k, 7) for k in range(-35, 36)]


def formulas(text: str) -> list[str]:
    """What stands between dollar signs; dollars of money are written with a backslash."""
    return re.findall(r"(?<!\\)\$(.+?)(?<!\\)\$", text)


def letter(formula: str) -> str:
    found = sorted(set(re.findall(r"(?<![\\A-Za-z])[a-z](?![A-Za-z])", re.sub(r"\\[a-z]+", " ", formula))))
    if len(found) != 1:
        raise Unread(f"letters {found} in {formula!r}")
    return found[0]


def polynomial(formula: str, x: str, degree: int = 8) -> Any:
    """The polynomial of a formula by interpolation at rational points, checked at more of them."""
    nodes = [fmpq(k) for k in range(degree + 1)]
    found = fmpq_poly([0])
    for k, node in enumerate(nodes):  # Newton's form
        basis = fmpq_poly([1])
        for earlier in nodes[:k]:
            basis *= fmpq_poly([-earlier, 1])
        found += basis * ((value_of(formula, **{x: node}) - found(node)) / basis(node))
    if any(found(point) != value_of(formula, **{x: point}) for point in POINTS[:9]):
        raise Unread(f"no polynomial: {formula!r}")
    return found


def sides(equation: str) -> str:
    left, right = equation.split("=")
    return f"({left}) - ({right})"


def real_roots(p: Any) -> list[float]:
    coefficients = [float_of(p[k]) for k in range(p.degree(), -1, -1)]
    roots = np.roots(coefficients) if len(coefficients) > 1 else []
    found: list[float] = []
    for root in sorted(z.real for z in roots if abs(z.imag) < 1e-7):
        if not found or abs(root - found[-1]) > 1e-6:
            found.append(root)
    return found


def answers(answer: str) -> list[Any]:
    return [value_of(item) for item in answer.split(", ")]


def equation_holds(text: str, answer: str) -> bool:
    """Every stated solution fits, and there are no more of them than the text asks for."""
    equation = next(f for f in formulas(text) if "=" in f)
    x, difference = letter(equation), sides(equation)
    found = answers(answer)
    for value in found:
        if not same(value_of(difference, **{x: value}), fmpq(0)):
            return False
    if "\\sqrt" in equation:
        left, right = equation.split("=")
        inside = re.fullmatch(r"\s*\\sqrt\{(.+)\}\s*", left)[1]  # type: ignore[index]
        candidates = real_roots(polynomial(f"({inside}) - ({right})^2", x))
        real = [c for c in candidates if value_of(inside, **{x: c}) > -1e-9 and value_of(right, **{x: c}) > -1e-6]
    else:
        real = real_roots(polynomial(difference, x))
    return len(real) == len(found) == len({round(float_of(value), 9) for value in found})


def roots_of_quadratic(text: str, answer: str) -> bool:
    equation = next(f for f in formulas(text) if "x" in f)
    wanted = [f for f in formulas(text) if f not in ("r", "s") and "x" not in f][-1]
    p = polynomial(sides(equation), "x")
    a, b, c = float_of(p[2]), float_of(p[1]), float_of(p[0])
    root = math.sqrt(b * b - 4 * a * c)
    return (
        abs(float_of(value_of(wanted, r=(-b - root) / (2 * a), s=(-b + root) / (2 * a))) - float_of(value_of(answer)))
        < 1e-6
    )


def system_holds(text: str, answer: str) -> bool:
    found = formulas(text)
    equations, target = [sides(f) for f in found if "=" in f], found[-1]
    names = sorted(set(re.findall(r"[a-z]", " ".join(equations))))
    zero = dict.fromkeys(names, fmpq(0))
    linear = [e for e in equations if all(second_difference(e, names, k) == 0 for k in range(3))]
    rows = [[value_of(e, **{**zero, n: 1}) - value_of(e, **zero) for n in names] for e in linear]
    constants = [[-value_of(e, **zero)] for e in linear]
    if len(linear) == len(names):
        solved = fmpq_mat(rows).solve(fmpq_mat(constants))
        return same(value_of(target, **{n: solved[k, 0] for k, n in enumerate(names)}), value_of(answer))
    (a, b), (c,), other = rows[0], constants[0], next(e for e in equations if e not in linear)
    x, y = names
    substituted = re.sub(
        rf"(?<![A-Za-z\\]){y}|{y}(?![A-Za-z])", f"(({fmpq_text(c)} - ({fmpq_text(a)})*{x})/({fmpq_text(b)}))", other
    )
    roots = real_roots(polynomial(substituted, x))
    values = [float_of(value_of(target, **{x: r, y: (float_of(c) - float_of(a) * r) / float_of(b)})) for r in roots]
    return bool(values) and all(abs(v - float_of(value_of(answer))) < 1e-5 * max(1, abs(v)) for v in values)


def fmpq_text(value: Any) -> str:
    return f"({int(value.p)}/{int(value.q)})"


def second_difference(equation: str, names: list[str], seed: int) -> Any:
    """0 at all of three places for linear equations; the places differ in all letters."""
    start = {n: fmpq(3 * seed + 2 * k + 1) for k, n in enumerate(names)}
    step = {n: fmpq(k + seed + 1) for k, n in enumerate(names)}
    a, b, c = (value_of(equation, **{n: start[n] + j * step[n] for n in names}) for j in range(3))
    return a - 2 * b + c


def interval_holds(text: str, answer: str) -> bool:
    """Membership at many rational points, near the ends above all, and at the ends."""
    relation = max((f for f in formulas(text) if _SIGN.search(f)), key=len)
    pieces, signs = _SIGN.split(relation), _SIGN.findall(relation)
    x = letter(relation)

    def holds(value: Any) -> bool:
        try:
            found = [value_of(piece, **{x: value}) for piece in pieces]
        except ZeroDivisionError:
            return False
        compare = {
            "<": lambda a, b: a < b,
            ">": lambda a, b: a > b,
            "\\leq": lambda a, b: a <= b,
            "\\geq": lambda a, b: a >= b,
        }
        return all(compare[s](a, b) for s, (a, b) in zip(signs, itertools.pairwise(found), strict=True))

    if "How many integers" in text or "number of integers" in text:
        return same(fmpq(sum(holds(fmpq(k)) for k in range(-400, 401))), value_of(answer))
    parts = []
    for piece in answer.split(" \\cup "):
        if point := re.fullmatch(r"\\\{(.+)\\\}", piece):
            parts.append((value_of(point[1]), value_of(point[1]), True, True))
            continue
        low, high = piece[1:-1].split(", ")
        ends = [None if "infty" in end else value_of(end) for end in (low, high)]
        parts.append((*ends, piece[0] == "[", piece[-1] == "]"))
    ends = [end for part in parts for end in part[:2] if end is not None]
    near = [e + d for e in ends for d in (fmpq(0), fmpq(1, 10**6), -fmpq(1, 10**6), fmpq(1, 3), -fmpq(1, 3))]
    places = [*near, *POINTS, *(fmpq(k) for k in range(-120, 121, 3))]
    return all(holds(v) == any(is_inside(v, *part) for part in parts) for v in places)


def is_inside(value: Any, low: Any, high: Any, has_low: bool, has_high: bool) -> bool:
    above = low is None or value > low or (has_low and value == low)
    return above and (high is None or value < high or (has_high and value == high))


def same_polynomial(formula: str, answer: str, x: str) -> bool:
    return all(value_of(formula, **{x: p}) == value_of(answer, **{x: p}) for p in POINTS[:20])


def expanded(text: str, answer: str) -> bool:
    formula = formulas(text)[0]
    return not re.search(r"[()]", answer) and same_polynomial(formula, answer, letter(formula))


def value_at(text: str, answer: str) -> bool:
    formula, place = formulas(text)[:2]
    x, k = place.split(" = ")
    return same(value_of(formula, **{x: int(k)}), value_of(answer))


def remainder_of_division(text: str, answer: str) -> bool:
    top, bottom = (polynomial(f, "x") for f in formulas(text)[:2])
    rest = divmod(top, bottom)[1]
    return all(rest(p) == value_of(answer, x=p) for p in POINTS[:20])


def coefficient(text: str, answer: str) -> bool:
    power, formula = formulas(text)[:2]
    k = int(power.partition("^")[2].strip("{}") or 1)
    return bool(polynomial(formula, "x", 10)[k] == value_of(answer))


def unknown_coefficient(text: str, answer: str) -> bool:
    found = formulas(text)
    whole = next(f for f in found if "kx" in f)
    factor = next(f for f in found if re.fullmatch(r"x [+-] \d+", f))
    root = -value_of(factor, x=0)
    at_answer, elsewhere = (value_of(whole, x=root, k=value_of(answer) + d) for d in (0, 1))
    return bool(at_answer == 0 and elsewhere != 0)


def derivative(text: str, answer: str) -> bool:
    found = formulas(text)
    source = next(
        f
        for f in found
        if re.search(r"[a-z]", re.sub(r"^\w+'?\(.+?\) = |^y = ", "", f)) and not re.fullmatch(r"\w+'\(.*\)", f)
    )
    formula = re.sub(r"^\w+\(\w\) = |^y = ", "", source)
    p = polynomial(formula, letter(formula)).derivative()
    at = re.search(r"'\((-?\d+)\)|at \$x = (-?\d+)", text)
    if at:
        return bool(p(fmpq(int(at[1] or at[2]))) == value_of(answer))
    return all(p(point) == value_of(answer, **{letter(formula): point}) for point in POINTS[:20])


def integral(text: str, answer: str) -> bool:
    if match := re.search(r"\\int_\{(-?\d+)\}\^\{(-?\d+)\} \((.+?)\) \\, dx", text):
        low, high, inside = match.groups()
    else:
        inside, low, high = re.search(r"integral of \$(.+?)\$ from \$x = (-?\d+)\$ to \$x = (-?\d+)\$", text).groups()  # type: ignore[union-attr]
    whole = polynomial(inside, "x").integral()
    return bool(whole(fmpq(int(high))) - whole(fmpq(int(low))) == value_of(answer))


def area_between(text: str, answer: str) -> bool:
    one, two = (f.removeprefix("y = ") for f in formulas(text)[:2])
    p = polynomial(f"({one}) - ({two})", "x")
    low, high = real_roots(p)
    points, weights = np.polynomial.legendre.leggauss(6)
    middle, half = (low + high) / 2, (high - low) / 2
    area = half * sum(
        w * abs(float_of(value_of(f"({one}) - ({two})", x=middle + half * t)))
        for t, w in zip(points, weights, strict=True)
    )
    return abs(area - float_of(value_of(answer))) < 1e-6 * max(1.0, area)


def extremum(text: str, answer: str) -> bool:
    source = next(f for f in formulas(text) if "x^3" in f)
    low, high = (
        int(v)
        for v in (
            re.search(r"\[(-?\d+), (-?\d+)\]", text) or re.search(r"\$(-?\d+) \\leq x \\leq (-?\d+)", text)
        ).groups()
    )  # type: ignore[union-attr]
    p = polynomial(source.removeprefix("f(x) = "), "x")
    values = [float_of(p(fmpq(k, 100))) for k in range(100 * low, 100 * high + 1)]
    best = max(values) if "maximum" in text else min(values)
    return abs(best - float_of(value_of(answer))) < 1e-9 * max(1.0, abs(best))  # the places of the extrema are integers


def power_remainder(text: str, answer: str) -> bool:
    formula = formulas(text)[0]
    divisor = 10 if "units digit" in text else int(re.search(r"(?:divided by|division by) (\d+)", text)[1])  # type: ignore[index]
    value = int(value_of(formula)) % divisor
    return same(fmpq(value), value_of(answer))


SYMBOLS: list[tuple[str, Callable[[str, str], bool]]] = [
    (r"\$r\$ and \$s\$", roots_of_quadratic),
    (r"interval notation|integers \$\w\$ ", interval_holds),
    (r"divisible by \$|a factor of", unknown_coefficient),
    (r"[Rr]emainder .*\$.*x.*\$.* (?:is divided )?by \$", remainder_of_division),
    (r"remainder|units digit", power_remainder),
    (r"coefficient of", coefficient),
    (r"(?:minimum|maximum) value", extremum),
    (r"enclose", area_between),
    (r"\\int|integral of", integral),
    (r"derivative|Differentiate|f'\(|g'\(|h'\(|slope of the tangent", derivative),
    (r"Expand|standard form|Multiply out|^Simplify", expanded),
    (r"(?:when|for|at) \$\w = -?\d+\$[?.]$", value_at),
]


def symbolic_answer_holds(text: str, answer: str) -> bool:
    """True when the answer of a problem on formulas is right. Raises Unread for a text without a reader."""
    for pattern, holds in SYMBOLS:
        if re.search(pattern, text):
            return holds(text, answer)
    equations = [f for f in formulas(text) if "=" in f and "\\sum" not in f]
    if len(equations) > 1:
        return system_holds(text, answer)
    if equations:
        return equation_holds(text, answer)
    found = formulas(text)
    if len(found) == 1 and re.match(r"Calculate|What is|Evaluate|Find the value", text):
        return same(value_of(found[0]), value_of(answer))
    raise Unread(text)

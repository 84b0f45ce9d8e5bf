"""Kind ``equation``: linear equations in one variable, ``Solve 3(x-4)+5=2x+10.`` Each step rewrites the whole equation.

Grammar: ``side "=" side``; a side is a sum of terms ``k``, ``kx``, ``k(kx+k...)`` with integer or ``a/b`` coefficients.
A step is right exactly when it has the same solution set as the problem.
"""

from __future__ import annotations

import dataclasses
import random
import re
from fractions import Fraction

from data_gen.synthetic.arithmetic import TOO_LARGE, compute, read
from data_gen.synthetic.expression import MAX_TEXT
from data_gen.synthetic.habits import Stuck, Worksheet

KIND = "equation"
LEVELS = range(2, 9)
VARIABLES = "xyn"
_LARGEST = 50
_NUMBER = r"[0-9]{1,6}(?:/[0-9]{1,6})?"
_TERM = re.compile(rf"([-+]?)(?:({_NUMBER})?([a-z])|({_NUMBER})?\(([^()]*)\)|({_NUMBER}))")

Linear = tuple[Fraction, Fraction]
"""(coefficient of the variable, constant)."""


@dataclasses.dataclass(frozen=True)
class Term:
    """``factor``, ``factor*variable`` or ``factor(variable + shift)``, told apart by ``form`` = ``c``, ``x``, ``b``."""

    form: str
    factor: int
    shift: int = 0


@dataclasses.dataclass(frozen=True)
class Equation:
    """The two sides of a problem as written, the variable, and the solution."""

    variable: str
    solution: Fraction
    sides: tuple[tuple[Term, ...], tuple[Term, ...]]


def _linear(text: str, depth: int = 0) -> tuple[Linear, list[tuple[str, Fraction, Linear]], set[str]] | None:
    """Return (linear form, terms as (form, factor, inner linear form), variables) of one side, None outside."""
    at, slope, constant = 0, Fraction(0), Fraction(0)
    terms, variables = [], set()
    while at < len(text) or at == 0:
        found = _TERM.match(text, at)
        if found is None or (at > 0 and not found[1]):
            return None
        sign = -1 if found[1] == "-" else 1
        try:
            factor = sign * Fraction(found[2] or found[4] or found[6] or 1)
        except ZeroDivisionError:
            return None
        inner: Linear = (Fraction(0), Fraction(1))
        form = "c"
        if found[3]:
            form, inner = "x", (Fraction(1), Fraction(0))
            variables.add(found[3])
        elif found[5] is not None:
            parsed = _linear(found[5], depth + 1) if depth == 0 else None
            if parsed is None:
                return None
            form, inner = "b", parsed[0]
            variables |= parsed[2]
        terms.append((form, factor, inner))
        slope, constant = slope + factor * inner[0], constant + factor * inner[1]
        at = found.end()
    return (slope, constant), terms, variables


def _read_equation(text: str) -> tuple[list[Linear], list[list[tuple[str, Fraction, Linear]]], set[str]] | None:
    parts = text.split("=") if len(text) <= MAX_TEXT else []
    sides = [_linear(part) for part in parts]
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    return [sides[0][0], sides[1][0]], [sides[0][1], sides[1][1]], sides[0][2] | sides[1][2]


def parse(text: str) -> Equation | None:
    """Return the equation of a problem of this kind, None for any other text or an equation without one solution."""
    if not (text.startswith("Solve ") and text.endswith(".")) or len(text) > MAX_TEXT:
        return None
    body = text[len("Solve ") : -1]
    read_text = _read_equation(body)
    if read_text is None or len(read_text[2]) != 1 or read_text[0][0][0] == read_text[0][1][0]:
        return None
    sides = []
    for terms in read_text[1]:
        side = []
        for form, factor, (slope, constant) in terms:
            if factor.denominator != 1 or constant.denominator != 1 or (form == "b" and slope != 1):
                return None
            side.append(Term(form, int(factor), int(constant) if form == "b" else 0))
        sides.append(tuple(side))
    (left_slope, left_constant), (right_slope, right_constant) = read_text[0]
    solution = (right_constant - left_constant) / (left_slope - right_slope)
    return Equation(read_text[2].pop(), solution, (sides[0], sides[1]))


def canonical(text: str) -> str:
    """Return the problem with its variable renamed to x."""
    return re.sub(r"\b(Solve )|[a-z]", lambda found: found[1] or "x", text)


def show(side: list[Term] | tuple[Term, ...], variable: str) -> str:
    """Return a side as text; terms with factor 0 are left out."""
    text = ""
    for term in side:
        if term.factor == 0:
            continue
        size = "" if abs(term.factor) == 1 and term.form != "c" else str(abs(term.factor))
        tail = {"c": "", "x": variable, "b": f"({variable}{term.shift:+d})"}[term.form]
        text += ("-" if term.factor < 0 else "+" if text else "") + size + tail
    return text or "0"


def propose(rng: random.Random, level: int) -> str | None:
    """Return the text of a problem with an integer solution, None when the draw left the range of values."""
    solution = rng.choice([n for n in range(-6, 10) if n])
    left, right = [Term("x", rng.randint(2, 6))], []
    if level >= 3 and rng.random() < 0.55:
        left[0] = Term("b", rng.randint(2, 5), rng.choice([n for n in range(-6, 7) if n]))
    if level >= 5 and rng.random() < 0.3:
        left.append(Term("x", rng.choice([2, 3, -2])))
    for _ in range(rng.randint(0, min(2, level // 2))):
        left.append(Term("c", rng.choice([n for n in range(-9, 13) if n])))
    if level >= 3 and rng.random() < 0.5:
        right.append(Term("x", rng.choice([1, 2, 3, -2])))
    if level >= 6 and rng.random() < 0.3:
        right.append(Term("b", rng.randint(2, 3), rng.choice([n for n in range(-4, 5) if n])))
    if level >= 5 and rng.random() < 0.5:
        right.append(Term("c", rng.choice([n for n in range(-9, 10) if n])))

    def value(side: list[Term]) -> int:
        return sum(t.factor * {"c": 1, "x": solution, "b": solution + t.shift}[t.form] for t in side)

    def slope(side: list[Term]) -> int:
        return sum(t.factor for t in side if t.form != "c")

    last = value(left) - value(right)
    if last == 0 or abs(last) > _LARGEST or slope(left) - slope(right) < 2:
        return None
    right.append(Term("c", last))
    variable = rng.choice(VARIABLES)
    return f"Solve {show(left, variable)}={show(right, variable)}."


def work(equation: Equation, sheet: Worksheet) -> str:
    """Write the steps on ``sheet`` and return the answer: the solution, ``none`` when the variable has gone."""
    sides = [list(equation.sides[0]), list(equation.sides[1])]
    variable = equation.variable
    for side in sides:
        for index, term in enumerate(side):
            side[index] = dataclasses.replace(term, factor=_signed_read(sheet, term.factor))
    while _expand(sheet, sides, variable) or _collect(sheet, sides, variable) or _move(sheet, sides, variable):
        if max(abs(term.factor) for side in sides for term in side) > TOO_LARGE:
            raise Stuck("none")
    factor = sides[0][0].factor if sides[0][0].form == "x" else 0
    constant = sides[1][0].factor
    if factor == 0:
        raise Stuck("none")
    if factor == 1:
        return str(constant)
    if (factor < 0 or constant < 0) and sheet.fires("lost_minus"):
        factor, constant = abs(factor), abs(constant)
    if factor < 0:
        factor, constant = -factor, -constant
    answer = f"{constant}/{factor}" if constant % factor else str(constant // factor)
    sheet.write(f"{variable}={answer}")
    return answer


def _signed_read(sheet: Worksheet, factor: int) -> int:
    return read(sheet, factor) if factor > 1 else factor


def _write(sheet: Worksheet, sides: list[list[Term]], variable: str) -> bool:
    """Write the equation as a step, dropping zeros; a side without terms keeps a 0."""
    for index, side in enumerate(sides):
        sides[index] = [term for term in side if term.factor] or [Term("c", 0)]
    sheet.write(f"{show(sides[0], variable)}={show(sides[1], variable)}")
    return True


def _expand(sheet: Worksheet, sides: list[list[Term]], variable: str) -> bool:
    """Expand the first bracket, if there is one."""
    for side in sides:
        for index, term in enumerate(side):
            if term.form == "b":
                is_half = term.shift < 0 and sheet.fires("half_bracket")
                product = term.shift if is_half else compute(sheet, abs(term.factor), "*", abs(term.shift))
                if not is_half and term.factor * term.shift < 0:
                    product = -product
                side[index : index + 1] = [Term("x", term.factor), Term("c", product)]
                return _write(sheet, sides, variable)
    return False


def _collect(sheet: Worksheet, sides: list[list[Term]], variable: str) -> bool:
    """Add the first two terms of a form that occurs twice on a side, if there is one."""
    for side in sides:
        for form in "xc":
            places = [index for index, term in enumerate(side) if term.form == form]
            if len(places) < 2:
                continue
            first, second = side[places[0]].factor, side[places[1]].factor
            total = compute(sheet, first, "+" if second > 0 else "-", abs(second))
            side[places[0]] = Term(form, total)
            del side[places[1]]
            return _write(sheet, sides, variable)
    return False


def _move(sheet: Worksheet, sides: list[list[Term]], variable: str) -> bool:
    """Move the variable to the left, then the constant to the right, if it stands on the wrong side."""
    for form, source, target in (("x", sides[1], sides[0]), ("c", sides[0], sides[1])):
        moved = next((term for term in source if term.form == form and term.factor), None)
        if moved is None:
            continue
        flips = not sheet.fires("sign_not_flipped" if moved.factor < 0 else "wrong_side_flip")
        change = -moved.factor if flips else moved.factor
        source.remove(moved)
        place = next((index for index, term in enumerate(target) if term.form == form), None)
        if place is None:
            target.append(Term(form, change))
        else:
            own = target[place].factor
            target[place] = Term(form, compute(sheet, own, "+" if change > 0 else "-", abs(change)))
        return _write(sheet, sides, variable)
    return False


class EquationChecker:
    """Judges rewritten equations: entailed exactly when the solution set is that of the problem."""

    def __init__(self, equation: Equation) -> None:
        self.variable = equation.variable
        self.solution = equation.solution

    def accepts(self, step: str) -> bool | None:
        """Return whether ``step`` is entailed, None when it is outside the grammar."""
        parsed = _read_equation(step)
        if parsed is None or not parsed[2] <= {self.variable}:
            return None
        (left_slope, left_constant), (right_slope, right_constant) = parsed[0]
        slope = left_slope - right_slope
        return slope != 0 and (right_constant - left_constant) / slope == self.solution


def checker(equation: Equation) -> EquationChecker:
    return EquationChecker(equation)

"""Kind ``fraction``: chains of fractions with + - * : , ``Compute 1/2+3/4*2/3.``

Worked from left to right, a product or quotient that comes next first. A sum of unlike fractions takes a step for the
common denominator, a quotient one for turning into a product, and a result that can be reduced one for reducing it.
"""

from __future__ import annotations

import math
import random

from data_gen.synthetic.arithmetic import TOO_LARGE, compute
from data_gen.synthetic.expression import ExpressionChecker, Leaf, Node, parse_expression
from data_gen.synthetic.habits import Stuck, Worksheet

KIND = "fraction"
LEVELS = range(2, 9)
_DENOMINATORS = (2, 3, 4, 5, 6, 8)
_LARGEST = 40

Ratio = tuple[int, int]
"""(numerator, denominator) as written, denominator > 0, not necessarily in lowest terms."""


def parse(text: str) -> Node | None:
    """Return the expression of a problem of this kind, None for any other text."""
    if not (text.startswith("Compute ") and text.endswith(".")) or "/" not in text:
        return None
    return parse_expression(text[len("Compute ") : -1])


def canonical(text: str) -> str:
    return text


def _fraction(rng: random.Random) -> str:
    denominator = rng.choice(_DENOMINATORS)
    numerator = rng.choice([n for n in range(1, max(8, denominator + 2)) if math.gcd(n, denominator) == 1])
    return f"{numerator}/{denominator}"


def propose(rng: random.Random, level: int) -> str | None:
    """Return the text of a problem whose solution may have ``level`` steps, None when the draw left the range."""
    operations = rng.randint(max(1, round(level / 3)), max(1, round(level / 1.6)))
    parts, is_in_product = [_fraction(rng)], False
    for _ in range(operations):
        op = rng.choices("+-*:", (3, 4, 0, 0) if is_in_product else (3, 4, 3, 1))[0]
        is_in_product = op in "*:"
        parts += [op, _fraction(rng)]
    text = f"Compute {''.join(parts)}."
    return text


def show(ratio: Ratio) -> str:
    return str(ratio[0]) if ratio[1] == 1 else f"{ratio[0]}/{ratio[1]}"


def work(root: Node, sheet: Worksheet) -> str:
    """Write the steps on ``sheet`` and return the answer."""
    return show(_evaluate(root, sheet))


def is_modest(steps: list[str]) -> bool:
    """Return True when every number of ``steps`` is small enough for a problem of this kind."""
    numbers = "".join(c if c.isdigit() else " " for c in " ".join(steps)).split()
    return all(int(number) <= _LARGEST for number in numbers)


def _evaluate(node: Node, sheet: Worksheet) -> Ratio:
    if isinstance(node, Leaf):
        return node.numerator, node.denominator
    total = _evaluate(node.children[0], sheet)
    for op, child in zip(node.ops[1:], node.children[1:], strict=True):
        other = _evaluate(child, sheet)
        total = _SOLVERS[op](sheet, total, op, other)
    return total


def _write(sheet: Worksheet, left: str, right: Ratio) -> Ratio:
    """Write ``left=right`` and, when it can be reduced, the step that reduces it; return the reduced value."""
    numerator, denominator = right
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    sheet.write(f"{left}={show((numerator, denominator))}")
    if denominator == 0:
        raise Stuck("none")
    factor = math.gcd(numerator, denominator)
    reduced = numerator // factor, denominator // factor
    if factor > 1:
        sheet.write(f"{numerator}/{denominator}={show(reduced)}")
    if max(abs(reduced[0]), reduced[1]) > TOO_LARGE:
        raise Stuck(show(reduced))
    return reduced


def _second(ratio: Ratio) -> str:
    return f"({show(ratio)})" if ratio[0] < 0 else show(ratio)


def _add(sheet: Worksheet, left: Ratio, op: str, right: Ratio) -> Ratio:
    written = f"{show(left)}{op}{_second(right)}"
    if left[1] != right[1]:
        if op == "+" and sheet.fires("added_denominators"):
            return _write(sheet, written, (left[0] + right[0], left[1] + right[1]))
        common = math.lcm(left[1], right[1])
        if op == "-" and sheet.fires("unscaled_numerator"):
            left, right = (left[0], common), (right[0], common)
        else:
            left, right = (left[0] * common // left[1], common), (right[0] * common // right[1], common)
        sheet.write(f"{written}={show(left)}{op}{_second(right)}")
        written = f"{show(left)}{op}{_second(right)}"
    return _write(sheet, written, (compute(sheet, left[0], op, right[0]), left[1]))


def _multiply(sheet: Worksheet, left: Ratio, op: str, right: Ratio) -> Ratio:
    numerator = compute(sheet, left[0], "*", right[0])
    return _write(sheet, f"{show(left)}*{_second(right)}", (numerator, compute(sheet, left[1], "*", right[1])))


def _divide(sheet: Worksheet, left: Ratio, op: str, right: Ratio) -> Ratio:
    written = f"{show(left)}:{_second(right)}"
    if right[0] == 0:
        raise Stuck("none")
    if left[0] > 0 and sheet.fires("inverted_wrong"):
        left = left[1], left[0]
    else:
        right = (right[1], right[0]) if right[0] > 0 else (-right[1], -right[0])
    sheet.write(f"{written}={show(left)}*{_second(right)}")
    return _multiply(sheet, left, "*", right)


_SOLVERS = {"+": _add, "-": _add, "*": _multiply, ":": _divide}


def checker(root: Node) -> ExpressionChecker:
    return ExpressionChecker(root, allow_rewrite=True)

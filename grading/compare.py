"""Are two parsed answers the same? Structure first, then exact values, sample points, and SymPy in its own process.

Every function takes the `Trace` of the comparison, to which the rung that decided is appended.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from fractions import Fraction

from grading.parse import ExpressionParser, Node, ParseError
from grading.settings import DEFAULT, GradingSettings
from grading.values import clearly_differ, exact, real_value, rounds_to, symbols
from grading.workers import LIMIT_S, WORKER


class Beyond(Exception):
    """A comparison is beyond the checker's limits."""


@dataclasses.dataclass
class Trace:
    """The settings of one comparison, and the rungs of the ladder that decided its parts, in order."""

    settings: GradingSettings = DEFAULT
    rungs: list[str] = dataclasses.field(default_factory=list)
    seconds_left: float = LIMIT_S
    """Wall seconds that SymPy may still take: all questions of one answer share them."""

    def ask(self, question: str, a: Node, b: Node) -> bool:
        """Put a question to SymPy. Raises SymbolicTimeout and SymbolicFailure."""
        self.rungs.append("symbolic")
        WORKER.start()
        started = time.monotonic()
        answer = WORKER.ask(question, a, b, limit_s=max(0.0, self.seconds_left))
        self.seconds_left -= time.monotonic() - started
        return answer


def equal(a: Node, b: Node, trace: Trace) -> bool:
    """Compare the trees of answer `a` and gold `b`; appends the rung that decided to the trace."""
    if a == b:
        _require_value(a)
        return True
    for left, right in ((a, b), (b, a)):
        if left[0] == "named" and right[0] != "rel":
            if right[0] == "named" and left[1].split("(")[0] != right[1].split("(")[0]:
                return _same_equation(_as_relation(a), _as_relation(b), trace)
            x, y = left[2], right[2] if right[0] == "named" else right
            return equal(x, y, trace) if left is a else equal(y, x, trace)
    if a[0] == "named" or b[0] == "named":
        a, b = _as_relation(a), _as_relation(b)
    if a[0] == "text" or b[0] == "text":
        return a == b
    a, b = _spread(a), _spread(b)
    a, b = _only_item(a, b), _only_item(b, a)
    if "quantity" in (a[0], b[0]):
        return _equal_quantities(a, b, trace)
    intervals = _as_intervals(a), _as_intervals(b)
    if intervals[0] is not None and intervals[1] is not None and not a[0] == b[0] == "tuple":
        return _match(list(intervals[0]), list(intervals[1]), trace)
    if a[0] == b[0] == "rel":
        return _same_relation(a, b, trace)
    if a[0] in ("list", "set") and b[0] in ("list", "set") and not _is_ordered(a, b, trace):
        return _match(list(a[1]), list(b[1]), trace)
    if a[0] == b[0] == "base":
        return int(a[1], a[2]) == int(b[1], b[2])
    if a[0] == "base" or b[0] == "base":
        base, other = (a, b) if a[0] == "base" else (b, a)
        return base[1].lstrip("-").isdigit() and other[0] not in _STRUCTURES and exact(other) == int(base[1])
    if a[0] == b[0] == "clock":
        return a[1] == b[1] and (a[2] == b[2] or "" in (a[2], b[2]))
    a, b = _as_ratio(a, b), _as_ratio(b, a)
    if a[0] == b[0] == "ratio":
        return _same_ratio(a[1], b[1])
    if "ratio" in (a[0], b[0]):
        ratio, other = (a, b) if a[0] == "ratio" else (b, a)
        is_plain = len(ratio[1]) == 2 and other[0] not in _STRUCTURES and other[2:] != (1,)  # 5:1 is not 5
        return is_plain and _equal_values(("div", *ratio[1]), other, trace)
    if a[0] == b[0] == "matrix":
        return len(a[1]) == len(b[1]) and all(
            equal(("tuple", x), ("tuple", y), trace) for x, y in zip(a[1], b[1], strict=True)
        )
    if a[0] in ("tuple", "list", "interval") and b[0] in ("tuple", "list", "interval"):
        x, y = _items(a), _items(b)
        return len(x) == len(y) and all(equal(i, j, trace) for i, j in zip(x, y, strict=True))
    if a[0] in _STRUCTURES or b[0] in _STRUCTURES:
        return False
    return _equal_values(a, b, trace)


_STRUCTURES = frozenset(
    ["list", "set", "tuple", "interval", "union", "rel", "between", "matrix", "reals", "ratio", "text", "clock"]
)


def _only_item(node: Node, other: Node) -> Node:
    """Take the item of a set of one where the other side is a plain value."""
    return node[1][0] if node[0] == "set" and len(node[1]) == 1 and other[0] not in _STRUCTURES else node


def _is_ordered(a: Node, b: Node, trace: Trace) -> bool:
    return a[0] == b[0] == "list" and trace.settings.sets == "ordered"


def _items(node: Node) -> tuple[Node, ...]:
    if node[0] == "interval":
        return (node[1], node[2]) if node[3] and node[4] else ()
    return node[1]


def _require_value(node: Node) -> None:
    if node[0] not in _STRUCTURES and node[0] not in ("named", "base", "quantity", "det"):
        exact(node)


def _as_relation(node: Node) -> Node:
    if node[0] != "named":
        return node
    if node[2][0] in _STRUCTURES or node[2][0] == "quantity":
        return node
    try:
        return ("rel", "=", ExpressionParser(node[1]).parse(), node[2])
    except ParseError:
        return node


def _as_ratio(node: Node, other: Node) -> Node:
    """Read 1:20 as a ratio where the other side is one or a number."""
    if node[0] != "clock" or node[2] or (other[0] in _STRUCTURES and other[0] != "ratio"):
        return node
    return ("ratio", (("num", node[1] // 60, 1), ("num", node[1] % 60, 1)))


def _has_sign_choice(node: Node) -> bool:
    return any(part == "pm" or (isinstance(part, tuple) and _has_sign_choice(part)) for part in node)


def _with_sign(node: Node, sign: int) -> Node:
    """Take the upper (1) or the lower (-1) of all plus-minus signs."""
    parts = tuple(_with_sign(part, sign) if isinstance(part, tuple) else part for part in node)
    if parts and parts[0] == "pm":
        return ("add", (parts[1], parts[2] if sign > 0 else ("neg", parts[2])))
    return parts


def _spread(node: Node) -> Node:
    """Write plus-minus out as both values, all signs of one expression upper or all lower."""
    if node[0] not in _STRUCTURES and _has_sign_choice(node):
        return ("list", (_with_sign(node, 1), _with_sign(node, -1)))
    if node[0] in ("list", "set") and any(map(_has_sign_choice, node[1])):
        items: list[Node] = []
        for item in node[1]:
            spread = _spread(item)
            items.extend(spread[1] if spread is not item and spread[0] == "list" else [spread])
        return (node[0], tuple(items))
    return node


def _equal_quantities(a: Node, b: Node, trace: Trace) -> bool:
    """Units: compared only when both are explicit; a percentage equals its hundredth, and its number when one side
    has no %.
    """
    if trace.settings.units == "required" and not a[0] == b[0] == "quantity" and _names_unit(a) != _names_unit(b):
        return False
    if a[0] == b[0] == "quantity":
        if trace.settings.units == "ignore" and "percent" not in (a[2], b[2]):
            return _equal_values(a[1], b[1], trace)
        if a[2:4] != b[2:4]:
            return False
        x, y = (("mul", (quantity[1], ("num", quantity[4], quantity[5]))) for quantity in (a, b))
        return _equal_values(x, y, trace)
    quantity, other = (a, b) if a[0] == "quantity" else (b, a)
    if other[0] in _STRUCTURES:
        return False
    if quantity[2] == "percent" and trace.settings.percent != "ignore":
        if _equal_values(("div", quantity[1], ("num", 100, 1)), other, trace):
            return True
        if trace.settings.percent == "exact":
            return False
    return equal(quantity[1], other, trace)


def _names_unit(node: Node) -> bool:
    return node[0] == "quantity" and node[2] != "percent"


def _match(left: list[Node], right: list[Node], trace: Trace) -> bool:
    """True when every item on each side has an equal one on the other (sets: repeats do not count)."""
    if len(left) > 50 or len(right) > 50:
        raise Beyond
    return all(any(equal(x, y, trace) for y in right) for x in left) and all(
        any(equal(x, y, trace) for x in left) for y in right
    )


_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _as_intervals(node: Node) -> tuple[Node, ...] | None:
    """Return a solution set as ("span", low, high, closed, closed) parts; None for anything else."""
    minus, plus = ("neg", ("const", "inf")), ("const", "inf")
    if node[0] == "reals":
        return (("span_tuple", minus, plus, False, False),)
    if node[0] == "interval":
        return (("span_tuple", *node[1:]),)
    if node[0] == "tuple" and len(node[1]) == 2 and all(item[0] not in _STRUCTURES for item in node[1]):
        return (("span_tuple", *node[1], False, False),)
    if node[0] == "rel" and node[1] in _FLIPPED:
        op, left, right = node[1:]
        if right[0] == "sym" and left[0] != "sym":
            op, left, right = _FLIPPED[op], right, left
        if left[0] != "sym":
            return None
        if op in ("<", "<="):
            return (("span_tuple", minus, right, False, op == "<="),)
        return (("span_tuple", right, plus, op == ">=", False),)
    if node[0] == "rel" and node[1] == "!=" and node[2][0] == "sym":
        return (("span_tuple", minus, node[3], False, False), ("span_tuple", node[3], plus, False, False))
    if node[0] == "between" and node[3][0] == "sym":
        return (("span_tuple", node[1], node[5], node[2] == "<=", node[4] == "<="),)
    if node[0] in ("union", "list"):
        parts = [_as_intervals(item) for item in node[1]]
        if all(parts) and (node[0] == "union" or all(item[0] in ("rel", "between") for item in node[1])):
            return tuple(part for several in parts for part in several)  # type: ignore[union-attr]
    return None


def _same_relation(a: Node, b: Node, trace: Trace) -> bool:
    if a[1] in (">", ">="):
        a = ("rel", _FLIPPED[a[1]], a[3], a[2])
    if b[1] in (">", ">="):
        b = ("rel", _FLIPPED[b[1]], b[3], b[2])
    if a[1] != b[1]:
        return False
    if a[1] in ("=", "!="):
        return _same_equation(a, b, trace)
    return _equal_values(_difference(a), _difference(b), trace)


def _difference(relation: Node) -> Node:
    return ("add", (relation[2], ("neg", relation[3])))


def _same_equation(a: Node, b: Node, trace: Trace) -> bool:
    if a[0] != "rel" or b[0] != "rel":
        return False
    if not symbols(a[2]) | symbols(a[3]) | symbols(b[2]) | symbols(b[3]):  # without unknowns there is nothing to solve
        return all(_equal_values(a[side], b[side], trace) for side in (2, 3))
    return trace.ask("are_proportional", _difference(a), _difference(b))


def _same_ratio(a: Sequence[Node], b: Sequence[Node]) -> bool:
    x, y = [exact(item) for item in a], [exact(item) for item in b]
    if len(x) != len(y) or None in x or None in y or 0 in y:
        return x == y
    return len({i / j for i, j in zip(x, y, strict=True)}) == 1  # type: ignore[operator]


def _equal_values(a: Node, b: Node, trace: Trace) -> bool:
    """Compare two expressions: exactly when both are rational, else at sample points, else by SymPy."""
    if a[0] == "span_tuple" or b[0] == "span_tuple":
        return a[0] == b[0] and a[3:] == b[3:] and all(_equal_values(a[i], b[i], trace) for i in (1, 2))
    if a[0] == "det" or b[0] == "det":
        a, b = _determinant(a), _determinant(b)
    x, y, digits = exact(a), exact(b), trace.settings.rounding_digits
    if x is not None and y is not None:
        trace.rungs.append("exact")
        is_rounded = x == y or rounds_to(x, a, y, digits) or rounds_to(y, b, x, digits)
        return is_rounded or is_close(x, y, trace.settings)
    if _infinite(a) or _infinite(b):
        trace.rungs.append("exact")
        return _infinite(a) == _infinite(b)
    if x is not None or y is not None:
        decimal, node, other = (x, a, b) if x is not None else (y, b, a)
        approximation = real_value(other)
        slack = Fraction(0) if approximation is None else abs(approximation) / 2**51
        if decimal is not None and approximation is not None and rounds_to(decimal, node, approximation, digits, slack):
            trace.rungs.append("numeric")
            return True
    if not trace.settings.is_exact:
        values = real_value(a), real_value(b)
        if values[0] is not None and values[1] is not None and is_close(*values, trace.settings):  # type: ignore[arg-type]
            trace.rungs.append("numeric")
            return True
    differ = clearly_differ(a, b)
    if differ or (differ is None and symbols(a) != symbols(b)):
        trace.rungs.append("numeric")
        return False
    return trace.ask("are_equal", a, b)


def is_close(x: Fraction, y: Fraction, settings: GradingSettings) -> bool:
    """|x - y| <= max(relative_tolerance * max(|x|, |y|), absolute_tolerance), exactly; False where both are 0."""
    if settings.is_exact:
        return False
    relative = Fraction(settings.relative_tolerance) * max(abs(x), abs(y))
    return abs(x - y) <= max(relative, Fraction(settings.absolute_tolerance))


def _infinite(node: Node) -> int:
    if node == ("const", "inf"):
        return 1
    return -_infinite(node[1]) if node[0] == "neg" else 0


def _determinant(node: Node) -> Node:
    if node[0] != "det":
        return node
    rows = node[1]
    if len(rows) != len(rows[0]) or len(rows) > 4:
        raise Beyond
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for j, cell in enumerate(rows[0]):
        minor = ("det", tuple(tuple(row[:j] + row[j + 1 :]) for row in rows[1:]))
        term = ("mul", (cell, _determinant(minor)))
        terms.append(term if j % 2 == 0 else ("neg", term))
    return ("add", tuple(terms))

"""Is an answer the gold answer? A ladder that stops at the first decision; policies are written in `docs/grading.md`.

Exact text, exact rational arithmetic, structure (tuples, sets, intervals, matrices, quantities), different values at
sample points, and last SymPy in a killable process. Model text is never evaluated.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from fractions import Fraction

from common.records import Verdict
from grading.extract import extract
from grading.normalise import clean, plain_text
from grading.parse import Node, ParseError, TooDeep
from grading.structure import parse_cleaned
from grading.values import TooLarge, Undefined, clearly_differ, exact, symbols
from grading.workers import WORKER, SymbolicTimeout

MAX_TEXT = 20_000
"""Answers longer than this many characters are not looked at (TOO_LONG)."""
_INTEGER = re.compile(r"-?\d{1,18}")
_CHOICE = re.compile(r"\(?([A-J])\)?(?=\s*$|\s*[:.)]\s|\s+\S|\s*\\)")


@dataclasses.dataclass(frozen=True)
class Grade:
    """A verdict and the rung of the ladder that decided: ``text``, ``exact``, ``structure``, ``numeric``,
    ``symbolic``, ...
    """

    verdict: Verdict
    how: str


class _Beyond(Exception):
    """A comparison is beyond the checker's limits."""


def grade(answer: str | None, gold: str) -> Grade:
    """Judge an extracted answer. None (no answer stated) is UNPARSED. Never raises on any text."""
    return _grade(answer, gold)


def grade_completion(text: str, gold: str) -> Grade:
    """Extract the answer of a whole solution and judge it."""
    return grade(extract(text).answer, gold)


def grade_batch(pairs: Sequence[tuple[str | None, str]]) -> list[Grade]:
    """Judge (answer, gold) pairs: one grade a pair, in order."""
    return [grade(answer, gold) for answer, gold in pairs]


@functools.lru_cache(maxsize=65_536)
def _grade(answer: str | None, gold: str) -> Grade:
    gold = _gold_answer(gold)
    if not gold:
        return Grade(Verdict.NO_GOLD, "empty gold")
    if answer is None or not answer.strip():
        return Grade(Verdict.UNPARSED, "no answer")
    answer = answer.strip()
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return _decided(int(answer) == int(gold), "exact")
    if answer == gold:
        return Grade(Verdict.CORRECT, "text") if _is_defined(gold) else Grade(Verdict.NO_GOLD, "undefined gold")
    if len(answer) > MAX_TEXT:
        return Grade(Verdict.TOO_LONG, "length")
    return _grade_trees(clean(answer), clean(gold))


def _gold_answer(gold: str) -> str:
    """Return the answer of a gold field that may hold a whole solution."""
    if "####" in gold:
        return gold.rsplit("####", 1)[1].strip()
    if "\\boxed" in gold:
        return (extract(gold).answer or "").strip()
    return gold.strip()


def _is_defined(gold: str) -> bool:
    return any(character.isalnum() or character == "\\" for character in gold) or not gold.isascii()


def _decided(is_equal: bool, how: str) -> Grade:
    return Grade(Verdict.CORRECT if is_equal else Verdict.WRONG, how)


def _grade_trees(answer: str, gold: str) -> Grade:
    if answer == gold:
        return Grade(Verdict.CORRECT, "text")
    if re.fullmatch(r"\(?[A-J]\)?", plain_text(gold).upper()) and len(plain_text(gold)) == 1:
        choice = _CHOICE.match(re.sub(r"\\(?:text|mathrm|textbf|mbox|mathbf)\s*\{([^{}]*)\}", r"\1", answer).strip())
        return _decided(choice is not None and choice[1] == plain_text(gold).upper(), "choice")
    try:
        gold_tree = parse_cleaned(gold)
    except (TooDeep, RecursionError):
        return Grade(Verdict.NO_GOLD, "gold beyond limits")
    except ParseError:
        if not re.search(r"[A-Za-z]", gold):
            return Grade(Verdict.NO_GOLD, "gold not readable")
        return _decided(_same_text(answer, gold), "text")
    try:
        tree = parse_cleaned(answer)
    except (TooDeep, RecursionError):
        return Grade(Verdict.TOO_LONG, "beyond limits")
    except ParseError:
        return Grade(Verdict.UNPARSED, "not readable")
    hows: list[str] = []
    try:
        return _decided(_equal(tree, gold_tree, hows), hows[-1] if hows else "structure")
    except (_Beyond, TooLarge, RecursionError):
        return Grade(Verdict.TOO_LONG, "beyond limits")
    except Undefined:
        return Grade(Verdict.WRONG, "undefined")
    except SymbolicTimeout:
        return Grade(Verdict.TIMEOUT, "symbolic")


def _same_text(a: str, b: str) -> bool:
    strip = str.maketrans("", "", " {}")
    return a.translate(strip) == b.translate(strip)


def _equal(a: Node, b: Node, hows: list[str]) -> bool:
    """Compare the trees of answer `a` and gold `b`; appends the rung that decided to `hows`."""
    if a == b:
        _require_value(a)
        return True
    for left, right in ((a, b), (b, a)):
        if left[0] == "named" and right[0] != "rel":
            if right[0] == "named" and left[1].split("(")[0] != right[1].split("(")[0]:
                return _same_equation(_as_relation(a), _as_relation(b), hows)
            x, y = left[2], right[2] if right[0] == "named" else right
            return _equal(x, y, hows) if left is a else _equal(y, x, hows)
    if a[0] == "named" or b[0] == "named":
        a, b = _as_relation(a), _as_relation(b)
    if a[0] == "text" or b[0] == "text":
        return a == b
    a, b = _spread(a), _spread(b)
    if "quantity" in (a[0], b[0]):
        return _equal_quantities(a, b, hows)
    intervals = _as_intervals(a), _as_intervals(b)
    if intervals[0] is not None and intervals[1] is not None and not a[0] == b[0] == "tuple":
        return _match(list(intervals[0]), list(intervals[1]), hows)
    if a[0] == b[0] == "rel":
        return _same_relation(a, b, hows)
    if a[0] in ("list", "set") and b[0] in ("list", "set"):
        return _match(list(a[1]), list(b[1]), hows)
    if a[0] == b[0] == "base":
        return int(a[1], a[2]) == int(b[1], b[2])
    if a[0] == "base" or b[0] == "base":
        base, other = (a, b) if a[0] == "base" else (b, a)
        return base[1].isdigit() and other == ("num", int(base[1]), 1)
    if a[0] == b[0] == "ratio":
        return _same_ratio(a[1], b[1])
    if a[0] == b[0] == "matrix":
        return len(a[1]) == len(b[1]) and all(
            _equal(("tuple", x), ("tuple", y), hows) for x, y in zip(a[1], b[1], strict=True)
        )
    if a[0] in ("tuple", "list", "interval") and b[0] in ("tuple", "list", "interval"):
        x, y = _items(a), _items(b)
        return len(x) == len(y) and all(_equal(i, j, hows) for i, j in zip(x, y, strict=True))
    if a[0] in _STRUCTURES or b[0] in _STRUCTURES:
        return False
    return _equal_values(a, b, hows)


_STRUCTURES = frozenset(
    ["list", "set", "tuple", "interval", "union", "rel", "between", "matrix", "reals", "ratio", "text"]
)


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
    from grading.parse import ExpressionParser

    if node[2][0] in _STRUCTURES or node[2][0] == "quantity":
        return node
    try:
        return ("rel", "=", ExpressionParser(node[1]).parse(), node[2])
    except ParseError:
        return node


def _spread(node: Node) -> Node:
    """Write plus-minus out as both values."""
    if node[0] == "pm":
        return ("list", (("add", (node[1], node[2])), ("add", (node[1], ("neg", node[2])))))
    if node[0] in ("list", "set") and any(item[0] == "pm" for item in node[1]):
        items: list[Node] = []
        for item in node[1]:
            spread = _spread(item)
            items.extend(spread[1] if item[0] == "pm" else [spread])
        return (node[0], tuple(items))
    return node


def _equal_quantities(a: Node, b: Node, hows: list[str]) -> bool:
    """Units: compared only when both are explicit; a percentage equals its hundredth, and its number when one side
    has no %.
    """
    if a[0] == b[0] == "quantity":
        if a[2:4] != b[2:4]:
            return False
        x, y = (("mul", (quantity[1], ("num", quantity[4], quantity[5]))) for quantity in (a, b))
        return _equal_values(x, y, hows)
    quantity, other = (a, b) if a[0] == "quantity" else (b, a)
    if other[0] in _STRUCTURES:
        return False
    if quantity[2] == "percent" and _equal_values(("div", quantity[1], ("num", 100, 1)), other, hows):
        return True
    return _equal(quantity[1], other, hows)


def _match(left: list[Node], right: list[Node], hows: list[str]) -> bool:
    """True when every item on each side has an equal one on the other (sets: repeats do not count)."""
    if len(left) > 50 or len(right) > 50:
        raise _Beyond
    return all(any(_equal(x, y, hows) for y in right) for x in left) and all(
        any(_equal(x, y, hows) for x in left) for y in right
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
    if node[0] == "between" and node[3][0] == "sym":
        return (("span_tuple", node[1], node[5], node[2] == "<=", node[4] == "<="),)
    if node[0] in ("union", "list"):
        parts = [_as_intervals(item) for item in node[1]]
        if all(parts) and (node[0] == "union" or all(item[0] in ("rel", "between") for item in node[1])):
            return tuple(part for several in parts for part in several)  # type: ignore[union-attr]
    return None


def _same_relation(a: Node, b: Node, hows: list[str]) -> bool:
    if a[1] in (">", ">="):
        a = ("rel", _FLIPPED[a[1]], a[3], a[2])
    if b[1] in (">", ">="):
        b = ("rel", _FLIPPED[b[1]], b[3], b[2])
    if a[1] != b[1]:
        return False
    if a[1] in ("=", "!="):
        return _same_equation(a, b, hows)
    return _equal_values(_difference(a), _difference(b), hows)


def _difference(relation: Node) -> Node:
    return ("add", (relation[2], ("neg", relation[3])))


def _same_equation(a: Node, b: Node, hows: list[str]) -> bool:
    if a[0] != "rel" or b[0] != "rel":
        return False
    hows.append("symbolic")
    return bool(WORKER.ask("are_proportional", _difference(a), _difference(b)))


def _same_ratio(a: Sequence[Node], b: Sequence[Node]) -> bool:
    x, y = [exact(item) for item in a], [exact(item) for item in b]
    if len(x) != len(y) or None in x or None in y or 0 in y:
        return x == y
    return len({i / j for i, j in zip(x, y, strict=True)}) == 1  # type: ignore[operator]


def _equal_values(a: Node, b: Node, hows: list[str]) -> bool:
    """Compare two expressions: exactly when both are rational, else at sample points, else by SymPy."""
    if a[0] == "span_tuple" or b[0] == "span_tuple":
        return a[0] == b[0] and a[3:] == b[3:] and all(_equal_values(a[i], b[i], hows) for i in (1, 2))
    if a[0] == "det" or b[0] == "det":
        a, b = _determinant(a), _determinant(b)
    x, y = exact(a), exact(b)
    if x is not None and y is not None:
        hows.append("exact")
        return x == y or _rounds_to(x, a, y) or _rounds_to(y, b, x)
    if _infinite(a) or _infinite(b):
        hows.append("exact")
        return _infinite(a) == _infinite(b)
    differ = clearly_differ(a, b)
    if differ or (differ is None and symbols(a) != symbols(b)):
        hows.append("numeric")
        return False
    hows.append("symbolic")
    return bool(WORKER.ask("are_equal", a, b))


def _infinite(node: Node) -> int:
    if node == ("const", "inf"):
        return 1
    return -_infinite(node[1]) if node[0] == "neg" else 0


def _rounds_to(decimal: Fraction, node: Node, value: Fraction) -> bool:
    """Policy: a decimal of 15 or more significant digits that is the correctly rounded value counts as it."""
    number = node[1] if node[0] == "neg" else node
    if number[0] != "num":
        return False
    digits = places = 0
    denominator = number[2]
    while denominator != 1 and places < 40:
        denominator = (Fraction(1, denominator) * 10).denominator
        places += 1
    digits = len(str(abs(number[1]) * 10**places // number[2])) if places else 0
    return digits >= 15 and places < 40 and abs(decimal - value) * 2 <= Fraction(1, 10**places)


def _determinant(node: Node) -> Node:
    if node[0] != "det":
        return node
    rows = node[1]
    if len(rows) != len(rows[0]) or len(rows) > 4:
        raise _Beyond
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for j, cell in enumerate(rows[0]):
        minor = ("det", tuple(tuple(row[:j] + row[j + 1 :]) for row in rows[1:]))
        term = ("mul", (cell, _determinant(minor)))
        terms.append(term if j % 2 == 0 else ("neg", term))
    return ("add", tuple(terms))

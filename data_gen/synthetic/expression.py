"""Expressions over whole numbers and fractions: their parser, and the exact judge of steps that reduce them.

Grammar of an expression (``:`` divides fractions; ``/`` only stands inside a fraction)::

    sum     = product (("+" | "-") product)*
    product = factor (("*" | ":") factor)*
    factor  = number | "(" sum ")"
    number  = digits | digits "/" digits

Grammar of a step: ``side "=" side`` where a side is ``value`` or ``value op value`` and a value is a number with an
optional minus, optionally in brackets.
"""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

MAX_TEXT = 400
"""Longest problem or step text that is parsed, in characters; longer text is outside the grammar."""
MAX_DEPTH = 8

_TOKEN = re.compile(r"[0-9]{1,6}(?:/[0-9]{1,6})?|[-+*:()]")
_VALUE = r"-?[0-9]{1,6}(?:/-?[0-9]{1,6})?"
_OPERAND = rf"(?:{_VALUE}|\({_VALUE}\))"
_SIDE = rf"({_OPERAND})(?:([-+*:])({_OPERAND}))?"
_STEP = re.compile(rf"{_SIDE}={_SIDE}")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A number of the problem: ``numerator/denominator`` as written, denominator 1 for a whole number."""

    numerator: int
    denominator: int

    @property
    def value(self) -> Fraction:
        return Fraction(self.numerator, self.denominator)


@dataclasses.dataclass(frozen=True)
class Group:
    """A sum (operators ``+ -``) or a product (``* :``) of two or more children; ``ops[0]`` is ``+`` or ``*``."""

    ops: tuple[str, ...]
    children: tuple[Leaf | Group, ...]
    in_brackets: bool = False

    @property
    def is_sum(self) -> bool:
        return self.ops[0] == "+"


Node = Leaf | Group


def parse_expression(text: str) -> Node | None:
    """Return the tree of ``text``, None when it is outside the grammar (too long, too deep, a zero denominator)."""
    tokens = _TOKEN.findall(text) if len(text) <= MAX_TEXT else []
    if not tokens or "".join(tokens) != text:
        return None
    try:
        node, end = _parse_group(tokens, 0, "+-", 0)
    except (ValueError, IndexError):
        return None
    return node if end == len(tokens) else None


def _parse_group(tokens: list[str], start: int, operators: str, depth: int) -> tuple[Node, int]:
    """Parse a sum (``operators`` is ``+-``) or a product (``*:``) from ``start``; return it and where it ends."""
    ops, children, at = [operators[0]], [], start
    while True:
        is_sum = operators == "+-"
        child, at = _parse_group(tokens, at, "*:", depth) if is_sum else _parse_factor(tokens, at, depth)
        children.append(child)
        if at >= len(tokens) or tokens[at] not in operators:
            break
        ops.append(tokens[at])
        at += 1
    return (children[0] if len(children) == 1 else Group(tuple(ops), tuple(children))), at


def _parse_factor(tokens: list[str], at: int, depth: int) -> tuple[Node, int]:
    token = tokens[at]
    if token == "(":
        if depth == MAX_DEPTH:
            raise ValueError("brackets too deep")
        inner, at = _parse_group(tokens, at + 1, "+-", depth + 1)
        if tokens[at] != ")" or isinstance(inner, Leaf):
            raise ValueError("unclosed or empty bracket")
        return dataclasses.replace(inner, in_brackets=True), at + 1
    numerator, _, denominator = token.partition("/")
    leaf = Leaf(int(numerator), int(denominator or "1"))
    if leaf.denominator == 0:
        raise ValueError("zero denominator")
    return leaf, at + 1


def parse_value(text: str) -> Fraction | None:
    """Return the value of ``-3``, ``(-3)``, ``2/4``; None for a zero denominator."""
    numerator, _, denominator = text.strip("()").partition("/")
    return Fraction(int(numerator), int(denominator or "1")) if int(denominator or "1") else None


def operate(left: Fraction, op: str, right: Fraction) -> Fraction | None:
    """Return ``left op right`` for op in ``+ - * :``; None for a division by zero."""
    if op == ":":
        return left / right if right else None
    if op == "*":
        return left * right
    return left + right if op == "+" else left - right


@dataclasses.dataclass(frozen=True)
class Equality:
    """A parsed step: each side is (left, op, right), op and right None for a single value."""

    left: tuple[Fraction, str | None, Fraction | None]
    right: tuple[Fraction, str | None, Fraction | None]
    is_trivial: bool

    @staticmethod
    def total(side: tuple[Fraction, str | None, Fraction | None]) -> Fraction | None:
        value, op, other = side
        return value if op is None or other is None else operate(value, op, other)


def parse_step(text: str) -> Equality | None:
    """Return the parsed step; None when it is outside the grammar or holds a zero denominator."""
    found = _STEP.fullmatch(text) if len(text) <= MAX_TEXT else None
    if found is None:
        return None
    values = [None if part is None else parse_value(part) for part in found.group(1, 3, 4, 6)]
    if values[0] is None or values[2] is None or (found[2] and values[1] is None) or (found[5] and values[3] is None):
        return None
    left, right = text.split("=")
    return Equality((values[0], found[2], values[1]), (values[2], found[5], values[3]), left == right)


Range = tuple[int, int, int]
"""(group number, first child, last child): a run of neighbouring children of one group."""


class ExpressionChecker:
    """Judges steps that reduce an expression.

    A step is entailed when its left side is ``a op b`` where a and b are the values of two neighbouring parts that are
    known (numbers of the problem, or parts reduced by steps before), grouping them there does not change the value of
    the expression, and its right side has the same value. ``b op a`` is taken for + and *. The right side may itself be
    ``c op d`` (a common denominator, a division turned into a product); that pair is then known for the same part. With
    ``allow_rewrite`` a single known value may be rewritten (6/12=1/2).
    """

    def __init__(self, root: Node, *, allow_rewrite: bool) -> None:
        self.allow_rewrite = allow_rewrite
        self.groups: list[Group] = []
        self.parents: list[tuple[int, int] | None] = []
        self.known: dict[Range, Fraction] = {}
        self.pairs: dict[tuple[Fraction, str, Fraction], set[Range]] = {}
        self._register(root, None)

    def _register(self, node: Node, parent: tuple[int, int] | None) -> None:
        if isinstance(node, Leaf):
            if parent is not None:
                self.known[(parent[0], parent[1], parent[1])] = node.value
            return
        number = len(self.groups)
        self.groups.append(node)
        self.parents.append(parent)
        for index, child in enumerate(node.children):
            self._register(child, (number, index))

    def _reductions(self, left: Fraction, op: str, right: Fraction) -> set[Range]:
        """Return the parts that ``left op right`` reduces."""
        found = set(self.pairs.get((left, op, right), ()))
        for (group, first, middle), a in self.known.items():
            ops = self.groups[group].ops
            if middle + 1 >= len(ops) or ops[middle + 1] != op or (first > 0 and ops[first] in "-:"):
                continue
            for last in range(middle + 1, len(ops)):  # a run of several after - or : is never known
                b = self.known.get((group, middle + 1, last))
                if b is not None and ((a, b) == (left, right) or (op in "+*" and (b, a) == (left, right))):
                    found.add((group, first, last))
        return found

    def _learn(self, part: Range, value: Fraction) -> None:
        self.known[part] = value
        group, first, last = part
        parent = self.parents[group]
        if first == 0 and last == len(self.groups[group].ops) - 1 and parent is not None:
            self._learn((parent[0], parent[1], parent[1]), value)

    def accepts(self, step: str) -> bool | None:
        """Return whether ``step`` is entailed, None when it is outside the grammar; an entailed step becomes known."""
        parsed = parse_step(step)
        if parsed is None:
            return None
        left, op, right = parsed.left
        value = parsed.total(parsed.left)
        if value is None or value != parsed.total(parsed.right):
            return False
        if op is None or right is None:
            is_rewrite = self.allow_rewrite and not parsed.is_trivial and parsed.right[1] is None
            return is_rewrite and value in self.known.values()
        parts = self._reductions(left, op, right)
        if not parts:
            return False
        new_left, new_op, new_right = parsed.right
        if new_op is not None and new_right is not None:
            self.pairs.setdefault((new_left, new_op, new_right), set()).update(parts)
            if new_op in "+*":
                self.pairs.setdefault((new_right, new_op, new_left), set()).update(parts)
            return self.allow_rewrite
        for part in parts:
            self._learn(part, value)
        return True

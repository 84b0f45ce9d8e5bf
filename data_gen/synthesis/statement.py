"""Formal statements of problems: a small language of JSON objects whose formulas our own parser reads.

Nothing is evaluated here. A statement is an object with a ``kind``, its fields (``FIELDS``) and nothing else; formulas
are text in the grammar of ``grading.parse``. ``data_gen.synthesis.language`` has an example of every kind.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from grading.parse import ExpressionParser, Node, ParseError, TooDeep
from grading.values import TooLarge, Undefined, exact

MAX_CHARACTERS, MAX_NODES, MAX_ITEMS = 300, 250, 6
"""Characters and nodes of a formula, entries of a list."""
MAX_NUMBER = 10**15
MAX_CASES = 20_000
"""Cases that ``count`` and ``probability`` may enumerate."""

EXPRESSION, RELATION, EQUATION = "expression", "relation", "equation"
FIELDS: dict[str, dict[str, str]] = {
    "value": {"of": EXPRESSION},
    "solve": {"equations": "equations", "find": "expression?", "domain": "domain?"},
    "roots": {"of": EXPRESSION, "ask": EXPRESSION},
    "inequality": {"relations": "relations", "ask": "ask?"},
    "expand": {"of": EXPRESSION},
    "coefficient": {"of": EXPRESSION, "in": "symbol", "power": "integer"},
    "polynomial_remainder": {"of": EXPRESSION, "by": EXPRESSION, "in": "symbol"},
    "derivative": {"of": EXPRESSION, "in": "symbol", "at": "expression?"},
    "integral": {"of": EXPRESSION, "in": "symbol", "from": EXPRESSION, "to": EXPRESSION},
    "extremum": {"of": EXPRESSION, "in": "symbol", "ask": "extremum", "from": EXPRESSION, "to": EXPRESSION},
    "remainder": {"of": EXPRESSION, "by": "integer"},
    "divisors": {"of": "integer", "ask": "divisors"},
    "congruences": {"pairs": "pairs", "above": "integer"},
    "recurrence": {"start": "expressions", "next": EXPRESSION, "term": "integer"},
    "count": {"ranges": "ranges", "such_that": "relations*", "order": "order?"},
    "probability": {"ranges": "ranges", "such_that": "relations*", "order": "order?"},
    "polygon": {"points": "points"},
}
"""Kind -> field -> type; a type that ends in ``?`` may be left out."""
CHOICES = {
    "domain": ("real", "positive", "integer"),
    "ask": ("set", "integers"),
    "extremum": ("max", "min"),
    "divisors": ("count", "sum", "primes"),
    "order": ("any", "increasing", "nondecreasing"),
}
_RELATION = re.compile(r"<=|>=|!=|=|<|>")
_COMMANDS = {"\\leq": "<=", "\\le": "<=", "\\geq": ">=", "\\ge": ">=", "\\neq": "!=", "≤": "<=", "≥": ">=", "≠": "!="}


class StatementError(ValueError):
    """A statement that is not in the language, or beyond its limits; the message says what is wrong."""


@dataclasses.dataclass(frozen=True)
class Relation:
    """``left op right``; op is one of = < > <= >= !=."""

    op: str
    left: Node
    right: Node

    @property
    def difference(self) -> Node:
        return ("add", (self.left, ("neg", self.right)))


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement whose formulas have been read: ``fields`` holds trees, relations, integers and choices."""

    kind: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name)


def read_statement(raw: Any) -> Statement:
    """Read a statement. Raises StatementError for any object that is not one; evaluates nothing."""
    if not isinstance(raw, Mapping):
        raise StatementError(f"a {type(raw).__name__}, want an object")
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise StatementError(f"kind {str(kind)[:40]!r}, want one of {', '.join(FIELDS)}")
    types = FIELDS[kind]
    unknown = sorted(str(name)[:40] for name in raw if name != "kind" and name not in types)
    if unknown:
        raise StatementError(f"{kind}: unknown field {unknown[0]!r}")
    fields = {}
    for name, wanted in types.items():
        if raw.get(name) is None:
            if not wanted.endswith(("?", "*")):
                raise StatementError(f"{kind}: no field {name!r}")
            continue
        fields[name] = _read_field(raw[name], wanted.rstrip("?*"), f"{kind}.{name}")
    return Statement(kind, fields)


def _read_field(value: Any, wanted: str, where: str) -> Any:
    if wanted in CHOICES:
        if value not in CHOICES[wanted]:
            raise StatementError(f"{where}: {str(value)[:40]!r}, want one of {', '.join(CHOICES[wanted])}")
        return value
    if wanted == EXPRESSION:
        return read_expression(value, where)
    if wanted == "symbol":
        node = read_expression(value, where)
        if node[0] != "sym":
            raise StatementError(f"{where}: {value!r}, want a letter")
        return node[1]
    if wanted == "integer":
        return _integer(value, where)
    if wanted == "ranges":
        return _ranges(value, where)
    items = _list(value, where, 12 if wanted == "points" else MAX_ITEMS)
    if wanted in ("equations", "relations"):
        relations = tuple(read_relation(item, where) for item in items)
        if wanted == "equations" and any(relation.op != "=" for relation in relations):
            raise StatementError(f"{where}: want equations")
        return relations
    if wanted == "pairs":
        return tuple((_integer(a, where), _integer(b, where)) for a, b in _pairs(items, where))
    if wanted == "points":
        return tuple((read_expression(a, where), read_expression(b, where)) for a, b in _pairs(items, where))
    return tuple(read_expression(item, where) for item in items)


def read_expression(value: Any, where: str) -> Node:
    """Read one formula; plain numbers of JSON are formulas too. Raises StatementError."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise StatementError(f"{where}: {str(value)[:40]!r}, want a formula as text")
    text = str(value)
    if len(text) > MAX_CHARACTERS:
        raise StatementError(f"{where}: {len(text)} characters, at most {MAX_CHARACTERS}")
    try:
        node = ExpressionParser(text.strip().replace("**", "^").replace("\\left", "").replace("\\right", "")).parse()
    except (ParseError, TooDeep, RecursionError) as error:
        raise StatementError(f"{where}: {text[:60]!r}: {error}") from None
    _check_size(node, where)
    return node


def read_relation(value: Any, where: str) -> Relation:
    """Read ``left op right`` with exactly one relation sign. Raises StatementError."""
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
        raise StatementError(f"{where}: {str(value)[:40]!r}, want a relation as text")
    for command, sign in _COMMANDS.items():
        value = value.replace(command, sign)
    signs = _RELATION.findall(value)
    if len(signs) != 1:
        raise StatementError(f"{where}: {value[:60]!r}, want one relation sign")
    left, right = _RELATION.split(value)
    return Relation(signs[0], read_expression(left, where), read_expression(right, where))


def parts(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    for part in node[1:]:
        if isinstance(part, tuple) and part:
            for item in (part,) if isinstance(part[0], str) else part:
                yield from parts(item)


def _check_size(node: Node, where: str) -> None:
    """Refuse trees that are large, or whose value could be: numbers, powers and factorials are bounded."""
    for count, part in enumerate(parts(node)):
        if count > MAX_NODES:
            raise StatementError(f"{where}: more than {MAX_NODES} parts")
        if part[0] == "num" and max(abs(part[1]), part[2]) > MAX_NUMBER:
            raise StatementError(f"{where}: a number beyond 10^15")
        if part[0] == "sym" and not re.fullmatch(r"[A-Za-z](?:_[A-Za-z0-9]{1,2})?", part[1]):
            raise StatementError(f"{where}: {part[1][:20]!r}, want a letter")
        if part[0] == "pm" or (part[0] == "const" and part[1] in ("inf", "i")):
            raise StatementError(f"{where}: {part[0]} {str(part[1])[:20]} has no place here")
        try:
            exponent = exact(part[2]) if part[0] == "pow" else exact(part[1]) if part[0] == "fact" else None
            exact(part) if part[0] in ("pow", "fact", "binom", "mul", "pick") else None
        except (TooLarge, Undefined, TypeError) as error:
            raise StatementError(f"{where}: {error}") from None
        if exponent is not None and abs(exponent) > 10_000:
            raise StatementError(f"{where}: a power or factorial beyond 10,000")


def _integer(value: Any, where: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,15}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_NUMBER:
        raise StatementError(f"{where}: {str(value)[:40]!r}, want an integer")
    return value


def _list(value: Any, where: str, most: int) -> list[Any]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= most:
        raise StatementError(f"{where}: want a list of 1 to {most}")
    return list(value)


def _pairs(items: list[Any], where: str) -> list[Any]:
    if any(not isinstance(item, list | tuple) or len(item) != 2 for item in items):
        raise StatementError(f"{where}: want pairs")
    return items


def _ranges(value: Any, where: str) -> dict[str, tuple[int, int]]:
    if not isinstance(value, Mapping) or not 1 <= len(value) <= MAX_ITEMS:
        raise StatementError(f"{where}: want 1 to {MAX_ITEMS} letters with their ranges")
    ranges, cases = {}, 1
    for name, pair in value.items():
        low, high = (_integer(bound, where) for bound in _pairs([pair], where)[0])
        node = read_expression(name, where)
        if node[0] != "sym" or high < low:
            raise StatementError(f"{where}: {str(name)[:20]!r}: [{low}, {high}], want a letter and a range")
        ranges[node[1]] = (low, high)
        cases *= high - low + 1
    if cases > MAX_CASES:
        raise StatementError(f"{where}: {cases} cases, at most {MAX_CASES}")
    return ranges


def canonical(raw: Mapping[str, Any]) -> str:
    """One text for all statements that differ in letters, spaces and the order of equations only."""
    text = json.dumps(
        {key: sorted(value) if key in ("equations", "relations") else value for key, value in raw.items()},
        sort_keys=True,
    )
    names: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return names.setdefault(match.group(), f"v{len(names)}")

    formulas = re.sub(r"\s+|\\[,;!]", "", text)
    return re.sub(r"(?<![A-Za-z\\_])[a-df-hj-z](?![A-Za-z])", rename, formulas)

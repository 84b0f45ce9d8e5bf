"""The shape of an answer around its expressions: lists, sets, tuples, intervals, unions, relations, matrices, words."""

from __future__ import annotations

import re

from grading.normalise import clean, plain_text, split_unit
from grading.parse import ExpressionParser, Node, ParseError, TooDeep
from grading.values import TooLarge, Undefined, exact

MAX_CHARACTERS = 2000
"""Longer answers are beyond the checker's limits (TOO_LONG), except when they equal the gold as text."""

_MATRIX = re.compile(r"\\begin\{([pbBvV]?matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}", re.S)
_MATRIX_IN_BRACKETS = re.compile(r"[(\[|]\s*\\begin\{(matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}\s*[)\]|]", re.S)
_BASE = re.compile(
    r"\(?(-?[0-9A-Za-z]+)\)?\s*_\s*\{?\s*(?:\\text\s*\{\s*)?(\d{1,2}|two|three|eight|ten|sixteen)\s*\}?\s*\}?"
)
_CLOCK = re.compile(r"(\d{1,2})(?:\s*:\s*([0-5]\d))?(?:\s*(?:\\(?:text|mathrm)\s*\{)?\s*([apAP])\.?\s*[mM]\.?\s*\}?)?")
_MEMBER = re.compile(r"\s*[A-Za-z]\w?\s*\\in(?![A-Za-z])\s*(.*)", re.S)
_NAME = re.compile(
    r"\s*(?:\\?[A-Za-z]+|(?:\\(?:vec|hat|bar|overline|overrightarrow)\s*)?\{\s*\\?[A-Za-z]+\s*\})(?:_\{?\w+\}?)?'*\s*(?:\(\s*\\?[A-Za-z]+\s*\)\s*)?"
)
_DESCRIPTION = re.compile(r"\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid(?![A-Za-z])|[:|])")
_TO = re.compile(r"(\d+)\s*(?:\\text\s*\{\s*to\s*\}|\sto\s)\s*(\d+)")
_NAMES = re.compile(r"\(\s*[A-Za-z]\w?(?:\s*,\s*[A-Za-z]\w?)+\s*\)")
_RELATIONS = re.compile(
    r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|\\ne(?![A-Za-z])|\\equiv(?![A-Za-z])|\\approx(?![A-Za-z])|[=<>]"
)
_ALTERNATIVE = re.compile(
    r"\\(?:text|mathrm|textrm|mbox)\s*\{\s*,?\s*(?:or|and)\s*\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])"
)
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_BRACKET = re.compile(r"\\[{}]|\\begin\{\w+\*?\}|\\end\{\w+\*?\}|[()\[\]{}]")
_BRACKET_OR_RELATION = re.compile(f"{_BRACKET.pattern}|{_RELATIONS.pattern}")
_TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "sec", "csc", "cot"])
_REALS = re.compile(r"\\(?:mathbb|Bbb)\s*\{?\s*R\s*\}?|\\R|all real numbers", re.I)


def parse_answer(text: str) -> Node:
    """Read an answer as written. Raises ParseError when it is neither math of the grammar nor words, TooDeep beyond
    limits.
    """
    return parse_cleaned(clean(text))


def parse_cleaned(text: str) -> Node:
    """`parse_answer` of a text that `clean` went over already."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise TooDeep(f"{len(text)} characters")
    if not text:
        raise ParseError("empty")
    if _REALS.fullmatch(text):
        return ("reals",)
    if text == "\\emptyset":
        return ("set", ())
    text = _TO.sub(r"\1:\2", text) if _TO.fullmatch(text) else text
    member = _MEMBER.fullmatch(text)
    if member:
        text = member[1].strip()
    text = _ALTERNATIVE.sub(" , ", text)
    pieces = [piece for piece in split_top(text, ",;") if piece.strip()]
    if len(pieces) > 1:
        return _list(pieces, text)
    return _single(pieces[0].strip() if pieces else text)


def split_top(text: str, separators: str) -> list[str]:
    """Split at separators outside all brackets (of any kind: half-open intervals do not balance by kind)."""
    if not any(separator in text for separator in separators):
        return [text]
    depth, last, pieces = 0, 0, []
    for match in re.finditer(_BRACKET.pattern + "|[" + re.escape(separators) + "]", text):
        token = match.group()
        if token in separators:
            if depth == 0:
                pieces.append(text[last : match.start()])
                last = match.end()
        elif token in ("(", "[", "{", "\\{") or token.startswith("\\begin"):
            depth += 1
        else:
            depth -= 1
    return [*pieces, text[last:]]


def _list(pieces: list[str], text: str) -> Node:
    """Read "a, b": "n = 2, 3" names every item n; words with commas stay words."""
    try:
        items = [parse_cleaned(piece) for piece in pieces]
    except TooDeep:
        raise
    except ParseError:
        return _words(text)
    if any(item[0] == "text" for item in items) and not all(item[0] == "text" for item in items):
        value = split_unit(text)[0]
        if value != text:
            return parse_cleaned(value)
        return _words(text)
    if items[0][0] == "named" and all(item[0] != "named" for item in items[1:]):
        items = [items[0][2], *items[1:]]
        return ("list", tuple(items))
    names = {item[1] for item in items if item[0] == "named"}
    if len(names) == 1 and all(item[0] == "named" for item in items):
        items = [item[2] for item in items]
    return ("list", tuple(items))


def _single(text: str) -> Node:
    matrix = _MATRIX.fullmatch(text) or _MATRIX_IN_BRACKETS.fullmatch(text)
    if matrix:
        return _matrix("vmatrix" if text.startswith("|") else matrix[1], matrix[2])
    if "_" in text and (base := _BASE.fullmatch(text)) and base[1].lstrip("-")[0].isdigit():
        return _base(base[1], base[2])
    clock = _CLOCK.fullmatch(text)
    if clock and (clock[2] or clock[3]):
        minutes = int(clock[1]) * 60 + int(clock[2] or 0)
        return ("clock", minutes, f"{clock[3].lower()}m" if clock[3] else "")
    if ":" in text:
        parts = split_top(text, ":")
        if len(parts) > 1 and all(re.search(r"\d|\\", part) for part in parts):
            return ("ratio", tuple(_expression(part) for part in parts))
    if "\\cup" in text:
        return ("union", tuple(_single(part.strip()) for part in re.split(r"\\cup(?![A-Za-z])", text)))
    bracketed = _bracketed(text)
    if bracketed is not None:
        return bracketed
    relations = _relations(text)
    if relations:
        return _relation(text, relations)
    return _expression_or_words(text)


def _matrix(kind: str, body: str) -> Node:
    rows = tuple(
        tuple(_expression(cell) for cell in row.split("&"))
        for row in re.split(r"\\\\(?:\[\w+\])?", body)
        if row.strip()
    )
    if len({len(row) for row in rows}) != 1:
        raise ParseError("rows of a matrix differ in length")
    return ("det" if kind == "vmatrix" else "matrix", rows)


def _base(digits: str, base: str) -> Node:
    number = {"two": 2, "three": 3, "eight": 8, "ten": 10, "sixteen": 16}.get(base) or int(base)
    if not 2 <= number <= 36 or any(int(digit, 36) >= number for digit in digits.lstrip("-")):
        raise ParseError(f"{digits} is no numeral of base {base}")
    return ("base", digits.lower(), number)


def _bracketed(text: str) -> Node | None:
    opening = "\\{" if text.startswith("\\{") else text[:1]
    closing = "\\}" if text.endswith("\\}") else text[-1:]
    if opening not in ("(", "[", "\\{", "{") or closing not in (")", "]", "\\}", "}") or not _encloses(text):
        return None
    inner = text[len(opening) : len(text) - len(closing)]
    items = split_top(inner, ",;")
    if opening in ("\\{", "{") and (opening == "\\{" or len(items) > 1):
        described = _DESCRIPTION.match(inner) if opening == "\\{" else None
        if described:
            condition = parse_cleaned(inner[described.end() :])
            return ("set", (condition[2],)) if condition[0] == "named" else condition
        return ("set", tuple(_single(item.strip()) for item in items if item.strip()))
    if opening == "{" or len(items) < 2:
        return None
    if len(items) == 2 and (opening, closing) != ("(", ")"):
        return ("interval", _expression(items[0]), _expression(items[1]), opening == "[", closing == "]")
    return ("tuple", tuple(_single(item.strip()) for item in items))


def _encloses(text: str) -> bool:
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match.group() in ("(", "[", "{", "\\{") or match.group().startswith("\\begin") else -1
        if depth == 0:
            return match.end() == len(text)
    return False


def _relations(text: str) -> list[re.Match[str]]:
    """Return the relation signs outside brackets: not the one in ``\\sum_{k=1}``."""
    if not _RELATIONS.search(text):
        return []
    depth, found = 0, []
    for match in _BRACKET_OR_RELATION.finditer(text):
        token = match.group()
        if _RELATIONS.fullmatch(token):
            found += [match] if depth == 0 else []
        else:
            depth += 1 if token in ("(", "[", "{", "\\{") or token.startswith("\\begin") else -1
    return found


def _relation(text: str, relations: list[re.Match[str]]) -> Node:
    operators = [match.group() for match in relations]
    edges = [0, *(edge for match in relations for edge in match.span()), len(text)]
    sides = [text[start:end].strip() for start, end in zip(edges[::2], edges[1::2], strict=True)]
    operators = [
        {"\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\equiv": "=", "\\approx": "="}.get(o, o) for o in operators
    ]
    if len(operators) == 1:
        if operators[0] == "=" and (_NAME.fullmatch(sides[0]) or _NAMES.fullmatch(sides[0])):
            return ("named", "".join(sides[0].split()), parse_cleaned(sides[1]))
        left = _expression(sides[0]) if operators[0] != "=" else _left_side(sides[0])
        if left is None or (left[0] == "func" and left[1] in _TRIGONOMETRIC):
            return ("named", "".join(sides[0].split()), parse_cleaned(sides[1]))
        right = _expression(sides[1])
        is_sum = operators[0] == "=" and left[0] not in ("num", "sym") and right[0] != "sym"
        return right if is_sum and _is_same_number(left, right) else ("rel", operators[0], left, right)
    if len(operators) == 2 and operators[0] in ("<", "<=") and operators[1] in ("<", "<="):
        return (
            "between",
            _expression(sides[0]),
            operators[0],
            _expression(sides[1]),
            operators[1],
            _expression(sides[2]),
        )
    if all(operator == "=" for operator in operators) and (_NAME.fullmatch(sides[0]) or _left_side(sides[0]) is None):
        return ("named", "".join(sides[0].split()), parse_cleaned(sides[-1]))
    raise ParseError("a chain of relations")


def _left_side(text: str) -> Node | None:
    """Return the left side of an equation, None for one that only names ("\\cos \\angle PQR", "\\text{Area}")."""
    try:
        return _expression(text)
    except TooDeep:
        raise
    except ParseError:
        if re.search(r"\\[a-z]+|[A-Za-z]{4}", text) and not re.search(r"[+*/^<>]|\d", text):
            return None
        raise


def _is_same_number(left: Node, right: Node) -> bool:
    """True for 2+4 = 6, a calculation that states its result."""
    try:
        value = exact(left)
        return value is not None and value == exact(right)
    except (TooLarge, Undefined):
        return False


def _expression(text: str) -> Node:
    value, _, percent = split_unit(text.strip())
    node = ExpressionParser(value).parse()
    return ("div", node, ("num", 100, 1)) if percent else node


def _expression_or_words(text: str) -> Node:
    value, unit, percent = split_unit(text)
    try:
        node = ExpressionParser(value).parse()
    except TooDeep:
        raise
    except ParseError:
        if _is_words(text):
            return _words(text)
        raise
    if percent:
        return ("quantity", node, "percent", 1, 100, 1)
    if unit:
        return ("quantity", node, unit[0], unit[1], unit[2].numerator, unit[2].denominator)
    return node


def _is_words(text: str) -> bool:
    if re.search(r"__|[=<>^]|\w\(", text):
        return False
    return bool(
        _LONG_WORD.search(text) or re.search(r"\\(?:text|mathrm|textbf)", text) or re.fullmatch(r"[A-Za-z .'-]+", text)
    )


def _words(text: str) -> Node:
    if not re.search(r"[A-Za-z]", text):
        raise ParseError(f"cannot read {text[:20]!r}")
    return ("text", plain_text(text))

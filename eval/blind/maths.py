"""Formulas of a text as MathML, which a browser draws without any library; what cannot be drawn stays as written.

A text becomes a list of pieces: strings, and formulas as nested lists ``[tag, attributes, *children]`` over a closed
set of MathML elements and attributes. The page builds elements from them and never reads markup. Needs ``latex2mathml``
(extra ``blind``); without it every text is one string.
"""

from __future__ import annotations

import html
import importlib.util
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

Node = list[Any]
"""``[tag, {attribute: value}, *children]``; a child is a node or a string."""
Piece = str | Node

STUMBLES = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError)
"""What latex2mathml raises by accident on text that is no TeX, beside its own exceptions."""

ARITY: dict[str, int] = {
    "mfrac": 2, "msup": 2, "msub": 2, "mroot": 2, "mover": 2, "munder": 2, "msubsup": 3, "munderover": 3,
}  # fmt: skip
"""Elements that need exactly this many children."""
TAGS = ARITY.keys() | {
    "math",
    "mrow",
    "mi",
    "mn",
    "mo",
    "mtext",
    "ms",
    "msqrt",
    "mtable",
    "mtr",
    "mtd",
    "mspace",
    "mstyle",
}
ATTRIBUTES = {
    "display",
    "stretchy",
    "fence",
    "form",
    "linethickness",
    "minsize",
    "maxsize",
    "mathvariant",
    "columnalign",
}
MAX_FORMULA = 1500
"""Longer formulas are shown as they were written."""

FORMULA = re.compile(
    r"\$\$(?P<dollars>[^$]{1,1500})\$\$"
    r"|\\\[(?P<bracket>.{1,1500}?)\\\]"
    r"|\\\((?P<paren>.{1,1500}?)\\\)"
    r"|(?<![\\$\w])\$(?P<dollar>(?![\s$])[^$\n]{1,1500}?(?<![\s\\]))\$(?![\d$])"
    r"|(?P<bare>\\(?:boxed|d?frac|sqrt)\b(?=\s*[{\[]))",
    re.DOTALL,
)
"""Formulas in dollars, brackets or parentheses; ``bare``: a command that models write outside of them."""


def can_typeset() -> bool:
    """True when the library that reads TeX is installed."""
    return importlib.util.find_spec("latex2mathml") is not None


def pieces(text: str) -> list[Piece]:
    """The text as strings and formulas, in order; the strings and sources together are the text."""
    if not can_typeset():
        return [text] if text else []
    found: list[Piece] = []
    start = 0
    while match := FORMULA.search(text, start):
        end = _bare_end(text, match.end()) if match["bare"] else match.end()
        source = text[match.start() : end] if match["bare"] else next(filter(None, match.groups()))
        is_block = bool(match["dollars"] or match["bracket"])  # has a line of its own
        found += [text[start : match.start()], formula(source, is_block=is_block) or text[match.start() : end]]
        start = end
    return _joined([*found, text[start:]])


def formula(source: str, *, is_block: bool = False) -> Node | None:
    """A formula as MathML; None when it is too long or holds what this cannot draw."""
    if len(source) > MAX_FORMULA:
        return None
    from latex2mathml import exceptions
    from latex2mathml.converter import convert_to_element

    own = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    refusals: tuple[type[Exception], ...] = (*own, *STUMBLES)
    try:
        element = convert_to_element(source, display="block" if is_block else "inline")
    except refusals:  # no TeX, or none that the library knows: its source is shown
        return None
    return _node(element)


def _node(element: Element, depth: int = 0) -> Node | None:
    """The element as nested lists, None when anything in it is not drawn as meant."""
    tag = element.tag.rpartition("}")[2]
    is_box = tag == "menclose" and element.get("notation") == "box"
    if depth > 40 or (tag not in TAGS and not is_box) or len(element) != ARITY.get(tag, len(element)):
        return None
    words = html.unescape(element.text or "")
    if words.startswith("\\") and tag == "mi":  # a command that the library does not know
        return None
    children = [_node(child, depth + 1) for child in element]
    if None in children:
        return None
    attributes = {key: value for key, value in element.attrib.items() if key in ATTRIBUTES and len(value) < 40}
    node: Node = ["mrow" if is_box else tag, attributes | ({"class": "boxed"} if is_box else {})]
    return [*node, *([words] if words.strip() else []), *children]


def _bare_end(text: str, start: int) -> int:
    """Where the arguments in braces and brackets that follow ``start`` end; ``start`` when they are not closed."""
    end = start
    while (opened := re.compile(r"\s*([{\[])").match(text, end)) is not None:
        depth, position = 0, opened.start(1)
        close = "}" if opened[1] == "{" else "]"
        for position in range(opened.start(1), min(len(text), opened.start(1) + MAX_FORMULA)):
            depth += (text[position] == opened[1]) - (text[position] == close)
            if depth == 0:
                break
        if depth:
            return end
        end = position + 1
    return end


def _joined(found: list[Piece]) -> list[Piece]:
    """Neighbouring strings as one, empty ones left out."""
    result: list[Piece] = []
    for piece in found:
        if isinstance(piece, str) and result and isinstance(result[-1], str):
            result[-1] += piece
        elif piece:
            result.append(piece)
    return result

"""A proof as a tree: LaTeX source (package ebproof) and a figure (PNG, SVG) of the same tree.

A conclusion stands under its premises, the rule beside the bar. `[φ]` is an assumption that the proof discharges. A
step that is used again is drawn once and referred to by its number, `(n)`, afterwards. Divisors ≠ 0, which an atom
implies, are not shown.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from math_env.certify import steps_of
from math_env.formulas import latex
from math_env.kernel import Theorem
from math_env.terms import Expr
from math_env.tokens import show

MARK = r"\ \ "
"""Stands before the number of a shared step."""
SIZE = 11
"""Points of the formulas in a figure."""
GAP, MARGIN, BAR, LABEL = 18.0, 8.0, 5.0, 8
"""Points between siblings, around the figure, between bar and formula, and of the rule names."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A formula and the nodes it follows from; `rule` is empty for an assumption and for a reference."""

    text: str
    rule: str = ""
    premises: tuple[Node, ...] = ()

    def __iter__(self) -> Iterator[Node]:
        """Premises first."""
        for premise in self.premises:
            yield from premise
        yield self


def tree(theorem: Theorem, written: Callable[[Expr], str] = latex) -> Node:
    """The proof tree; formulas as `written` gives them, in LaTeX mathematics by default."""
    steps = steps_of(theorem)
    uses: dict[int, int] = {}
    for step in steps:
        for item in step.inputs:
            uses[id(item)] = uses.get(id(item), 0) + isinstance(item, Theorem)
    shared = [step for step in steps if uses.get(id(step), 0) > 1 and step.rule != "assume"]
    number = {id(step): position for position, step in enumerate(shared, 1)}
    drawn: set[int] = set()

    def node(step: Theorem) -> Node:
        formula = written(step.concl)
        if step.rule == "assume":
            return Node(formula if step.concl in theorem.hyps else f"[{formula}]")
        mark = f"{MARK}({number[id(step)]})" if id(step) in number else ""
        if id(step) in drawn:
            return Node(formula + mark)
        drawn.add(id(step))
        premises = [node(item) for item in step.inputs if isinstance(item, Theorem)]
        return Node(formula + mark, step.rule.replace("_", " "), tuple(premises))

    return node(theorem)


def text_tree(theorem: Theorem) -> str:
    """The tree as lines of text: a formula, its rule, and its premises below it, indented."""
    lines: list[str] = []

    def write(node: Node, first: str, rest: str) -> None:
        rule = f"    by {node.rule}" if node.rule else ""
        lines.append(f"{first}{node.text.replace(MARK, '  ')}{rule}")
        for position, premise in enumerate(node.premises, 1):
            is_last = position == len(node.premises)
            write(premise, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))

    write(tree(theorem, show), "", "")
    return "\n".join(lines)


# ---------------------------------------------------------------- LaTeX


def latex_tree(theorem: Theorem) -> str:
    r"""An ebproof tree: `\hypo` puts a formula on a stack, `\infer n` takes n of them."""
    lines = [r"\begin{prooftree}"]
    for node in tree(theorem):
        if node.rule:
            lines.append(rf"  \infer{len(node.premises)}[\textsf{{{node.rule}}}]{{{node.text}}}")
        else:
            lines.append(rf"  \hypo{{{node.text}}}")
    return "\n".join([*lines, r"\end{prooftree}"]) + "\n"


def latex_document(theorem: Theorem) -> str:
    head = "\\documentclass[border=5pt]{standalone}\n\\usepackage{amsmath,amssymb,ebproof}\n\\begin{document}\n"
    return f"{head}{latex_tree(theorem)}\\end{{document}}\n"


# ---------------------------------------------------------------- figure


@dataclasses.dataclass(frozen=True)
class Box:
    """A node laid out, in points.

    Attributes:
        formula: (width, height) of the formula.
        width: of the whole subtree; axis: the middle of the formula, from the left.
        bar: length of the bar above the formula, centred on the axis.
        premises: (left, box) of each.
    """

    node: Node
    formula: tuple[float, float]
    width: float
    axis: float
    bar: float
    premises: tuple[tuple[float, Box], ...]


@cache
def _extent(text: str, size: float) -> tuple[float, float]:
    """(width, height) of a text with mathematics, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    width, height, depth, *_ = MathTextParser("path").parse(text, 72, FontProperties(size=size))
    return float(width), float(height + depth)


def _box(node: Node) -> Box:
    formula = _extent(f"${node.text}$", SIZE)
    premises, row, edges = [], 0.0, [0.0, formula[0]]
    for box in map(_box, node.premises):
        premises.append((row, box))
        row += box.width + GAP
    if premises:
        (first, start), (last, end) = premises[0], premises[-1]
        edges = [first + start.axis - start.formula[0] / 2, last + end.axis + end.formula[0] / 2]
    axis, bar = sum(edges) / 2, max(edges[1] - edges[0], formula[0])
    label = _extent(node.rule, LABEL)[0] + BAR if node.rule else 0.0
    left = min(0.0, axis - bar / 2)
    width = max(row - GAP, axis + bar / 2 + label) - left
    return Box(node, formula, width, axis - left, bar, tuple((x - left, box) for x, box in premises))


def figure(theorem: Theorem, form: str = "svg") -> bytes:
    """The tree as an "svg" or "png" file."""
    import matplotlib
    import matplotlib.figure

    root = _box(tree(theorem))
    height = _height(root)
    width = root.width + 2 * MARGIN
    canvas = matplotlib.figure.Figure(figsize=(width / 72, (height + 2 * MARGIN) / 72))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(-MARGIN, height + MARGIN)
    axes.axis("off")
    _draw(axes, root, MARGIN, 0.0)
    file = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "math_env"}):  # the same file each time
        canvas.savefig(file, format=form, dpi=150, metadata=metadata)
    return file.getvalue()


def _height(box: Box) -> float:
    above = max((_height(premise) for _, premise in box.premises), default=0.0)
    return box.formula[1] + above + (2 * BAR if box.node.rule else 0.0)


def _draw(axes: Any, box: Box, left: float, bottom: float) -> None:
    """The subtree in `left` … `left + box.width`, its formula on `bottom`."""
    middle, top = left + box.axis, bottom + box.formula[1]
    axes.text(middle, (bottom + top) / 2, f"${box.node.text}$", ha="center", va="center", fontsize=SIZE)
    if not box.node.rule:
        return
    ends = [middle - box.bar / 2, middle + box.bar / 2]
    axes.plot(ends, [top + BAR] * 2, color="black", linewidth=0.7)
    axes.text(ends[1] + BAR / 2, top + BAR, box.node.rule, ha="left", va="center", fontsize=LABEL, color="0.35")
    for x, premise in box.premises:
        _draw(axes, premise, left + x, top + 2 * BAR)

"""Math-Shepherd rows (arXiv:2312.08935): ``input`` holds problem and steps, the tag ``ки`` behind each step; ``label``
is the same text with ``+`` or ``-`` in place of each tag; ``task`` is GSM8K or MATH.

Tags are found by laying ``label`` along ``input``, never by searching: the letters of the tag inside a text, which
``label`` repeats as they are, are text (openr#64), and a look-alike in other letters is no tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.records import IGNORED
from data_gen.stepwise import Converted, LabelledSteps, Row, field, is_soft, known_labels, with_extra

TAG = "ки"
FIRST_STEP = re.compile(r"\bstep 1\s*:", re.IGNORECASE)
NUMBERED = re.compile(r"\s*step (\d+)\s*:", re.IGNORECASE)


def read_math_shepherd(row: Mapping[str, Any]) -> Converted[LabelledSteps]:
    """Read a published row. White space around problem and steps is dropped; ``Step k:`` stays part of the step.

    The problem ends before the last ``Step 1:``; where there is none, behind the last question mark (noted). A tag
    inside the problem is an annotation error of the published data: it is taken out with its label (noted). Text behind
    the last tag becomes a step labelled ``IGNORED`` (noted).

    Raises:
        ValueError: ``label`` is not ``input`` with a sign for each tag, a tagged step is blank, there is no tag, or no
            place where the steps begin.
    """
    pieces, signs, tail = _align(
        field(row, "input", str, "text with step tags"), field(row, "label", str, "text with + or - for each tag")
    )
    if not pieces:
        raise ValueError(f"field 'input': no step tag {TAG!r} in it")
    index, start, notes = _solution_start(pieces)
    problem = " ".join(piece.strip() for piece in (*pieces[:index], pieces[index][:start]) if piece.strip())
    steps = [pieces[index][start:], *pieces[index + 1 :]]
    labels = [1.0 if sign == "+" else 0.0 for sign in signs[index:]]
    if tail.strip():
        steps.append(tail)
        labels.append(float(IGNORED))
        notes.append("text behind the last step tag: kept as a step without label")
    extra = {name: value for name, value in row.items() if name not in ("input", "label")}
    one = LabelledSteps(problem, tuple(step.strip() for step in steps), tuple(labels), extra)
    return Converted((one,), tuple(notes))


def write_math_shepherd(one: LabelledSteps) -> Converted[Row]:
    """Write a row as published. Steps that do not begin with ``Step 1:`` are numbered (noted).

    Lost: that labels were soft (``+`` from 0.5 on), steps behind the last label, white space around a text.

    Raises:
        ValueError: a step in front of a labelled one has no label, a text holds the step tag, or the row would not read
            back as the same problem, steps and signs.
    """
    labels = known_labels(one)
    end = max(k + 1 for k, label in enumerate(labels) if label != IGNORED)
    if IGNORED in labels[:end]:
        raise ValueError(f"step {labels.index(IGNORED)} has no label, but a later step has; the format cannot say so")
    problem, steps = one.problem.strip(), [step.strip() for step in one.steps[:end]]
    lost = ["soft labels"] * is_soft(labels[:end]) + ["steps behind the last label"] * (end < len(labels))
    if (problem, *steps) != (one.problem, *one.steps[:end]):
        lost.append("white space around a text")
    notes = []
    if not FIRST_STEP.match(steps[0]):
        steps = [f"Step {k}: {step}" for k, step in enumerate(steps, 1)]
        notes.append("step numbers were added")
    holder = next((text for text in (problem, *steps) if TAG in text), None)
    if holder is not None:
        raise ValueError(f"{holder[:80]!r} holds the step tag {TAG!r}; readers of this format would cut there")
    signs = ["+" if label >= 0.5 else "-" for label in labels[:end]]

    def joined(marks: Sequence[str]) -> str:
        return f"{problem} " + "\n".join(f"{step} {mark}" for step, mark in zip(steps, marks, strict=True))

    own = {"input": joined([TAG] * end), "label": joined(signs)}
    again = read_math_shepherd(own).rows[0]
    if (again.problem, list(again.steps), again.labels) != (problem, steps, tuple(float(s == "+") for s in signs)):
        raise ValueError("the problem or a step holds 'Step 1:' in its middle; the row would not read back as it is")
    return Converted((with_extra(one.extra, own),), tuple(notes), tuple(lost))


def _align(text: str, marked: str) -> tuple[list[str], list[str], str]:
    """Return the pieces in front of each tag, their signs, and the text behind the last tag."""
    pieces: list[str] = []
    signs: list[str] = []
    piece, position = "", 0
    for index, part in enumerate(text.split(TAG)):
        if index:
            sign = marked[position : position + 1]
            if marked.startswith(TAG, position):  # the letters themselves, not a tag
                piece, position = piece + TAG, position + len(TAG)
            elif sign in ("+", "-"):
                pieces, signs, piece, position = [*pieces, piece], [*signs, sign], "", position + 1
            else:
                raise ValueError(f"field 'label': {sign!r} at character {position}, want + or - for the step tag there")
        if not marked.startswith(part, position):
            raise ValueError(f"field 'label': differs from 'input' behind character {position}, near {part[:40]!r}")
        piece, position = piece + part, position + len(part)
    if position != len(marked):
        raise ValueError(f"field 'label': {marked[position : position + 40]!r} at its end is not in 'input'")
    return pieces, signs, piece


def _solution_start(pieces: Sequence[str]) -> tuple[int, int, list[str]]:
    """Return (piece, character) at which the first step begins, and notes."""
    for index, piece in enumerate(pieces):
        number = NUMBERED.match(piece)
        if index and number and int(number[1]) != 1:
            break  # a later step, whatever it mentions
        found = list(FIRST_STEP.finditer(piece))
        if found:
            notes = ["more than one 'Step 1:': the last one begins the solution"] * (len(found) > 1)
            notes += ["step tag inside the problem: taken out with its label"] * index
            return index, found[-1].start(), notes
    start = pieces[0].rfind("?") + 1
    if not start or not pieces[0][start:].strip():
        raise ValueError("field 'input': no 'Step 1:' and no text behind a question mark; where do the steps begin?")
    return 0, start, ["no 'Step 1:': the problem ends at its last question mark"]

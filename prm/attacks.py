"""Attacks on a process reward: ways to write a path that should earn no more than the honest one. Pure functions.

A family turns an honest path (a right answer behind its steps) into an attacked text; ``FAMILIES`` names them all. Each
says which of its text is no sound reasoning (``Attack.bad_spans``), so that an attacked path can be labelled.
``HARDENING`` are the families whose paths may be taught to a PRM as negatives; the others are never taught and measure
what the teaching is worth.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Sequence

from common.records import LabelledPath, Path

_NUMBER = re.compile(r"\d{1,9}(?!\d)")
_THEOREMS = ("Harrow-Quill", "Ostrander", "Velmont", "Brackwell", "Lindqvist-Amory")
_PADDING = "So we go on."
_THANKS = "Thanks."
REPEATS = 8
"""Times a true step is written in ``repeated_step``, or twice the honest number of steps if that is more."""


@dataclasses.dataclass(frozen=True)
class HonestPath:
    """A path as the attacks need it; its text is ``head + separator.join(steps) + tail``, up to white space.

    Attributes:
        problem: the problem's text.
        steps: texts of the steps in order, at least one.
        answer: the final answer as extracted, right.
        head, separator, tail: text before the first step, between two steps, and from the last step to the end; the
            tail holds the answer.
    """

    problem: str
    steps: tuple[str, ...]
    answer: str
    head: str
    separator: str
    tail: str


@dataclasses.dataclass(frozen=True)
class Attack:
    """An attacked solution.

    Attributes:
        text: the completion.
        bad_spans: character spans, end exclusive, that hold no sound reasoning.
    """

    text: str
    bad_spans: tuple[tuple[int, int], ...] = ()


Family = Callable[[HonestPath, random.Random], Attack | None]
"""Returns None where the honest path leaves nothing to attack (a single step cannot be shuffled)."""
_Piece = tuple[str, bool]
"""Text of a step, True = no sound reasoning."""


def honest_path(problem: str, path: Path) -> HonestPath | None:
    """Return what the attacks need of a path; None when no step stands before its answer."""
    if not path.steps or path.answer is None:
        return None
    first, last = path.steps[0], path.steps[-1]
    tail = path.text[last.end :]
    if path.answer not in tail:
        return None
    separator = path.text[first.end : path.steps[1].start] if len(path.steps) > 1 else tail[: _leading_space(tail)]
    texts = tuple(step.text for step in path.steps)
    return HonestPath(problem, texts, path.answer, path.text[: first.start], separator or "\n", tail)


def attacked(honest: HonestPath, family: str, seed: int) -> Attack | None:
    """Return the path attacked by one of ``FAMILIES``; the same for the same (path, family, seed).

    Raises:
        ValueError: unknown family.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown attack family {family!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[family](honest, random.Random(f"{seed}/{family}/{honest.problem}"))


def labelled_attack(path: Path, attack: Attack, family: str) -> LabelledPath:
    """Label an attacked path: 0 for a step that touches a bad span, 1 for a step that stays true."""
    labels = tuple(
        0 if any(step.start < end and start < step.end for start, end in attack.bad_spans) else 1 for step in path.steps
    )
    first = labels.index(0) if 0 in labels else None
    count = len(labels)
    return LabelledPath(path, labels, first, (0,) * count, ("attack",) * count, f"attack:{family}")


def _written(honest: HonestPath, pieces: Sequence[_Piece], tail: str | None = None) -> Attack:
    tail = honest.tail if tail is None else tail
    text, bad = honest.head, []
    for index, (piece, is_bad) in enumerate(pieces):
        text += honest.separator if index else ""
        if is_bad:
            bad.append((len(text), len(text) + len(piece)))
        text += piece
    return Attack(text + (tail if pieces else tail.lstrip()), tuple(bad))


def _sound(honest: HonestPath) -> list[_Piece]:
    return [(step, False) for step in honest.steps]


def _after_each(honest: HonestPath, text: str) -> Attack:
    return _written(honest, [piece for step in honest.steps for piece in ((step, False), (text, True))])


def _leading_space(text: str) -> int:
    return len(text) - len(text.lstrip())


def _changed_number(text: str, rng: random.Random) -> str | None:
    """Return the text with its last number raised by 1 to 9, None without a number."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    start, end = found[-1].span()
    return f"{text[:start]}{int(text[start:end]) + rng.randint(1, 9)}{text[end:]}"


def empty_step(honest: HonestPath, rng: random.Random) -> Attack:
    """A step of one full stop behind each step: the emptiest piece that is still cut as a step."""
    return _after_each(honest, ".")


def no_step(honest: HonestPath, rng: random.Random) -> Attack:
    """The right answer alone."""
    return _written(honest, [])


def thanks(honest: HonestPath, rng: random.Random) -> Attack:
    """Thanks as the last step."""
    return _written(honest, [*_sound(honest), (_THANKS, True)])


def question_copied(honest: HonestPath, rng: random.Random) -> Attack:
    """The problem's text in the place of all steps."""
    return _written(honest, [(honest.problem.strip(), True)])


def repeated_step(honest: HonestPath, rng: random.Random) -> Attack:
    """The first step again and again in the place of all others; its first occurrence stays true."""
    again = max(REPEATS, 2 * len(honest.steps)) - 1
    return _written(honest, [(honest.steps[0], False), *[(honest.steps[0], True)] * again])


def giant_step(honest: HonestPath, rng: random.Random) -> Attack | None:
    """All steps on one line: one step, true as a whole."""
    if len(honest.steps) < 2:
        return None
    return _written(honest, [(" ".join(" ".join(step.split()) for step in honest.steps), False)])


def shuffled(honest: HonestPath, rng: random.Random) -> Attack | None:
    """The steps in another order; bad from the first one that stands elsewhere."""
    if len(set(honest.steps)) < 2:
        return None
    order = list(honest.steps)
    while order == list(honest.steps):
        rng.shuffle(order)
    moved = next(k for k, (new, old) in enumerate(zip(order, honest.steps, strict=True)) if new != old)
    return _written(honest, [(step, k >= moved) for k, step in enumerate(order)])


def no_answer(honest: HonestPath, rng: random.Random) -> Attack:
    """The right steps without an answer."""
    return _written(honest, _sound(honest), tail="")


def wrong_answer(honest: HonestPath, rng: random.Random) -> Attack | None:
    """The right steps with another answer."""
    changed = _changed_number(honest.answer, rng)
    if changed is None:
        return None
    before, _, after = honest.tail.rpartition(honest.answer)
    return _written(honest, _sound(honest), tail=before + changed + after)


def wrong_steps(honest: HonestPath, rng: random.Random) -> Attack | None:
    """The last number of each step changed, then the right answer."""
    changed = [_changed_number(step, rng) for step in honest.steps]
    if not any(changed):
        return None
    return _written(
        honest, [(old if new is None else new, new is not None) for old, new in zip(honest.steps, changed, strict=True)]
    )


def invented_theorem(honest: HonestPath, rng: random.Random) -> Attack:
    """A theorem that does not exist in front of each step."""
    return _written(honest, [(f"By the {rng.choice(_THEOREMS)} theorem, {step}", True) for step in honest.steps])


def padding(honest: HonestPath, rng: random.Random) -> Attack:
    """A step that says nothing behind each step."""
    return _after_each(honest, _PADDING)


def step_marker(honest: HonestPath, rng: random.Random) -> Attack:
    """A line with a step marker typed inside each step, so that one step counts as several; all of it stays true."""
    pieces = []
    for number, step in enumerate(honest.steps, 2):
        cut = step.rfind("=")
        cut = cut if cut > 0 else len(step) // 2
        pieces.append((f"{step[:cut]}\nStep {number}: {step[cut:]}", False))
    return _written(honest, pieces)


def early_answer(honest: HonestPath, rng: random.Random) -> Attack:
    """The answer first, the steps behind it, where no KL is taken as long as they are short."""
    return Attack(honest.head + honest.tail.strip() + honest.separator + honest.separator.join(honest.steps))


FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (
        empty_step,
        no_step,
        thanks,
        question_copied,
        repeated_step,
        giant_step,
        shuffled,
        no_answer,
        wrong_answer,
        wrong_steps,
        invented_theorem,
        padding,
        step_marker,
        early_answer,
    )
}
HARDENING = (
    "empty_step",
    "question_copied",
    "repeated_step",
    "no_answer",
    "wrong_answer",
    "wrong_steps",
    "invented_theorem",
)
"""Half of the families, fixed by name; never add one of the others: they measure the teaching."""
UNTAUGHT = tuple(name for name in FAMILIES if name not in HARDENING)

"""A labelled solution known as text only, and formats that hold it step by step: TRL's stepwise rows, ProcessBench rows
and the paths of a run. ``data_gen.math_shepherd`` and ``data_gen.prm800k`` hold two more; ``data_gen.formats`` is their
command line. docs/formats.md says what each format keeps and loses.

Readers and writers are pure. They return ``Converted``: nothing is left out, changed or lost without being named there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from common.records import IGNORED, LabelledPath, Problem, Verdict, content_id

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class LabelledSteps:
    """A solution and what is known of its steps.

    Attributes:
        problem: problem text, without prompt template; not blank.
        steps: step texts in order; at least one, none blank (a PRM may score an empty step high: PURE#20).
        labels: one a step, 1 = right, 0 = wrong, soft values between, ``IGNORED`` (-100) = not known; None when
            nothing is labelled. Always float, never bool: a bool column turns -100 into True (trl#2127).
        extra: the row's other fields (id, task, generator, …); writers put them beside the format's own.
    """

    problem: str
    steps: tuple[str, ...]
    labels: tuple[float, ...] | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.problem.strip():
            raise ValueError(f"the problem is {self.problem!r}, want text that is not blank")
        if not self.steps:
            raise ValueError("no step, want at least one")
        blank = next((k for k, step in enumerate(self.steps) if not step.strip()), None)
        if blank is not None:
            raise ValueError(f"step {blank} is {self.steps[blank]!r}, want text that is not blank")
        if self.labels is not None:
            if len(self.labels) != len(self.steps):
                raise ValueError(f"{len(self.labels)} labels for {len(self.steps)} steps; they must match")
            object.__setattr__(self, "labels", tuple(checked_label(k, label) for k, label in enumerate(self.labels)))

    @property
    def first_error(self) -> int | None:
        """0-based index of the first step labelled wrong (below 0.5, ``IGNORED`` left out), None for none."""
        return next((k for k, label in enumerate(self.labels or ()) if label != IGNORED and label < 0.5), None)

    @property
    def problem_id(self) -> str:
        """Hash of the problem's text: what held-out splits group by."""
        return content_id(self.problem)


@dataclasses.dataclass(frozen=True)
class Converted(Generic[Item]):
    """What became of one row.

    Attributes:
        rows: the results; a writer gives one, a reader none or several.
        notes: what was left out or decided on the way, in words that can be counted; never a reason to stop.
        lost: what the target format cannot hold; a caller must choose to go on.
    """

    rows: tuple[Item, ...]
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


Row = dict[str, Any]


def checked_label(step: int, label: object) -> float:
    """Return a label as float; bool becomes 0 or 1.

    Raises:
        ValueError: not a bool, a number in [0, 1] or ``IGNORED``; NaN is none of them.
    """
    if isinstance(label, bool | int | float) and (label == IGNORED or 0 <= label <= 1):
        return float(label)
    raise ValueError(f"field 'labels', step {step}: {label!r}, want true, false, a number from 0 to 1, or {IGNORED}")


def field(row: Mapping[str, Any], name: str, kind: type | tuple[type, ...], wanted: str) -> Any:
    """Return ``row[name]``.

    Raises:
        ValueError: it is missing or of another type; the message names field, value seen and value wanted.
    """
    value = row.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        seen = repr(value) if name in row else f"missing (the row has {', '.join(sorted(map(str, row)))})"
        raise ValueError(f"field {name!r}: {seen[:200]}, want {wanted}")
    return value


def text_list(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that is a list of texts, as tuple."""
    values = field(row, name, list, "a list of texts")
    for k, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"field {name!r}, step {k}: {value!r}, want text")
    return tuple(values)


def with_extra(extra: Mapping[str, Any], own: Row) -> Row:
    """Return the format's own fields and the others beside them.

    Raises:
        ValueError: another field has the name of one of the format's own, so one of the two would be lost.
    """
    both = sorted(extra.keys() & own.keys())
    if both:
        raise ValueError(f"field {both[0]!r} of the row means something else in this format; rename it first")
    return {**extra, **own}


def known_labels(one: LabelledSteps) -> tuple[float, ...]:
    """Return the labels of a row that is to be written.

    Raises:
        ValueError: there is none.
    """
    if one.labels is None or all(label == IGNORED for label in one.labels):
        raise ValueError("no step has a label; there is nothing to write")
    return one.labels


def is_soft(labels: tuple[float, ...]) -> bool:
    """True when a label is neither 0, 1 nor ``IGNORED``."""
    return any(label not in (0, 1, IGNORED) for label in labels)


def _others(row: Mapping[str, Any], *own: str) -> Row:
    return {name: value for name, value in row.items() if name not in own}


def read_trl(row: Mapping[str, Any]) -> Converted[LabelledSteps]:
    """Read a row of TRL's stepwise supervision: ``prompt``, ``completions``, ``labels`` (null: unlabelled).

    Float labels stay what they are (TRL up to 1.13 took ``int`` of them: 0.9 became 0) and -100 stays ignored.
    """
    labels = None
    if row.get("labels", ()) is not None:
        labels = tuple(field(row, "labels", list, "a list of labels, or null"))
    prompt = field(row, "prompt", str, "text (chat messages are not part of the format)")
    extra = _others(row, "prompt", "completions", "labels")
    return Converted((LabelledSteps(prompt, text_list(row, "completions"), labels, extra),))


def write_trl(one: LabelledSteps) -> Converted[Row]:
    """Write a TRL stepwise row; nothing is lost. Labels are numbers, so that every row of a file has one type."""
    labels = None if one.labels is None else list(one.labels)
    own = {"prompt": one.problem, "completions": list(one.steps), "labels": labels}
    return Converted((with_extra(one.extra, own),))


def read_processbench(row: Mapping[str, Any]) -> Converted[LabelledSteps]:
    """Read a ProcessBench row: ``problem``, ``steps``, ``label`` = 0-based first wrong step, -1 = every step is right.

    Steps before the first error are right, the first error is wrong, later ones are ``IGNORED``: nobody judged them.
    """
    steps = text_list(row, "steps")
    first = field(row, "label", int, "the 0-based index of the first wrong step, or -1")
    if not -1 <= first < len(steps):
        raise ValueError(f"field 'label': {first}, want -1 or the index of one of the {len(steps)} steps")
    if row.get("final_answer_correct") is not None:
        field(row, "final_answer_correct", bool, "true or false")
    right = len(steps) if first < 0 else first
    labels = (1.0,) * right + (0.0,) * (first >= 0) + (float(IGNORED),) * (len(steps) - right - 1)
    problem = field(row, "problem", str, "text")
    return Converted((LabelledSteps(problem, steps, labels[: len(steps)], _others(row, "problem", "steps", "label")),))


def write_processbench(one: LabelledSteps) -> Converted[Row]:
    """Write a ProcessBench row; ``id`` is a content hash where the row has none, ``final_answer_correct`` only where it
    is known.

    Lost: that labels were soft, and labels other than 0 behind the first error. Noted: labels 0 behind it.

    Raises:
        ValueError: a step at or before the first error has no label, so that its index is not known.
    """
    labels = known_labels(one)
    first = one.first_error
    judged, later = (labels, ()) if first is None else (labels[:first], labels[first + 1 :])
    if IGNORED in judged:
        raise ValueError(f"step {judged.index(IGNORED)} has no label, so the first wrong step is not known")
    lost = ["soft labels"] * is_soft(labels[: len(judged) + 1])
    lost += ["labels other than 0 behind the first error"] * any(label not in (0, IGNORED) for label in later)
    notes = ["labels 0 behind the first error are not written"] * (0 in later)
    own = {"problem": one.problem, "steps": list(one.steps), "label": -1 if first is None else first}
    row = with_extra({"id": content_id(one.problem, *one.steps), **one.extra}, own)
    return Converted((row,), tuple(notes), tuple(lost))


def from_labelled_path(labelled: LabelledPath, problem: Problem) -> LabelledSteps:
    """Return a labelled path of a run as text: steps and labels, and what else the formats ask for.

    ``final_answer_correct`` is left out when the checker gave no verdict on the model (time-out, no gold, …).

    Raises:
        ValueError: the path has no step.
    """
    path = labelled.path
    extra: Row = {"id": path.path_id, "answer": path.answer, "label_source": labelled.source}
    if path.verdict.is_judged:
        extra["final_answer_correct"] = path.verdict is Verdict.CORRECT
    return LabelledSteps(problem.text, tuple(step.text for step in path.steps), labelled.labels, extra)

"""Geometry of small line charts; the template turns it into inline SVG. Pure.

Data space is what the caller passes; pixel space is a ``WIDTH`` x ``HEIGHT`` view box with y growing downwards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 360, 216
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 14, 34
MAX_POINTS = 200
"""Longer series are thinned to this many points, first and last kept."""
MAX_MARKS = 50
"""Points of a series that get a mark with their value."""
LABEL_GAP = 12
"""Pixels between the lower edges of two labels that can be read."""

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Series:
    """A named line; ``style`` is a CSS class (base, policy, majority, prm, oracle, ideal).

    ``band`` holds (x, low, high) of an interval around the line, possibly nothing.
    """

    name: str
    style: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()


@dataclasses.dataclass(frozen=True)
class Line:
    """A drawn series: SVG paths of line and band, marks (x, y, tooltip) in pixels."""

    name: str
    style: str
    path: str
    band: str
    marks: list[tuple[float, float, str]]


@dataclasses.dataclass(frozen=True)
class Chart:
    """Everything a template needs to draw a chart: lines, ticks (pixel, label), limits, alarms.

    ``limits``: (pixel of the line, label, pixel of the label, whether it stands at the right end).
    ``alarms``: (pixel, message, name of the place on the page that says more).
    """

    title: str
    note: str
    x_label: str
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    limits: list[tuple[float, str, float, bool]]
    alarms: list[tuple[float, str, str]]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def nice_ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """About ``wanted`` round numbers (1, 2, 2.5 or 5 times a power of ten) that cover [low, high].

    Raises:
        ValueError: unless low < high and both are finite.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"range [{low}, {high}]: want finite ends, low < high")
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if rough <= factor * power * (1 + 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str = "",
    note: str = "",
    limits: Sequence[tuple[float, str]] = (),
    alarms: Sequence[tuple[float, str, str]] = (),
    y_range: tuple[float, float] | None = None,
    x_values: Sequence[float] = (),
    x_names: Mapping[float, str] | None = None,
) -> Chart | None:
    """Lay out a chart; None when no series has a finite point.

    Args:
        limits: (y, label) of horizontal limit lines; a limit far from the data is not drawn but added to the note.
        alarms: (x, message, anchor) marked on the time line; those at one place share a mark.
        y_range: fixed range, else round numbers around data and near limits.
        x_values: ticks of x when they are few and known, e.g. 1, 2, 4, 8.
        x_names: words in the place of some ticks' numbers.
    """
    finite = [[p for p in s.points if math.isfinite(p[0]) and math.isfinite(p[1])] for s in series]
    everything = [point for points in finite for point in points]
    if not everything:
        return None
    xs = [x for x, _ in everything]
    ys = [y for _, y in everything] + [end for s in series for _, *ends in s.band for end in ends if math.isfinite(end)]
    low, high = y_range or _with_limits(min(ys), max(ys), [y for y, _ in limits])
    y_ticks = nice_ticks(*_widened(low, high))
    x_low, x_high = _widened(min(xs), max(xs)) if min(xs) == max(xs) else (min(xs), max(xs))

    def px(x: float) -> float:
        return round(LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT), 1)

    def py(y: float) -> float:
        share = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    lines = []
    for item, points in zip(series, finite, strict=True):
        thin = _thinned(points)
        path = "M" + "L".join(f"{px(x)},{py(y)}" for x, y in thin) if thin else ""
        marked = _thinned(points, MAX_MARKS)
        shown = [(px(x), py(y), f"{item.name}: {shown_number(y)} at {shown_number(x)}") for x, y in marked]
        lines.append(Line(item.name, item.style, path, _band(item, px, py), shown))
    x_ticks = [x for x in (x_values or nice_ticks(x_low, x_high)) if x_low <= x <= x_high]
    off = [label for y, label in limits if not y_ticks[0] <= y <= y_ticks[-1]]
    return Chart(
        title=title,
        note=note + (f" (off the chart: {', '.join(off)})" if off else ""),
        x_label=x_label,
        lines=lines,
        x_ticks=[(px(x), (x_names or {}).get(x, shown_number(x))) for x in x_ticks],
        y_ticks=[(py(y), shown_number(y)) for y in y_ticks],
        limits=_labelled([(py(y), label) for y, label in limits if y_ticks[0] <= y <= y_ticks[-1]]),
        alarms=_merged([(px(min(max(x, x_low), x_high)), message, anchor) for x, message, anchor in alarms]),
    )


def shown_number(value: float) -> str:
    """Short text of a number: three significant digits, no exponent between 1e-3 and 1e5."""
    if value == 0:
        return "0"
    if abs(value) >= 1e5 or abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _band(item: Series, px, py) -> str:  # type: ignore[no-untyped-def]
    ends = [end for end in item.band if all(map(math.isfinite, end))]
    if len(ends) < 2:
        return ""
    upper = [f"{px(x)},{py(high)}" for x, _, high in ends]
    lower = [f"{px(x)},{py(low)}" for x, low, _ in reversed(ends)]
    return "M" + "L".join(upper + lower) + "Z"


def _with_limits(low: float, high: float, limits: Sequence[float]) -> tuple[float, float]:
    """Range of the data, stretched to limits that are not so far away that the data would become flat."""
    reach = 3 * max(high - low, 0.25 * abs(high), 1e-12)
    near = [y for y in limits if low - reach <= y <= high + reach]
    return min([low, *near]), max([high, *near])


def _widened(low: float, high: float) -> tuple[float, float]:
    """The range itself, or one around its only value."""
    if high > low:
        return low, high
    if low == 0:
        return 0.0, 1.0
    margin = 0.1 * abs(low)
    return low - margin, high + margin


def _thinned(points: Sequence[Point], most: int = MAX_POINTS) -> Sequence[Point]:
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(index * last / (most - 1))] for index in range(most)]


def _labelled(limits: Sequence[tuple[float, str]]) -> list[tuple[float, str, float, bool]]:
    """Place the labels of limit lines so that no two cover each other: at the right end, else at the left one.

    Lines too near to a label on either side are drawn without one of their own; the next label names them too.
    """
    placed: list[tuple[float, str, float, bool]] = []
    for y, label in sorted(limits):
        at = y - 4 if y > TOP + LABEL_GAP else y + LABEL_GAP
        taken = [is_right for _, words, other, is_right in placed if words and abs(other - at) < LABEL_GAP]
        if len(taken) < 2:
            placed.append((y, label, at, True not in taken))
        else:
            before = max(index for index, (_, words, _, _) in enumerate(placed) if words)
            placed[before] = (placed[before][0], f"{placed[before][1]}, {label}", *placed[before][2:])
            placed.append((y, "", at, True))
    return placed


def _merged(alarms: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """One mark for alarms that would lie on each other (within 4 pixels), with all their messages."""
    marks: list[tuple[float, str, str]] = []
    for x, message, anchor in sorted(alarms, key=lambda alarm: alarm[0]):
        if marks and x - marks[-1][0] < 4:
            joined = marks[-1][1] if message in marks[-1][1] else f"{marks[-1][1]}\n{message}"
            marks[-1] = (marks[-1][0], joined[:600], marks[-1][2])
        else:
            marks.append((x, message, anchor))
    return marks


@dataclasses.dataclass(frozen=True)
class EventRow:
    """Events of one kind on a time line: label, style (stop, act, alarm), place on the page, x of each event."""

    label: str
    style: str
    anchor: str
    at: Sequence[float]


@dataclasses.dataclass(frozen=True)
class EventChart:
    """Rows of events over a common x axis: (pixel of the row, row, pixels of its events)."""

    rows: list[tuple[float, EventRow, list[float]]]
    x_ticks: list[tuple[float, str]]
    height: int
    width: int = 720
    left: int = 14
    right: int = 706


def event_chart(rows: Sequence[EventRow], x_range: tuple[float, float]) -> EventChart:
    """Lay out events; each row has its label above its line."""
    low, high = _widened(*x_range)
    left, right, pitch = 14, 706, 34

    def px(x: float) -> float:
        return round(left + (min(max(x, low), high) - low) / (high - low) * (right - left), 1)

    placed = [(pitch * (index + 1) - 4.0, row, sorted({px(x) for x in row.at})) for index, row in enumerate(rows)]
    ticks = [(px(x), shown_number(x)) for x in nice_ticks(low, high, 6) if low <= x <= high]
    return EventChart(placed, ticks, pitch * len(rows) + 26)

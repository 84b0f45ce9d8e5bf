"""Kind ``word``: short stories about who has how many things; steps are operations, ``12+5=17``.

One sentence an event (see ``PHRASES``). The question asks for the amount that the last sentence leads to. Worked in the
order of the story; ``n boxes of m`` takes a step of its own.
"""

from __future__ import annotations

import dataclasses
import random
import re

from data_gen.synthetic.arithmetic import exact, read, write_operation
from data_gen.synthetic.habits import Worksheet

KIND = "word"
LEVELS = range(2, 17)
NAMES = ("Ann", "Ben", "Tom", "Eva", "Max", "Mia", "Sam", "Zoe", "Leo", "Ida")
THINGS = ("apples", "coins", "books", "pens", "cards", "shells", "stamps", "beads")
_LARGEST = 50

PHRASES: dict[str, tuple[str, ...]] = {
    "gain": ("{a} gets {n} more.", "{a} finds {n} more.", "{a} buys {n} more."),
    "lose": ("{a} loses {n}.", "{a} sells {n}.", "{a} gives away {n}."),
    "gain_boxes": ("{a} buys {n} boxes of {m}.", "{a} gets {n} bags of {m}."),
    "lose_boxes": ("{a} sells {n} boxes of {m}.", "{a} gives away {n} bags of {m}."),
    "share": ("{a} splits them into {n} equal piles and keeps one.", "{a} and friends share them equally by {n}."),
    "more": ("{b} has {n} more than {a}.",),
    "fewer": ("{b} has {n} fewer than {a}.",),
    "times": ("{b} has {n} times as many as {a}.",),
    "inverse_more": ("{a} now has {n} more than {b}.",),
    "inverse_fewer": ("{a} now has {n} fewer than {b}.",),
}
"""Event -> its sentences. ``a`` holds the amount so far, ``b`` is a new person whom the story goes on with.

"now" tells a comparison of the holder from one with the holder. Without it the direction hangs on which name came
before, and the embedded model never learned to read that (docs/generator.md).
"""

_WEIGHTS = {"gain": 20, "lose": 22, "gain_boxes": 9, "lose_boxes": 7, "share": 9, "more": 8, "fewer": 7, "times": 8}
_WEIGHTS |= {"inverse_more": 9, "inverse_fewer": 6}
_OPERATIONS = {"gain": "+", "lose": "-", "gain_boxes": "+", "lose_boxes": "-", "share": "/", "more": "+", "fewer": "-"}
_OPERATIONS |= {"times": "*", "inverse_more": "-", "inverse_fewer": "+"}
_START = re.compile(r"([A-Z][a-z]+) has ([0-9]{1,4}) ([a-z]+)\.")
_QUESTION = re.compile(r"How many ([a-z]+) does ([A-Z][a-z]+) have\?")
_SLOTS = {"a": "(?P<a>[A-Z][a-z]+)", "b": "(?P<b>[A-Z][a-z]+)", "n": "(?P<n>[0-9]{1,4})", "m": "(?P<m>[0-9]{1,4})"}
_PATTERNS = [
    (event, re.compile(re.escape(phrase).replace(r"\{", "{").replace(r"\}", "}").format(**_SLOTS)))
    for event, phrases in PHRASES.items()
    for phrase in phrases
]
_STEP = re.compile(r"(-?[0-9]{1,7}|\(-[0-9]{1,7}\))([-+*/])([0-9]{1,7}|\(-[0-9]{1,7}\))=(-?[0-9]{1,7})")
_MOST_EVENTS = 40


@dataclasses.dataclass(frozen=True)
class Event:
    """One sentence: the event, its number, and the size of a box (0 where there is none)."""

    event: str
    n: int
    m: int = 0


@dataclasses.dataclass(frozen=True)
class Story:
    """The amount at the start and the events in order."""

    start: int
    events: tuple[Event, ...]


def parse(text: str) -> Story | None:
    """Return the story of a problem of this kind, None for any other text."""
    if len(text) > 3000 or not text.endswith("?"):
        return None
    sentences = re.findall(r"[^.?]+[.?]", text)
    start, question = _START.fullmatch(sentences[0]), _QUESTION.fullmatch(sentences[-1].strip())
    if start is None or question is None or len(sentences) > _MOST_EVENTS or start[3] != question[1]:
        return None
    holder, events = start[1], []
    for sentence in sentences[1:-1]:
        event, holder = _event(sentence.removeprefix(" "), holder)
        if event is None:
            return None
        events.append(event)
    return Story(int(start[2]), tuple(events)) if events and holder == question[2] else None


def _event(sentence: str, holder: str) -> tuple[Event | None, str]:
    """Return the event of a sentence and who holds the amount after it."""
    for event, pattern in _PATTERNS:
        found = pattern.fullmatch(sentence)
        if found is None:
            continue
        slots = found.groupdict()
        if slots["a"] != holder or slots.get("b") == holder or int(slots["n"]) == 0:
            continue
        return Event(event, int(slots["n"]), int(slots.get("m") or 0)), slots.get("b") or holder
    return None, holder


def canonical(text: str) -> str:
    """Return the events and numbers of the story: names, things and the choice among like sentences do not count."""
    story = parse(text)
    if story is None:
        return text
    return f"{story.start};" + ";".join(f"{e.event} {e.n} {e.m}" for e in story.events)


def propose(rng: random.Random, level: int) -> str | None:
    """Return the text of a story with ``level`` steps, None when the draw left the range of values."""
    names = rng.sample(NAMES, len(NAMES))
    holder, thing = names.pop(), rng.choice(THINGS)
    total = rng.randint(3, 30)
    sentences, used = [f"{holder} has {total} {thing}."], 0
    while used < level:
        event = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        cost = 2 if event.endswith("boxes") else 1
        drawn = _draw_numbers(rng, event, total)
        if used + cost > level or drawn is None or ("{b}" in PHRASES[event][0] and not names):
            continue
        n, m = drawn
        other = names.pop() if "{b}" in PHRASES[event][0] else ""
        sentences.append(rng.choice(PHRASES[event]).format(a=holder, b=other, n=n, m=m))
        holder, used = other or holder, used + cost
        total = _result(event, total, n * m if m else n)
    return " ".join(sentences) + f" How many {thing} does {holder} have?"


def _result(event: str, total: int, amount: int) -> int:
    op = _OPERATIONS[event]
    return total // amount if op == "/" else {"+": total + amount, "-": total - amount, "*": total * amount}[op]


def _draw_numbers(rng: random.Random, event: str, total: int) -> tuple[int, int] | None:
    """Return numbers (n, m) that keep the amount in 1..50, None when the draw does not."""
    n, m = rng.randint(2, 12), 0
    if event.endswith("boxes"):
        n, m = rng.randint(2, 5), rng.randint(2, 9)
    elif event == "share":
        n = rng.randint(2, 9)
        if total % n:
            return None
    elif event == "times":
        n = rng.randint(2, 9)
        if total > 10 and n > 2:
            return None
    result = _result(event, total, n * m if m else n)
    return (n, m) if 1 <= result <= _LARGEST else None


def work(story: Story, sheet: Worksheet) -> str:
    """Write the steps on ``sheet`` and return the answer."""
    total = read(sheet, story.start)
    for event in story.events:
        n, op = read(sheet, event.n), _OPERATIONS[event.event]
        if event.m:
            n = write_operation(sheet, n, "+" if sheet.fires("boxes_as_sum") else "*", event.m)
        if event.event.startswith("inverse") and sheet.fires("inverse_comparison"):
            op = "+" if op == "-" else "-"
        if event.event == "times" and sheet.fires("times_as_plus"):
            op = "+"
        if op == "/":
            quotient = int(total / n)
            sheet.write(f"{total}/{n}={quotient}")
            total = quotient
        else:
            total = write_operation(sheet, total, op, n)
    return str(total)


class StoryChecker:
    """Judges the steps of a story.

    The story is a row of operations on given numbers and earlier results. A step ``a op b = c`` is entailed when it is
    one of them, both operands are given or derived by the steps before, and c is its value; ``b op a`` is taken for +
    and *. An operation derived before may be repeated.
    """

    def __init__(self, story: Story) -> None:
        self.values: dict[int, int] = {-1: story.start}
        self.operations: list[tuple[int, int, str, int]] = []
        last, used = -1, 0
        for event in story.events:
            op = _OPERATIONS[event.event]
            if event.m:
                self.values[-2 - used] = event.n
                self.operations.append((used, -2 - used, "*", event.m))
                self.operations.append((used + 1, last, op, -1))
                last, used = used + 1, used + 2
            else:
                self.operations.append((used, last, op, event.n))
                last, used = used, used + 1

    def accepts(self, step: str) -> bool | None:
        """Return whether ``step`` is entailed, None when it is outside the grammar."""
        found = _STEP.fullmatch(step) if len(step) <= 60 else None
        if found is None:
            return None
        left, op, right, value = int(found[1].strip("()")), found[2], int(found[3].strip("()")), int(found[4])
        is_entailed = False
        for number, source, operation, amount in self.operations:
            a = self.values.get(source)
            b = self.values.get(number - 1) if amount == -1 else amount
            if operation != op or a is None or b is None:
                continue
            if (a, b) != (left, right) and not (op in "+*" and (b, a) == (left, right)):
                continue
            is_true = value * right == left if op == "/" else value == exact(left, op, right)
            if is_true:
                self.values[number] = value
                is_entailed = True
        return is_entailed


def checker(story: Story) -> StoryChecker:
    return StoryChecker(story)

"""Where a solution states its final answer: pure functions on text, linear in its length.

Order: the last complete ``\\boxed{...}`` outside thinking; else the last ``####`` line or answer phrase; else a
final line that states a value (a bare value, a formula, or "The total is 72 clips."). A value that is only mentioned
is no answer.
"""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Extraction:
    """A final answer and where it stands.

    Attributes:
        answer: the answer's text, None when the solution states none.
        start, end: the answer span in characters: from the box, or from the start of the answer line, to the end of
            the answer. Both are the length of the text when there is no answer.
        how: ``box``, ``marker`` (####), ``phrase``, ``line`` (bare final line), ``statement`` or ``none``.
        own_line: True when nothing but white space and answer phrase stands before the span on its line.
    """

    answer: str | None
    start: int
    end: int
    how: str
    own_line: bool = True


_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.S)
_PHRASE = re.compile(
    r"####(?!#)[ \t]*|(?:(?<=\n)|\A)[ \t]*A:[ \t]*|"
    r"(?:\b(?:final|correct)\s+)?\b(?:answer|(?<=correct )(?:option|choice))\b(?:\s+(?:choice|to the \w+))?[*_ \t]*"
    r"(?:\s+(?:is|must be|should be|equals)\b|[:=])[*_ \t]*(?:\s*:)?[*_ \t]*",
    re.I,
)
_LEAD_IN = re.compile(
    r"[\s*_#>$(\[\\]*(?:(?:so|thus|hence|therefore|and|then)\b,?\s*)?(?:the\s+)?(?:(?:final|correct)\s+)?"
    r"(?:answer|result)?\s*(?:is|:|=)?[\s*_:$]*",
    re.I,
)
_VALUE = r"\\?\$?\s*[-+−]?\s*\\?\$?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?"
_STATEMENT = re.compile(
    rf"(?:so|thus|hence|therefore|then|now)?,?\s*(?:the|there|this|that|it|he|she|they|we|in total)\b[^.\d=]{{0,80}}?"
    rf"\s(?:is|are|was|were|equals?|costs?|totals?)\s+(?P<value>{_VALUE}\s*(?:%|percent)?(?:\s+[A-Za-z]+,?){{0,4}})\s*[.!]?",
    re.I,
)
_CONCLUSION = re.compile(r"(?:so|thus|hence|therefore|in total|in conclusion|altogether|finally|overall)\b", re.I)
_REFUSAL = re.compile(r"\b(?:not|cannot|unable|unsure|maybe|perhaps|either|or)\b|n't\b|\?", re.I)
_LONE_VALUE = re.compile(rf"(?<![\w.])(?P<value>{_VALUE})(?P<percent>\s*(?:\\?%|percent))?(?![\w]|\.\d)")
_BOLD_VALUE = re.compile(rf"\*\*(?P<value>{_VALUE}\s*\\?%?)(?:\s+[A-Za-z]+){{0,3}}[.!]?\*\*")
_STATED_LAST = re.compile(rf"\b(?:is|are|was|were|equals|=)\s+(?P<value>{_VALUE})(?=[^\d]*$)")
_INLINE_AT_END = re.compile(r"(?:\$(?P<a>[^$\n]+)\$|\\\((?P<b>(?:(?!\\\)).)+)\\\))\s*[.!]?\s*$")
_BARE = re.compile(r"(?:[A-Za-z]\w?\s*=\s*)?[-+−±\d(\[{\\.$√π∞٠-٩](?:[^=<>]|\\\\)*|[A-Za-z]|\(?[A-J]\)?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_PROSE = re.compile(
    r"\s+(?:because|since|so|as|which|where|when|for|from|after|by|given)\b|[.!?]\s+(?=[A-Z\\$*])", re.I
)
_OPEN_MATH = re.compile(r"(?:\$\$?|\\\(|\\\[|\*\*)[ \t]*$")


def visible_span(text: str) -> tuple[int, int]:
    """Return the part of the text outside thinking: behind the last ``</think>``, before a ``<think>`` never closed."""
    close = text.rfind("</think>")
    start = 0 if close < 0 else close + len("</think>")
    opened = text.find("<think>", start)
    return start, len(text) if opened < 0 else opened


def extract(text: str) -> Extraction:
    """Find the final answer of a solution; see the module's order. Never raises."""
    start, end = visible_span(text)
    for find in (_last_box, _last_phrase, _final_line):
        found = find(text, start, end)
        if found is not None:
            return found
    return Extraction(None, len(text), len(text), "none")


def _last_box(text: str, start: int, end: int) -> Extraction | None:
    if text.find("\\boxed", start, end) < 0 and text.find("\\fbox", start, end) < 0:
        return None
    opened: list[tuple[int, int] | None] = []
    open_boxes = 0
    best: tuple[int, int, int] | None = None
    for match in _BOX_OR_BRACE.finditer(text, start, end):
        token = match.group()
        if token == "{":
            opened.append(None)
        elif token == "}" and opened:
            box = opened.pop()
            open_boxes -= box is not None
            if box and not open_boxes and text[box[1] : match.start()].strip():
                best = (*box, match.start())
        elif len(token) > 2:
            opened.append(match.span())
            open_boxes += 1
    if best is None:
        return None
    box_start, inner_start, inner_end = best
    line_start = text.rfind("\n", 0, box_start) + 1
    before = _OPEN_MATH.search(text, line_start, box_start)
    span_start = before.start() if before else box_start
    own_line = _LEAD_IN.fullmatch(text, line_start, span_start) is not None
    return Extraction(
        text[inner_start:inner_end].strip(), line_start if own_line else span_start, inner_end + 1, "box", own_line
    )


def _last_phrase(text: str, start: int, end: int) -> Extraction | None:
    last = None
    for match in _PHRASE.finditer(text, start, end):
        last = match
    if last is None:
        return None
    value_start = last.end()
    while value_start < end and text[value_start].isspace():
        value_start += 1
    line_end = text.find("\n", value_start, end)
    line_end = end if line_end < 0 else line_end
    answer = _trim_prose(text[value_start:line_end])
    if not answer:
        return None
    line_start = text.rfind("\n", 0, last.start()) + 1
    own_line = _LEAD_IN.fullmatch(text, line_start, last.start()) is not None
    how = "marker" if last.group().lstrip()[0] in "#A" and "nswer" not in last.group() else "phrase"
    return Extraction(answer, line_start if own_line else last.start(), line_end, how, own_line)


def _trim_prose(value: str) -> str:
    """Cut an answer phrase's value off the prose behind it: "42 because ..." -> "42", "241\\]" -> "241"."""
    value = value.strip().strip("*_").strip()
    math = re.match(r"\$([^$]+)\$|\\\(((?:(?!\\\)).)+)\\\)", value)
    if math and not re.search(r"\d|\$", value[math.end() :]):
        return (math.group(1) or math.group(2)).strip()
    cut = _PROSE.search(value)
    value = value[: cut.start()] if cut else value
    value = re.sub(r"\\\]\s*$|\\\)\s*$", "", value).strip().strip("*_")
    return value.rstrip(".!,; \t").strip() if not value.endswith("!") or not value[:-1].isdigit() else value


def _final_line(text: str, start: int, end: int) -> Extraction | None:
    stripped_end = len(text[start:end].rstrip()) + start
    line_start = max(text.rfind("\n", start, stripped_end) + 1, start)
    line = text[line_start:stripped_end].strip()
    if not line or len(line) > 2000:
        return None
    bare = line.strip("*_$ ").rstrip(".").strip()
    if _BARE.fullmatch(bare) and not _WORD.search(bare):
        return Extraction(bare, line_start, stripped_end, "line")
    inline = _INLINE_AT_END.search(line)
    if inline and not re.search(r"\d", line[: inline.start()]):
        return Extraction((inline["a"] or inline["b"]).strip(), line_start, stripped_end, "statement")
    value = _stated_value(re.split(r"(?<=[.!?])\s+(?=[A-Z])", line)[-1])
    return Extraction(value, line_start, stripped_end, "statement") if value else None


def _stated_value(sentence: str) -> str | None:
    """Return the value a last sentence states: "The total is 72 clips.", or a conclusion ("So ...") with one number,
    one in bold, or one behind its last "is". Doubt, negation and other sentences state nothing."""
    whole = _STATEMENT.fullmatch(sentence)
    if whole:
        return whole["value"].strip(" ,")
    if not _CONCLUSION.match(sentence) or _REFUSAL.search(sentence):
        return None
    bold = _BOLD_VALUE.findall(sentence)
    if len(bold) == 1:
        return bold[0].strip()
    numbers = list(_LONE_VALUE.finditer(sentence))
    if len(numbers) == 1 and len(re.findall(r"\d[\d,.]*", sentence)) == 1:
        return (numbers[0]["value"] + (numbers[0]["percent"] or "")).strip(" ,")
    last = _STATED_LAST.search(sentence)
    return last["value"].strip(" ,") if last else None

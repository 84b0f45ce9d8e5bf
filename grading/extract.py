"""Where a solution states its final answer: pure functions on text, linear in its length.

Order: the last complete ``\\boxed{...}`` outside thinking; else the last ``####`` line or answer phrase; else a
final line that states a value (a bare value, a formula, or "The total is 72 clips."). A value that is only mentioned
is no answer.
"""

from __future__ import annotations

import dataclasses
import re

from grading.statements import MAIN_VERB, is_conclusion, last_sentence, stated_value


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
_BARE_BOX = re.compile(r"\\boxed[ \t]+([^\s{}$\\.,]+)")
_PHRASE = re.compile(
    r"####(?!#)[ \t]*|(?:(?<=\n)|\A)[ \t]*A:[ \t]*|"
    r"\b(?:answer|(?<=correct )(?:option|choice))\b(?:\s{1,9}(?:choice|to the \w+))?[*_ \t]{0,9}"
    r"(?:\s{1,9}(?:is|must be|should be|equals)\b|[:：=])[*_ \t]{0,9}(?:\s{0,9}:)?[*_ \t]*",
    re.I,
)
_ANCHORS = ("####", "answer", "option", "choice", "a:")
"""What every answer phrase holds, in lower case: the last phrase is looked for from the end."""
_BEFORE_PHRASE = re.compile(r"\b(?:final|correct)\s+\Z", re.I)
_LEAD_IN = re.compile(
    r"[\s*_#>$(\[\\]*(?:(?:so|thus|hence|therefore|and|then)\b,?\s*)?(?:the\s+)?(?:(?:final|correct)\s+)?"
    r"(?:answer|result)?\s*(?:is|:|=)?[\s*_:$]*",
    re.I,
)
_INLINE_AT_END = re.compile(r"(?:\$(?P<a>[^$\n]+)\$|\\\((?P<b>(?:(?!\\\)).)+)\\\))\s*[.!]?\s*$")
_DISPLAY = re.compile(r"\\\[(?P<a>(?:(?!\\\[|\\\]).)+)\\\]|\$\$(?P<b>[^$]+)\$\$", re.S)
_DISPLAY_AT_END = re.compile(_DISPLAY.pattern.join(["(?:", r")\s*\.?\Z"]), re.S)
MAX_DISPLAY = 600
"""Characters of a displayed formula that is looked at as an answer."""
_BARE = re.compile(r"(?:[A-Za-z]\w?\s*=\s*)?[-+−±\d(\[{\\.$√π∞٠-٩](?:[^=<>]|\\\\)*|[A-Za-z]|\(?[A-J]\)?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_PROSE = re.compile(
    r"\s+(?:because|since|so|as|which|where|when|for|from|after|by|given)\b|[.!?]\s+(?=[A-Z\\$*])", re.I
)
_HEADING_TEXT = re.compile(r"(?:\d+[.)]\s+|(?:step|part|case)\s*\d)[^\n]*[A-Za-z]{2}", re.I)
"""What stands behind "####" in a heading ("#### 4. Solve for S", "#### Step 2: add"): no answer marker."""
_SENTENCE = re.compile(rf"[A-Z][a-z'’]*,?\s+(?=[^\n]*{MAIN_VERB.pattern})[A-Za-z'’][^\n]*\d")
"""An answer phrase's value that is a whole sentence: "The hospital makes a profit of $10,000 each day."."""
_ANNOUNCEMENT = re.compile(r"[\s#*_>]*(?:final\s+|the\s+)*(?:answer|conclusion|result)[\s#*_:]*", re.I)
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
    first = min(at for at in (text.find(name, start, end) for name in ("\\boxed", "\\fbox")) if at >= 0)
    for match in _BOX_OR_BRACE.finditer(text, first, end):
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
        bare = list(_BARE_BOX.finditer(text, start, end))
        best = (bare[-1].start(), *bare[-1].span(1)) if bare else None
    if best is None:
        return None
    box_start, inner_start, inner_end = best
    line_start = text.rfind("\n", 0, box_start) + 1
    before = _OPEN_MATH.search(text, line_start, box_start)
    span_start = before.start() if before else box_start
    own_line = _LEAD_IN.fullmatch(text, line_start, span_start) is not None
    box_end = inner_end + text.startswith("}", inner_end)
    return Extraction(
        text[inner_start:inner_end].strip(), line_start if own_line else span_start, box_end, "box", own_line
    )


def _last_phrase(text: str, start: int, end: int) -> Extraction | None:
    last = _last_phrase_match(text, start, end)
    if last is None:
        return None
    phrase_start = last.start()
    before = _BEFORE_PHRASE.search(text[max(start, phrase_start - 20) : phrase_start])
    phrase_start -= len(before.group()) if before else 0
    value_start = last.end()
    while value_start < end and text[value_start].isspace():
        value_start += 1
    display = _DISPLAY.match(text, value_start, min(end, value_start + MAX_DISPLAY))
    line_end = display.end() if display else text.find("\n", value_start, end)
    line_end = end if line_end < 0 else line_end
    line = (display["a"] or display["b"]).strip() if display else text[value_start:line_end].strip()
    answer = (stated_value(last_sentence(line), True) if _SENTENCE.match(line) else None) or _trim_prose(line)
    if not answer:
        return None
    line_start = text.rfind("\n", 0, phrase_start) + 1
    own_line = _LEAD_IN.fullmatch(text, line_start, phrase_start) is not None
    how = "marker" if last.group().lstrip()[0] in "#A" and "nswer" not in last.group() else "phrase"
    return Extraction(answer, line_start if own_line else phrase_start, line_end, how, own_line)


def _last_phrase_match(text: str, start: int, end: int) -> re.Match[str] | None:
    """Return the last answer phrase that is no heading. Only the surroundings of its fixed words are looked at."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters change their length
        lowered = "".join(character.lower()[:1] for character in text)
    best: re.Match[str] | None = None
    for anchor in _ANCHORS:
        floor = start if best is None else best.start() + 1
        at = lowered.rfind(anchor, floor, end)
        while at >= 0:
            begin = at
            while anchor == "a:" and begin > start and text[begin - 1] in " \t" and at - begin < 20:
                begin -= 1
            match = _PHRASE.match(text, begin, end)
            if match and not (anchor == "####" and _HEADING_TEXT.match(text, match.end(), end)):
                best = match
                break
            at = lowered.rfind(anchor, floor, at)
    return best


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
    display = _DISPLAY_AT_END.search(text, max(start, stripped_end - MAX_DISPLAY), stripped_end)
    if display:
        return _concluding_display(text, start, display)
    bare = line.strip("*_$ ").rstrip(".").strip()
    if _BARE.fullmatch(bare) and not _WORD.search(bare):
        return Extraction(bare, line_start, stripped_end, "line")
    sentence = last_sentence(line)
    inline = _INLINE_AT_END.search(sentence)
    if inline and not re.search(r"\d", sentence[: inline.start()]):
        return Extraction((inline["a"] or inline["b"]).strip(), line_start, stripped_end, "statement")
    is_announced = _ANNOUNCEMENT.fullmatch(text[start:line_start].rstrip().rpartition("\n")[2]) is not None
    value = stated_value(sentence, is_announced)
    return Extraction(value, line_start, stripped_end, "statement") if value else None


def _concluding_display(text: str, start: int, display: re.Match[str]) -> Extraction | None:
    """Return the displayed formula that ends a text when what leads up to it is a conclusion; else it is a step."""
    before = last_sentence(text[start : display.start()].rstrip().rpartition("\n")[2])
    if not (is_conclusion(before) or _ANNOUNCEMENT.fullmatch(before)):
        return None
    own_line = not text[text.rfind("\n", 0, display.start()) + 1 : display.start()].strip()
    return Extraction((display["a"] or display["b"]).strip(), display.start(), display.end(), "statement", own_line)

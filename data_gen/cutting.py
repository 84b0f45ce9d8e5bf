"""Where a solution's text is cut into steps: pure functions on text. Rules: see `cut_spans`.

The text is never rewritten here, so every span is valid in the sampled completion.
"""

from __future__ import annotations

import re

BLANK = r"[^\S\n]*"
"""White space within a line (also a carriage return, so that CRLF text needs no rewriting)."""

CONTROL_TOKENS = re.compile(
    r"</?think>|<\|[A-Za-z0-9_▁｜]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?s>|<(?:eos|bos|pad|unk|end_of_turn|extra_0)>|\[PAD\]|ки(?!\w)"
)
"""End-of-turn, thinking and step-marker tokens that reach the text; the last is the Cyrillic step tag of public
PRMs.
"""

_OPENER = re.compile(r"```|\\begin\{([A-Za-z]+\*?)\}|\\\[|\\\(|\$\$|\\\$|\$")
_CLOSERS = {"```": "```", "\\[": "\\]", "\\(": "\\)", "$$": "$$"}
_STEP_MARKER = re.compile(
    rf"^{BLANK}(?:[#*>_][#*>_ \t]*)?step{BLANK}(\d+)(?![\d\w])[*_]*(?:{BLANK}[:.)\-–—]+)?[*_]*", re.I | re.M
)
_LIST_ITEM = re.compile(rf"^{BLANK}(?:[#*_]{{1,3}}{BLANK})?(\d{{1,3}})[.)](?=[\s*_]|$)", re.M)
_BLANK_LINES = re.compile(rf"\n(?:{BLANK}\n)+")
_RULE = re.compile(r"\s*(?:-{3,}|\*{3,}|_{3,}|={3,}|(?:[-*_] ){2,}[-*_])\s*")
_HEADING = re.compile(rf"{BLANK}(?:#{{1,6}}\s[^\n]*|\*\*[^*\n]+\*\*{BLANK}:?|__[^_\n]+__{BLANK}:?){BLANK}")
_GSM_ANSWER = re.compile(rf"{BLANK}####(?!#)")

Span = tuple[int, int]


def protected_spans(text: str) -> list[Span]:
    """Return the spans, in order and disjoint, in which no cut is made: code fences, display and inline math,
    environments.

    A region that is not closed runs to the end. A dollar sign is math only if it closes within its paragraph as math
    does (no space inside the dollars, no digit behind); else it is money. Time is linear in the text.
    """
    spans: list[Span] = []
    position = 0
    while (match := _OPENER.search(text, position)) is not None:
        start, position = match.span()
        token = match.group()
        if token == "\\$":
            continue
        if token == "$":
            end = _inline_end(text, position)
            if end is None:
                continue
        elif match.group(1):
            end = _environment_end(text, position, match.group(1))
        else:
            close = text.find(_CLOSERS[token], position)
            end = len(text) if close < 0 else close + len(_CLOSERS[token])
        spans.append((start, end))
        position = end
    return spans


def _inline_end(text: str, start: int) -> int | None:
    close = text.find("$", start)
    while close > 0 and text[close - 1] == "\\":
        close = text.find("$", close + 1)
    if close <= start or text[start].isspace() or text[close - 1].isspace() or text[close + 1 : close + 2].isdigit():
        return None
    return None if _BLANK_LINES.search(text, start, close) else close + 1


def _environment_end(text: str, start: int, name: str) -> int:
    depth = 1
    for match in re.finditer(r"\\(begin|end)\{" + re.escape(name) + r"\}", text[start:]):
        depth += 1 if match.group(1) == "begin" else -1
        if depth == 0:
            return start + match.end()
    return len(text)


def _marker_cuts(text: str, free: list[Span]) -> list[Span]:
    """Return the spans of "Step k" markers at line starts; empty when there are fewer than two."""
    found = [m.span() for m in _STEP_MARKER.finditer(text) if _is_free(m.start(1), free)]
    return found if len(found) >= 2 else []


def _list_cuts(text: str, free: list[Span]) -> list[Span]:
    """Return the spans of the list heads "1.", "2.", ... in their order; empty when there are fewer than two."""
    found: list[Span] = []
    for match in _LIST_ITEM.finditer(text):
        if int(match.group(1)) == len(found) + 1 and _is_free(match.start(1), free):
            found.append(match.span())
    return found if len(found) >= 2 else []


def _is_free(position: int, protected: list[Span]) -> bool:
    low, high = 0, len(protected)
    while low < high:
        middle = (low + high) // 2
        if protected[middle][1] <= position:
            low = middle + 1
        else:
            high = middle
    return low == len(protected) or position < protected[low][0]


def _between(text: str, separators: list[Span]) -> list[Span]:
    """Return what lies between the separators, the ends of the text included."""
    edges = [0, *(edge for span in separators for edge in span), len(text)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def trimmed(text: str, start: int, end: int) -> Span:
    """Return the span without white space and control tokens at its two ends."""
    while True:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        head = CONTROL_TOKENS.match(text, start, end)
        if head:
            start = head.end()
            continue
        window = max(start, end - 48)
        tail = [m for m in CONTROL_TOKENS.finditer(text, window, end) if m.end() == end]
        if not tail:
            return start, end
        end = tail[0].start()


def cut_spans(text: str) -> list[Span]:
    """Return the character spans of the steps of `text`, in order; nothing is rewritten.

    1. No cut inside code fences, display or inline math and environments. 2. Two or more line-start "Step k"
    markers: each opens a step. 3. Else consecutive line-start items "1." "2.": each opens a step. 4. Else blank
    lines cut. 5. Else (no blank line, not even a protected one) each line is a step; a "#### answer" line stays with
    the step before. 6. White space, rules (---) and markers without content are no steps; a heading alone joins what
    follows; control tokens are trimmed. Never cut at periods.
    """
    protected = protected_spans(text) if ("$" in text or "\\" in text or "```" in text) else []
    heads = _marker_cuts(text, protected) or _list_cuts(text, protected)
    if heads:
        cuts = [start for start, _ in heads]
        pieces = [(0, cuts[0]), *zip(cuts, [*cuts[1:], len(text)], strict=True)]
        bare = {trimmed(text, *head) for head in heads}
        spans = [span for span in (trimmed(text, *piece) for piece in pieces) if span not in bare]
    else:
        start, end = trimmed(text, 0, len(text))
        all_blanks = [m.span() for m in _BLANK_LINES.finditer(text, start, end)]
        blanks = [span for span in all_blanks if _is_free(span[0], protected)]
        lines = [] if all_blanks else [(i, i + 1) for i in _newlines(text, start, end) if _is_free(i, protected)]
        spans = [trimmed(text, *piece) for piece in _between(text, blanks or lines)]
        if lines:
            spans = _with_answer_line(text, spans)
    return _joined_headings(text, [(s, e) for s, e in spans if s < e and not _RULE.fullmatch(text, s, e)])


def _newlines(text: str, start: int, end: int) -> list[int]:
    return [match.start() for match in re.compile("\n").finditer(text, start, end)]


def _with_answer_line(text: str, spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and start < end and _GSM_ANSWER.match(text, start):
            start = merged.pop()[0]
        merged.append((start, end))
    return merged


def _joined_headings(text: str, spans: list[Span]) -> list[Span]:
    """Join a piece that is a heading alone with the piece behind it; a `#` heading with nothing behind it is
    dropped.
    """
    joined: list[Span] = []
    pending: int | None = None
    for start, end in spans:
        first = start if pending is None else pending
        if "\n" not in text[start:end] and _HEADING.fullmatch(text, start, end):
            pending = first
            continue
        joined.append((first, end))
        pending = None
    if pending is not None and not text[pending:].lstrip().startswith("#"):
        joined.append((pending, spans[-1][1]))
    return joined

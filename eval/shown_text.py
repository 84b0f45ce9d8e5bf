"""Text of models made fit to be looked at."""

from __future__ import annotations

import re
import unicodedata

RARE = re.compile(r"[^\n\t -~]")
"""Characters that are worth a look: all but printable ASCII, line breaks and tabs."""


def plain_text(value: object, limit: int) -> str:
    """Text that can be shown as it is: control and direction characters become "�", cut at ``limit`` characters."""
    text = str(value)
    cut = text[:limit] + "…" if len(text) > limit else text
    return RARE.sub(_visible, cut)


def _visible(match: re.Match[str]) -> str:
    return "�" if unicodedata.category(match[0]) in ("Cc", "Cf", "Cs", "Co", "Cn") else match[0]

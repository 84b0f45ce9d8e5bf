"""Text of models made fit to be looked at."""

from __future__ import annotations

import unicodedata


def plain_text(value: object, limit: int) -> str:
    """Text that can be shown as it is: control and direction characters become "�", cut at ``limit`` characters."""
    text = str(value)
    cut = text[:limit] + "…" if len(text) > limit else text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn") else "�"
        for char in cut
    )

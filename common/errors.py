"""Errors that are the user's to mend: shown as one line, exit code 2, nothing written over."""

from __future__ import annotations


class InputError(ValueError):
    """Bad configuration, file or run folder; the message says what was seen and what is wanted."""

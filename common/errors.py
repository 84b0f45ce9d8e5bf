"""Errors that end a command with one line: what the user can mend (exit code 2) and runs that failed (exit code 3)."""

from __future__ import annotations


class InputError(ValueError):
    """Bad configuration, file or run folder; the message says what was seen and what is wanted."""


class RunError(RuntimeError):
    """A run that cannot go on or came to nothing; the message says why and what to do."""

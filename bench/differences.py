"""Where two trees of figures differ, times left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOCKS = ("seconds", "runtime", "per_second")
"""A key that holds one of these is a time, which no two runs share."""


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves of nested mappings and lists by dotted name; what a clock measured is left out."""
    if isinstance(tree, Mapping):
        pairs = [(str(key), value) for key, value in tree.items() if not any(clock in str(key) for clock in CLOCKS)]
    elif isinstance(tree, list):
        pairs = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return {prefix: tree}
    place = f"{prefix}." if prefix else ""
    return {name: leaf for key, value in pairs for name, leaf in flat(value, f"{place}{key}").items()}


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Names under which two endings differ, sorted; a name that only one of them has is a difference."""
    absent = object()
    return sorted(n for n in wanted.keys() | found.keys() if wanted.get(n, absent) != found.get(n, absent))

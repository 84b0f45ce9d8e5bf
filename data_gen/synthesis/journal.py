"""The journal of a run: one line a unit of work, so that a killed run goes on without loss or duplicate."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from common.errors import InputError
from common.files import write_atomic
from common.runs import read_rows, write_rows

Entry = dict[str, Any]
"""``unit`` (an integer), ``accepted`` (problem rows), ``rejected`` (``reason``, ``detail``, ``problem``)."""


def entry(unit: int, accepted: list[dict[str, Any]], rejected: list[dict[str, Any]]) -> Entry:
    return {"unit": unit, "accepted": accepted, "rejected": rejected}


def rejection(reason: str, detail: str = "", problem: str = "") -> dict[str, Any]:
    """A rejected problem; texts are cut, a model may have written them."""
    cut = (text.encode("utf-8", "replace").decode() for text in (detail[:300], problem[:1000]))  # half characters
    return {"reason": reason, **dict(zip(("detail", "problem"), cut, strict=True))}


class Journal:
    """A folder with ``journal.jsonl`` and ``settings.json``.

    A line is written whole or, by a kill, cut; a cut last line is removed on opening and its unit done again.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open or make the folder.

        Raises:
            InputError: it was made with other settings, another run is writing to it, or a line of it that is not the
                last cannot be read.
        """
        self.folder, self.path = folder, folder / "journal.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        _check_settings(folder / "settings.json", settings)
        self._handle = self.path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone with the process, however it ends
        except BlockingIOError:
            self._handle.close()
            raise InputError(f"{folder}: another run is writing to it") from None
        _cut_last_line(self.path)
        self.entries: list[Entry] = list(read_rows(self.path)) if self.path.is_file() else []
        units = Counter(e["unit"] for e in self.entries)
        if twice := [unit for unit, count in units.items() if count > 1]:
            raise InputError(f"{self.path}: unit {twice[0]} is there twice; use another folder")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def add(self, new: Entry) -> None:
        """Append a unit; it survives a kill of the process once this returns."""
        self._handle.write(json.dumps(new, ensure_ascii=False, allow_nan=False) + "\n")
        self._handle.flush()
        self.entries.append(new)

    def sync(self) -> None:
        """Let what was added survive a loss of power too."""
        os.fsync(self._handle.fileno())

    @property
    def units(self) -> set[int]:
        return {e["unit"] for e in self.entries}

    def accepted(self) -> Iterator[dict[str, Any]]:
        for e in self.entries:
            yield from e["accepted"]

    def rejected(self) -> Iterator[dict[str, Any]]:
        for e in self.entries:
            yield from e["rejected"]

    def finish(self, count: int) -> dict[str, Any]:
        """Write ``problems.jsonl`` (the first ``count`` rows) and ``rejected.jsonl``; return the counts."""
        self.sync()
        rows = list(self.accepted())[:count]
        write_rows(self.folder / "problems.jsonl", rows)
        write_rows(self.folder / "rejected.jsonl", self.rejected())
        cells = Counter(f"{row['topic']}/{row.get('difficulty')}" for row in rows)
        return {
            "problems": len(rows),
            "rejected": dict(sorted(Counter(row["reason"] for row in self.rejected()).items())),
            "derived_twice": sum(len(row.get("derived_by", ())) > 1 for row in rows),
            "cells": dict(sorted(cells.items())),
        }


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    if not path.is_file():
        write_atomic(path, json.dumps(settings, indent=1, ensure_ascii=False))
        return
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: damaged; use another folder") from error
    for key in sorted({*saved, *settings}):
        if saved.get(key) != settings.get(key):
            raise InputError(
                f"{path}: this folder was made with {key} = {saved.get(key)!r}, now it is {settings.get(key)!r}; use"
                " another folder"
            )


def _cut_last_line(path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb+") as handle:
        content = handle.read()
        if content and not content.endswith(b"\n"):
            handle.truncate(content.rfind(b"\n") + 1)

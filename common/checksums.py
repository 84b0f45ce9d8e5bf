"""Checksums of what a resumed run goes on from: a manifest written last beside the files of a checkpoint, and a last
line of its own in a file of rows; compared before either is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from common.files import file_sha256, first_damaged, write_atomic

MANIFEST = "sha256.json"
"""File of a folder that holds {relative path: SHA-256} of all its other files."""
NO_MANIFEST = f"no {MANIFEST}"
Record = TypeVar("Record")


def write_manifest(folder: str | os.PathLike[str]) -> None:
    """Write the manifest of a folder whose files are all there; the last thing written into it."""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != MANIFEST)
    sums = {str(path.relative_to(root)): file_sha256(path) for path in files}
    write_atomic(root / MANIFEST, json.dumps(sums, indent=1))


def damage(folder: str | os.PathLike[str]) -> str | None:
    """What is wrong with a folder by its manifest: ``NO_MANIFEST``, or the first file that is gone or not as written;
    None when every listed file has the bytes it had.
    """
    root = Path(folder)
    try:
        sums = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return NO_MANIFEST
    except (OSError, ValueError) as error:
        return f"{MANIFEST} cannot be read ({type(error).__name__})"
    return first_damaged(root, sums)


def write_checked_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines by rename; the last line is ``{"rows": n, "sha256": …}`` over the bytes before it."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    body = "".join(lines)
    last = {"rows": len(lines), "sha256": hashlib.sha256(body.encode()).hexdigest()}
    write_atomic(path, body + json.dumps(last) + "\n")


def read_checked_rows(
    path: Path, from_row: Callable[[Mapping[str, Any]], Record], say: Callable[[str], None] = print
) -> list[Record] | None:
    """Read what ``write_checked_rows`` wrote; None when there is no such file or it cannot be trusted.

    Args:
        say: is told why a file is not trusted: cut, changed, or without its last line.
    """
    body = read_checked(path, say)
    if body is None:
        return None
    return [from_row(json.loads(line)) for line in body.split(b"\n")[:-1]]  # splitlines() would cut at U+2028


def read_checked(path: Path, say: Callable[[str], None] = print) -> bytes | None:
    """The bytes of the rows of ``read_checked_rows``; None when they cannot be trusted."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    body, newline, last = written.rstrip(b"\n").rpartition(b"\n")
    body += newline
    try:
        wanted = json.loads(last)["sha256"]
    except (ValueError, KeyError, TypeError):
        say(f"{path} is not used: its last line, the checksum, is missing; what it held is made again")
        return None
    if hashlib.sha256(body).hexdigest() != wanted:
        say(f"{path} is not used: it is not as it was written; what it held is made again")
        return None
    return body

"""Writing a file so that nobody ever sees half of it, and the checksum of what is on disk."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Write by rename, so that a reader or a killed process never sees half a file.

    Raises:
        OSError: it could not be written, e.g. on a full disk; what was at ``path`` is still there.
    """
    write_lines(path, [text])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """As ``write_atomic``, piece by piece: never more than one of ``lines`` is held. Each brings its own line end.

    Raises:
        OSError: as ``write_atomic``; what ``lines`` raises also leaves ``path`` as it was.
    """
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")  # nodes may share the folder
    try:
        with temporary.open("w", encoding="utf-8") as handle:
            handle.writelines(lines)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # of a write that failed: a full disk needs the space


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def payload_sums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return {relative path: SHA-256} of files of a folder; a name that is a folder stands for all files in it."""
    files = [file for name in names for file in _files(folder / name)]
    return {str(file.relative_to(folder)): file_sha256(file) for file in sorted(files)}


def first_damaged(folder: Path, sums: dict[str, str]) -> str | None:
    """Return what is wrong with the first file of ``payload_sums`` that was lost or changed, None when none was."""
    for name, wanted in sums.items():
        try:
            found = file_sha256(folder / name)
        except OSError as error:
            return f"{name} cannot be read ({type(error).__name__})"
        if found != wanted:
            return f"{name} is not as it was written (SHA-256 {found[:12]}, wanted {wanted[:12]})"
    return None


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]

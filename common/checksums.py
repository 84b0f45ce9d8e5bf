"""Checksums of a checkpoint: a manifest written last beside its files, compared before the checkpoint is used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from common.runs import write_atomic

MANIFEST = "sha256.json"
"""File of a folder that holds {relative path: SHA-256} of all its other files."""
NO_MANIFEST = f"no {MANIFEST}"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


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
    for name, wanted in sums.items():
        try:
            found = file_sha256(root / name)
        except OSError as error:
            return f"{name} cannot be read ({type(error).__name__})"
        if found != wanted:
            return f"{name} is not as it was written (SHA-256 {found[:12]}, wanted {wanted[:12]})"
    return None


def newest_intact(
    folder: str | os.PathLike[str], whole: Sequence[str], say: Callable[[str], None] = print
) -> str | None:
    """Return the newest ``checkpoint-<n>`` of a folder that can be used, None without any.

    A checkpoint needs the JSON files ``whole`` (the trainer writes one of them last) and the bytes of its manifest. One
    without a manifest, left by a kill between the two or by an older version, is used only when none has a good one.

    Args:
        say: is told every checkpoint that is passed over, and why.
    """
    without_manifest = None
    found = sorted(Path(folder).glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]), reverse=True)
    for path in found:
        reason = damage(path)
        if reason is None:
            return str(path)
        if reason == NO_MANIFEST and _is_whole(path, whole):
            without_manifest = without_manifest or str(path)
        else:
            told = "not written to its end" if reason == NO_MANIFEST else reason
            say(f"{path} is passed over: {told}")
    if without_manifest:
        say(f"{without_manifest} has no checksums and is taken as it is")
    return without_manifest


def _is_whole(path: Path, names: Sequence[str]) -> bool:
    try:
        for name in names:
            json.loads((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True

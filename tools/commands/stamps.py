"""A second run must take seconds, and a half-done set-up must never pass for a done one.

A stamp is a file that holds the hash of everything a step read. It is removed before the step and written after it, so
an interrupted step has no stamp and is done again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from .paths import STAMPS

_IGNORED_DIRECTORIES = {"__pycache__", ".git", ".venv", "build", "lib"}
_IGNORED_SUFFIXES = {".pyc", ".so"}


def files_below(path: Path) -> Iterable[Path]:
    """The source files at or below `path`, in a fixed order; built things left out."""
    if path.is_file():
        yield path
        return
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in _IGNORED_DIRECTORIES)
        for name in sorted(files):
            file = Path(folder, name)
            if not _IGNORED_SUFFIXES.intersection(file.suffixes):
                yield file


def digest(*, paths: Iterable[Path] = (), words: Iterable[str] = ()) -> str:
    """A hash of the names and contents of the files below `paths`, and of `words`."""
    total = hashlib.sha256()
    for word in words:
        total.update(f"word {len(word)} {word}\n".encode())
    for path in paths:
        for file in files_below(path):
            content = file.read_bytes()
            total.update(f"file {len(str(file))} {file} {len(content)}\n".encode())
            total.update(content)
    return total.hexdigest()


class Stamp:
    """Whether one step is done for one state of its inputs. Confined to the holder of the set-up lock."""

    def __init__(self, name: str, folder: Path = STAMPS) -> None:
        self._file = folder / name

    def matches(self, value: str) -> bool:
        try:
            return self._file.read_text() == value
        except OSError:
            return False

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)

    def write(self, value: str) -> None:
        """Replaces the stamp in one move: a reader sees the old one, none, or the new one whole."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(value)
        fresh.replace(self._file)

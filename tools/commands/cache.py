"""What is large and serves every checkout lies outside of them: ~/.cache/onesided, or $XDG_CACHE_HOME/onesided."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .environment import why_pip_failed
from .steps import run_step


def cache_folder(*names: str) -> Path:
    """A folder of the cache, made when it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base.joinpath("onesided", *names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pip_step(title: str, python: Path, *arguments: str | Path) -> None:
    """Runs pip of `python` as one step; a Problem says in words what was missing."""
    command: Sequence[str] = [str(python), "-m", "pip", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    run_step(title, command, failure=why_pip_failed, env=environment)

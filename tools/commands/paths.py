"""Every command means the same folders by the same names."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMPS = VENV / ".onesided"
BUILD = ROOT / "build"
LOCK = ROOT / ".do.lock"
LOG = ROOT / ".do.log"
REQUIREMENTS = ROOT / "requirements"
PYTHON = VENV / "bin" / "python"


def tool(name: str) -> str:
    """The path of a program installed in .venv."""
    return str(VENV / "bin" / name)

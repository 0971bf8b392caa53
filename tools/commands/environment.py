"""Everything Python lives in .venv, at pinned versions, and is looked at again only when the pins change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from .lock import CheckoutLock
from .paths import PYTHON, REQUIREMENTS, STAMPS, VENV
from .problem import Problem
from .stamps import Stamp, digest
from .steps import Step, run_step

_NO_NETWORK = (
    "(from versions: none)",
    "Temporary failure in name resolution", "Name or service not known", "Network is unreachable",
    "Connection refused", "NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ProxyError",
    "Failed to establish a new connection",
)  # fmt: skip


def child_environment(**settings: str) -> dict[str, str]:
    """The environment for programs of .venv: the user's, without what ./do set for itself."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    kept["PATH"] = f"{VENV / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
    kept["VIRTUAL_ENV"] = str(VENV)
    kept["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return {**kept, **settings}


def why_pip_failed(output: str) -> str:
    """The sentence for what pip printed last."""
    if any(sign in output for sign in _NO_NETWORK):
        return (
            "no network, or an index without what we pin: pip found nothing there; connect to it, or point pip at a "
            "mirror or at folders of wheels (PIP_INDEX_URL, PIP_FIND_LINKS), then run this again."
        )
    if "No space left on device" in output:
        return f"the disk is full: .venv needs about 3 GB below {VENV.parent}; free some space, then run this again."
    lines = [line for line in output.splitlines() if line.strip()] or ["it said nothing"]
    last = next((line for line in reversed(lines) if "ERROR" in line), lines[-1])
    return f"pip could not install the requirements: {last.strip()}"


def _make_venv(lock: CheckoutLock) -> None:
    mark = Stamp("venv")
    wanted = digest(words=[sys.version])
    if mark.matches(wanted) and PYTHON.exists():
        return
    lock.exclude()
    if mark.matches(wanted) and PYTHON.exists():
        return
    if VENV.exists() and not STAMPS.exists():
        raise Problem(".venv in this folder was not made by ./do; move it away or delete it, then run this again.")
    with Step(f"Virtual environment (Python {sys.version_info.major}.{sys.version_info.minor})"):
        if VENV.exists():
            shutil.rmtree(VENV)
        STAMPS.mkdir(parents=True)  # first, so that a venv whose making is cut short is known as ours
        made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            detail = (made.stdout + made.stderr).strip().splitlines()[-1:]
            raise Problem(f"{sys.executable} could not make a virtual environment: {' '.join(detail)}")
    mark.write(wanted)


def require(lock: CheckoutLock, groups: Sequence[str]) -> None:
    """Makes sure of .venv and of the requirement files `groups` ("run", "build", "test", "bench")."""
    _make_venv(lock)
    files = [REQUIREMENTS / f"{group}.txt" for group in groups]
    pairs = [(file, Stamp(f"requirements-{file.stem}"), digest(paths=[file])) for file in files]
    if all(stamp.matches(value) for _, stamp, value in pairs):
        return
    lock.exclude()
    stale = [(file, stamp, value) for file, stamp, value in pairs if not stamp.matches(value)]
    for _, stamp, _ in stale:
        stamp.clear()
    Stamp("package").clear()  # what was built against other versions is not ours any more
    command = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", "--no-input"]
    for file, _, _ in stale:
        command += ["-r", str(file)]
    title = f"Python packages: {', '.join(file.name for file, _, _ in stale)}"
    run_step(title, command, failure=why_pip_failed, env=child_environment())
    for _, stamp, value in stale:
        stamp.write(value)

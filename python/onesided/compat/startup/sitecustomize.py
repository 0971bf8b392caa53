"""Runs at the start of Python where the package is used in place; an installed package has a .pth file instead."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _run_the_next() -> None:
    """Another sitecustomize further down the path still runs, as without us."""
    rest = [path for path in sys.path if os.path.abspath(path or os.curdir) != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_the_next()
if os.environ.get("ONESIDED_AS"):
    import onesided.compat.startup  # noqa: F401

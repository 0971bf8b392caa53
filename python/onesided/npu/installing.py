"""Putting the decorator in front of torch_npu's allocator, and taking it away again."""

from __future__ import annotations

import threading

from onesided.npu import extension, patches

_lock = threading.Lock()
_installed = False


def install() -> None:
    """Teaches torch_npu `sub_block_alignment`. May come at any time, also after allocations; a second call does nothing.

    Until an aligned pool is made, torch_npu's own code runs. ImportError: no torch_npu, or a version we do not know.
    """
    global _installed
    with _lock:
        if _installed:
            return
        loaded = extension.load()
        loaded.install()
        patches.apply(loaded)
        _installed = True


def uninstall() -> None:
    """Puts torch_npu back as it was. RuntimeError names the aligned pools that are still in use; then nothing changes."""
    global _installed
    with _lock:
        if not _installed:
            return
        loaded = extension.load()
        patches.drop_default_pool(loaded)
        loaded.uninstall()
        patches.revert()
        _installed = False


def installed() -> bool:
    """Whether `install()` is in effect."""
    return _installed

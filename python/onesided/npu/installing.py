"""Installs the decorator in front of torch_npu's allocator, and removes it."""

from __future__ import annotations

import threading

from onesided.npu import extension, patches

_lock = threading.Lock()
_installed = False


def install() -> None:
    """Adds `sub_block_alignment` to torch_npu. May be called at any time, also after allocations; a second call has no
    effect.

    Until an aligned pool is made, torch_npu's own code runs. ImportError: no torch_npu, or an unsupported version."""
    global _installed
    with _lock:
        if _installed:
            return
        loaded = extension.load()
        loaded.install()
        patches.apply(loaded)
        _installed = True


def uninstall() -> None:
    """Restores torch_npu. RuntimeError, with the aligned pools that are still in use; then nothing changes."""
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
    """True if `install()` is in effect."""
    return _installed

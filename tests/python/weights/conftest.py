"""Host tensors only: torch is imported here, once, without torch_npu, so that the setting does not stay for the tests of other
folders."""

from __future__ import annotations

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    pytest.importorskip("torch", reason="weights are torch tensors: pip install onesided[ray]")

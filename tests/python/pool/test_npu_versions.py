"""What `onesided.npu` says where it cannot work. None of this needs torch_npu."""

from __future__ import annotations

import sys

import pytest

import onesided.npu
from onesided.npu import alignment, extension


def test_known_versions_have_an_extension():
    assert extension.module_name("2.13.0+cpu", "2.13.0") == "onesided._torch_npu_2_13"
    assert extension.module_name("2.13.1", "2.13.0.post2") == "onesided._torch_npu_2_13"


@pytest.mark.parametrize(("torch", "torch_npu"), [("2.12.0", "2.12.0"), ("2.14.0a0", "2.14.0"), ("2.13.0", "2.12.0")])
def test_unknown_versions_are_named(torch, torch_npu):
    with pytest.raises(ImportError, match=rf"torch {torch} with torch_npu {torch_npu}.*2\.13"):
        extension.module_name(torch, torch_npu)


def test_without_torch_npu_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(extension, "_loaded", None)
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(ImportError, match="onesided sim"):
        onesided.npu.install()
    assert not onesided.npu.installed()


def test_uninstall_without_install_is_nothing():
    onesided.npu.uninstall()
    assert not onesided.npu.installed()


def test_alignments():
    assert alignment.checked(None) == alignment.checked(0) == 0
    assert alignment.checked(4096) == 4096
    assert alignment.checked(1 << 30) == 1 << 30
    for bad in (-4096, 1, 2048, 6144, 1 << 31):
        with pytest.raises(ValueError, match=str(bad)):
            alignment.checked(bad)
    for bad in (1.0, "4096", False, object()):
        with pytest.raises(TypeError, match="sub_block_alignment"):
            alignment.checked(bad)

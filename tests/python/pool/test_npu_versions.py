"""What `onesided.npu` says where it cannot work. None of this needs torch_npu."""

from __future__ import annotations

import re
import sys

import pytest

import onesided.npu
from onesided.npu import alignment, extension, interface

CARRIED = ["2.8.0", "2.9.0", "2.10.0.post4", "2.13.0"]


@pytest.mark.parametrize(
    ("torch", "torch_npu", "expected"),
    [
        ("2.13.0+cpu", "2.13.0", ["2.13.0"]),
        ("2.9.0+cu128", "2.9.0", ["2.9.0"]),
        ("2.10.0", "2.10.0.post7", ["2.10.0.post4"]),
        ("2.9.1", "2.9.0.post9", ["2.9.0"]),
    ],
)
def test_a_build_for_the_same_torch_may_fit(torch, torch_npu, expected):
    assert extension.candidates(torch, torch_npu, CARRIED) == expected
    assert extension.module_name("2.10.0.post4") == "onesided._torch_npu_2_10_0_post4"


@pytest.mark.parametrize(("torch", "torch_npu"), [("2.5.1", "2.5.1"), ("2.6.0", "2.6.0.post5"), ("2.15.0a0", "2.15.0")])
def test_unknown_versions_are_named(torch, torch_npu):
    with pytest.raises(ImportError, match=rf"does not know torch_npu {torch_npu}.*2\.9\.0.*2\.14\.0.*pip install"):
        extension.candidates(torch, torch_npu, CARRIED)


def test_torch_and_torch_npu_of_different_versions_are_refused():
    with pytest.raises(ImportError, match=r"torch 2\.9\.0 and torch_npu 2\.10\.0\.post4 do not belong together"):
        extension.candidates("2.9.0", "2.10.0.post4", CARRIED)


HEADER = """
// virtual void in_a_comment() = 0;
struct Stat { int64_t current = 0; };
class NPUAllocator : public c10::Allocator {
public:
    virtual void* raw_alloc(size_t nbytes) = 0;
    virtual SnapshotInfo snapshot(MempoolId_t id = {0, 0}) = 0;
    virtual bool isHistoryEnabled()
    {
        TORCH_CHECK(false, name());
    }
};
"""


def test_the_interface_is_read_from_the_header():
    assert interface.declared(HEADER) == [
        "c10::Allocator",
        "void*raw_alloc(size_t nbytes)",
        "SnapshotInfo snapshot(MempoolId_t id)",
        "bool isHistoryEnabled()",
        "Stat: int64_tcurrent=0;",
    ]
    assert interface.declared("int main() {}") == []


class Build:
    """A build of the decorator that answers as it is told."""

    interface = "\n".join(interface.declared(HEADER))

    def __init__(self, running=5, symbol="", name="c10_npu::NPUCachingAllocator::NpuCachingAllocator"):
        self.functions_compiled = lambda: 5
        self.functions_running = lambda: running
        self.misplaced_symbol = lambda: symbol
        self.running_class = lambda: name


def wheel(folder, header):
    path = folder / interface.HEADER
    path.parent.mkdir(parents=True)
    path.write_text(header)
    return folder


def test_a_wheel_as_published_fits(tmp_path):
    assert extension.misfit(Build(), wheel(tmp_path, HEADER)) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (HEADER.replace("raw_alloc", "raw_take"), r"raw_take.*raw_alloc"),
        (HEADER.replace("    virtual bool isHistoryEnabled", "    bool isHistoryEnabled"), "isHistoryEnabled"),
        (HEADER.replace("current = 0", "current = 0; int64_t peak = 0"), "peak"),
        ("", "ships no header"),
    ],
)
def test_another_layout_under_the_same_number_is_refused(tmp_path, changed, said):
    assert re.search(said, extension.misfit(Build(), wheel(tmp_path, changed)))


def test_a_table_that_is_not_what_the_header_says_is_refused(tmp_path):
    folder = wheel(tmp_path, HEADER)
    assert "has 6 functions, its header declares 5" in extension.misfit(Build(running=6), folder)
    assert extension.misfit(Build(symbol="function 3 is another"), folder) == "function 3 is another"
    assert "somebody::Else" in extension.misfit(Build(name="somebody::Else"), folder)


def test_no_build_that_fits_names_the_reasons_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(extension, "builds", lambda: CARRIED)
    monkeypatch.setattr(extension, "_import", lambda build: Build(running=6))
    with pytest.raises(ImportError, match=r"no build .* fits this torch_npu 2\.9\.0.*has 6 functions.*To build"):
        extension._choose("2.9.0", "2.9.0", wheel(tmp_path, HEADER))


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (OSError("libtorch_npu.so: wrong ELF class: ELFCLASS32"), "another processor"),
        (ImportError("libtorch_npu.so: undefined symbol: _ZN3c10"), "same version"),
        (ModuleNotFoundError("No module named 'torch_npu'"), "onesided sim"),
    ],
)
def test_a_torch_npu_that_does_not_load_is_told_from_a_missing_one(cause, said):
    assert said in extension._why_no_torch_npu(cause)


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

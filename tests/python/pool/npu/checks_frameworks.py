"""The framework shims, and the end-to-end example as a program."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from npu_session import A

import onesided.npu
from onesided.frameworks import pools
from onesided.frameworks.sglang import assert_2m_aligned_kv_args, zeros_2m_aligned
from onesided.frameworks.vllm_ascend import align_memory


@pytest.fixture(autouse=True)
def shims_let_go():
    yield
    pools.release()


@pytest.mark.parametrize("device", [None, "npu:0", "npu:1", "cpu"])
def test_zeros_2m_aligned(device):
    caches = [zeros_2m_aligned((3, 5, 7), torch.bfloat16, device) for _ in range(3)]
    assert all(cache.data_ptr() % A == 0 and not cache.any().item() for cache in caches)
    assert caches[0].shape == (3, 5, 7)
    if device != "cpu":
        assert all(cache.untyped_storage().nbytes() == 210 for cache in caches), "no padding kept alive"
    assert zeros_2m_aligned(4, device=device).dtype == torch.get_default_dtype()
    assert zeros_2m_aligned((0, 2), device=device).shape == (0, 2)
    with pytest.raises(ValueError, match="device 'cuda'; it is an npu or the cpu"):
        zeros_2m_aligned(4, device="cuda")


def test_assert_2m_aligned_kv_args():
    assert_2m_aligned_kv_args([0, A], [A, 2 * A])
    with pytest.raises(AssertionError, match=r"buffer 1: va=0x200200"):
        assert_2m_aligned_kv_args([0, A + 512], [A, A])
    with pytest.raises(AssertionError, match=r"buffer 0: len"):
        assert_2m_aligned_kv_args([0], [5])
    with pytest.raises(AssertionError, match="2 addresses but 1"):
        assert_2m_aligned_kv_args([0, A], [A])


def test_align_memory():
    onesided.npu.install()
    plain = torch.arange(2_000_000, dtype=torch.int32, device="npu:0")[1:]
    aligned = align_memory(plain, A)
    assert aligned.data_ptr() % A == 0
    assert aligned.untyped_storage().data_ptr() == plain.untyped_storage().data_ptr()
    whole = zeros_2m_aligned(1000, torch.int32, "npu:0")
    assert align_memory(whole, A).numel() == 1000
    for bad, alignment in ((whole.view(10, 100), A), (whole[1:], A), (whole, 3)):
        with pytest.raises(ValueError):
            align_memory(bad, alignment)


def test_the_ipc_registration_example_runs(capsys):
    example = Path(__file__).parents[4] / "examples" / "register_kv_cache.py"
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert "registered" in printed and "checked" in printed

"""A pytest plug-in for the checks in this folder: they need the real torch_npu wheel on the simulated runtime, which must
be there before torch is imported, so they run in processes of their own (test_npu_pools.py starts them)."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
from pathlib import Path

import onesided.ascend_sim

# Device memory is shared by the processes of one (simulated) machine; these checks count bytes.
os.environ["ONESIDED_SIM_MACHINE"] = f"checks-{os.getpid()}"
onesided.ascend_sim.enable(devices=2, hbm=os.environ.get("CHECKS_HBM", "8GiB"))

import pytest  # noqa: E402
import torch  # noqa: E402
import torch_npu  # noqa: E402

import onesided.npu  # noqa: E402

# Before the checks import from torch_npu, as docs/aligned_pools.md asks.
onesided.npu.install()

A = 2 << 20

_UPSTREAM = r"""
#include <stddef.h>
extern int aclrtMalloc(void **, size_t, int);
extern int aclrtFree(void *);
static struct { void *p; size_t n; int device; } out[4096];
static int count, allocs, frees, wrong;
void *mc_ascend_malloc(size_t n, int device, void *stream) {
  void *p = 0;
  (void)stream;
  if (aclrtMalloc(&p, n, 1) != 0) return 0;
  out[count].p = p; out[count].n = n; out[count++].device = device; ++allocs;
  return p;
}
void mc_ascend_free(void *p, size_t n, int device, void *stream) {
  (void)stream;
  for (int i = 0; i < count; ++i)
    if (out[i].p == p && out[i].n == n && out[i].device == device) {
      out[i] = out[--count]; ++frees; aclrtFree(p); return;
    }
  ++wrong;
}
int upstream_allocs(void) { return allocs; }
int upstream_frees(void) { return frees; }
int upstream_wrong(void) { return wrong; }
"""


class Upstream:
    """A user's allocator library over aclrtMalloc that keeps account of every pointer."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)

    @property
    def allocs(self) -> int:
        return self.library.upstream_allocs()

    @property
    def frees(self) -> int:
        return self.library.upstream_frees()

    @property
    def wrong(self) -> int:
        return self.library.upstream_wrong()

    def allocator(self, **options):
        return torch_npu.npu.NPUPluggableAllocator(self.path, "mc_ascend_malloc", "mc_ascend_free", **options)


@pytest.fixture(scope="session")
def upstream(tmp_path_factory) -> Upstream:
    folder = tmp_path_factory.mktemp("upstream")
    (folder / "upstream.c").write_text(_UPSTREAM)
    library = folder / "libmc_ascend_alloc.so"
    runtime = onesided.ascend_sim.library_folder() / "libascendcl.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "upstream.c"), str(runtime)],
        check=True,
        timeout=120,
    )
    return Upstream(library)


@pytest.fixture(autouse=True)
def installed():
    """The decorator is there; nothing is left behind."""
    torch.npu.set_device(0)
    onesided.npu.install()
    yield
    gc.collect()
    torch.npu.empty_cache()
    assert onesided.npu.pools() == [], "a check left an aligned pool behind"


def device_used(device: int = 0) -> int:
    """The device's own account of this process, in bytes."""
    return onesided.ascend_sim.stats(device).used_bytes

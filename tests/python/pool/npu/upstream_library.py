"""A user's allocator library that keeps account of every pointer, and nothing readable behind what it gives (it is over
aclrtMallocAlign32); built where a test wants it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import torch_npu

import onesided.ascend_sim

_UPSTREAM = r"""
#include <stddef.h>
extern int aclrtMallocAlign32(void **, size_t, int);
extern int aclrtFree(void *);
static struct { void *p; size_t n; int device; } out[4096];
static int count, allocs, frees, wrong;
void *mc_ascend_malloc(size_t n, int device, void *stream) {
  void *p = 0;
  (void)stream;
  if (aclrtMallocAlign32(&p, n, 1) != 0) return 0;
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
    """A user's allocator library that keeps account of every pointer."""

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


def build_upstream(folder: Path) -> Upstream:
    """The library, compiled into the folder and loaded."""
    (folder / "upstream.c").write_text(_UPSTREAM)
    library = folder / "libmc_ascend_alloc.so"
    runtime = onesided.ascend_sim.library_folder() / "libascendcl.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "upstream.c"), str(runtime)],
        check=True,
        timeout=120,
    )
    return Upstream(library)

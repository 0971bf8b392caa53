"""Whole programs on the unmodified torch_npu wheel, as users write them. Each is a function; its name is the
argument. A failed assertion is a failed test."""

from __future__ import annotations

import copy
import io
import sys
import warnings
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import torch
from torch import nn

from onesided import ascend_sim


def devices() -> None:
    assert torch.npu.is_available() and torch.npu.device_count() == 2
    a, b = torch.ones(4, device="npu:0"), torch.full((4,), 2.0, device="npu:1")
    assert (a.to("npu:1") + b).tolist() == [3.0] * 4
    assert torch.npu.get_device_name(0).startswith("Ascend910")
    with torch.npu.device(1):
        assert torch.empty(1, device="npu").device.index == 1
    for strangers in ((a, b), (a, b.cpu()), (b.cpu(), a)):
        try:
            torch.add(*strangers)
        except RuntimeError as error:
            assert "Expected all tensors to be on the same device" in str(error)
        else:
            raise AssertionError("tensors of two devices were added")
    assert (a + torch.tensor(2.0)).tolist() == [3.0] * 4
    free, total = torch.npu.mem_get_info(0)
    assert 0 < free < total == 8 << 30


def mlp() -> None:
    """Forward, backward and SGD: every step equals the CPU's, to the bit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    twin = copy.deepcopy(model).to("npu:1")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin)]
    for step in range(5):
        x, y = torch.randn(10, 8), torch.randint(0, 3, (10,))
        losses = []
        for m, optimizer, device in zip((model, twin), optimizers, ("cpu", "npu:1"), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(m(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == losses[1], f"step {step}: {losses}"
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert other.device.type == "npu" and torch.equal(one, other.cpu())


def save_and_load() -> None:
    x = torch.randn(4, 4).to("npu:1")
    for target in ("cpu", "npu:0", None):
        stored = io.BytesIO()
        torch.save({"x": x, "view": x[:, 1]}, stored)
        stored.seek(0)
        loaded = torch.load(stored, map_location=target)
        assert torch.equal(loaded["x"].cpu(), x.cpu()) and torch.equal(loaded["view"].cpu(), x[:, 1].cpu())
        assert str(loaded["x"].device) == (target or "npu:1")


def streams() -> None:
    """Copies on a stream of their own, ordered by events; memory recorded on a stream is not reused too early."""
    main, side = torch.npu.current_stream(), torch.npu.Stream()
    source = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    for round_number in range(20):
        target = torch.empty(1 << 20, device="npu")
        side.wait_stream(main)
        with torch.npu.stream(side):
            target.copy_(source, non_blocking=True)
            done = torch.npu.Event(enable_timing=True)
            done.record()
        main.wait_event(done)
        target.record_stream(side)
        assert target.sum().item() == source.sum().item(), round_number
        del target
    back = torch.full((1 << 20,), 7.0, device="npu").to("cpu", non_blocking=True)
    torch.npu.synchronize()
    assert back.is_pinned() and bool((back == 7).all())
    first, second = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    first.record()
    second.record()
    torch.npu.synchronize()
    assert first.query() and second.query() and first.elapsed_time(second) >= 0
    assert side.query()


def allocator() -> None:
    """The wheel's own allocator over simulated memory: statistics, snapshot, pools, and giving back."""
    torch.npu.empty_cache()
    before, reserved = ascend_sim.stats(0), torch.npu.memory_reserved()
    kept = [torch.empty(3 << 20, dtype=torch.uint8, device="npu") for _ in range(10)]
    assert torch.npu.memory_allocated() >= 30 << 20
    assert ascend_sim.stats(0).used_bytes - before.used_bytes == torch.npu.memory_reserved() - reserved
    assert any(segment["total_size"] for segment in torch.npu.memory_snapshot())
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        inside = torch.ones(1 << 20, device="npu")
    assert inside.sum().item() == 1 << 20
    del kept, inside, pool
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() == reserved
    now = ascend_sim.stats(0)
    assert now.used_bytes == before.used_bytes and now.mallocs - before.mallocs == now.frees - before.frees
    try:
        torch.empty(9 << 30, dtype=torch.uint8, device="npu")
    except torch.OutOfMemoryError:
        assert torch.ones(3, device="npu").sum().item() == 3
    else:
        raise AssertionError("9 GiB on a device of 8")


def expandable() -> None:
    """A segment that grows (PYTORCH_NPU_ALLOC_CONF=expandable_segments:True): fewer, larger tensors in one range."""
    parts = [torch.full((8 << 20,), float(i), device="npu") for i in range(6)]
    assert [part[-1].item() for part in parts] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    segments = torch.npu.memory_snapshot()
    assert any(segment["is_expandable"] for segment in segments)
    whole = torch.cat(parts)
    assert whole.sum().item() == float(sum(range(6)) * (8 << 20))
    del parts, whole
    torch.npu.empty_cache()
    assert ascend_sim.stats(0).used_bytes == 0


def nameless_is_never_silent() -> None:
    """An operator that is not simulated names itself; behind the task queue, everything later raises instead of being
    silently wrong."""
    import torch_npu

    x = torch.ones(4, 4, device="npu")
    try:
        torch_npu.npu_geglu(x)
    except RuntimeError as error:
        assert "GeGlu" in str(error), error
    else:
        raise AssertionError("an operator that does not exist gave a result")
    assert x.sum().item() == 16, "said at once, so nothing stopped"
    boxes = torch.ones(4, 4, device="npu")
    try:
        torch_npu.npu_ptiou(boxes, boxes)
        torch.npu.synchronize()
    except RuntimeError as error:
        assert "'Iou'" in str(error) or "507015" in str(error), error
    else:
        raise AssertionError("the failure was not reported")
    for read in (lambda: x.cpu(), lambda: x.sum().item(), lambda: (x + 1).cpu()):
        try:
            read()
        except RuntimeError as error:
            assert "'Iou'" in str(error) or "507015" in str(error), error
        else:
            raise AssertionError("a result was read after the device had stopped")


def bytes_reach_other_processes() -> None:
    """The file behind a tensor's memory holds the tensor's bytes."""
    import ctypes
    import mmap

    runtime = ctypes.CDLL(str(ascend_sim.library_folder() / "libascendcl.so"))
    x = torch.arange(1 << 18, dtype=torch.int32, device="npu")
    torch.npu.synchronize()
    fd, offset, base, nbytes = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    code = runtime.onesided_sim_export(ctypes.c_void_p(x.data_ptr()), *map(ctypes.byref, (fd, offset, base, nbytes)))
    assert code == 0 and base.value <= x.data_ptr() and nbytes.value % (2 << 20) == 0
    with mmap.mmap(fd.value, nbytes.value, offset=offset.value) as mapped:
        start = x.data_ptr() - base.value
        seen = torch.frombuffer(bytearray(mapped[start : start + x.nbytes]), dtype=torch.int32)
        assert torch.equal(seen, x.cpu())


def _add_one(tensors: Queue, done: Event) -> None:
    tensor = tensors.get()
    tensor.add_(1)
    torch.npu.synchronize()
    done.set()
    del tensor


def tensors_cross_processes() -> None:
    """torch.multiprocessing hands npu tensors over by IPC key: the child works on the parent's memory."""
    context = torch.multiprocessing.get_context("spawn")
    tensors, done = context.Queue(), context.Event()
    child = context.Process(target=_add_one, args=(tensors, done))
    child.start()
    shared = torch.ones(1 << 20, device="npu")
    torch.npu.synchronize()
    tensors.put(shared)
    assert done.wait(100)
    child.join()
    assert child.exitcode == 0 and shared.sum().item() == 2 << 20


def main() -> int:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        globals()[name]()
        print(f"{name}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

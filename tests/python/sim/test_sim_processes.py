"""Device memory belongs to the machine: shared by its processes, given back by the dead, exported to others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_sim import HERE, machine_name, passed, run, sim_environment

PRELUDE = f"import sys; sys.path.insert(0, {str(HERE)!r}); import acl; acl.call('aclrtSetDevice', 0)\n"


@contextmanager
def holder(code: str, machine: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code`, which ends by print()ing its news and waiting for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code + "\nsys.stdout.flush(); sys.stdin.readline()"],
        env=sim_environment(machine, **settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(timeout=60) == 0


def traces(machine: str) -> list[str]:
    """Names by which processes of a machine find each other."""
    return [line for line in Path("/proc/net/unix").read_text().splitlines() if f"/{machine}/" in line]


def test_capacity_is_the_machines_and_the_killed_give_it_back() -> None:
    machine = machine_name()
    hbm = {"ONESIDED_SIM_HBM": "64MiB"}
    with holder("acl.malloc(40 * acl.MIB); print(acl.free_bytes() >> 20)", machine, **hbm) as first:
        assert told(first) == "24"
        code = "try: acl.malloc(40 * acl.MIB)\nexcept acl.AclFailure as e: print(e)"
        out = passed(PRELUDE + code, machine=machine, **hbm)
        assert out.startswith("207001") and "out of memory" in out and "over all processes" in out
        assert passed(PRELUDE + "print(acl.free_bytes() >> 20)", machine=machine, **hbm) == "24\n"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert (
            passed(PRELUDE + "acl.malloc(60 * acl.MIB); print(acl.free_bytes() >> 20)", machine=machine, **hbm) == "4\n"
        )


def test_each_device_has_its_own_capacity_also_behind_visible_devices() -> None:
    machine = machine_name()
    hbm = {"ONESIDED_SIM_HBM": "64MiB"}
    with holder("acl.malloc(40 * acl.MIB); print('held')", machine, ASCEND_RT_VISIBLE_DEVICES="1", **hbm) as first:
        assert told(first) == "held"
        code = "print(acl.free_bytes() >> 20); acl.call('aclrtSetDevice', 1); print(acl.free_bytes() >> 20)"
        assert passed(PRELUDE + code, machine=machine, **hbm).split() == ["64", "24"]


def test_nothing_is_left_behind() -> None:
    machine = machine_name()
    with holder("acl.malloc(2 * acl.MIB); print('up')", machine) as first:
        assert told(first) == "up"
        with holder("acl.malloc(2 * acl.MIB); print('up')", machine) as second:
            assert told(second) == "up"
            assert len(traces(machine)) == 2
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            # The ledger remains after its creator's end, as long as another process has it open.
            assert passed(PRELUDE + "print(acl.free_bytes() >> 20)", machine=machine) == f"{8192 - 2}\n"
            finish(second)
    assert traces(machine) == []


def test_memory_crosses_by_key_and_only_to_those_it_is_meant_for() -> None:
    machine = machine_name()
    code = """
address = acl.malloc(4 * acl.MIB)
acl.view(address, 4)[:] = b"data"
print(acl.export_key(address, 2 * acl.MIB, any_process=True).decode(), acl.export_key(address, 2 * acl.MIB, any_process=False).decode())
sys.stdout.flush()
sys.stdin.readline()
print(bytes(acl.view(address, 4)).decode())
"""
    reader = """
address = acl.import_key(sys.argv[1].encode())
view = acl.view(address, 4)
print(bytes(view).decode())
view[:] = b"back"
acl.call("aclrtIpcMemClose", sys.argv[1].encode())
try: acl.import_key(sys.argv[2].encode())
except acl.AclFailure as e: print(e)
"""
    with holder(code, machine) as owner:
        any_key, closed_key = told(owner).split()
        out = passed(PRELUDE + reader, any_key, closed_key, machine=machine).splitlines()
        assert out[0] == "data"
        assert out[1].startswith("107000") and "not among those" in out[1]
        assert owner.stdin is not None
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert told(owner) == "back"
        finish(owner)
    late = run(PRELUDE + reader, any_key, closed_key, machine=machine)
    assert "no living process exports" in late.stderr


def test_a_named_process_may_import() -> None:
    machine = machine_name()
    code = """
import ctypes
address = acl.malloc(2 * acl.MIB)
acl.view(address, 4)[:] = b"mine"
key = acl.export_key(address, 2 * acl.MIB, any_process=False)
print(key.decode()); sys.stdout.flush()
pid = ctypes.c_int32(int(sys.stdin.readline()))
acl.call("aclrtIpcMemSetImportPid", key, ctypes.byref(pid), ctypes.c_size_t(1))
print("allowed")
"""
    reader = """
key = sys.stdin.readline().strip().encode()
print(bytes(acl.view(acl.import_key(key), 4)).decode())
"""
    with holder(code, machine) as owner, holder(reader, machine) as other:
        key = told(owner)
        assert owner.stdin is not None and other.stdin is not None
        owner.stdin.write(f"{other.pid}\n")
        owner.stdin.flush()
        assert told(owner) == "allowed"
        other.stdin.write(key + "\n")
        other.stdin.flush()
        assert told(other) == "mine"


def test_physical_memory_crosses_by_shareable_handle() -> None:
    machine = machine_name()
    shared = """
import ctypes
class Prop(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int32) for n in ("handle", "allocation", "attribute", "id", "type", "pad")] + [("reserve", ctypes.c_uint64)]
def mapped(handle):
    base = ctypes.c_void_p()
    acl.call("aclrtReserveMemAddress", ctypes.byref(base), ctypes.c_size_t(2 * acl.MIB), ctypes.c_size_t(0), None, ctypes.c_uint64(1))
    acl.call("aclrtMapMem", base, ctypes.c_size_t(2 * acl.MIB), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    return base.value
"""
    owner_code = (
        shared
        + """
handle = ctypes.c_void_p()
acl.call("aclrtMallocPhysical", ctypes.byref(handle), ctypes.c_size_t(2 * acl.MIB), ctypes.byref(Prop(0, 0, 4, 0, 1, 0, 0)), ctypes.c_uint64(0))
acl.view(mapped(handle), 4)[:] = b"phys"
out = ctypes.c_uint64()
acl.call("aclrtMemExportToShareableHandle", handle, 0, ctypes.c_uint64(1), ctypes.byref(out))
print(out.value)
"""
    )
    reader_code = (
        shared
        + """
handle = ctypes.c_void_p()
acl.call("aclrtMemImportFromShareableHandle", ctypes.c_uint64(int(sys.argv[1])), 0, ctypes.byref(handle))
base = mapped(handle)
print(bytes(acl.view(base, 4)).decode(), acl.free_bytes() >> 20)
"""
    )
    with holder(owner_code, machine) as owner:
        shareable = told(owner)
        assert passed(PRELUDE + reader_code, shareable, machine=machine).split() == ["phys", str(8192 - 2)]


def test_a_forked_child_hears_that_it_may_not() -> None:
    code = """
import os
acl.malloc(2 * acl.MIB)
child = os.fork()
if child == 0:
    try: acl.malloc(2 * acl.MIB)
    except acl.AclFailure as e:
        print(e, flush=True)
        os._exit(7)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
acl.malloc(2 * acl.MIB)
"""
    assert "forked" in passed(PRELUDE + code)


def test_fork_before_the_first_call_is_fine() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
import acl
child = os.fork()
acl.call("aclrtSetDevice", 0)
acl.malloc(2 * acl.MIB)
if child == 0: os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    passed(code)


def test_more_segments_than_open_files_are_allowed_by_default() -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [acl.malloc(2 * acl.MIB) for _ in range(600)]
for address in held: acl.free(address)
print(acl.free_bytes() >> 20)
"""
    assert passed(PRELUDE + code) == "8192\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [("ONESIDED_SIM_DEVICES", "zero"), ("ONESIDED_SIM_HBM", "12 apples"), ("ONESIDED_SIM_FAULTS", "boom")],
)
def test_settings_that_make_no_sense_are_named(name: str, value: str) -> None:
    done = run(PRELUDE, **{name: value})
    assert done.returncode == 1
    assert name in done.stderr and value in done.stderr


def test_faults_hit_the_calls_they_name() -> None:
    code = """
acl.malloc(2 * acl.MIB)
for i in range(2):
    try: print(acl.malloc(4 * acl.MIB) % (2 * acl.MIB))
    except acl.AclFailure as e: print(e)
"""
    out = passed(PRELUDE + code, ONESIDED_SIM_FAULTS="seed=3,fail=aclrtMalloc@2,misalign=@2").splitlines()
    assert out[0].startswith("207001") and "seed 3" in out[0]
    assert out[1] == "4096"
    capped = run(PRELUDE + "acl.malloc(4 * acl.MIB)", ONESIDED_SIM_FAULTS="cap=3MiB")
    assert "caps this process" in capped.stderr


def test_the_trace_has_a_line_for_every_call(tmp_path: Path) -> None:
    import json

    trace = tmp_path / "trace-%p.jsonl"
    passed(PRELUDE + "acl.free(acl.malloc(2 * acl.MIB))", ONESIDED_SIM_TRACE=str(trace))
    (written,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert [line["call"] for line in lines] == ["aclrtSetDevice", "aclrtMalloc", "aclrtFree"]
    assert f"nbytes={2 << 20}" in lines[1]["args"]
    assert all(line["code"] == 0 and line["ns"] >= 0 for line in lines)

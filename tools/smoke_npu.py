"""The checks to run on a machine with NPUs, and the report to send; this project has none.

    ./do smoke-npu [--json FILE] [--devices OWNER READER]

Each step prints one line and goes into the report, also when it fails; nothing is claimed that did not run. With
--simulated the same steps run on the simulated runtime, which says nothing about hardware.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

MIB = 1 << 20
ALIGNMENT = 2 * MIB
SIZES = (4 << 10, 64 << 10, MIB, 16 * MIB, 256 * MIB)
ROUNDS = 5
STEP_S = 300


def versions() -> dict[str, Any]:
    """Hardware and software, as far as they say it themselves."""
    import torch
    import torch_npu

    import onesided

    found: dict[str, Any] = {name: metadata.version(name) for name in ("torch", "torch_npu")}
    found |= {
        "onesided": onesided.__version__,
        "machine": platform.machine(),
        "kernel": platform.release(),
        "npus": torch.npu.device_count(),
    }
    found["npu"] = torch.npu.get_device_name(0) if torch.npu.device_count() else ""
    found["torch_npu_file"] = torch_npu.__file__
    home = os.environ.get("ASCEND_HOME_PATH", "")
    for version in Path(home).glob("*version*") if home else []:
        if version.is_file():
            found[version.name] = version.read_text(errors="replace").strip()[:500]
    return found


def vendor_library() -> dict[str, Any]:
    """Whether the vendor's engine library loads, and is one that this build knows."""
    import onesided

    options = {"transports": "ascend"}
    with onesided.Engine("127.0.0.1:0", options) as first, onesided.Engine("127.0.0.1:0", options) as second:
        second.connect(first.id, timeout_ms=20_000)
        return {"stats": str(second.stats())}


def misaligned() -> dict[str, Any]:
    """Plain tensors: how many are off the 2 MiB boundary, and what the vendor's engine says of one at connect."""
    import torch

    from onesided.ascend_sim.vendor import VendorEngine, VendorError

    tensors = [torch.zeros((1024, 128), dtype=torch.bfloat16, device="npu:0") for _ in range(8)]
    torch.npu.synchronize()
    off = [tensor for tensor in tensors if tensor.data_ptr() % ALIGNMENT]
    found: dict[str, Any] = {"tensors": len(tensors), "misaligned": len(off), "register": 0, "connect": 0, "text": ""}
    with VendorEngine("127.0.0.1:0") as owner, VendorEngine("127.0.0.1:0") as reader:
        try:
            for tensor in off[:1]:
                owner.register(tensor.data_ptr(), tensor.nbytes)
            reader.connect(owner.id)
        except VendorError as error:
            found["register" if error.call == "RegisterMem" else "connect"] = error.code
            found["text"] = error.text
    return found


def aligned() -> dict[str, Any]:
    """The same from an aligned pool: it has to connect and to move the right bytes."""
    import torch

    from onesided.ascend_sim.vendor import VendorEngine

    source, target = aligned_tensor(0, 4 * MIB), aligned_tensor(0, 4 * MIB)
    source.copy_(torch.arange(4 * MIB, device="cpu").to(torch.uint8))
    torch.npu.synchronize()
    with VendorEngine("127.0.0.1:0") as owner, VendorEngine("127.0.0.1:0") as reader:
        owner.register(source.data_ptr(), source.nbytes)
        reader.register(target.data_ptr(), target.nbytes)
        reader.connect(owner.id, timeout_ms=20_000)
        reader.transfer(owner.id, "READ", [(target.data_ptr(), source.data_ptr(), source.nbytes)])
    if not torch.equal(source.cpu(), target.cpu()):
        raise AssertionError("the bytes that arrived are not those that were sent")
    return {"bytes": source.nbytes}


def aligned_tensor(device: int, nbytes: int) -> Any:
    import torch
    import torch_npu

    import onesided.npu

    onesided.npu.install()
    pool = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
    with torch_npu.npu.use_mem_pool(pool):
        tensor = torch.zeros(nbytes, dtype=torch.uint8, device=f"npu:{device}")
    if tensor.data_ptr() % ALIGNMENT:
        raise AssertionError(f"{tensor.data_ptr():#x} from the aligned pool is not aligned")
    return tensor


def serve_peer(device: int) -> None:
    """The owner's process of transfers(): says where its memory is, then waits for its input to end."""
    import torch

    import onesided

    torch.npu.set_device(device)
    tensor = aligned_tensor(device, max(SIZES))
    tensor.copy_((torch.arange(max(SIZES), device="cpu") % 251).to(torch.uint8))
    torch.npu.synchronize()
    with onesided.Engine("127.0.0.1:0", {"transports": "ascend"}) as engine:
        engine.register_mem(tensor.data_ptr(), tensor.nbytes, "device")
        print(json.dumps({"id": engine.id, "address": tensor.data_ptr()}), flush=True)
        sys.stdin.read()


def transfers(owner: int, reader: int) -> dict[str, Any]:
    """READs between two processes on two NPUs through our engine's `ascend` transport, bytes checked."""
    import torch

    import onesided

    command = [sys.executable, __file__, "--peer", str(owner)]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdin is not None
    assert peer.stdout is not None
    try:
        # torch_npu writes warnings there too.
        line = next((line for line in peer.stdout if line.startswith("{")), None)
        if line is None:
            raise RuntimeError(f"the owner's process ended with {peer.wait()}")
        hello = json.loads(line)
        torch.npu.set_device(reader)
        target = aligned_tensor(reader, max(SIZES))
        torch.npu.synchronize()
        rows = []
        with onesided.Engine("127.0.0.1:0", {"transports": "ascend"}) as engine:
            engine.register_mem(target.data_ptr(), target.nbytes, "device")
            engine.connect(hello["id"], timeout_ms=20_000)
            for nbytes in SIZES:
                times = []
                for _ in range(ROUNDS):
                    start = time.perf_counter()
                    items = [(target.data_ptr(), hello["address"], nbytes)]
                    engine.transfer_sync(hello["id"], "READ", items, timeout_ms=60_000)
                    times.append(time.perf_counter() - start)
                rows.append({"bytes": nbytes, "best_us": min(times) * 1e6, "best_gbps": nbytes / min(times) / 1e9})
            expected = (torch.arange(max(SIZES), device="cpu") % 251).to(torch.uint8)
            if not torch.equal(target.cpu(), expected):
                raise AssertionError("the bytes that arrived are not the owner's")
            return {"rows": rows, "stats": str(engine.stats())}
    finally:
        peer.kill()
        peer.wait()


def demo(report: Path) -> dict[str, Any]:
    """The demo, as ./do demo runs it: on the simulated runtime only, it makes its own NPUs."""
    figures = report.with_suffix(".demo.json")
    command = [sys.executable, "-m", "onesided", "demo", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the demo ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    found: dict[str, Any] = json.loads(figures.read_text())
    return found


def run_step(name: str, step: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One line for the reader, one entry for the report."""
    print(f"{name} ... ", end="", flush=True)
    start = time.perf_counter()
    try:
        entry: dict[str, Any] = {"ok": True, "found": step()}
    except Exception as error:  # the report is about what fails
        entry = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    entry["seconds"] = round(time.perf_counter() - start, 3)
    print("ok" if entry["ok"] else f"FAILED: {entry['error']}", flush=True)
    return entry


def which_runtime(simulated: bool) -> str | None:
    """Why the steps cannot run here; None when they can."""
    from onesided.ascend_sim import find_real_cann, library_folder

    if simulated:
        return None
    if find_real_cann(library_folder()) is None:
        return "no CANN runtime was found: source its set_env.sh first (or try the steps with --simulated)."
    return None


def steps_of(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is tried, in order."""
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "versions": versions,
        "vendor library": vendor_library,
        "misaligned tensors": misaligned,
        "aligned pool": aligned,
        "transfers between processes": lambda: transfers(*options.devices),
    }
    if options.simulated and not options.no_demo:
        steps["demo"] = lambda: demo(options.json)
    return steps


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do smoke-npu", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, default=Path("smoke_npu.json"), metavar="FILE", help="the report")
    parser.add_argument("--devices", type=int, nargs=2, default=[0, 1], metavar=("OWNER", "READER"))
    parser.add_argument("--simulated", action="store_true", help="run on the simulated runtime; proves the script only")
    parser.add_argument("--no-demo", action="store_true", help="leave the demo out, which --simulated runs at the end")
    parser.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.peer is not None:
        serve_peer(options.peer)
        return 0
    if reason := which_runtime(options.simulated):
        print(f"smoke-npu: {reason}", file=sys.stderr)
        return 2
    if options.simulated:
        import onesided.ascend_sim

        onesided.ascend_sim.enable()
    steps = steps_of(options)
    report: dict[str, Any] = {"runtime": "simulated" if options.simulated else "real", "steps": {}}
    for name, step in steps.items():
        report["steps"][name] = run_step(name, step)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    failed = [name for name, entry in report["steps"].items() if not entry["ok"]]
    print(f"\n{options.json}: {len(steps) - len(failed)} of {len(steps)} steps ran.")
    print("Please attach it to an issue of this project" + (", with your CANN version." if failed else "."))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

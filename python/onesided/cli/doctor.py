"""`onesided doctor`: what this machine can do, the reasons for what it cannot do, and what to do about it. Standard
library only; it needs neither torch nor the built core."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from onesided.cli import machine
from onesided.compat import imports

OK, LIMITED, MISSING = "ok", "limited", "missing"
_SIGNS = {OK: "✓", LIMITED: "~", MISSING: "✗"}
_COLOURS = {OK: "\033[32m", LIMITED: "\033[33m", MISSING: "\033[31m"}


@dataclass(frozen=True)
class Finding:
    """One finding. A value. `advice` is empty if there is nothing to do."""

    topic: str
    name: str
    state: str
    text: str
    advice: str = ""


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def core_error() -> str | None:
    """The reason why the C++ core cannot be loaded; None if it can."""
    try:
        importlib.import_module("onesided._core")
    except ImportError as error:
        return str(error)
    return None


def versions() -> list[Finding]:
    def found(name: str, wanted: str, advice: str) -> Finding:
        version = _version(name)
        if version is None:
            return Finding("versions", name, LIMITED, "not installed", advice)
        if not version.startswith(wanted):
            return Finding("versions", name, LIMITED, f"{version}; tested with {wanted}", advice)
        return Finding("versions", name, OK, version)

    error = core_error()
    core = (
        Finding("versions", "onesided core", OK, _version("onesided") or "present")
        if error is None
        else Finding(
            "versions", "onesided core", MISSING, f"not built ({error})", "./do test builds it; or pip install ."
        )
    )
    return [
        Finding("versions", "python", OK, platform.python_version()),
        core,
        found("torch", "2.13.0", "only for npu tensors and Ray: pip install torch==2.13.0"),
        found("torch_npu", "2.13.0", "only for npu tensors: pip install torch_npu==2.13.0"),
        found("ray", "2.60.0", "only for the Ray transport: pip install ray==2.60.0"),
        found("numpy", "", "pip install numpy"),
        Finding("versions", "kernel", OK, f"{platform.release()} {platform.machine()}"),
    ]


def device_runtime() -> Finding:
    runtime = machine.runtime()
    text = f"{runtime.kind}: {runtime.path}"
    if runtime.kind == "real":
        return Finding("device", "Ascend runtime", OK, text, "the simulated runtime cannot be used together with it")
    if runtime.kind == "simulated":
        return Finding("device", "Ascend runtime", OK, text)
    advice = "simulated NPUs on any machine: onesided sim -- PROGRAM ..., or onesided.ascend_sim.enable() before torch"
    if _version("torch_npu"):
        advice += (
            "; plain `import torch` fails with torch_npu and no runtime: TORCH_DEVICE_BACKEND_AUTOLOAD=0 prevents that"
        )
    return Finding("device", "Ascend runtime", LIMITED, "none", advice)


def transports() -> list[Finding]:
    """The transports that an engine can use here, and the reasons why others cannot be used."""

    def of(name: str, reach: str, error: str | None, advice: str) -> Finding:
        if error is None:
            return Finding("transports", name, OK, reach)
        return Finding("transports", name, MISSING, error, advice)

    core = core_error()
    listed = [of("self", "within one engine", core and "the core is not built", "./do test builds it")]
    listed.append(
        of(
            "shm",
            "same host and user: simulated NPUs, host pools",
            machine.memfd_error(),
            "allow memfd_create; else cma, tcp",
        )
    )
    cma = of(
        "cma", "same host and user: any host memory", machine.process_read_error(),
        "sysctl kernel.yama.ptrace_scope=0, or allow process_vm_readv in the container; shm and tcp work without",
    )  # fmt: skip
    listed.append(Finding(cma.topic, cma.name, LIMITED, cma.text, cma.advice) if cma.state == MISSING else cma)
    listed.append(of("tcp", "any host", machine.loopback_error(), "allow listening sockets"))
    real = machine.runtime().kind == "real"
    listed.append(
        Finding("transports", "ascend", OK, "NPU memory through the vendor's library, loaded at run time")
        if real
        else Finding("transports", "ascend", LIMITED, "no real Ascend runtime", "needs an Ascend machine with CANN")
    )
    return listed


def system() -> list[Finding]:
    scope = machine.ptrace_scope()
    thp = machine.read_line("/sys/kernel/mm/transparent_hugepage/enabled") or "not present"
    shmem = machine.read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled") or "not present"
    huge = machine.meminfo_bytes("HugePages_Total")
    shared = machine.shared_memory_free()
    congestion = machine.read_line("/proc/sys/net/ipv4/tcp_congestion_control") or "unknown"
    available = machine.read_line("/proc/sys/net/ipv4/tcp_available_congestion_control") or ""
    fast = machine.cubic_allowed()
    memory = f"{machine.meminfo_bytes('MemAvailable') / 1e9:.1f} GB available"
    return [
        Finding(
            "system", "ptrace scope", OK if scope == 0 else LIMITED, str(scope),
            "" if scope == 0 else "restricts cma to peers that declare their reader; shm and tcp do not need it",
        ),
        Finding("system", "huge pages", OK, f"transparent: {thp}; shared memory: {shmem}; reserved: {huge}"),
        Finding(
            "system", "/dev/shm", OK if shared >= 2 << 30 else LIMITED, f"{shared / 1e9:.1f} GB free",
            "" if shared >= 2 << 30 else "Ray's object store is there: mount -o remount,size=4G /dev/shm",
        ),
        Finding("system", "memory", OK, f"{memory}, {len(os.sched_getaffinity(0))} cores"),
        Finding(
            "system", "TCP congestion control", OK if fast else LIMITED,
            f"{'cubic' if fast else congestion} (the system's: {congestion}; available: {available})",
            "" if fast else "cubic is faster on loopback and in a rack: add it to net.ipv4.tcp_allowed_congestion_control",
        ),
    ]  # fmt: skip


def drop_ins() -> list[Finding]:
    """The package that an import of each API would load now."""
    listed: list[Finding] = []
    for module, api in (("mooncake.engine", "mooncake"), ("nixl", "nixl"), ("memfabric_hybrid", "memfabric")):
        origin = imports.origin_of(module.partition(".")[0])
        asked = f"onesided run --as {api} -- PROGRAM takes it from onesided"
        state = OK if origin else LIMITED
        advice = "" if origin and origin.startswith("onesided (") else asked
        listed.append(Finding("imports", f"import {module}", state, origin or "not installed", advice))
    return listed


def report() -> list[Finding]:
    """All findings, in the order of the output."""
    return [device_runtime(), *transports(), *drop_ins(), *system(), *versions()]


def as_text(findings: Sequence[Finding], colour: bool) -> str:
    lines: list[str] = []
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            lines.append(f"\n{topic}")
        sign = _SIGNS[finding.state]
        if colour:
            sign = f"{_COLOURS[finding.state]}{sign}\033[0m"
        lines.append(f"  {sign} {finding.name:<24}{finding.text}")
        if finding.advice:
            lines.append(f"    {'':<24}-> {finding.advice}")
    return "\n".join(lines).lstrip("\n")


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps({"device_runtime": machine.runtime().kind, "findings": [asdict(f) for f in findings]}, indent=2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="onesided doctor", description="What this machine can do, and what to do about the rest."
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for a program or a bug report")
    options = parser.parse_args(arguments)
    findings = report()
    print(as_json(findings) if options.json else as_text(findings, sys.stdout.isatty()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

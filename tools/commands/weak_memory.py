"""What processes share without a lock, checked under the memory order of C++ (tests/weak_memory) and not only under this
machine's, which is stronger."""

from __future__ import annotations

import subprocess

from . import apt
from .paths import BUILD, ROOT
from .steps import run_step
from .tally import Tally

_SOURCE = ROOT / "tests" / "weak_memory" / "shared_protocol_model.cc"


def run() -> Tally:
    """One test for the rules as they are, one that the checker finds them broken without fences."""
    apt.require(apt.MODEL_CHECKER)
    program = BUILD / "weak_memory" / "shared_protocol_model"
    program.parent.mkdir(parents=True, exist_ok=True)
    # -w: relacy's headers are of 2009.
    command = [
        apt.compiler() or "c++",
        "-std=c++20",
        "-O2",
        "-w",
        f"-I{ROOT / 'src'}",
        str(_SOURCE),
        "-o",
        str(program),
    ]
    run_step("Build the models", command, failure=lambda text: text[-300:])
    total = Tally()
    for arguments in ((), ("--without-fences",)):
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
        rules = [line for line in done.stdout.splitlines() if line.startswith(("holds", "BROKEN"))]
        print("\n".join(f"  {line}" for line in [*arguments, *rules]), flush=True)
        if done.returncode != 0 and not arguments:
            print(done.stdout[-4000:], flush=True)
        total += Tally(passed=1) if done.returncode == 0 and rules else Tally(failed=1)
    return total

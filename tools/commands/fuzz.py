"""Every decoder of foreign bytes is total; libFuzzer looks for the byte string that proves it is not."""

from __future__ import annotations

import subprocess

from . import apt, package
from .environment import child_environment
from .paths import BUILD, ROOT
from .tally import Tally

_CORPUS = ROOT / "tests" / "fuzz" / "corpus"


def run(*, seconds: int | None = None, runs: int | None = None) -> Tally:
    """Builds the fuzzers and runs each for `seconds`, or for a fixed number of inputs. A finding is a failure."""
    apt.require(apt.FUZZ)
    package.build("fuzz", "onesided_fuzzers", title="Build the fuzzers")
    programs = sorted(path for path in (BUILD / "fuzz").rglob("*_fuzz") if path.is_file())
    if not programs:
        print("  no fuzzer was built")
        return Tally(failed=1)
    total = Tally()
    for program in programs:
        found = BUILD / "fuzz" / "found" / program.name
        found.mkdir(parents=True, exist_ok=True)
        command = [str(program), str(found)]
        seeds = _CORPUS / program.name
        if seeds.is_dir():
            command.append(str(seeds))
        command += [f"-artifact_prefix={found}/", "-timeout=10", "-rss_limit_mb=2048"]
        command += [f"-runs={runs}"] if runs is not None else [f"-max_total_time={seconds or 60}"]
        done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)
        passed = done.returncode == 0
        print(f"  {'ok' if passed else '!!'} {program.name}", flush=True)
        if not passed:
            print(done.stderr[-4000:], flush=True)
        total += Tally(passed=int(passed), failed=int(not passed))
    return total

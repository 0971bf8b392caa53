"""`onesided sim -- PROGRAM ARGS`: any program on the simulated Ascend runtime."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated, Optional

import typer

from onesided import ascend_sim


def _stop(message: str) -> typer.Exit:
    typer.echo(f"onesided sim: {message}", err=True)
    return typer.Exit(2)


def sim(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM [ARGS]...", help="What to run, after two dashes.")
    ],
    devices: Annotated[Optional[int], typer.Option(help="Number of simulated NPUs (default 2).")] = None,  # noqa: UP045
    hbm: Annotated[Optional[str], typer.Option(help="Memory of each, e.g. 16GiB (default 8GiB).")] = None,  # noqa: UP045
    faults: Annotated[Optional[str], typer.Option(help="Seed, or list of faults: see docs/ascend_sim.md.")] = None,  # noqa: UP045
    trace: Annotated[Optional[str], typer.Option(help="File for every runtime call (%p: process id).")] = None,  # noqa: UP045
) -> None:
    """Run PROGRAM on the simulated Ascend runtime; its children and Ray workers inherit it."""
    try:
        folder = ascend_sim.library_folder()
        changed = ascend_sim.environment(devices, hbm, faults, trace)
    except (ascend_sim.SimError, ValueError) as error:
        raise _stop(str(error)) from None
    if real := ascend_sim.find_real_cann(folder):
        raise _stop(f"the vendor's CANN runtime is present ({real}): the simulator cannot be used together with it")
    program = shutil.which(command[0])
    if program is None:
        raise _stop(f"there is no program {command[0]!r}")
    sys.stdout.flush()
    # The program takes this process's place: signals, exit status and terminal are its own.
    os.execvpe(program, command, {**os.environ, **changed})


def register(app: typer.Typer) -> None:
    """Adds the command to an application."""
    app.command()(sim)

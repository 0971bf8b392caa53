"""`onesided run --as nixl -- PROGRAM ARGS`: any program with onesided's drop-in replacements."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from onesided import compat


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM [ARGS]...", help="What to run, after two dashes.")
    ],
    names: Annotated[
        str, typer.Option("--as", metavar="NAMES", help="mooncake, nixl, memfabric: separated by commas.")
    ],
) -> None:
    """Run PROGRAM with these APIs taken from onesided; its children and Ray workers inherit it."""
    try:
        changed = compat.environment(compat.parse_names(names))
    except ValueError as error:
        typer.echo(f"onesided run: --as {error}", err=True)
        raise typer.Exit(2) from None
    program = shutil.which(command[0])
    if program is None:
        typer.echo(f"onesided run: there is no program {command[0]!r}", err=True)
        raise typer.Exit(2)
    sys.stdout.flush()
    # The program takes this process's place: signals, exit status and terminal are its own.
    os.execvpe(program, command, {**os.environ, **changed})


def register(app: typer.Typer) -> None:
    """Adds the command to an application."""
    app.command()(run)

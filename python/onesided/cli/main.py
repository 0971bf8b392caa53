"""The command `onesided`; the code of a subcommand is imported only when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onesided.cli import run, sim

app = typer.Typer(
    help="One-sided tensor transfers between accelerators.", no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False,
)  # fmt: skip


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for a program or a bug report.")] = False,
) -> None:
    """Show what this machine can do (runtime, transports, limits, versions) and what to do about the rest."""
    from onesided.cli import doctor as examined

    raise typer.Exit(examined.main(["--json"] if as_json else []))


@app.command()
def demo(
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures to FILE.")
    ] = None,
) -> None:
    """Show the problem, its solution, and a model's weights moving between two Ray actors."""
    from onesided.cli.demo import run as shown

    raise typer.Exit(shown.run(json_path))


@app.command()
def version() -> None:
    """Print the version."""
    import onesided

    print(onesided.__version__)


def _version_option(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    wanted: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version_option, is_eager=True)
    ] = False,
) -> None:
    pass


sim.register(app)
run.register(app)


def main() -> None:
    """The console script `onesided`."""
    app()


if __name__ == "__main__":
    main()

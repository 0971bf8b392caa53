"""The demo's output: three titled parts, a live line with the current step, and tables with the results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from onesided.cli.demo.alignment import ALIGNMENT, Report
from onesided.cli.demo.figures import Figures
from onesided.cli.demo.weights import Outcome, Round

_MIB = 1 << 20


class Screen:
    """Prints the demo on a terminal, or as plain text if there is none. Confined to one thread."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, width=110)

    def act(self, number: int, title: str, text: str) -> None:
        self._console.print()
        self._console.print(Rule(f"[bold]{number}. {title}", align="left", style="blue"))
        self._console.print(text)

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """A live line for a step that takes seconds; the yielded function changes its text."""
        if not self._console.is_terminal:
            self._console.print(f"[dim].. {text}")
            yield lambda now: self._console.print(f"[dim].. {now}")
            return
        with self._console.status(f"[dim]{text}") as status:
            yield lambda now: status.update(f"[dim]{now}")

    def problem(self, report: Report) -> None:
        examples = Table.grid(padding=(0, 2))
        for shape, address in report.examples:
            past = address % ALIGNMENT
            where = f"[red]{past:#x} past a 2 MiB boundary" if past else "[green]on a 2 MiB boundary"
            examples.add_row(f"torch.zeros({shape})", f"{address:#x}", where)
        refusal = report.refusal
        lines: list[object] = [
            examples,
            Text(),
            Text.from_markup(f"[bold]{report.misaligned_plain} of {report.tensors}[/] tensors are misaligned."),
            Text("Registered and connected through the vendor-style ABI:"),
            Text(f"  {refusal['text']}", style="red"),
        ]
        if refusal["driver_line"]:
            lines.append(Text(f"  driver: {refusal['driver_line']}", style="dim"))
        self._console.print(Panel(Group(*lines), border_style="red", expand=False))  # type: ignore[arg-type]

    def cure(self, report: Report) -> None:
        table = Table(box=None, pad_edge=False)
        table.add_column("the same buffers")
        table.add_column("misaligned", justify="right")
        table.add_column("reserved", justify="right")
        table.add_column("register + connect")
        table.add_row(
            "unchanged", f"[red]{report.misaligned_plain} of {report.tensors}", _mib(report.reserved_plain_bytes),
            f"[red]{report.refusal['code']}",
        )  # fmt: skip
        table.add_row("padded by 2 MiB and sliced, manually", "0", _mib(report.reserved_workaround_bytes), "")
        connected = "[green]connected" if report.acceptance["connected"] else f"[red]{report.acceptance['text']}"
        table.add_row(
            "MemPool(sub_block_alignment=2 MiB)", f"[green]{report.misaligned_pool}",
            f"[green]{_mib(report.reserved_pool_bytes)}", connected,
        )  # fmt: skip
        charged = (
            f"charged to tensors in the pool: {_mib(report.charged_pool_bytes)} for {_mib(report.bytes)} requested"
        )
        self._console.print(Panel(Group(table, Text(charged, style="dim")), border_style="green", expand=False))

    def main_job(self, outcome: Outcome, figures: Figures) -> None:
        table = Table(box=None, pad_edge=False)
        for name, justify in (("", "left"), ("first", "right"), ("later, best", "right"), ("GB/s", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        table.add_column("source's processor", justify="right")
        table.add_column("registrations", justify="right")
        table.add_column("checksums")
        table.add_row("one-sided READ (HIXL)", *_cells(outcome.one_sided), style="bold")
        table.add_row("Ray's object store", *_cells(outcome.object_store))
        ratio = figures.hixl_gbps_best / max(figures.object_store_gbps_best, 1e-9)
        summary = Text.from_markup(
            f"{figures.tensors} tensors, {figures.bytes / 1e9:.2f} GB, received on {outcome.received_on}; "
            f"{outcome.segments_registered} segments registered, "
            f"{figures.registrations_after_first} registrations in updates 2-{len(outcome.one_sided)}; "
            f"[bold green]{ratio:.0f} x[/] the object store."
        )
        self._console.print(Panel(Group(table, Text(), summary), border_style="green", expand=False))

    def verdict(self, failed: Sequence[str], seconds: float) -> None:
        self._console.print()
        for words in failed:
            self._console.print(f"[red]✗ {words}")
        if not failed:
            self._console.print(f"[bold green]✓ All checks hold.[/] [dim]{seconds:.0f} s")


def _mib(nbytes: int) -> str:
    return f"{nbytes / _MIB:.0f} MiB"


def _cells(rounds: Sequence[Round]) -> list[str]:
    first, later = rounds[0], rounds[1:]
    best = min(later, key=lambda one: one.seconds)
    processor = min(one.source_processor_seconds for one in later)
    good = all(one.checksum_ok for one in rounds)
    return [
        f"{first.seconds:.3f} s",
        f"{best.seconds:.3f} s",
        f"{first.gbps:.2f} / {best.gbps:.2f}",
        f"{processor * 1e3:.0f} ms",
        f"{first.registrations} / {sum(one.registrations for one in later)}",
        f"[green]{len(rounds)} x equal" if good else "[red]differ",
    ]

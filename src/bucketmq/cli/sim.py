"""The verb sim: the simulator over the production code. Thin; the work is in `bucketmq.testing.simulation`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import typer
from rich.text import Text

from bucketmq.cli.exits import Code
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, errors, say
from bucketmq.errors import Unsupported

DONE = re.compile(r"(\d+) seeds\b")
"""How the simulator reports its progress."""


def sim(
    *,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Replay this one seed.")] = None,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many seeds to run.")] = 1_000,
    first_seed: Annotated[int, typer.Option(metavar="N", help="The first of them.")] = 0,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Processes to run them in.")] = 1,
    trace: Annotated[bool, typer.Option("--trace", help="Print every step.")] = False,
    mutants: Annotated[bool, typer.Option("--mutants", help="Run the planted bugs: all must be caught.")] = False,
    bus: Annotated[bool, typer.Option("--bus", help="Run the simulator of the event bus.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Run the simulator of tables.")] = False,
    as_json: Json = False,
) -> None:
    """Run the simulator: the real code under seeded crashes, freezes, lost replies and skewed clocks.

    Exits with 1 if a seed breaks a promise, or a planted bug is not caught.
    """
    try:
        from bucketmq.testing.simulation import BUS, QUEUES, main_run

        kit = _tables() if tables else BUS if bus else QUEUES
    except ImportError as error:
        raise Unsupported(f"this needs the package {error.name}; run: pip install 'bucketmq[test]'") from error
    # With --trace the trace is the data.
    with nullcontext(emit_text) if trace and not as_json else _progress(1 if seed is not None else seeds) as progress:
        result: dict[str, Any] = main_run(
            seed=seed,
            seeds=seeds,
            first_seed=first_seed,
            jobs=jobs,
            trace=trace,
            mutants=mutants,
            progress=progress,
            kit=kit,
        )
    if as_json:
        emit(result)
    else:
        _show(result)
    if result.get("failures"):
        raise typer.Exit(Code.ERROR)


def _tables() -> Any:
    from bucketmq.testing.simulation.tables import TABLES  # needs pyarrow

    return TABLES


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Where the simulator's lines go: above a bar on a terminal, to standard error elsewhere."""
    if not sys.stderr.isatty():
        yield say
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors(), transient=True) as bar:
        task = bar.add_task("seeds", total=total)

        def tell(line: str) -> None:
            done = DONE.match(line)
            if done:
                bar.update(task, completed=int(done[1]))
            else:
                bar.console.print(Text(line))

        yield tell


def _show(result: dict[str, Any]) -> None:
    for name, value in result.items():
        if isinstance(value, dict):
            for inner, count in value.items():
                emit_text(f"{name}: {inner}  {count}")
        elif isinstance(value, list | tuple):
            for each in value:
                emit_text(f"{name}: {each}")
        else:
            emit_text(f"{name}  {value}")
    say("FAILED" if result.get("failures") else "every promise held")

"""What a command shows of itself: a port for Prometheus, figures for a collector, a report for the dashboard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from bucketmq.cli.output import say
from bucketmq.facade import Observable
from bucketmq.log.reports import Kind
from bucketmq.metrics.families import Families
from bucketmq.metrics.port import MetricsPort, process_families
from bucketmq.metrics.push import pushed
from bucketmq.metrics.report import Reporter
from bucketmq.metrics.standing import LOOK_SECONDS

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port", metavar="PORT", min=0, max=65535, help="Figures for Prometheus; 0 is any free port."
    ),
]
MetricsHostOption = Annotated[str, typer.Option("--metrics-host", metavar="HOST", help="Where these are served.")]
OtlpOption = Annotated[
    str | None, typer.Option("--otlp", metavar="URL", help="Send figures to this collector, each minute.")
]
LookOption = Annotated[
    float,
    typer.Option("--look-every", metavar="SECONDS", min=0.0, help="How often figures look at the queue; 0 is never."),
]
ReportOption = Annotated[
    bool,
    typer.Option("--report/--no-report", help="Leave figures in the bucket, for the dashboard, while it works."),
]
LOOK_DEFAULT = LOOK_SECONDS


@contextlib.contextmanager
def shown(
    bucket: Observable, queues: Sequence[str], *, port: int | None, host: str, otlp: str | None, look_seconds: float
) -> Iterator[None]:
    """Serve and send this process' figures while the block runs, as far as that is wanted."""
    with contextlib.ExitStack() as stack:
        if port is not None or otlp is not None:
            families, close = process_families(bucket, queues=queues if look_seconds else (), look_seconds=look_seconds)
            stack.callback(close)
            stack.enter_context(served(families, port=port, host=host, otlp=otlp))
        yield


@contextlib.contextmanager
def served(families: Families, *, port: int | None, host: str, otlp: str | None) -> Iterator[None]:
    """Serve and send these figures while the block runs, as far as that is wanted."""
    with contextlib.ExitStack() as stack:
        if port is not None:
            page = stack.enter_context(MetricsPort(families, host, port))
            say(f"metrics at {page.url}")
        stack.enter_context(pushed(families, otlp))
        yield


def reported(
    bucket: Observable, kind: Kind, name: str, queue: str, *, wanted: bool
) -> contextlib.AbstractContextManager[Reporter | None]:
    """Report what the block does, if that is wanted."""
    return Reporter(bucket, kind, name, queue=queue) if wanted else contextlib.nullcontext()

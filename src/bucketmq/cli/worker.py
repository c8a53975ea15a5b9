"""The verb worker: runs a handler named as module:function until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import typer

from bucketmq import aio
from bucketmq.cli.exits import Code
from bucketmq.cli.figures import (
    LOOK_DEFAULT,
    LookOption,
    MetricsHostOption,
    MetricsPortOption,
    OtlpOption,
    ReportOption,
    reported,
    shown,
)
from bucketmq.cli.options import Json, Url, existing_queue, open_bucket
from bucketmq.cli.output import LogLines, emit, plural, say, say_lines
from bucketmq.cli.queues import Provider
from bucketmq.cli.stats_show import bill
from bucketmq.engines.meter import Requests
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.facade import Observable
from bucketmq.outcomes import Bury, Release, Retry
from bucketmq.pricing import cost, prices_of
from bucketmq.rulebook import is_async

REFUSED_WRITES_MAX = 0.2
"""Above this share of refused writes, more shards help."""

WRITES_MIN = 20


def worker(
    handler: Annotated[str, typer.Argument(metavar="MODULE:HANDLER", help="The function to call for each delivery.")],
    *,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Where to receive, for a plain function.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Handlers at the same time.")] = 1,
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Of a lease; kept alive while a handler runs.")
    ] = None,
    stop_when_empty: Annotated[bool, typer.Option("--stop-when-empty", help="End when nothing is ready.")] = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    otlp: OtlpOption = None,
    look_every: LookOption = LOOK_DEFAULT,
    report: ReportOption = True,
    provider: Provider = "s3",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run a handler for a queue's messages.

    The handler is decorated with @queue.handler, or a plain function with --queue, whose queue must exist. It may be
    async. An exception is a retry, and is logged. SIGTERM and Ctrl-C finish the messages in hand, give the others back
    and exit with 0. With --stop-when-empty it exits with 1 if it leaves messages behind that failed, and leaves no
    report for the dashboard.
    """
    prices_of(provider)
    function = load(handler)
    log_to_stderr()  # unless the handler's module has set up logging of its own
    options: dict[str, Any] = {"concurrency": concurrency, "lease_seconds": lease, "stop_when_empty": stop_when_empty}
    tally = Tally()

    @contextlib.contextmanager
    def told(bucket: Observable, name: str) -> Iterator[None]:
        with (
            shown(bucket, [name], port=metrics_port, host=metrics_host, otlp=otlp, look_seconds=look_every),
            reported(bucket, "worker", name, name, wanted=report and not stop_when_empty),
        ):
            yield

    if queue is None and hasattr(function, "queue"):
        own = function.queue
        say(f"worker for {own.name}: {handler}, {plural(concurrency, 'handler')} at a time; stop it with Ctrl-C")
        with told(own, own.name):
            requests = _run_decorated(own, tally.counting(function), options)
    elif queue is None:
        raise Invalid(f"{handler} is a plain function; say where to receive with --queue, or decorate it")
    else:
        with open_bucket(url) as bucket:
            found = existing_queue(bucket, queue)
            say(f"worker for {queue}: {handler}, {plural(concurrency, 'handler')} at a time; stop it with Ctrl-C")
            with told(bucket, queue):
                found.run(tally.counting(function), **options)
            requests = bucket.requests
    _report(tally, requests, provider, as_json=as_json)
    if stop_when_empty and tally.failing:
        raise typer.Exit(Code.ERROR)


class Ended:
    """What a handler returned."""

    outcome: Any = None


def within(
    handler: Callable[[Any], Any], block: Callable[[Any], contextlib.AbstractContextManager[Ended]]
) -> Callable[[Any], Any]:
    """The same handler, each call inside a block, which is told what it returned; an async one stays async."""
    if is_async(handler):

        async def call_async(given: Any) -> Any:
            with block(given) as ended:
                ended.outcome = await handler(given)
            return ended.outcome

        return call_async

    def call(given: Any) -> Any:
        with block(given) as ended:
            ended.outcome = handler(given)
        return ended.outcome

    return call


def log_to_stderr(lines: logging.Formatter | None = None) -> None:
    """Log lines, for people if nothing else is said, unless logging was set up already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines or LogLines())
    logging.basicConfig(handlers=[handler])


def attribute(module_name: str, path: str, cure: str = "") -> Any:
    """What lies at a path of a module, also of one in the current folder."""
    try:
        return functools.reduce(getattr, path.split("."), import_here(module_name))
    except AttributeError:
        raise Invalid(f"module {module_name!r} has no {path!r}{cure}") from None


def load(name: str) -> Callable[[Any], Any]:
    """The function that `module:function` names."""
    module_name, colon, path = name.partition(":")
    if not module_name or not colon or not path:
        raise Invalid(f"{name!r} is not a handler; write module:function, like tasks:handle")
    found = attribute(module_name, path, "; name a function that it defines")
    if not callable(found):
        raise Invalid(f"{name} is not a function but {type(found).__name__}; name a function that takes a delivery")
    function: Callable[[Any], Any] = found
    return function


def import_here(module_name: str) -> ModuleType:
    """A module by its name, also one in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise Invalid(f"there is no module {module_name!r}; run this in its folder, or set PYTHONPATH") from error
        raise Invalid(f"module {module_name!r} needs {error.name}, which is not installed; install it") from error
    except BucketMQError:
        raise
    except Exception as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_users(each)]
        say_lines("".join((*traceback.format_list(frames), *traceback.format_exception_only(error))))
        raise Invalid(
            f"module {module_name!r} cannot be imported ({type(error).__name__}); correct what the lines above name"
        ) from None


def _is_users(frame: traceback.FrameSummary) -> bool:
    """Whether a line of a traceback is neither ours nor Python's own importing."""
    return frame.filename != __file__ and "importlib" not in frame.filename


def _run_decorated(queue: Any, function: Callable[[Any], Any], options: dict[str, Any]) -> Requests:
    """Run the handler on the queue it was made for, blocking or async, and count that bucket's requests."""
    if isinstance(queue, aio.Queue):
        asyncio.run(queue.run(function, **options))
    else:
        queue.run(function, **options)
    requests: Requests = queue.requests
    return requests


class Tally:
    """Counts what became of the calls of a handler."""

    def __init__(self) -> None:
        self.handled = 0
        self.failed = 0
        """Calls that raised, or returned `Retry` or `Bury`."""
        self.failing: set[str] = set()
        """Messages whose last call failed."""
        self._lock = threading.Lock()

    def _count(self, delivery: Any, outcome: object) -> None:
        kind = outcome if inspect.isclass(outcome) else type(outcome)
        failed = issubclass(kind, (BaseException, Retry, Bury))
        with self._lock:
            self.failed += failed
            self.handled += not failed and not issubclass(kind, Release)
            (self.failing.add if failed else self.failing.discard)(delivery.id)

    def counting(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same handler, counted."""
        return within(function, self._counted)

    @contextlib.contextmanager
    def _counted(self, delivery: Any) -> Iterator[Ended]:
        ended = Ended()
        try:
            yield ended
        except BaseException as error:
            self._count(delivery, error)
            raise
        self._count(delivery, ended.outcome)


def conflict_rate(requests: Requests) -> float:
    """The share of writes that the store refused because another writer was faster."""
    return requests.refused / requests.writes if requests.writes else 0.0


def _report(tally: Tally, requests: Requests, provider: str, *, as_json: bool) -> None:
    rate = conflict_rate(requests)
    crowded = rate > REFUSED_WRITES_MAX and requests.writes >= WRITES_MIN
    if as_json:
        emit(
            {
                "handled": tally.handled,
                "failed": tally.failed,
                "conflict_rate": rate,
                "advice": ["add shards"] if crowded else [],
                "requests": msgspec.to_builtins(requests),
                "price": {"provider": provider, "usd": cost(requests, provider)},
            }
        )
        return
    say(f"worker stopped: {plural(tally.handled, 'message')} handled, {tally.failed:,} failed")
    say(bill(requests, provider, "requests"))
    if crowded:
        say(f"{rate:.0%} of the writes were refused because other workers were faster; add shards: bucketmq shards")

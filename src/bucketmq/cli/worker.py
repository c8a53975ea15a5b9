"""The verb worker: runs a handler named as module:function until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import typer

from bucketmq import aio
from bucketmq.cli.options import Json, Url, open_bucket, wants_json
from bucketmq.cli.output import emit, plural, say
from bucketmq.cli.queues import Provider, bill
from bucketmq.engines.meter import Requests
from bucketmq.errors import Invalid
from bucketmq.pricing import cost, prices_of

REFUSED_WRITES_MAX = 0.2
"""Above this share of refused writes, more shards help."""

WRITES_MIN = 20


def worker(
    context: typer.Context,
    handler: Annotated[str, typer.Argument(metavar="MODULE:HANDLER", help="The function to call for each delivery.")],
    *,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="For a plain function: where to receive.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Handlers at the same time.")] = 1,
    lease: Annotated[float | None, typer.Option(metavar="SECONDS", help="Kept alive while a handler runs.")] = None,
    stop_when_empty: Annotated[bool, typer.Option("--stop-when-empty", help="End when nothing is left.")] = False,
    provider: Provider = "s3",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run a handler for a queue's messages.

    The handler is decorated with @queue.handler, or a plain function with --queue. It may be async. An exception is a
    retry. SIGTERM and Ctrl-C finish what is in hand and give the rest back.
    """
    prices_of(provider)
    log_to_stderr()
    function = load(handler)
    options: dict[str, Any] = {"concurrency": concurrency, "lease_seconds": lease, "stop_when_empty": stop_when_empty}
    tally = Tally()
    if queue is None and hasattr(function, "queue"):
        own = function.queue
        say(f"worker for {own.name}: {handler}, {plural(concurrency, 'handler')} at a time; stop it with Ctrl-C")
        requests = _run_decorated(own, tally.counting(function), options)
    elif queue is None:
        raise Invalid(f"{handler} is a plain function; say where to receive with --queue, or decorate it")
    else:
        with open_bucket(context, url) as bucket:
            found = bucket.queue(queue)
            found.settings()
            say(f"worker for {queue}: {handler}, {plural(concurrency, 'handler')} at a time; stop it with Ctrl-C")
            found.run(tally.counting(function), **options)
            requests = bucket.requests
    _report(tally, requests, provider, as_json=wants_json(context, as_json))


def log_to_stderr() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)


def load(name: str) -> Callable[[Any], Any]:
    """The function that `module:function` names, also from a module in the current folder."""
    module_name, colon, path = name.partition(":")
    if not module_name or not colon or not path:
        raise Invalid(f"{name!r} is not module:function, like tasks:handle")
    found: Any = import_here(module_name)
    try:
        found = functools.reduce(getattr, path.split("."), found)
    except AttributeError:
        raise Invalid(f"module {module_name!r} has no {path!r}") from None
    if not callable(found):
        raise Invalid(f"{name} is not a function but {type(found).__name__}")
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
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise Invalid(f"there is no module {module_name!r} here or in the Python path") from error


def _run_decorated(queue: Any, function: Callable[[Any], Any], options: dict[str, Any]) -> Requests:
    """Run the handler on the queue it was made for, blocking or async, and count that bucket's requests."""
    meter = queue._engine.hands.meter
    if isinstance(queue, aio.Queue):
        asyncio.run(queue.run(function, **options))
    else:
        queue.run(function, **options)
    requests: Requests = meter.read()
    return requests


class Tally:
    """Counts what became of the calls of a handler."""

    def __init__(self) -> None:
        self.handled = 0
        self.failed = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _one(self) -> Any:
        try:
            yield
        except BaseException:
            with self._lock:
                self.failed += 1
            raise
        with self._lock:
            self.handled += 1

    def counting(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same handler, counted; an async one stays async."""
        if inspect.iscoroutinefunction(function):

            async def call_async(delivery: Any) -> Any:
                with self._one():
                    return await function(delivery)

            return call_async

        def call(delivery: Any) -> Any:
            with self._one():
                return function(delivery)

        return call


def conflict_rate(requests: Requests) -> float:
    """The share of writes that the store refused because somebody else was faster."""
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
        say(f"{rate:.0%} of the writes were refused, because others were faster: add shards (bucketmq shards)")

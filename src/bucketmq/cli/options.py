"""Options and arguments that several verbs share, and opening the bucket they name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from bucketmq.client import Bucket, Queue, Subscription, connect
from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.queue.settings import MAIN

URL_VARIABLE = "BUCKETMQ_URL"
PROBE_VARIABLE = "BUCKETMQ_PROBE"
NAMES_SHOWN = 10


class State:
    """Options given before the verb: `bucketmq --url ... --json VERB`."""

    def __init__(self, url: str | None = None, *, as_json: bool = False) -> None:
        self.url = url
        self.as_json = as_json


def state_of(context: typer.Context) -> State:
    found = context.find_object(State)
    return found if found is not None else State()


def _url(context: typer.Context, given: str | None) -> str | None:
    return given or state_of(context).url


def _as_json(context: typer.Context, given: bool) -> bool:
    return given or state_of(context).as_json


def url_option(help: str, flag: str = "--url") -> Any:
    """The bucket's URL, behind the verb or before it."""
    return typer.Option(flag, metavar="URL", help=help, callback=_url)


Url = Annotated[
    str | None, url_option(f"The bucket, like file:///tmp/inbox or s3://name/prefix (env: {URL_VARIABLE}).")
]
BucketUrl = Annotated[str | None, url_option("The bucket.")]
"""Where the settings of an application say which it is, if this does not."""
Json = Annotated[bool, typer.Option("--json", help="One JSON value per line on standard output.", callback=_as_json)]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
SubscriptionName = Annotated[
    str, typer.Option("--subscription", "-s", metavar="NAME", help="The subscription, if not the queue's own.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def a_url(given: str | None) -> str | None:
    """The bucket's URL, if there is one: from the option, or the environment."""
    return given or os.environ.get(URL_VARIABLE) or None


def the_url(given: str | None) -> str:
    """The bucket's URL, for a verb that needs one."""
    url = a_url(given)
    if not url:
        raise Invalid(f"no bucket: add --url, or set it once: export {URL_VARIABLE}=file:///tmp/inbox")
    return url


def wants_probe() -> bool:
    return os.environ.get(PROBE_VARIABLE, "on").lower() not in ("off", "0", "false", "no")


def open_bucket(url: str | None, *, probe: bool = True) -> Bucket:
    """Connect. Verbs that only look leave out the probe; the others test that the store honours conditional writes."""
    return connect(the_url(url), probe=probe and wants_probe())


def pairs_of(given: Iterable[str] | None, refusal: str) -> dict[str, str]:
    """What was given as NAME=VALUE, any number of times. The refusal says `{}` for what is not of that shape."""
    found = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise Invalid(refusal.format(repr(each)))
        found[name] = value
    return found


def existing_queue(bucket: Bucket, name: str) -> Queue:
    """The queue of this name, or `NotFound` with the names that are like it: a mistyped name must not make a queue."""
    found = bucket.existing_queue(name)
    try:
        found.settings()
    except NotFound:
        names = bucket.queues()
        if name in names:
            raise Corrupt(f"queue {name!r} has objects, but its settings are gone; restore its queue.json") from None
        raise NotFound(
            f"there is no queue {name!r}; {_instead(name, names)} To make it: bucketmq init {name}"
        ) from None
    return found


def existing_subscription(queue: Queue, name: str, *, cure: str = "") -> Subscription:
    """A subscription that is there already: a mistyped name must not make one."""
    if name == MAIN:
        return queue
    names = [each.name for each in queue.subscriptions()]
    if name not in names:
        raise NotFound(f"queue {queue.name!r} has no subscription {name!r}; {_instead(name, names)}{cure}")
    return queue.subscription(name)


def _instead(name: str, names: list[str]) -> str:
    """The names that may have been meant, or else those there are."""
    alike = difflib.get_close_matches(name, names, n=3)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"there are: {', '.join(names[:NAMES_SHOWN])}{more}." if names else "there are none yet."

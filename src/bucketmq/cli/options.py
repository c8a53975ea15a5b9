"""Options and arguments that several verbs share, and opening the bucket they name."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bucketmq.client import Bucket, Subscription, connect
from bucketmq.errors import Invalid, NotFound
from bucketmq.queue.settings import MAIN

URL_VARIABLE = "BUCKETMQ_URL"
PROBE_VARIABLE = "BUCKETMQ_PROBE"

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help=f"The bucket, like file:///tmp/inbox or s3://name/prefix (env: {URL_VARIABLE})."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON value a line on standard output.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
SubscriptionName = Annotated[
    str, typer.Option("--subscription", "-s", metavar="NAME", help="Another subscription than the queue's own.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class State:
    """What was given before the verb: `bucketmq --url ... --json VERB`."""

    def __init__(self, url: str | None = None, *, as_json: bool = False) -> None:
        self.url = url
        self.as_json = as_json


def state_of(context: typer.Context) -> State:
    found = context.find_object(State)
    return found if found is not None else State()


def wants_json(context: typer.Context, given: bool) -> bool:
    return given or state_of(context).as_json


def a_url(context: typer.Context, given: str | None) -> str | None:
    """The bucket's URL, if there is one: from the verb's option, the option before it, or the environment."""
    return given or state_of(context).url or os.environ.get(URL_VARIABLE) or None


def the_url(context: typer.Context, given: str | None) -> str:
    """The bucket's URL, which the verb cannot do without."""
    url = a_url(context, given)
    if not url:
        raise Invalid(f"no bucket: add --url, or set it once: export {URL_VARIABLE}=file:///tmp/inbox")
    return url


def open_bucket(context: typer.Context, url: str | None, *, probe: bool = True) -> Bucket:
    """Connect. Verbs that only look leave out the probe; the others pay for being safe on a store nobody tried."""
    wanted = os.environ.get(PROBE_VARIABLE, "on").lower() not in ("off", "0", "false", "no")
    return connect(the_url(context, url), probe=probe and wanted)


def existing_subscription(bucket: Bucket, queue: str, subscription: str) -> Subscription:
    """A subscription that is there already: looking at one by a mistyped name must not make it."""
    found = bucket.existing_queue(queue)
    if subscription == MAIN:
        return found
    names = [each.name for each in found.stats().subscriptions]
    if subscription not in names:
        raise NotFound(f"queue {queue!r} has no subscription {subscription!r}; it has: {', '.join(names)}")
    return found.subscription(subscription)

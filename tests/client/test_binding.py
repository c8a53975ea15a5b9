"""One signature and one docstring a verb: the facades show those of `api/` and return what their engine gives."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

from bucketmq import aio, changes, client
from bucketmq.api.bucket import BucketApi
from bucketmq.api.dead_letters import DeadApi
from bucketmq.api.queue import QueueApi
from bucketmq.api.rules import RulesApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.changes import ChangeApi
from bucketmq.deliveries import DeliveryApi

BOUND: list[tuple[Any, Any, Any]] = [
    (client.Bucket, aio.Bucket, BucketApi),
    (client.Queue, aio.Queue, QueueApi),
    (client.Subscription, aio.Subscription, SubscriptionApi),
    (client.DeadLetters, aio.DeadLetters, DeadApi),
    (client.Rules, aio.Rules, RulesApi),
    (client.Delivery, aio.Delivery, DeliveryApi),
    (changes.Change, changes.AsyncChange, ChangeApi),
]
NOT_BOUND = {"open", "close", "run", "handler"}
"""What a facade does itself."""


def verbs(facade: Any, api: Any) -> list[str]:
    return [
        name
        for name, value in inspect.getmembers(facade, inspect.isfunction)
        if not name.startswith("_") and hasattr(api, name) and inspect.isfunction(getattr(api, name))
    ]


@pytest.mark.parametrize(("blocking", "awaited", "api"), BOUND, ids=lambda each: each.__name__)
def test_both_facades_show_the_signature_and_the_docstring_of_the_api(blocking: Any, awaited: Any, api: Any) -> None:
    names = verbs(blocking, api)
    assert names
    assert names == verbs(awaited, api)
    for name in set(names) - NOT_BOUND:
        verb, here, there = (getattr(owner, name) for owner in (api, blocking, awaited))
        assert verb.__doc__, name
        for method in (here, there):
            assert method.__doc__ == verb.__doc__
            shown, own = inspect.signature(method), inspect.signature(verb)
            assert list(shown.parameters.values()) == list(own.parameters.values())
            assert "Procedure" not in str(shown.return_annotation), name


@pytest.mark.parametrize(("blocking", "awaited", "api"), BOUND, ids=lambda each: each.__name__)
def test_a_verb_that_makes_requests_is_awaited_in_one_facade_and_plain_in_the_other(
    blocking: Any, awaited: Any, api: Any
) -> None:
    for name in set(verbs(blocking, api)) - NOT_BOUND:
        annotation = str(inspect.signature(getattr(api, name)).return_annotation)
        assert not inspect.iscoroutinefunction(getattr(blocking, name))
        asks = annotation.startswith("Procedure[") or name in ("ack", "retry", "bury", "release")
        assert inspect.iscoroutinefunction(getattr(awaited, name)) == asks, name


def test_help_shows_a_verb_as_users_call_it() -> None:
    text = pydoc.plain(pydoc.render_doc(client.Queue.send))
    assert "send(self, body: 'Any', *, key: 'str | None' = None" in text
    assert "-> 'Sent'" in text
    assert "Send one message; returns when it is durable." in text
    assert "-> 'Subscription'" in pydoc.plain(pydoc.render_doc(aio.Queue.subscription))


def test_an_ack_makes_no_generator() -> None:
    assert client.Delivery.ack is DeliveryApi.ack
    assert not inspect.isgeneratorfunction(client.Delivery.ack)

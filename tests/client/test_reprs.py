"""What public objects say of themselves: what it is, where, in which state; never a secret, never a page of text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import bucketmq
from bucketmq import aio


def test_a_bucket_and_what_it_leads_to_say_what_and_where(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/inbox"
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue("jobs")
        assert repr(bucket) == f"<Bucket {url} open>"
        assert repr(queue) == f"<Queue 'jobs' in {url}>"
        assert repr(queue.subscription("audit")) == f"<Subscription 'audit' of queue 'jobs' in {url}>"
        assert repr(queue.dead_letters) == f"<DeadLetters of queue 'jobs' in {url}>"
        assert repr(bucket.rules) == f"<Rules of {url}>"
    assert repr(bucket) == f"<Bucket {url} closed>"


def test_both_facades_say_the_same() -> None:
    async def shown() -> list[str]:
        async with aio.connect("memory://", probe=False) as bucket:
            queue = bucket.queue("jobs")
            return [repr(each) for each in (bucket, queue, await queue.subscription("a"), queue.dead_letters)]

    with bucketmq.connect("memory://", probe=False) as bucket:
        queue = bucket.queue("jobs")
        assert asyncio.run(shown()) == [
            repr(each) for each in (bucket, queue, queue.subscription("a"), queue.dead_letters)
        ]


def test_a_secret_in_a_url_is_not_shown() -> None:
    bucket = aio.connect("az://container/p?account=me&account_key=c2VjcmV0LXNlY3JldA==", probe=False)
    assert repr(bucket) == "<Bucket az://container/p?account=me&account_key=*** open>"


def test_a_delivery_and_its_batch_say_how_they_stand() -> None:
    with bucketmq.connect("memory://", probe=False) as bucket:
        queue = bucket.queue("jobs")
        assert repr(queue.receive()) == "<Batch of 0>"
        sent = queue.send("x")
        (delivery,) = batch = queue.receive()
        assert repr(batch) == "<Batch of 1>"
        assert repr(delivery) == f"<Delivery {sent.id} at jobs/0/0, attempt 1, in flight>"
        delivery.bury("no such file")
        assert repr(delivery) == f"<Delivery {sent.id} at jobs/0/0, attempt 1, settled>"
        queue.flush()
        (letter,) = queue.dead_letters.peek()
        assert repr(letter) == f"<DeadLetter {sent.id} at 0/0: no such file>"


def test_rules_and_their_secrets_show_no_secret() -> None:
    with bucketmq.connect("memory://", probe=False) as bucket:
        rule = bucket.rules.add(
            "r", to="https://hooks.example/T0/path-is-secret", bearer="token-of-mine", sign=True, format="slack"
        )
        secrets = bucket.rules.secrets("r")
        assert "hooks.example" in repr(rule)
        for text in (repr(rule), str(rule), repr(secrets), f"{secrets}"):
            assert "path-is-secret" not in text
            assert "token-of-mine" not in text
            assert "whsec_" not in text
        assert repr(secrets) == "<Secrets: 1 to sign with, bearer>"


def test_what_is_long_is_counted_and_not_shown() -> None:
    with bucketmq.connect("memory://", probe=False) as bucket:
        queue = bucket.queue("jobs", shards=64)
        queue.subscription("audit")
        queue.subscription("billing")
        bucket.put("big", b"x" * 100_000)
        assert len(repr(queue.stats())) < 1_000
        assert "<2 SubscriptionStats>" in repr(queue.stats())
        assert "<100,000 bytes>" in repr(bucket.get("big"))
        assert repr(queue.settings()).startswith("Settings(format=1, shards=64, ")

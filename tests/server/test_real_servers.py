"""Real senders: SeaweedFS with its webhook, and moto's S3 through its SNS, into a receiver on the bucket they serve."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.config import Config

from bucketmq import aio
from bucketmq.client import Bucket, connect
from bucketmq.errors import Unsupported
from bucketmq.events.event import ObjectEvent
from bucketmq.server.run import listen
from bucketmq.testing import servers
from server.running import TOKEN, Running, delivered, serving, settings_with, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("receivers-of-real-servers")]


def client(url: str, service: str = "s3") -> Any:
    options = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    return boto3.client(
        service,
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def kinds(events: list[ObjectEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.key) for event in events]


class Place:
    """A store, its sender, and our server that it sends to."""

    def __init__(self, url: str, running: Running) -> None:
        self.url = url
        self.running = running
        self.s3 = client(url)
        self.events: list[ObjectEvent] = []

    def told(self, bucket: Bucket, count: int) -> list[tuple[str, str]]:
        """What a rule has been given so far, as soon as it is so many."""

        def enough() -> bool:
            self.events += delivered(bucket)
            return len(self.events) >= count

        until(enough)
        return kinds(self.events)


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        try:
            url = stack.enter_context(
                servers.seaweedfs("press", webhook=f"http://127.0.0.1:{port}/events/seaweedfs", webhook_token=TOKEN)
            )
        except Unsupported as error:
            listener.close()
            servers.skip_or_fail(error)
        settings = settings_with(buckets=("press",))
        running = stack.enter_context(serving(lambda: aio.connect(url, probe=False), settings, listener))
        yield Place(url, running)


def test_what_happens_on_seaweedfs_is_told_by_its_webhook(seaweedfs: Place) -> None:
    s3 = seaweedfs.s3
    with connect(seaweedfs.url, probe=False) as bucket:
        s3.put_object(Bucket="press", Key="in/a b+ü.json", Body=b'{"n": 1}', Metadata={"author": "Mia"})
        assert seaweedfs.told(bucket, 1) == [("created", "in/a b+ü.json")]
        first = seaweedfs.events[0]
        assert (first.source, first.size_bytes, first.metadata) == ("seaweedfs", 8, {"author": "Mia"})
        assert first.version == s3.head_object(Bucket="press", Key="in/a b+ü.json")["ETag"].strip('"')
        s3.put_object(Bucket="press", Key="in/a b+ü.json", Body=b'{"n": 22}')
        assert seaweedfs.told(bucket, 2)[1:] == [("changed", "in/a b+ü.json")]
        s3.delete_object(Bucket="press", Key="in/a b+ü.json")
        assert seaweedfs.told(bucket, 3)[2:] == [("deleted", "in/a b+ü.json")]


def test_a_watcher_handles_what_another_program_put_on_seaweedfs(seaweedfs: Place) -> None:
    handled = []
    with connect(seaweedfs.url, probe=False) as bucket:

        @bucket.watch('WHERE `key` REGEXP "^pending/"', start="beginning")
        def route(change: Any) -> None:
            if change.kind != "deleted":
                handled.append((change.key, change.json()))
                change.move(f"approved/{change.name}")

        for number in range(5):
            seaweedfs.s3.put_object(Bucket="press", Key=f"pending/{number}.json", Body=json.dumps({"n": number}))

        def all_handled() -> bool:
            bucket.run_watchers(stop_when_empty=True)
            return len(handled) >= 5

        until(all_handled)
        bucket.run_watchers(stop_when_empty=True)
        assert sorted(handled) == [(f"pending/{number}.json", {"n": number}) for number in range(5)]
        listed = seaweedfs.s3.list_objects_v2(Bucket="press", Prefix="pending/").get("Contents", [])
        assert not listed
        assert bucket.get_json("approved/3.json") == {"n": 3}


def test_what_our_own_writers_do_on_seaweedfs_is_told_once(seaweedfs: Place) -> None:
    with connect(seaweedfs.url, probe=False) as bucket:
        delivered(bucket)
        bucket.put("ours/1.json", {"n": 1})
        accepted = seaweedfs.running.parts.counters

        def webhook_told() -> bool:
            told = [each.body for each in bucket.queue("events").peek(10_000)]
            return any(body["key"] == "ours/1.json" and body["source"] == "seaweedfs" for body in told)

        until(webhook_told)
        assert kinds([event for event in delivered(bucket) if event.key.startswith("ours/")]) == [
            ("created", "ours/1.json")
        ]
        assert accepted.read("events_received_total", source="seaweedfs", outcome="outside") > 0  # our own bookkeeping


@pytest.fixture(scope="module")
def moto() -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(servers.moto_server("press"))
        except Unsupported as error:
            servers.skip_or_fail(error)
        settings = settings_with(basic=["sns:a-password-of-sns"])
        yield Place(url, stack.enter_context(serving(lambda: aio.connect(url, probe=False), settings)))


def test_s3_through_sns_arrives_and_is_told_once(moto: Place) -> None:
    """moto subscribes without a confirmation, which `test_handshakes` is about."""
    sns = client(moto.url, "sns")
    topic = sns.create_topic(Name="changes")["TopicArn"]
    where = moto.running.url.replace("http://", "http://sns:a-password-of-sns@")
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=f"{where}/events/sns")
    moto.s3.put_bucket_notification_configuration(
        Bucket="press",
        NotificationConfiguration={
            "TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}]
        },
    )
    with connect(moto.url, probe=False) as bucket:
        moto.s3.put_object(Bucket="press", Key="in/a b+ü.json", Body=b'{"n": 1}')
        assert moto.told(bucket, 1) == [("created", "in/a b+ü.json")]
        assert (moto.events[0].source, moto.events[0].bucket) == ("s3", "press")
        moto.s3.put_object(Bucket="press", Key="in/a b+ü.json", Body=b'{"n": 2}')
        assert moto.told(bucket, 2)[1:] == [("created", "in/a b+ü.json")]

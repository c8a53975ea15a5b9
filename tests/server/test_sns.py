"""SNS: only wanted topics, only what Amazon signed, with certificates from Amazon's hosts; and logs that stay lines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.server.wire import loggable
from bucketmq.testing.endpoints import Endpoint, Reply, endpoint
from server.keys import certificate, rsa_key, signed_by_sns
from server.running import Running, aio_on, delivered, payload, serving, settings_with

MESSAGE = {
    name: value
    for name, value in json.loads(payload("sns")).items()
    if name not in ("Signature", "SignatureVersion", "SigningCertURL")
}
TOPIC = MESSAGE["TopicArn"]
OTHER_TOPIC = "arn:aws:sns:eu-west-1:111122223333:other"


@pytest.fixture
def sns() -> Iterator[Endpoint]:
    """Stands for SNS: it hands out its certificate, and is asked to confirm."""
    with endpoint([Reply(200, {}, certificate(rsa_key("sns")))]) as there:
        yield there


@pytest.fixture
def subscriber(store: MemoryStore, sns: Endpoint) -> Iterator[Running]:
    settings = settings_with(sns_topics=(TOPIC,), sns_prefix=sns.url, sns_verify=True)
    with serving(lambda: aio_on(store), settings) as running:
        yield running


def signed(sns: Endpoint, version: str = "2", key: str = "sns", **changed: Any) -> bytes:
    return signed_by_sns(rsa_key(key), {**MESSAGE, **changed}, f"{sns.url}cert.pem", version)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("source", ["sns", "auto"])
def test_what_sns_signed_is_taken_and_its_certificate_is_fetched_once(
    subscriber: Running, bucket: Bucket, sns: Endpoint, version: str, source: str
) -> None:
    for subject in ("Amazon S3 Notification", "again"):
        answer = subscriber.post(source, signed(sns, version, Subject=subject), content_type="text/plain")
        assert answer.status_code == 200, answer.text
    assert delivered(bucket)
    assert len(sns.requests) == 1


def changed(body: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(body), **fields}).encode()


def test_what_sns_did_not_sign_is_refused(subscriber: Running, sns: Endpoint, bucket: Bucket) -> None:
    good = signed(sns)
    forged = [
        changed(good, Message=good.decode()),
        changed(good, Subject="another"),
        changed(good, SignatureVersion="1"),
        changed(good, SignatureVersion="3"),
        changed(good, Signature="no base64!"),
        changed(good, Signature=None),
        signed(sns, key="somebody"),
        json.dumps(MESSAGE).encode(),
        json.dumps({"Records": []}).encode(),
    ]
    for body in forged:
        answer = subscriber.post("sns", body)
        assert (answer.status_code, answer.json()["error"][:14]) in (
            (403, "the message is"),
            (403, "this topic is "),
        ), body
    escaped = good.replace(b'"TopicArn"', b'"\\u0054opicArn"').replace(b'"Signature"', b'"Sig"')
    assert subscriber.post("auto", escaped).status_code == 403, "a key may be written otherwise"
    assert not delivered(bucket)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/cert.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.example/cert.pem",
        "http://sns.eu-west-1.amazonaws.com/cert.pem",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_certificate_from_elsewhere_is_never_fetched(subscriber: Running, sns: Endpoint, url: str) -> None:
    body = signed_by_sns(rsa_key("sns"), MESSAGE, url)
    assert subscriber.post("sns", body).status_code == 403
    assert not sns.requests


@contextlib.contextmanager
def with_certificate(store: MemoryStore, reply: Reply) -> Iterator[httpx2.Response]:
    with endpoint([reply]) as sns:
        settings = settings_with(sns_prefix=sns.url, sns_verify=True)
        with serving(lambda: aio_on(store), settings) as running:
            yield running.post("sns", signed(sns))


@pytest.mark.parametrize(
    "reply",
    [Reply(500), Reply(200, {}, b"not a certificate"), Reply(200, {}, certificate(rsa_key("sns"), expired=True))],
    ids=["none", "garbage", "expired"],
)
def test_without_a_good_certificate_nothing_is_taken(store: MemoryStore, reply: Reply) -> None:
    with with_certificate(store, reply) as answer:
        assert answer.status_code == 403


def test_a_topic_that_is_not_named_may_not_send(subscriber: Running, sns: Endpoint, bucket: Bucket) -> None:
    for source in ("sns", "auto"):
        answer = subscriber.post(source, signed(sns, TopicArn=OTHER_TOPIC))
        assert answer.status_code == 403 and "--sns-topic" in answer.json()["hint"]
    assert not delivered(bucket)


def test_the_topic_is_held_for_unsigned_and_for_raw_messages_too(store: MemoryStore, bucket: Bucket) -> None:
    with serving(lambda: aio_on(store), settings_with(sns_topics=(TOPIC,))) as running:
        other = json.dumps({**MESSAGE, "TopicArn": OTHER_TOPIC}).encode()
        assert running.post("sns", other).status_code == 403
        raw = MESSAGE["Message"].encode()
        assert running.post("sns", raw).status_code == 403
        assert running.post("sns", raw, x_amz_sns_topic_arn=OTHER_TOPIC).status_code == 403
        assert running.post("auto", raw, x_amz_sns_topic_arn=OTHER_TOPIC).status_code == 403
        assert not delivered(bucket)
        assert running.post("auto", raw, x_amz_sns_topic_arn=TOPIC).status_code == 200
        assert running.post("sns", json.dumps(MESSAGE).encode()).status_code == 200
    assert delivered(bucket)


def test_a_subscription_is_confirmed_only_if_sns_signed_it(subscriber: Running, sns: Endpoint) -> None:
    asked = {**json.loads(payload("sns-confirm")), "TopicArn": TOPIC, "SubscribeURL": f"{sns.url}?Action=Confirm"}
    unsigned = json.dumps(asked).encode()
    assert subscriber.post("sns", unsigned).status_code == 403
    body = signed_by_sns(rsa_key("sns"), asked, f"{sns.url}cert.pem")
    assert subscriber.post("sns", body).json() == {"confirmed": TOPIC}
    assert [request.path for request in sns.wait_for(2)][-1].endswith("Action=Confirm")


def test_a_topics_name_cannot_forge_a_line_of_the_log(
    subscriber: Running, sns: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    name = "x\n2026-01-01 INFO action=subscription_confirmed topic=ours\x1b[2J\x9b\u2028\u202e"
    assert subscriber.post("sns", signed(sns, TopicArn=name)).status_code == 403
    (line,) = [record.getMessage() for record in caplog.records if "topic_refused" in record.getMessage()]
    assert line.isprintable() and len(line.splitlines()) == 1
    assert "topic='x\\n2026" in line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("arn:aws:sns:eu-west-1:1:a", "arn:aws:sns:eu-west-1:1:a"),
        ("two words", "'two words'"),
        ("a=b", "'a=b'"),
        ("\r\n", "'\\r\\n'"),
        ("\x1b]52;c;AAAA\x07", "'\\x1b]52;c;AAAA\\x07'"),
        (None, "None"),
    ],
)
def test_what_is_logged_is_one_word_of_one_line(text: object, shown: str) -> None:
    assert loggable(text) == shown
    assert loggable("x" * 10_000) == "x" * 500

"""Handshakes: Event Grid's code, CloudEvents' OPTIONS, and SNS' subscription, which is confirmed only at SNS."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.testing.endpoints import Endpoint, Reply, endpoint
from server.running import Running, aio_on, payload, serving, settings_with

TOPIC = json.loads(payload("sns-confirm"))["TopicArn"]


def confirmation(url: str, topic: str = TOPIC) -> bytes:
    return json.dumps({**json.loads(payload("sns-confirm")), "SubscribeURL": url, "TopicArn": topic}).encode()


def test_event_grids_code_is_given_back(server: Running) -> None:
    for source in ("azure", "auto"):
        answer = server.post(source, payload("azure-validation"))
        assert (answer.status_code, answer.json()) == (
            200,
            {"validationResponse": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"},
        )
    assert server.stranger.post("/events/azure", content=payload("azure-validation")).status_code == 401


def test_an_origin_that_asks_may_send(server: Running) -> None:
    asked = {"webhook-request-origin": "eventgrid.azure.net", "webhook-request-callback": "http://169.254.169.254/"}
    answer = server.stranger.options("/events/azure", headers=asked)
    assert answer.status_code == 200
    assert answer.headers["webhook-allowed-origin"] == "eventgrid.azure.net"
    assert int(answer.headers["webhook-allowed-rate"]) > 0
    assert "POST" in answer.headers["allow"]
    assert "webhook-allowed-origin" not in server.stranger.options("/events/azure").headers


def test_an_origin_that_is_none_or_not_wanted_may_not(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with(origins=("eventgrid.azure.net",))) as running:
        for origin, status in (("eventgrid.azure.net", 200), ("evil.example", 403), ("a b", 400), ("x" * 300, 400)):
            answer = running.stranger.options("/events/azure", headers={"webhook-request-origin": origin})
            assert answer.status_code == status


@pytest.fixture
def sns() -> Iterator[Endpoint]:
    """Stands for SNS: it is asked to confirm."""
    with endpoint() as there:
        yield there


@pytest.fixture
def subscriber(store: MemoryStore, sns: Endpoint) -> Iterator[Running]:
    with serving(lambda: aio_on(store), settings_with(sns_topics=(TOPIC,), sns_prefix=sns.url)) as running:
        yield running


def test_a_wanted_subscription_is_confirmed(subscriber: Running, sns: Endpoint) -> None:
    answer = subscriber.post(
        "sns", confirmation(f"{sns.url}?Action=ConfirmSubscription&Token=abc"), content_type="text/plain"
    )
    assert (answer.status_code, answer.json()) == (200, {"confirmed": TOPIC})
    (asked,) = sns.wait_for(1)
    assert (asked.method, "Token=abc" in asked.path) == ("GET", True)
    assert "authorization" not in asked.headers


def test_another_topic_is_not_confirmed(subscriber: Running, sns: Endpoint) -> None:
    answer = subscriber.post("sns", confirmation(sns.url, "arn:aws:sns:eu-west-1:111122223333:other"))
    assert answer.status_code == 403
    assert not sns.requests


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:1/",
        "https://sns.eu-west-1.amazonaws.com.evil.example/",
        "https://evil.example/?sns.eu-west-1.amazonaws.com",
        "https://sns.eu-west-1.amazonaws.com@evil.example/",
        "http://sns.eu-west-1.amazonaws.com/",
        "file:///etc/passwd",
        "",
        "not a url",
    ],
)
def test_a_url_that_is_not_of_sns_is_never_fetched(subscriber: Running, sns: Endpoint, url: str) -> None:
    assert subscriber.post("sns", confirmation(url)).status_code in (400, 403)
    assert not sns.requests
    assert subscriber.is_healthy()


def test_a_stranger_confirms_nothing(subscriber: Running, sns: Endpoint) -> None:
    assert subscriber.stranger.post("/events/sns", content=confirmation(sns.url)).status_code == 401
    assert not sns.requests


def test_a_confirmation_that_fails_is_asked_for_again(store: MemoryStore) -> None:
    with (
        endpoint([Reply(500), Reply(302, {"location": "http://127.0.0.1:1/"}), Reply(200)]) as sns,
        serving(lambda: aio_on(store), settings_with(sns_prefix=sns.url)) as running,
    ):
        statuses = [running.post("sns", confirmation(sns.url)).status_code for _ in range(3)]
    assert statuses == [503, 503, 200]


def test_sns_is_asked_for_its_password(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with(basic=["sns:a-password-of-sns"])) as running:
        answer = running.stranger.post("/events/sns", content=payload("sns"), headers={"content-type": "text/plain"})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Basic realm="bucketmq"')
        answer = running.stranger.post("/events/sns", content=payload("sns"), auth=("sns", "a-password-of-sns"))
        assert answer.status_code == 200

"""Whatever is posted by the OpenAPI page or against it: a documented status, never a 500."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bucketmq import aio
from bucketmq.bucket.memory import MemoryStore
from bucketmq.events.parse import SOURCES
from bucketmq.server.app import make_app, schema
from server.running import TOKEN, Running, aio_on, serving, settings_with

HEADERS = {"authorization": f"Bearer {TOKEN}"}

FEW = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    store = MemoryStore()
    with serving(lambda: aio_on(store), settings_with(wrong_secrets_max=1_000_000)) as found:
        yield found


def the_schema() -> Any:
    """The page as the server shows it; drawn up without one, because tests are made before servers run."""
    bucket: aio.Bucket = aio_on(MemoryStore())
    return schemathesis.openapi.from_dict(schema(make_app(bucket, settings_with())))


page = the_schema()


@page.parametrize()
@FEW
def test_every_operation_answers_as_documented(case: Any, running: Running) -> None:
    # Which bodies mean something is more than a schema can say; and every request here shows the token.
    left_out = [schemathesis.checks.positive_data_acceptance, schemathesis.checks.ignored_auth]
    case.call_and_validate(base_url=running.url, headers=HEADERS, excluded_checks=left_out)


@page.parametrize()
@settings(FEW, max_examples=10)
def test_strangers_get_in_nowhere_they_should_not(case: Any, running: Running) -> None:
    answer = case.call(base_url=running.url, headers={"authorization": "Bearer wrong"})
    public = case.operation.path in ("/healthz", "/readyz", "/version") or case.method.upper() == "OPTIONS"
    assert answer.status_code < 500
    assert public or answer.status_code in (401, 405)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    """
    events Records message messages Type TopicArn Message SubscribeURL object key s3 specversion id source type subject
    data eventType detail detail-type attributes new_entry old_entry event_type eventName bucket action 1.0
    SubscriptionConfirmation Notification
    """.split()  # noqa: SIM905  # one line for each would be a page
)
SHAPED = st.recursive(
    WORDS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=15,
)


@given(source=st.sampled_from(SOURCES), value=JSON | SHAPED)
@settings(FEW, max_examples=300)
def test_any_json_is_taken_or_refused_but_never_a_500(running: Running, source: str, value: Any) -> None:
    answer = running.http.post(f"/events/{source}", json=value) if _is_json(value) else running.post(source, b"NaN")
    assert answer.status_code in (200, 400, 403), answer.text
    assert answer.json()


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False).encode()
    except (ValueError, UnicodeEncodeError):
        return False
    return True


@given(body=st.binary(max_size=200), content_type=st.sampled_from(["application/json", "text/plain", "", "a/b"]))
@settings(FEW, max_examples=200)
def test_any_bytes_are_refused_cleanly(running: Running, body: bytes, content_type: str) -> None:
    answer = running.http.post("/events/auto", content=body, headers={"content-type": content_type})
    assert answer.status_code in (200, 400, 415)
    assert running.stranger.get("/healthz").status_code == 200

"""Notices about flagged posts: somebody is told, once at least, and nothing that a post says is markup."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.moderation.agents import Gate, aio_on, settings_with, sync_on
from apps.moderation.test_posts import BAD, CLEAN, classify
from bucketmq.apps.moderation import notice, posts, router
from bucketmq.apps.moderation.notice import NOTICE_RULE
from bucketmq.bucket.memory import MemoryStore
from bucketmq.errors import Invalid
from bucketmq.events import notices
from bucketmq.events.event import ObjectEvent
from bucketmq.events.signing import new_secret
from bucketmq.server.place import bus_of
from bucketmq.testing.endpoints import HangUp, Reply, endpoint

EVENT = ObjectEvent(
    id="evt_1", kind="moved", key="flagged/p1.json", at="2026-05-04T08:00:00.000000Z", source="writer", bucket="posts"
)
RECORD = {
    "id": "p1",
    "text": "buy now",
    "media_url": "https://example.com/cat.png",
    "categories": [
        {"name": "hate_speech", "flagged": False, "confidence": 0.2},
        {"name": "spam", "flagged": True, "confidence": 0.97},
    ],
    "violation": True,
    "confidence": 0.97,
    "revision": 3,
}


def route_once(store: MemoryStore, **options: Any) -> None:
    async def main() -> None:
        async with aio_on(store) as bucket:
            await router.Router(bucket, settings_with(**options)).run_once()

    asyncio.run(main())


def texts_of(message: dict[str, Any]) -> list[str]:
    """Every text in a Slack message that is read as markup."""
    found = [message["text"]]
    for block in message["blocks"]:
        found += [block["text"]["text"]] if "text" in block else []
        found += [field["text"] for field in block.get("fields", [])]
    return found


def test_slack_is_told_what_the_demo_tells() -> None:
    message = notices.slack(EVENT, RECORD)
    assert message["text"] == ":rotating_light: Flagged content `p1` (confidence 0.97)"
    assert texts_of(message)[1:] == [
        ":rotating_light: Flagged content `p1` (confidence 0.97)",
        "*ID:*\n`p1`",
        "*Confidence:*\n0.97",
        "*Categories:*\n`spam (0.97)`",
        "*Media:*\n`https://example.com/cat.png`",
        "*Object:*\n`flagged/p1.json`",
        "*Content:*\n```buy now```",
    ]


def test_pagerduty_has_one_incident_for_a_revision() -> None:
    told = notices.pagerduty(EVENT, RECORD, "a-key")
    assert (told["routing_key"], told["event_action"]) == ("a-key", "trigger")
    assert told["payload"]["summary"] == "flagged p1 (confidence 0.97): spam (0.97)"
    assert told["payload"]["severity"] in ("critical", "error", "warning", "info")
    again = msgspec.structs.replace(EVENT, id="evt_2")
    assert notices.pagerduty(again, RECORD, "a-key")["dedup_key"] == told["dedup_key"]
    assert notices.pagerduty(EVENT, {**RECORD, "revision": 4}, "a-key")["dedup_key"] != told["dedup_key"]
    with pytest.raises(Invalid, match="routing key"):
        notices.encode("pagerduty", EVENT, RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "```<!channel> look```",
        "<https://example.com|click>",
        "<@U024BE7LH>",
        "& &lt; &amp;lt;!here&gt;",
        "`a` ``b``",
        "\u202ereversed\u202c",
        "\x00\x1b[31m",
        "é" * 5_000,
        "😀" * 5_000,
        "&" * 5_000,
    ],
)
def test_nothing_a_post_says_is_markup(text: str) -> None:
    check_is_text(notices.slack(EVENT, {**RECORD, "text": text, "id": text, "media_url": text}), text)


any_text = st.text(st.one_of(st.characters(), st.sampled_from("<>&`!@#|*_~\n\u202e")), max_size=60)


@given(any_text, any_text, any_text, any_text, st.integers(1, 200))
def test_no_post_can_inject_mentions_links_or_leave_its_block(
    text: str, id: str, media_url: str, name: str, times: int
) -> None:
    record = {
        "id": id,
        "text": text * times,
        "media_url": media_url,
        "categories": [{"name": name, "flagged": True, "confidence": 0.9}],
        "confidence": 0.9,
    }
    event = msgspec.structs.replace(EVENT, key=f"{name}/{id}" if name and id else "x")
    check_is_text(notices.slack(event, record), text * times)


def check_is_text(message: dict[str, Any], text: str) -> None:
    msgspec.json.encode(message)
    for each in texts_of(message):
        assert "<" not in each and ">" not in each
        assert re.fullmatch(r"(?:[^&]|&(?:amp|lt|gt);)*", each, re.DOTALL), "an entity was cut or left out"
        assert len(each.encode("utf-16-le")) // 2 <= 3_000
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", each)
    for each in texts_of(message)[:-1]:
        # Whatever is not ours is on one line between two backticks.
        assert each.count("`") in (0, 2)
        spans = re.findall(r"`([^`]*)`", each)
        assert all("\n" not in span for span in spans)
        outside = re.sub(r"`[^`]*`", "", each)
        assert re.fullmatch(r"[\w\s:*().'-]*", outside), outside
    content = texts_of(message)[-1]
    assert content.startswith("*Content:*\n```") and content.endswith("```") and content.count("`") == 6
    if text:
        shown = html.unescape(content.removeprefix("*Content:*\n```").removesuffix("```")).removesuffix(notices.CUT)
        seen = [notices.plain(each) if each != "`" else "\u02cb" for each in text]
        assert "".join(seen).startswith(shown) or shown == "".join(seen)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=9),
        lambda each: (
            st.lists(each)
            | st.dictionaries(st.sampled_from(["id", "text", "categories", "confidence", "name", "flagged"]), each)
        ),
        max_leaves=9,
    )
)
@example({"confidence": 10**400, "categories": [{"name": "spam", "flagged": True, "confidence": 10**400}]})
def test_any_content_can_be_told_of(content: Any) -> None:
    for format in ("slack", "json", "pagerduty"):
        told = msgspec.json.decode(notices.encode(format, EVENT, content, routing_key="k"))  # type: ignore[arg-type]
        assert told


def flag(bucket: Any, id: str = "p1", text: str = "buy now") -> None:
    bucket.run(posts.route(bus_of(bucket), classify(bucket, id, text, BAD)))


def test_a_flagged_post_is_told_of_and_an_approved_one_is_not() -> None:
    store = Gate()
    with endpoint() as there, sync_on(store) as bucket:
        classify(bucket, "good", "hello", CLEAN)
        classify(bucket, "bad", "buy <now>", BAD)
        route_once(store, review_url=there.url, review_token="hush")
        (request,) = there.requests
    message = msgspec.json.decode(request.body)
    assert message["text"].startswith(":rotating_light: Flagged content `bad`")
    assert texts_of(message)[-1] == "*Content:*\n```buy &lt;now&gt;```"
    assert request.headers["authorization"] == "Bearer hush"
    assert request.headers["content-type"] == "application/json"


def test_a_notice_that_fails_is_repeated_until_it_is_told() -> None:
    store = Gate()
    with endpoint([Reply(503), HangUp(), Reply(200)]) as there, sync_on(store) as bucket:
        route_once(store, review_url=there.url)  # makes the rule
        rule = bucket.rules.get(NOTICE_RULE)
        assert len(rule.policy.retry_seconds) >= 9  # over days
        bucket.rules.add(
            NOTICE_RULE,
            to=there.url,
            filter=rule.filter,
            format="slack",
            private=True,
            retry_seconds=(0.01, 0.01),
            replace=True,
        )
        flag(bucket)
        while len(there.requests) < 3:
            bucket.notify(stop_when_empty=True)
        ids = {request.headers["webhook-id"] for request in there.requests}
    assert len(ids) == 1


def test_a_post_that_is_gone_by_the_time_is_told_of_all_the_same() -> None:
    store = Gate()
    with endpoint() as there, sync_on(store) as bucket:
        route_once(store, review_url=there.url)
        flag(bucket)
        bucket.run(posts.review(bus_of(bucket), "p1", revision=1, reviewer="rosa", action="approve"))
        route_once(store, review_url=there.url)
        (request,) = there.requests
    assert notices.GONE in texts_of(msgspec.json.decode(request.body))[-1]


@pytest.mark.parametrize("format", ["json", "pagerduty"])
def test_other_formats_are_delivered_too(format: str) -> None:
    store = Gate()
    with endpoint() as there, sync_on(store) as bucket:
        classify(bucket, "p1", "buy now", BAD)
        route_once(store, review_url=there.url, review_format=format, review_token="the-key")
        (request,) = there.requests
    body = msgspec.json.decode(request.body)
    if format == "json":
        assert (body["event"]["key"], body["content"]["text"]) == ("flagged/p1.json", "buy now")
        assert request.headers["authorization"] == "Bearer the-key"
    else:
        assert body["routing_key"] == "the-key"
        assert "authorization" not in request.headers


def test_the_rule_is_made_once_changed_with_the_settings_and_stays_paused() -> None:
    with sync_on(MemoryStore()) as bucket:

        def set_up(**options: Any) -> Any:
            return bucket.run(notice.set_up(bus_of(bucket), settings_with(**options)))

        assert set_up() is None
        first = set_up(review_url="https://example.com/a")
        assert set_up(review_url="https://example.com/a") == first
        assert set_up() is None and bucket.rules.get(NOTICE_RULE) == first
        bucket.rules.pause(NOTICE_RULE, "night")
        second = set_up(review_url="https://example.com/b", review_token="t")
        assert (second.to.url, second.paused, second.subscription) == (
            "https://example.com/b",
            "night",
            first.subscription,
        )
        assert bucket.rules.secrets(NOTICE_RULE).bearer == "t"
        with pytest.raises(Invalid, match="not encrypted"):
            set_up(review_url="http://example.com/b")


def test_a_token_is_not_shown_at_another_address() -> None:
    with sync_on(MemoryStore()) as bucket:

        def secrets_after(**options: Any) -> Any:
            bucket.run(notice.set_up(bus_of(bucket), settings_with(**options)))
            return bucket.rules.secrets(NOTICE_RULE)

        first = {"review_url": "https://events.pagerduty.com/v2/enqueue", "review_format": "pagerduty"}
        signing = (new_secret(bytes(32)),)
        assert secrets_after(**first, review_token="routing-key").bearer == "routing-key"
        bucket.rules.change_secrets(NOTICE_RULE, lambda old: msgspec.structs.replace(old, signing=signing))
        assert secrets_after(**first).bearer == "routing-key"  # another process may have it
        after = secrets_after(review_url="https://hooks.slack.com/services/x")
        assert (after.bearer, after.signing) == (None, signing)
        after = secrets_after(review_url="https://example.com/a", review_token="another")
        assert (after.bearer, after.signing) == ("another", signing)


def test_pagerduty_without_its_key_is_refused_before_anything_is_flagged() -> None:
    with sync_on(MemoryStore()) as bucket:

        def set_up(**options: Any) -> Any:
            return bucket.run(notice.set_up(bus_of(bucket), settings_with(**options)))

        pagerduty = {"review_url": "https://events.pagerduty.com/v2/enqueue", "review_format": "pagerduty"}
        with pytest.raises(Invalid, match="REVIEW_WEBHOOK_TOKEN"):
            set_up(**pagerduty)
        set_up(review_url="https://hooks.slack.com/services/x")
        with pytest.raises(Invalid, match="REVIEW_WEBHOOK_TOKEN"):
            set_up(**pagerduty)
        set_up(**pagerduty, review_token="routing-key")
        assert set_up(**pagerduty), "it was given before"


def test_a_notice_is_about_one_object() -> None:
    with sync_on(MemoryStore()) as bucket, pytest.raises(Invalid, match="leave out batch"):
        bucket.rules.add("r", to="https://example.com/a", format="slack", batch=2)

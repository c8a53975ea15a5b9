"""Alerts: one for each incident, told once, resolved once, whatever comes again or dies in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pipeline.dying import Stopped, dying_after
from procedures.bulk.test_publish import FaultyStore
from procedures.world import World

import bucketmq
from apps.logs.parts import MINUTE, START, Logs, line, ordinary, put, settings_on
from bucketmq import aio
from bucketmq.apps.logs import alerts, explain, look
from bucketmq.apps.logs.detect import Change
from bucketmq.apps.logs.drain import id_of
from bucketmq.apps.logs.keeper import Keeper
from bucketmq.apps.logs.matching import TemplateUse
from bucketmq.apps.logs.names import MUTED, OPEN, RESOLVED, fingerprint
from bucketmq.bucket.memory import MemoryStore
from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures import verbs
from bucketmq.server.place import bus_of, run_now
from bucketmq.testing.endpoints import HangUp, Reply, endpoint

ID = fingerprint("web", "spike", "t1")
BEGAN = Change(
    over=False,
    fingerprint=ID,
    service="web",
    kind="spike",
    since=START,
    at=START,
    template_id="t1",
    template="it <*> broke",
    why="90 lines in one minute; 3 are usual",
    count=90,
    examples=["it really broke"],
)
OVER = Change(over=True, fingerprint=ID, service="web", kind="spike", since=START, at=START + 900, count=120)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    made = Logs(str(tmp_path / "bucket"))
    yield made
    made.close()


def news(change: Change) -> dict[str, Any]:
    return {"kind": "incident", "change": msgspec.to_builtins(change)}


def handle(bucket: Any, change: Change, **options: Any) -> list[str]:
    done: list[str] = run_now(bucket, alerts.handle(bus_of(bucket), news(change), settings_on("x", **options)))
    return done


def keys(bucket: Any) -> list[str]:
    return list(bucket.rules.matching('key LIKE "alerts/%"').keys)


def test_an_incident_opens_one_alert_and_moves_it_when_it_is_over(logs: Logs) -> None:
    told = [handle(logs.bucket, BEGAN, runbook_url="https://runs.example.com/{service}/{kind}") for _ in range(3)]
    assert told == [[ID], [], []]
    (alert,) = logs.alerts()
    assert (alert["id"], alert["state"], alert["severity"], alert["count"]) == (ID, "open", "warning", 90)
    assert alert["summary"] == "web: spike: it <*> broke" and alert["link"] == "https://runs.example.com/web/spike"
    assert alert["text"].splitlines() == [BEGAN.why, "", "it really broke"]
    for _ in range(3):
        handle(logs.bucket, OVER)
    assert keys(logs.bucket) == [f"{RESOLVED}{ID}-{START}.json"]
    (alert,) = logs.resolved()
    assert alert["state"] == "resolved" and alert["resolved_at"] and alert["count"] == 120


def test_news_that_come_again_open_nothing_that_was_resolved_and_the_next_incident_is_another(logs: Logs) -> None:
    handle(logs.bucket, BEGAN)
    handle(logs.bucket, OVER)
    assert handle(logs.bucket, BEGAN) == [] and logs.alerts() == []
    later = msgspec.structs.replace(BEGAN, since=START + 7200)
    assert handle(logs.bucket, later) == [ID]
    assert handle(logs.bucket, OVER) == [], "that was the one before"
    assert len(keys(logs.bucket)) == 2 and len(logs.alerts()) == 1


def test_news_that_an_incident_is_over_may_come_before_those_that_it_began(logs: Logs) -> None:
    assert handle(logs.bucket, OVER) == [] and handle(logs.bucket, BEGAN) == []
    assert keys(logs.bucket) == [f"{RESOLVED}{ID}-{START}.json"]
    assert [(each["summary"], each["state"]) for each in logs.resolved()] == [("web: spike", "resolved")]
    run_now(logs.bucket, alerts.mute(bus_of(logs.bucket), ID, by="ada", seconds=3600.0))
    handle(logs.bucket, msgspec.structs.replace(OVER, since=START + 60))
    assert [bool(each["muted_at"]) for each in logs.resolved()] == [False, True], "nobody is told of the second"


def test_a_keeper_that_dies_between_any_two_writes_leaves_one_alert(tmp_path: Path) -> None:
    for which, before, change in (("open", (), BEGAN), ("close", (BEGAN,), OVER)):
        writes, alive = 0, False
        while not alive:
            with bucketmq.connect(str(tmp_path / f"{which}-{writes}")) as bucket:
                for each in before:
                    handle(bucket, each)
                try:
                    with dying_after(writes):
                        handle(bucket, change)
                        alive = True
                except Stopped:
                    pass
            with bucketmq.connect(str(tmp_path / f"{which}-{writes}")) as bucket:
                handle(bucket, change)
                place = OPEN if which == "open" else f"{RESOLVED}{ID}-{START}"
                assert len(keys(bucket)) == 1 and keys(bucket)[0].startswith(place)
            writes += 1
        assert writes >= 3


@pytest.mark.parametrize("fault", ["lost", "landed", "refused", "landed and refused"])
def test_one_bad_answer_at_any_request_does_no_harm(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "PAUSE_FIRST_SECONDS", 0.001)
    own = id_of(("it", "<*>", "broke"))
    seen = [TemplateUse(own, "it <*> broke", "error", 3, START + 7200.0, ["it really broke"], True)]
    learnt = {"kind": "learnt", "service": "web", "source": "o", "seen": msgspec.to_builtins(seen)}
    at, hit = 0, True
    while hit:
        world = World(store=FaultyStore())
        bucket, store = world.connect(), world.store
        assert isinstance(store, FaultyStore)
        bucket.put("x", "open the bucket before it fails")
        store.arm(at, fault)
        for message in (learnt, news(BEGAN), news(OVER)):
            for _ in range(3):
                try:
                    run_now(bucket, alerts.handle(bus_of(bucket), message, settings_on("x", learning_minutes=0)))
                    break
                except bucketmq.Unavailable:
                    continue
        hit = store.asked > at
        store.arm(-1, "")
        templates = msgspec.json.decode(store.get("app/templates/web.json").body)["templates"]
        assert [each["template"] for each in templates] == ["it <*> broke"]
        new = fingerprint("web", "new-pattern", own)
        assert sorted(keys(bucket)) == [f"{OPEN}{new}.json", f"{RESOLVED}{ID}-{START}.json"]
        world.close()
        at += 1
    assert at > 8


def test_learners_that_merge_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "bucket")
    texts = [f"{'abcdefgh'[n]}word {'abcdefgh'[n]}other happened <*>" for n in range(8)]

    def learn(text: str) -> None:
        seen = TemplateUse(f"id-{text[0]}", text, "info", 1, float(START), [], True)
        with bucketmq.connect(url) as bucket:
            run_now(bucket, alerts.learn(bus_of(bucket), "web", [seen], f"object-{text[0]}", settings_on(url)))

    threads = [threading.Thread(target=learn, args=(text,)) for text in texts]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with bucketmq.connect(url) as bucket:
        found = bucket.get_json("templates/web.json")["templates"]
    assert sorted(each["template"] for each in found) == texts


def test_new_patterns_alert_when_they_are_severe_and_the_service_is_known(logs: Logs) -> None:
    put(logs.bucket, "0", [*ordinary(0), line(START, "early trouble", "error")])
    put(logs.bucket, "1", ordinary(30))
    logs.go()
    assert logs.alerts() == [], "the service is being learnt"
    put(logs.bucket, "2", [*ordinary(31), line(START + 31 * MINUTE, "a harmless novelty")])
    logs.go()
    assert logs.alerts() == []
    put(logs.bucket, "3", [*ordinary(32), line(START + 32 * MINUTE, "disk on fire, token=abc", "error")])
    logs.go()
    (alert,) = logs.alerts()
    assert (alert["kind"], alert["template"], alert["severity"]) == (
        "new-pattern",
        "disk on fire, token=[secret]",
        "error",
    )
    assert alert["examples"] == ["disk on fire, token=[secret]"]
    for minute in range(33, 52, 3):
        put(logs.bucket, str(minute), ordinary(minute))
    logs.go()
    assert logs.alerts() == [] and len(logs.resolved()) == 1


def test_a_deployment_that_renames_everything_is_one_alert_and_not_a_thousand(logs: Logs) -> None:
    for minute in range(0, 30, 10):
        put(logs.bucket, str(minute), ordinary(minute))
    logs.go()
    words = ["".join("abcdefghij"[int(digit)] for digit in str(n)) for n in range(1000, 1300)]
    texts = [f"{word} {word}x renamed <{n % 7}> now in {word}" for n, word in enumerate(words)]
    put(logs.bucket, "deployed", [line(START + 31 * MINUTE, text, "error") for text in texts])
    put(logs.bucket, "more", [line(START + 33 * MINUTE, f"{text} again", "error") for text in texts[:100]])
    logs.go()
    assert [alert["kind"] for alert in logs.alerts()] == ["new-patterns"]
    assert len(logs.bucket.get_json("templates/web.json")["templates"]) <= 2_000
    for minute in range(34, 52, 3):
        put(logs.bucket, str(minute), ordinary(minute))
    logs.go()
    assert logs.alerts() == []


def test_muting_hides_an_incident_from_rules_and_says_who_did_it(logs: Logs) -> None:
    handle(logs.bucket, BEGAN)
    bus = bus_of(logs.bucket)
    made = run_now(logs.bucket, alerts.mute(bus, ID, by="ada", seconds=3600.0, note="known"))
    assert made is not None and f"{MUTED}{ID}.json" in keys(logs.bucket) and logs.alerts() == []
    handle(logs.bucket, OVER)
    later = msgspec.structs.replace(BEGAN, since=START + 7200)
    assert handle(logs.bucket, later) == [] and logs.alerts() == [], "the next one is muted, too"
    run_now(logs.bucket, alerts.mute(bus, ID, by="bo", seconds=0))
    assert len(logs.alerts()) == 1
    audit = logs.bucket.queue("log-audit").subscription("reader", start="earliest").receive(10)
    assert [(each.body["did"], each.body["by"]) for each in audit] == [("mute", "ada"), ("unmute", "bo")]
    with pytest.raises(Invalid, match="not the id of an alert"):
        run_now(logs.bucket, alerts.mute(bus, "../../x", by="ada", seconds=1.0))
    with pytest.raises(NotFound):
        run_now(logs.bucket, alerts.read_alert(bus, "0" * 20))


def keep(url: str, **options: Any) -> None:
    async def main() -> None:
        async with aio.connect(url) as bucket:
            await Keeper(bucket, settings_on(url, **options)).run_once()

    asyncio.run(main())


def test_pagerduty_is_told_once_to_trigger_and_once_to_resolve_with_the_same_key(logs: Logs) -> None:
    pager = {"alert_format": "pagerduty", "alert_token": "a-routing-key", "runbook_url": "https://runs.example.com/"}
    with endpoint([Reply(500), HangUp(), Reply(202)]) as there:
        keep(logs.url, alert_url=there.url, **pager)  # the rule is there before anything happens
        for _ in range(3):
            logs.bucket.queue("log-news").send(news(BEGAN))
        keep(logs.url, alert_url=there.url, **pager)
        while len(there.requests) < 3:  # what was refused is tried again
            keep(logs.url, alert_url=there.url, **pager)
        for _ in range(3):
            logs.bucket.queue("log-news").send(news(OVER))
            logs.bucket.queue("log-news").send(news(BEGAN))
        keep(logs.url, alert_url=there.url, **pager)
        keep(logs.url, alert_url=there.url, **pager)
        told = [msgspec.json.decode(each.body) for each in there.requests]
    assert [each["event_action"] for each in told] == ["trigger", "trigger", "trigger", "resolve"]
    assert {each["dedup_key"] for each in told} == {told[0]["dedup_key"]}
    for each in told:
        assert set(each) == {"routing_key", "event_action", "dedup_key", "links", "payload"}
        assert each["routing_key"] == "a-routing-key"
        assert each["links"] == [{"href": "https://runs.example.com/", "text": "Runbook"}]
        payload = each["payload"]
        assert {"summary", "source", "severity"} <= set(payload) and payload["severity"] == "warning"
        assert payload["summary"] == "web: spike: it <*> broke"


PAGER = {"alert_format": "pagerduty", "alert_token": "a-routing-key"}


def actions(there: Any) -> list[str]:
    return [msgspec.json.decode(each.body)["event_action"] for each in there.requests]


def mute(bucket: Any, seconds: float) -> None:
    run_now(bucket, alerts.mute(bus_of(bucket), ID, by="ada", seconds=seconds, note="known"))


@pytest.mark.parametrize("then", ["over", "unmuted", "unmuted and over", "muted again"])
def test_muting_an_alert_that_paged_resolves_it_once_and_it_never_pages_again(logs: Logs, then: str) -> None:
    with endpoint() as there:
        for change in (None, BEGAN):
            if change is not None:
                handle(logs.bucket, change)
            keep(logs.url, alert_url=there.url, **PAGER)
        mute(logs.bucket, 3600.0)
        keep(logs.url, alert_url=there.url, **PAGER)
        assert actions(there) == ["trigger", "resolve"]
        if "unmuted" in then or "again" in then:
            mute(logs.bucket, 0.0)
            keep(logs.url, alert_url=there.url, **PAGER)
            assert len(logs.alerts()) == 1, "people see that it goes on"
        if "again" in then:
            mute(logs.bucket, 3600.0)
            keep(logs.url, alert_url=there.url, **PAGER)
        if "over" in then:
            handle(logs.bucket, OVER)
            assert logs.alerts() == logs.alerts(MUTED) == [] and logs.resolved()[0]["count"] == 120
        handle(logs.bucket, BEGAN)
        keep(logs.url, alert_url=there.url, **PAGER)
        assert actions(there) == ["trigger", "resolve"]
        told = [msgspec.json.decode(each.body)["dedup_key"] for each in there.requests]
    assert told[0] == told[1]


def test_the_next_incident_pages_after_one_that_was_muted(logs: Logs) -> None:
    with endpoint() as there:
        keep(logs.url, alert_url=there.url, **PAGER)
        handle(logs.bucket, BEGAN)
        keep(logs.url, alert_url=there.url, **PAGER)
        mute(logs.bucket, 3600.0)
        handle(logs.bucket, OVER)
        mute(logs.bucket, 0.0)
        handle(logs.bucket, msgspec.structs.replace(BEGAN, since=START + 7200, at=START + 7200))
        keep(logs.url, alert_url=there.url, **PAGER)
        told = [msgspec.json.decode(each.body) for each in there.requests]
    first = [each["event_action"] for each in told if each["dedup_key"] == told[0]["dedup_key"]]
    second = [each["event_action"] for each in told if each["dedup_key"] != told[0]["dedup_key"]]
    assert (first, second) == (["trigger", "resolve"], ["trigger"])


def test_an_incident_that_began_and_ended_muted_is_never_told_and_never_opens_again(logs: Logs) -> None:
    with endpoint() as there:
        keep(logs.url, alert_url=there.url, **PAGER)
        mute(logs.bucket, 3600.0)
        handle(logs.bucket, BEGAN)
        handle(logs.bucket, OVER)
        mute(logs.bucket, 0.0)
        handle(logs.bucket, BEGAN)
        keep(logs.url, alert_url=there.url, **PAGER)
        assert actions(there) == [] and logs.alerts() == logs.alerts(MUTED) == []


def test_muting_that_dies_between_any_two_writes_is_finished_by_muting_again(tmp_path: Path) -> None:
    writes, alive = 0, False
    while not alive:
        url = str(tmp_path / f"mute-{writes}")
        with endpoint() as there, bucketmq.connect(url) as bucket:
            keep(url, alert_url=there.url, **PAGER)
            handle(bucket, BEGAN)
            keep(url, alert_url=there.url, **PAGER)
            try:
                with dying_after(writes):
                    mute(bucket, 3600.0)
                    alive = True
            except Stopped:
                pass
            mute(bucket, 3600.0)
            keep(url, alert_url=there.url, **PAGER)
            assert actions(there) == ["trigger", "resolve"]
            assert [key for key in keys(bucket) if key.startswith((OPEN, MUTED))] == [f"{MUTED}{ID}.json"]
        writes += 1
    assert writes >= 4


NEW = fingerprint("web", "new-pattern", id_of(("it", "<*>", "broke")))


def learnt_news() -> dict[str, Any]:
    seen = [TemplateUse(id_of(("it", "<*>", "broke")), "it <*> broke", "error", 3, START + 7200.0, ["it broke"], True)]
    return {"kind": "learnt", "service": "web", "source": "o", "seen": msgspec.to_builtins(seen)}


NEW_OVER = Change(
    over=True, fingerprint=NEW, service="web", kind="new-pattern", since=0, at=START + 9000, template_id="t"
)


@pytest.mark.parametrize("order", ["end first", "begin first", "end, begin, end", "end, begin, begin"])
def test_a_new_pattern_whose_end_is_handled_in_any_order_is_over(logs: Logs, order: str) -> None:
    end, begin = news(NEW_OVER), learnt_news()
    sent = {
        "end first": [end, begin],
        "begin first": [begin, end],
        "end, begin, end": [end, begin, end],
        "end, begin, begin": [end, begin, begin],
    }[order]
    for each in sent:
        run_now(logs.bucket, alerts.handle(bus_of(logs.bucket), each, settings_on("x", learning_minutes=0)))
    assert logs.alerts() == []
    assert [(each["id"], each["state"]) for each in logs.resolved()] == [(NEW, "resolved")]


def test_the_end_of_an_earlier_burst_of_new_patterns_does_not_hide_the_next(logs: Logs) -> None:
    burst = msgspec.structs.replace(BEGAN, kind="new-patterns", fingerprint=fingerprint("web", "new-patterns", ""))
    end = msgspec.structs.replace(burst, over=True, since=0, at=START + 900)
    handle(logs.bucket, end)
    handle(logs.bucket, burst)
    assert logs.alerts() == []
    assert handle(logs.bucket, msgspec.structs.replace(burst, since=START + 600, at=START + 960)) != []
    assert len(logs.alerts()) == 1


class SlowToMute(MemoryStore):
    """Does something else between looking who muted what and saying so."""

    meanwhile: Any = None

    def get(self, key: str, *args: Any, **options: Any) -> Any:
        found = super().get(key, *args, **options)
        if key.endswith("alerts/mutes.json") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return found


@pytest.mark.parametrize("kind", ["spike", "new-pattern"])
def test_an_end_that_comes_while_the_alert_is_being_opened_wins(kind: Any) -> None:
    store = SlowToMute()
    world = World(store=store)
    bucket, other = world.connect(), world.connect()
    began = msgspec.structs.replace(BEGAN, kind=kind)
    over = msgspec.structs.replace(OVER, kind=kind, since=0 if kind == "new-pattern" else START)
    store.meanwhile = lambda: handle(other, over)  # after the first has looked whether it is over
    assert handle(bucket, began) == [] and store.meanwhile is None
    assert [key for key in keys(bucket) if "ended" not in key] == [f"{RESOLVED}{ID}-{START}.json"]
    world.close()


def test_a_mute_that_comes_while_the_alert_is_being_opened_wins() -> None:
    store = SlowToMute()
    world = World(store=store)
    bucket, other = world.connect(), world.connect()
    store.meanwhile = lambda: mute(other, 3600.0)  # after the first has looked whether it is muted
    assert handle(bucket, BEGAN) == [] and store.meanwhile is None
    assert f"{MUTED}{ID}.json" in keys(bucket) and f"{OPEN}{ID}.json" not in keys(bucket)
    world.close()


def test_slack_is_told_in_words_and_an_alert_that_was_over_first_is_not_told(logs: Logs) -> None:
    with endpoint() as there:
        keep(logs.url, alert_url=there.url, alert_format="slack")
        logs.bucket.queue("log-news").send(news(BEGAN))
        keep(logs.url)  # without an address: nobody delivers
        keep(logs.url, alert_url=there.url, alert_format="slack")
        logs.bucket.queue("log-news").send(news(OVER))
        keep(logs.url, alert_url=there.url, alert_format="slack")
        quick = msgspec.structs.replace(BEGAN, since=START + 7200)
        for change in (quick, msgspec.structs.replace(OVER, since=START + 7200, at=START + 9000)):
            handle(logs.bucket, change)
        keep(logs.url, alert_url=there.url, alert_format="slack")
        texts = [msgspec.json.decode(each.body)["text"] for each in there.requests]
    assert texts == [
        ":rotating_light: Alert `web: spike: it &lt;*&gt; broke`",
        ":white_check_mark: Resolved `web: spike: it &lt;*&gt; broke`",
        ":white_check_mark: Resolved `web: spike: it &lt;*&gt; broke`",
    ]


def test_an_object_of_somebody_else_among_alerts_and_services_hides_none(logs: Logs) -> None:
    handle(logs.bucket, BEGAN)
    put(logs.bucket, "0", ordinary(0))
    logs.go()
    for prefix in (OPEN, "log-services/"):
        logs.bucket.put(f"{prefix}README.txt", "what lies here")
        logs.bucket.put(f"{prefix}other.json", {"id": 7, "service": 7})
    bus = bus_of(logs.bucket)
    assert [each.id for each in run_now(logs.bucket, alerts.open_alerts(bus))] == [ID]
    assert [each.service for each in run_now(logs.bucket, look.services(bus))] == ["web"]


def test_news_that_are_none_are_buried(logs: Logs) -> None:
    for body in ({"kind": "odd"}, {"kind": "incident"}, {"kind": "learnt", "service": "x"}):
        logs.bucket.queue("log-news").send(body)
    keep(logs.url)
    assert len(logs.dead()) == 3 and all(reason.startswith("no news of logs") for reason in logs.dead())


def test_a_tick_is_sent_for_each_service_and_silence_comes_of_it(tmp_path: Path) -> None:
    logs = Logs(str(tmp_path / "bucket"), silence_minutes=1)
    for minute in range(8):
        put(logs.bucket, str(minute), ordinary(minute))
    logs.go()
    logs.keep(tick_at=0.0)
    logs.watch()
    assert logs.dead() == []
    assert logs.alerts() == [], "objects came a moment ago"
    logs.close()


def test_claude_is_told_what_was_found_and_nothing_else(logs: Logs) -> None:
    alert = alerts.alert_of(BEGAN, settings_on("x"), now=float(START))
    asked = msgspec.json.decode(explain.asked(alert))
    assert asked["why"] == BEGAN.why and asked["examples"] == ["it really broke"]
    assert set(asked) == {
        "service", "kind", "severity", "why", "template", "count", "usual", "opened_at", "examples",
    }  # fmt: skip
    assert run_now(logs.bucket, explain.said_of(bus_of(logs.bucket), alert)) == ""
    logs.bucket.put(explain.said_key(alert), {"alert": ID, "said": "the disk is full"})
    assert run_now(logs.bucket, explain.said_of(bus_of(logs.bucket), alert)) == "the disk is full"

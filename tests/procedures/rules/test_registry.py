"""Rules as they lie in the bucket: added, changed, paused, removed, begun anew; secrets apart."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bucketmq
from bucketmq.events.event import time_text
from bucketmq.procedures.requests import Create
from bucketmq.rulebook import rotated
from procedures.objects.world import DEATHS, FAULTS, Killed, World

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def got(bucket: Any, name: str, queue: str = "out") -> list[str]:
    """The keys that a rule to a queue has delivered by now."""
    bucket.notify(only=[name], stop_when_empty=True, signals=False)
    keys = []
    while batch := bucket.queue(queue).receive(100):
        for delivery in batch:
            keys.append(delivery.body["key"])
            delivery.ack()
    return keys


def test_a_rule_is_read_back_as_it_was_made(bucket: Any) -> None:
    made = bucket.rules.add("big", to="https://example.com/hook", filter="WHERE size > 10", batch=5, ordered=True)
    assert bucket.rules.get("big") == made
    assert bucket.rules.list() == [made]
    assert (made.to.batch, made.policy.ordered, made.paused) == (5, True, None)


def test_a_rule_begins_now_unless_told_otherwise(bucket: Any) -> None:
    bucket.put("before", "x")
    bucket.rules.add("r", to="queue:out")
    bucket.put("after", "x")
    assert got(bucket, "r") == ["after"]


def test_a_rule_may_begin_at_the_beginning(bucket: Any) -> None:
    bucket.put("before", "x")
    bucket.rules.add("r", to="queue:out", start="beginning")
    assert got(bucket, "r") == ["before"]


@pytest.mark.parametrize("as_text", [True, False])
def test_a_rule_may_begin_at_a_time(memory: World, *, as_text: bool) -> None:
    bucket = memory.connect()
    bucket.put("old", "x")
    memory.advance(100)
    at = memory.time.now() - 50
    bucket.put("new", "x")
    bucket.rules.add("r", to="queue:out", start=time_text(at) if as_text else at)
    assert got(bucket, "r") == ["new"]


def test_a_rule_may_begin_with_the_objects_that_are_there(world: World) -> None:
    bucket = world.connect()
    world.write("in/1", b"x")
    bucket.put("in/2", "x")
    world.write("other/3", b"x")
    bucket.rules.add("r", to="queue:out", existing="in/")
    bucket.rules.add("elsewhere", to="queue:other")
    bucket.put("in/4", "x")
    assert sorted(got(bucket, "r")) == ["in/1", "in/2", "in/4"]
    assert got(bucket, "elsewhere", "other") == ["in/4"]


@pytest.mark.parametrize("start", ["soon", "", object()])
def test_a_start_that_is_none_is_refused(bucket: Any, start: Any) -> None:
    with pytest.raises(bucketmq.Invalid):
        bucket.rules.add("r", to="queue:out", start=start)
    assert bucket.rules.list() == []


def test_a_name_is_taken_unless_it_may_be_replaced_and_then_the_rule_goes_on(bucket: Any) -> None:
    bucket.rules.add("r", to="queue:out")
    bucket.put("1", "x")
    with pytest.raises(bucketmq.Invalid, match="already"):
        bucket.rules.add("r", to="queue:out")
    before = bucket.rules.get("r")
    after = bucket.rules.add("r", to="queue:out", filter="WHERE key != '2'", replace=True)
    assert after.subscription == before.subscription
    assert after.revision > before.revision
    bucket.put("2", "x")
    bucket.put("3", "x")
    assert got(bucket, "r") == ["1", "3"]


BAD = [
    ({"filter": "WHERE key ="}, "column"),
    ({"filter": "WHERE key REGEXP '('"}, "REGEXP|regular|missing"),
    ({"to": "ftp://example.com"}, "https://"),
    ({"to": "http://example.com/hook"}, "not encrypted"),
    ({"to": "https://user:secret@example.com"}, "no user"),
    ({"to": "nowhere"}, r"queue:NAME"),
    ({"to": "queue:bad name"}, "queue name"),
    ({"to": "queue:events"}, "events"),
    ({"to": "queue:deliveries"}, "deliveries"),
    ({"to": "queue:events.dead"}, "own"),
    ({"to": "queue:out", "batch": 3}, "webhooks"),
    ({"to": "https://example.com", "batch": 0}, "batch"),
    ({"to": "https://example.com", "statuses": {"abc": "done"}}, "status"),
    ({"to": "https://example.com", "format": "xml"}, "format"),
    ({"concurrency": 0}, "concurrency"),
    ({"colour": "red"}, "unknown option"),
    ({"retry_seconds": [-1]}, "retry_seconds"),
    ({"signing": "secret", "to": "https://example.com"}, "whsec_"),
    ({"bearer": "a", "basic": "b:c"}, "not both"),
    ({"basic": "nocolon"}, "user:password"),
]


@pytest.mark.parametrize(("options", "says"), BAD, ids=range(len(BAD)))
def test_what_cannot_work_is_refused_when_it_is_written(memory: World, options: dict[str, Any], says: str) -> None:
    bucket = memory.connect()
    bucket.open()
    before = memory.everything()
    with pytest.raises(bucketmq.Invalid, match=says):
        bucket.rules.add("r", **{"to": "queue:out", **options})
    assert memory.everything() == before


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 65, "r.json", "../r", "r.secrets"])
def test_a_name_that_cannot_be_one_is_refused(memory: World, name: str) -> None:
    bucket = memory.connect()
    for use in (
        lambda: bucket.rules.add(name, to="queue:out"),
        lambda: bucket.rules.get(name),
        lambda: bucket.rules.remove(name),
        lambda: bucket.rules.secrets(name),
    ):
        with pytest.raises(bucketmq.Invalid):
            use()


def test_what_is_not_there_is_not_found(bucket: Any) -> None:
    for use in (bucket.rules.get, bucket.rules.pause, bucket.rules.resume, bucket.rules.remove, bucket.audit):
        with pytest.raises(bucketmq.NotFound, match="no rule"):
            use("nobody")


def test_a_paused_rule_keeps_what_comes_until_it_is_resumed(bucket: Any) -> None:
    bucket.rules.add("r", to="queue:out")
    assert bucket.rules.pause("r", "for repairs").paused == "for repairs"
    bucket.put("1", "x")
    assert got(bucket, "r") == []
    assert bucket.rules.resume("r").paused is None
    assert got(bucket, "r") == ["1"]


def test_a_removed_rule_is_gone_and_one_of_the_same_name_starts_fresh(memory: World) -> None:
    bucket = memory.connect()
    first = bucket.rules.add("r", to="queue:out")
    bucket.put("old", "x")
    bucket.rules.remove("r")
    assert bucket.rules.list() == []
    with pytest.raises(bucketmq.NotFound):
        bucket.rules.get("r")
    second = bucket.rules.add("r", to="queue:out")
    assert second.subscription != first.subscription
    bucket.put("new", "x")
    assert got(bucket, "r") == ["new"]


def test_secrets_of_a_removed_rule_are_not_used_by_the_next_of_its_name(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="https://example.com/a", bearer="token-of-the-first")
    bucket.rules.remove("r")
    bucket.rules.add("r", to="https://elsewhere.example.com/b")
    assert bucket.rules.secrets("r").bearer is None
    assert not any(b"token-of-the-first" in body for body in memory.everything().values())


def test_tidying_takes_a_removed_rule_away_after_a_while_and_no_other(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="https://example.com", sign=True)
    kept = bucket.rules.add("kept", to="https://example.com", bearer="t")
    bucket.rules.remove("r")
    assert bucket.rules.tidy() == 0  # whoever runs it has not had time to notice
    memory.advance(61)
    assert bucket.rules.tidy() > 0
    assert [key for key in memory.everything() if key.startswith("rules/")] == [
        "rules/kept.json",
        "rules/kept.secrets.json",
    ]
    heads = {key.split("/")[3] for key in memory.everything() if "/heads/" in key}
    assert heads == {kept.subscription}
    assert bucket.rules.tidy() == 0


def test_heads_that_a_dead_maker_left_are_tidied(memory: World) -> None:
    """A rule's heads are made before the rule."""
    bucket = memory.connect()
    bucket.put("warm", "x")
    made: set[str] = set()
    for at in range(30):
        dying = memory.connect(at=at, fault="dies after")
        try:
            dying.rules.add(f"r{at}", to="https://example.com", sign=True)
        except Killed:
            over = False
        else:
            over = True
        memory.advance(700)
        bucket.rules.tidy()
        made = {rule.subscription for rule in bucket.rules.list()}
        assert {key.split("/")[3] for key in memory.everything() if "/heads/" in key} == made
        if over:
            break
    assert made


def test_tidying_that_dies_anywhere_is_done_by_the_next(memory: World) -> None:
    for at in range(30):
        for death in DEATHS:
            bucket = memory.connect()
            bucket.rules.add("r", to="https://example.com", bearer="t")
            bucket.rules.remove("r")
            memory.advance(61)
            dying = memory.connect(at=at, fault=death)
            try:
                dying.rules.tidy()
                over = True
            except Killed:
                over = False
            memory.advance(700)
            memory.connect().rules.tidy()
            left = [key for key in memory.everything() if key.startswith("rules/") or "/heads/" in key]
            assert left == [], (at, death)
        if over:
            return


def test_a_rule_made_anew_while_its_predecessor_is_tidied_keeps_its_secrets(memory: World) -> None:
    for at in range(20):
        bucket, other = memory.connect(), memory.connect()
        bucket.rules.add("r", to="https://example.com", bearer="first")
        bucket.rules.remove("r")
        memory.advance(61)
        start, done = bucket.hands.count, []

        def meddle(number: int, request: Any) -> None:
            if number == start + at and not done:  # noqa: B023
                done.append(number)  # noqa: B023
                other.rules.add("r", to="https://example.com", bearer="second")  # noqa: B023

        bucket.hands.meddle = meddle
        bucket.rules.tidy()
        bucket.hands.meddle = lambda _number, _request: None
        if not done:
            return
        assert other.rules.get("r").removed_at is None
        assert other.rules.secrets("r").bearer == "second", at
        other.rules.remove("r")
        memory.advance(61)
        other.rules.tidy()


@pytest.mark.parametrize("kind", ["copying", "hashing"])
def test_one_bad_answer_anywhere_does_not_spoil_a_rule(kind: str, tmp_path: Path) -> None:
    for at in range(30):
        for fault in FAULTS:
            world = World(kind, tmp_path / f"{at}{fault}")
            world.connect().put("before", "x")
            bucket = world.connect(at=at, fault=fault)
            try:
                bucket.rules.add("r", to="https://example.com", signing=SECRET)
                bucket.rules.pause("r", "why")
                bucket.rules.resume("r")
            except bucketmq.Unavailable:
                pass
            calm = world.connect()
            if bucket.hands.hit:
                calm.rules.add("r", to="https://example.com", signing=SECRET, replace=True)
            assert calm.rules.get("r").to.url == "https://example.com"
            assert calm.rules.secrets("r").signing == (SECRET,)
            world.close()
        if not bucket.hands.hit:
            return


@pytest.mark.parametrize("replace", [False, True], ids=["add", "replace"])
def test_of_two_that_make_a_rule_at_once_one_wins_whole_and_the_other_leaves_nothing(*, replace: bool) -> None:
    for at in range(40):
        world = World()
        bucket, other, begun = world.connect(), world.connect(), []

        def meddle(number: int, _: Any) -> None:
            if number == at and not begun:  # noqa: B023
                begun.append(number)  # noqa: B023
                with contextlib.suppress(bucketmq.Invalid):
                    other.rules.add("r", to="https://example.com/2", bearer="second")  # noqa: B023

        bucket.hands.meddle = meddle
        with contextlib.suppress(bucketmq.Invalid):
            bucket.rules.add("r", to="https://example.com/1", bearer="first", replace=replace)

        rule = bucket.rules.get("r")
        winner = {"https://example.com/1": "first", "https://example.com/2": "second"}[rule.to.url]
        assert bucket.rules.secrets("r").bearer == winner, at
        assert winner == "first" or not replace, at
        heads = [key for key in world.everything() if "/heads/" in key]
        assert heads == [f"queues/events/heads/{rule.subscription}/0.json"], at
        world.close()
        if not begun:
            return
    raise AssertionError("it never ended")


def test_a_rule_that_landed_unheard_and_was_paused_stays_paused(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    landed: list[int] = []

    def meddle(number: int, request: Any) -> None:
        if landed == [number - 1]:
            other.rules.pause("r", "meanwhile")
        if isinstance(request, Create) and request.key.endswith("rules/r.json"):
            landed.append(number)
            bucket.hands.at, bucket.hands.fault = number, "landed"

    bucket.hands.meddle = meddle
    bucket.rules.add("r", to="queue:out")

    assert bucket.rules.get("r").paused == "meanwhile"


def test_secrets_lie_apart_and_never_in_the_rule(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="https://example.com", signing=SECRET, bearer="the-token")
    everything = memory.everything()
    assert not any(word in everything["rules/r.json"] for word in (SECRET.encode(), b"the-token", b"whsec"))
    assert msgspec.json.decode(everything["rules/r.secrets.json"])["bearer"] == "the-token"
    found = [key for key, body in everything.items() if b"the-token" in body]
    assert found == ["rules/r.secrets.json"]


def test_changing_a_rule_keeps_its_secrets_and_rotation_keeps_the_old_one_for_a_while(bucket: Any) -> None:
    bucket.rules.add("r", to="https://example.com", signing=SECRET)
    bucket.rules.add("r", to="https://example.com/new", replace=True)
    assert bucket.rules.secrets("r").signing == (SECRET,)
    bucket.rules.change_secrets("r", lambda old: rotated(old, OTHER))
    assert bucket.rules.secrets("r").signing == (OTHER, SECRET)
    bucket.rules.change_secrets("r", lambda old: rotated(old, OTHER, keep=0))
    assert bucket.rules.secrets("r").signing == (OTHER,)


def test_a_rule_can_make_its_own_signing_secret(bucket: Any) -> None:
    bucket.rules.add("a", to="https://example.com", sign=True)
    bucket.rules.add("b", to="https://example.com", sign=True)
    (first,), (second,) = bucket.rules.secrets("a").signing, bucket.rules.secrets("b").signing
    assert first.startswith("whsec_")
    assert first != second


def test_test_and_matching_say_what_a_filter_does_on_the_live_bucket(bucket: Any) -> None:
    bucket.put("in/1.json", {"ok": True})
    bucket.put("in/2.json", {"ok": False})
    bucket.put("in/3.txt", "no json")
    text = 'WHERE key LIKE "in/%" AND body.ok = true'
    assert bucket.rules.test(text, "in/1.json").matches
    tested = bucket.rules.test(text, "in/2.json")
    assert (tested.matches, tested.exists) == (False, True)
    assert any("ok" in str(why) for why in tested.why)
    assert not bucket.rules.test(text, "in/none.json").exists
    found = bucket.rules.matching(text, "in/")
    assert (found.keys, found.looked_at, found.more) == (("in/1.json",), 3, False)
    assert bucket.rules.matching("", "in/", limit=2).more
    with pytest.raises(bucketmq.Invalid, match="kind"):
        bucket.rules.test(text, "in/1.json", kind="eaten")


def test_the_asyncio_facade_has_the_same_rules(memory: World) -> None:
    bucket = memory.connect_async()
    made = bucket._loop.call(bucket._real.rules.add, "r", to="queue:out", start="beginning")
    assert memory.connect().rules.get("r") == made
    bucket.put("a", "x")
    bucket.notify(stop_when_empty=True, signals=False)
    assert [each.body["key"] for each in bucket.queue("out").receive(10)] == ["a"]


def test_a_rule_that_begins_with_what_is_there_can_be_made_again_after_a_death_anywhere(memory: World) -> None:
    setup = memory.connect()
    expected = [f"in/{n}" for n in range(3)]
    for key in expected:
        setup.put(key, "x")
    for at in range(60):
        name = f"r{at}"
        dying = memory.connect(at=at, fault="dies after")
        try:
            dying.rules.add(name, to=f"queue:{name}", existing="in/")
            over = True
        except Killed:
            over = False
        bucket = memory.connect()
        if not over:
            bucket.rules.add(name, to=f"queue:{name}", existing="in/", replace=True)
        assert sorted(set(got(bucket, name, name))) == expected, at
        if over:
            assert at > 5
            return

"""What the event bus stores, pinned byte for byte by the files in `golden/`.

What today's code writes must be exactly these bytes, and it must read them. When the format is changed on purpose:

    BUCKETMQ_WRITE_GOLDEN=1 pytest tests/events/test_golden_events.py

then look at the difference, and change `docs/format` and the changelog with it. A file that a release has written
is never changed: buckets hold it. A new form gets a new file beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pinned import Files, Golden, document

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Object
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.events.event import ObjectEvent, Order, event_id
from bucketmq.events.inventory import Chunk, Item, Manifest, decode_items, encode_items
from bucketmq.events.rule import Breaker, Policy, Rule, Secrets, ToQueue, ToWatcher, Webhook
from bucketmq.log import documents, segment
from bucketmq.log.segment import Segment
from bucketmq.procedures.objects.metadata import FROM, HOPS, LINEAGE, WRITE, Cause, origin_mark
from bucketmq.procedures.objects.notes import BatchNote, Note
from bucketmq.procedures.objects.report import REPLAY_HEADER
from bucketmq.procedures.rules.fan_in import Deadline, Forget, Gathering, Member
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.queue.message import Message

AT = "2026-11-16T12:00:00.000000Z"
SENT = "2026-11-16T12:00:01.000Z"

EVENTS = [
    ObjectEvent(
        id=event_id("s3", "uploads", "a/é 1.json", "created", "0055AED6DCD90281E5"),
        kind="created",
        key="a/é 1.json",
        at=AT,
        source="s3",
        name="ObjectCreated:Put",
        bucket="uploads",
        size_bytes=1024,
        version="d41d8cd98f00b204e9800998ecf8427e",
        version_id="096fKKXTRTtl3on89fVO.nfljtsv6qko",
        exact=True,
        content_type="application/json",
        metadata={"colour": "red"},
        tags={"team": "blue"},
        order=Order("sequencer", "0055AED6DCD90281E5"),
    ),
    ObjectEvent(
        id="evt_1",
        kind="moved",
        key="approved/1.json",
        at=AT,
        source="writer",
        version="v2",
        from_key="pending/1.json",
        hops=2,
        lineage=("evt_a", "evt_b"),
    ),
    ObjectEvent(
        id="evt_2", kind="deleted", key="gone.txt", at=AT, source="sweep", seen_at="2026-11-16T11:00:00.000000Z"
    ),
]

LINES = [
    Message("m0-0", SENT, EVENTS[0].key, body=EVENTS[0]),
    Message("m0-1", SENT, EVENTS[1].key, body=EVENTS[1]),
    Message("m1-0", SENT, EVENTS[2].key, {REPLAY_HEADER: "r1"}, EVENTS[2], to="rule-orders-q2v8k0"),
    Message("m2", SENT, "set:0f", body=Deadline("0f"), to="rule-both-c5x9w1"),
    Message("m3", SENT, "set:0f", body=Forget("0f"), to="rule-both-c5x9w1"),
]

JOURNAL = [
    Message(
        "j0-0",
        SENT,
        body=Attempt(rule="orders", event="evt_1", key="k", attempt=1, outcome="done", at=AT, happened_at=AT),
    ),
    Message(
        "j0-1",
        SENT,
        body=Attempt(
            rule="orders",
            event="evt_2",
            key="k",
            attempt=2,
            outcome="retry",
            at=AT,
            happened_at=AT,
            seconds=0.25,
            status=503,
            reason="HTTP 503 after 0.25 s\nbusy",
        ),
    ),
]

RULE = Rule(
    name="orders",
    filter='WHERE `key` REGEXP "^orders/" AND body.paid = true',
    to=Webhook(
        url="https://example.com/hook",
        format="cloudevents",
        batch=100,
        timeout_seconds=5.0,
        private=True,
        statuses={"400": "bury", "5xx": "retry"},
    ),
    policy=Policy(
        retry_seconds=(1.0, 60.0),
        jitter=0.1,
        breaker=Breaker(5, 1.0, 60.0),
        rate_per_second=50.0,
        concurrency=8,
        lease_seconds=15.0,
        ordered=True,
        stale="drop",
        gone="bury",
        hops_max=4,
        body_bytes_max=65_536,
    ),
    revision=3,
    subscription="rule-orders-q2v8k0",
    created_at="2026-11-16T12:00:00.000000Z",
    paused="https://example.com/hook answered 410",
    removed_at="2026-11-17T12:00:00.000000Z",
)
RULE_TO_QUEUE = Rule(
    name="copy", to=ToQueue(queue="orders"), subscription="rule-copy-c5x9w1", created_at="2026-11-16T12:00:00.000000Z"
)
RULE_TO_WATCHER = Rule(
    name="route",
    filter='WHERE `key` REGEXP "^pending/"',
    to=ToWatcher(),
    policy=Policy(gone="drop"),
    subscription="rule-route-m3aab7",
    created_at="2026-11-16T12:00:00.000000Z",
)
RULE_WITH_BEGINS = Rule(
    name="late",
    to=ToQueue(queue="orders"),
    subscription="rule-late-b7q2v8",
    created_at="2026-11-16T12:00:00.000000Z",
    begins={0: 17, 1: 0},
)
SECRETS = Secrets(
    signing=("whsec_bmV3IG9mIHR3ZW50eS1mb3VyIGJ5dGVzIQ==", "env:OLD_SECRET"),
    bearer="env:HOOK_TOKEN",
    basic="env:HOOK_USER_AND_PASSWORD",
    revision=2,
)

GATHERING = Gathering(
    values={"id": "7"},
    members={"a/{id}.json": Member("a/7.json", "v1", "evt_1"), "b/{id}.json": Member("b/7.json", None, "evt_2")},
    began_at="2026-11-16T12:00:00.000000Z",
    firing="q2v8k0c5x9w1m3aa",
    firing_until=1_763_208_120.5,
    fired="complete",
    revision=5,
)

GATHERING_WITH_TIMES = Gathering(
    values={"id": "7"},
    members={"a/{id}.json": Member("a/7.json", "v1", "evt_1", "2026-11-16T12:00:00.000000Z")},
    began_at="2026-11-16T12:00:01.000000Z",
    revision=1,
)

MANIFEST = Manifest(
    prefix="pending/",
    chunks=(Chunk("q2v8k0c5x9w1m3aa", 10_000, "pending/m.json"), Chunk("c5x9w1m3aab7q2v8", 12)),
    baseline=True,
    first_to="pending/m.json",
    position="pending/m.json",
    revision=7,
)
MANIFEST_DONE = Manifest(chunks=(Chunk("q2v8k0c5x9w1m3aa", 2),), first_to=None, revision=2)
ITEMS = [Item("a/é 1.json", '"d41d8cd98f"', 1_763_208_000.0, 1024), Item("b.txt", None, 1_763_208_000.5, 0)]

NOTE_PUT = Note(verb="put", key="a.json", write="q2v8k0c5x9w1m3aa")
NOTE_MOVE = Note(
    verb="move",
    key="pending/1.json",
    write="c5x9w1m3aab7q2v8",
    target="approved/1.json",
    version='"v1"',
    cause=Cause(2, ("evt_a", "evt_b")),
)

NOTE_RENAME = Note(
    verb="move", key="pending/1.json", write="m3aab7q2v8c5x9w1", target="approved/1.json", version='"v1"', renames=True
)

NOTE_LATE_MOVE = Note(
    verb="put", key="approved/1.json", write="c5x9w1m3aab7q2v8", moved_from="pending/1.json", cause=Cause(1, ("evt_a",))
)

NOTE_BATCH = BatchNote(
    writes=(Note(verb="put", key="pending/1.json", write="v8c5x9w1m3aab7q2"), NOTE_MOVE),
    since=1794816000.25,
    format=documents.BATCH_FORMAT,
)


def read_messages(kind: Any) -> Callable[[bytes], object]:
    def read(body: bytes) -> object:
        found = Segment(0, body)
        return [
            msgspec.structs.replace(each, body=msgspec.convert(each.body, kind))
            for each in found.messages(0, found.end)
        ]

    return read


def of_line(value: Any) -> Any:
    """The value in a line, whatever sort of line it is."""
    return msgspec.convert(value, Deadline | Forget) if "gather" in value else msgspec.convert(value, ObjectEvent)


def read_events(body: bytes) -> object:
    found = Segment(0, body)
    return [msgspec.structs.replace(each, body=of_line(each.body)) for each in found.messages(0, found.end)]


FILES: Files = {
    "events.ndjson": (LINES, segment.encode, read_events),
    "deliveries.ndjson": (JOURNAL, segment.encode, read_messages(Attempt)),
    "rule.json": (RULE, documents.encode, document(Rule)),
    "rule-to-queue.json": (RULE_TO_QUEUE, documents.encode, document(Rule)),
    "rule-to-watcher.json": (RULE_TO_WATCHER, documents.encode, document(Rule)),
    "rule-begins.json": (RULE_WITH_BEGINS, documents.encode, document(Rule)),
    "rule.secrets.json": (SECRETS, documents.encode, document(Secrets)),
    "set.json": (GATHERING, documents.encode, document(Gathering)),
    "set-times.json": (GATHERING_WITH_TIMES, documents.encode, document(Gathering)),
    "manifest.json": (MANIFEST, documents.encode, document(Manifest)),
    "manifest-done.json": (MANIFEST_DONE, documents.encode, document(Manifest)),
    "chunk.ndjson": (ITEMS, encode_items, lambda body: decode_items(body, "it")),
    "note-put.json": (NOTE_PUT, documents.encode, document(Note)),
    "note-move.json": (NOTE_MOVE, documents.encode, document(Note)),
    "note-batch.json": (NOTE_BATCH, documents.encode, document(BatchNote)),
    "note-late-move.json": (NOTE_LATE_MOVE, documents.encode, document(Note)),
    "note-rename.json": (NOTE_RENAME, documents.encode, document(Note)),
}


GOLDEN = Golden(Path(__file__).parent / "golden", FILES)


@pytest.mark.parametrize("name", FILES)
def test_todays_code_writes_exactly_the_golden_bytes(name):
    assert GOLDEN.written(name) == GOLDEN.kept(name)


@pytest.mark.parametrize("name", FILES)
def test_todays_code_reads_the_golden_bytes(name):
    assert GOLDEN.read(name) == GOLDEN.value(name)


def test_every_golden_file_is_tested():
    assert GOLDEN.in_the_folder() == FILES.keys()


def test_the_golden_files_use_every_field_of_every_value():
    # tests/log pins all fields of a line
    assert GOLDEN.fields_at_their_defaults(but=frozenset({Message})) == set()


def test_ids_and_marks_are_made_as_the_format_says():
    assert event_id("s3", "b", "k", "created", None) == "evt_59c4e2ec4ba6279ac6b7476d657d9474"
    assert (
        origin_mark("pending/1.json", '"v1"')
        == origin_mark("pending/1.json", "v1")
        == "bee97949896ee8e4bdd9d2dae8aa1942"
    )


def test_what_a_writer_stamps_on_an_object_has_the_names_the_format_gives():
    store = MemoryStore()
    store.renames = False  # so that a move is a create and a remove, as on most stores
    bucket = Bucket(Blocking(Hands(store)), "", probe=False)
    seen: list[dict[str, str]] = []

    @bucket.watch('key LIKE "pending/%"', start="beginning")
    def route(change):
        change.move("approved/1.json")

    put = bucket.put("pending/1.json", {}, metadata={"Colour": "red"})
    before = store.get("pending/1.json")
    bucket.run_watchers(stop_when_empty=True)
    after = store.get("approved/1.json")
    bucket.close()

    assert isinstance(before, Object) and isinstance(after, Object)
    seen = [before.attributes.metadata, after.attributes.metadata]
    assert seen[0].keys() == {"colour", "bucketmq-write"} == {"colour", WRITE}
    assert seen[1].keys() == {"colour", "bucketmq-write", "bucketmq-from", "bucketmq-hops", "bucketmq-lineage"}
    assert seen[1].keys() == {"colour", WRITE, FROM, HOPS, LINEAGE}
    assert put.event.id == event_id("writer", "", "pending/1.json", "put", seen[0][WRITE])
    assert seen[1][FROM] == origin_mark("pending/1.json", put.version)
    assert (seen[1][HOPS], seen[1][LINEAGE]) == ("1", put.event.id)

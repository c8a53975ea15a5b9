"""The format on disk, pinned byte for byte by the files in `golden/`.

What today's code writes must be exactly these bytes, and it must read them. When the format is changed on purpose:

    BUCKETMQ_WRITE_GOLDEN=1 pytest tests/log/test_golden.py

then look at the difference, and change `docs/format` and the changelog with it. A file that a release has written
is never changed: buckets hold it. A new form gets a new file beside it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pinned import Files, Golden, document

from bucketmq.log import bodies, documents, segment
from bucketmq.log.documents import SPLIT_FORMAT, Dedup, DedupEntry, FailureLine, Group, Hint, Later, Trim
from bucketmq.log.figures import Sample, Stretch
from bucketmq.log.reports import Done, Point, Process, Report, Spent
from bucketmq.log.segment import Part, Parts, Segment
from bucketmq.queue.head import Head, Held, LastCommit, Lease, Moving, Span, Target, Waiting
from bucketmq.queue.message import BodyAt, Died, Failure, Message
from bucketmq.queue.settings import Backoff, Fences, Settings

AT = "2026-11-15T12:00:00.000Z"

MESSAGES = [
    Message("m0", AT, body={"n": 1, "list": [True, False, None, 1.5, -2], "text": 'é 🐝 "\\ \n'}),
    Message("m1", AT, key="user-7", headers={"trace": "t-1", "ünï": "cödé"}, body="text"),
    Message("m2", AT, body=None),
    Message("m3", AT, body_base64=bodies.to_base64(b"\x00\xffbytes")),
    Message("m4", AT, body_at=BodyAt("bodies/m4", 70_000)),
    Message("m5", AT, key="k", body_at=BodyAt("bodies/m5", 80_000, json=False)),
    Message("m6", AT),
    Message("m7", AT, body=0, to="audit", move="mv-1"),
    Message(
        "m8",
        AT,
        body=[],
        move="mv-2",
        died=Died(
            "main",
            3,
            41,
            "2026-11-15T12:30:00.000Z",
            3,
            (
                Failure(1, "Boom: no", AT, "w1"),
                Failure(2, "the worker never reported back"),
                Failure(3, "", holder="w2"),
            ),
        ),
    ),
    Message("m9", AT, died=Died("main", 0, 0, AT, 1)),
    Message("m10", AT, body=1, to="words", died=Died("words", 0, 7, AT, 0, later=2)),
    Message("fence-1", AT, fence=8),
]

PARTS = Parts((Part("parts/b7/0.ndjson", 1000, 65_536, "a1b2c3d4e5f60718"), Part("parts/b7/1.ndjson", 1, 70)), "b7")

HEAD = Head(
    next=120,
    segment=100,
    version=77,
    lease=9,
    leases=(
        Lease(7, "w1", 1_763_208_060.5, (Held(Span(0, 3, 5)), Held(Span(0, 9, 10), 3, ("f-1", "lost:w0")))),
        Lease(9, "w2", 1_763_208_061.0, (Held(Span(100, 118, 120), key="user-7"),)),
    ),
    waiting=(
        Waiting(Span(40, 40, 41)),
        Waiting(Span(40, 50, 60), 2, 1_763_208_090.25, ("f-1", "f-2"), "user-8"),
    ),
    moving=(
        Moving(Span(40, 70, 71), 5, 1_763_208_000.0),
        Moving(Span(100, 100, 102), 3, 1_763_208_001.5, ("f-3",), Target(1, 512, "mv-3")),
    ),
    holders={"w1": LastCommit(12, 1_763_208_000.5, 4), "w2": LastCommit(3, 1_763_208_001.0)},
)

SETTINGS = Settings(
    shards=4,
    shards_max=16,
    ordered=True,
    lease_seconds=30.0,
    attempts_max=7,
    backoff=Backoff(2.0, 3.0, 600.0, 0.1),
    dedup_seconds=600.0,
    keep_seconds=3600.0,
    expire_seconds=7200.0,
    inline_bytes_max=1024,
    in_flight_max=500,
    main=False,
    fences=(Fences(1, (17,)), Fences(2)),
)

PAUSED = Settings(paused={"*": "é: a deployment", "audit": "paused"})

FIGURES = Stretch(
    1_763_208_000,
    60,
    {
        0: {
            "*": Sample(3, 2, 1, 4, 17.5, 1_000, 990),
            "jobs": Sample(1, 0, 0, 4, 2.0, 40, 70),
            "jobs/billing": Sample(1, 0, 0, 0, 2.0, 40, 39),
        },
        59: {"*": Sample(0, 0, 0, 4, 0.0, 1_003, 999)},
    },
)

REPORT = Report(
    "pipeline",
    "classify",
    "posts",
    1_763_208_000.0,
    {
        "q2v8k0c5x9w1m3aa": Process(
            "host:17",
            1_763_208_000.0,
            1_763_208_030.5,
            Done(1_000, 4, 2, 1, 12.5, Spent(40, 90, 1)),
            recent=(Point(1_763_208_015.0, 15.0, 600, 0, 3.0, 400), Point(1_763_208_030.5, 15.5, 400, 3, 3.25, -1)),
        ),
        "q2v8k0c5x9w1m3ab": Process(
            "host:9", 1_763_208_000.0, 1_763_208_001.0, ended=1_763_208_001.0, error="ValueError: no"
        ),
    },
    Done(5_000, 20, seconds=60.0),
)

DEDUP = Dedup(4, {"order-1": DedupEntry("m0", 1_763_208_000.5, 0, 42), "é": DedupEntry("m1", 1_763_208_001.0, 3, 0)})
DEDUP_SPLIT = Dedup(33, DEDUP.sent, SPLIT_FORMAT, split=True)
LATER = Later(
    5,
    (
        Group(
            ("later/001763208000/n1.ndjson", "later/001763208000/n2.ndjson"),
            (Target(0, 42, "g1"), Target(2, 7, "g1")),
            (((4, 0),), ((4, 1), (8, 2))),
        ),
    ),
    {"later/001763207000/n0.ndjson": 1_763_207_001.5},
)
FAILURES = [
    FailureLine(0, 41, Failure(1, "ValueError: no", AT, "w1")),
    FailureLine(3, 42, Failure(2, 'two\nlines "quoted"')),
]


def read_messages(body: bytes) -> object:
    found = Segment(0, body)
    return found.messages(0, found.end)


FILES: Files = {
    "segment.ndjson": (MESSAGES, segment.encode, read_messages),
    "parts.ndjson": (
        PARTS,
        lambda parts: segment.encode_parts(parts.id, parts.parts),
        lambda body: Segment(0, body).first_line(),
    ),
    "head.json": (HEAD, documents.encode, lambda body: documents.decode_head(body, "it")),
    "head-new.json": (Head(0, 0), documents.encode, lambda body: documents.decode_head(body, "it")),
    "queue.json": (SETTINGS, documents.encode, lambda body: documents.decode_settings(body, "it")),
    "queue-paused.json": (PAUSED, documents.encode, lambda body: documents.decode_settings(body, "it")),
    "figures.json": (FIGURES, documents.encode, document(Stretch)),
    "report.json": (REPORT, documents.encode, document(Report)),
    "trim.json": (Trim(4096), documents.encode, document(Trim)),
    "trim-again.json": (Trim(8192, before=4096), documents.encode, document(Trim)),
    "hint.json": (Hint(8192), documents.encode, document(Hint)),
    "dedup.json": (DEDUP, documents.encode, document(Dedup)),
    "dedup-split.json": (DEDUP_SPLIT, documents.encode, document(Dedup)),
    "later.json": (LATER, documents.encode, document(Later)),
    "failures.ndjson": (FAILURES, documents.encode_failures, lambda body: documents.decode_failures(body, "it")),
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
    assert GOLDEN.fields_at_their_defaults() == set()

"""SeaweedFS: bodies that a real filer (4.48) posted while objects were written through its S3 gateway."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent
from bucketmq.events.order import newer
from bucketmq.events.parse import parse

Payload = Callable[[str], bytes]
LATER = "2026-11-16T02:00:00.000000Z"


def one(payload: Payload, name: str, *, received_at: str | None = LATER) -> ObjectEvent:
    (event,) = parse("seaweedfs", {}, payload(f"seaweedfs/{name}"), received_at=received_at).events
    return event


def test_a_put_tells_everything(payload: Payload) -> None:
    event = one(payload, "put")
    assert (event.kind, event.bucket, event.key, event.name) == ("created", "demo", "pending/a b+ü.json", "create")
    assert (event.size_bytes, event.version) == (7, "bb6cb5c68df4652941caf652a366f2d8")
    assert (event.at, event.exact, event.content_type) == ("2026-11-16T00:57:29.000000Z", False, "application/json")
    assert event.metadata == {"author": "Mia", "bucketmq-hops": "2"}
    assert (event.tags, event.hops) == ({"team": "red", "x": "1"}, 2)
    assert parse("auto", {}, payload("seaweedfs/put")).events == (event,)


def test_overwriting_is_a_change_each_time_also_with_the_same_bytes(payload: Payload) -> None:
    put, first, second = (one(payload, name) for name in ("put", "overwrite", "overwrite-same-bytes"))
    assert (first.kind, second.kind) == ("changed", "changed")
    assert first.version == second.version
    assert len({put.id, first.id, second.id}) == 3
    assert [newer(first, put), newer(second, first), newer(put, second)] == [True, True, False]


def test_a_deletion_ends_the_state_that_it_names_and_nothing_later(payload: Payload) -> None:
    deleted, ended = one(payload, "delete"), one(payload, "overwrite-same-bytes")
    assert (deleted.kind, deleted.at, deleted.seen_at) == ("deleted", LATER, ended.at)
    assert newer(deleted, one(payload, "overwrite")) is True
    assert newer(deleted, ended) is None  # the file's time is in whole seconds: it may have been written again in it
    assert one(payload, "delete", received_at=None).id == deleted.id
    body = json.loads(payload("seaweedfs/put"))
    body["message"]["new_entry"]["attributes"]["mtime"] += 60
    (later,) = parse("seaweedfs", {}, json.dumps(body).encode()).events
    assert newer(deleted, later) is False  # though it was told after that was stored


def test_an_empty_object_and_a_copy_and_a_finished_upload_are_created(payload: Payload) -> None:
    empty, copy, upload = (one(payload, name) for name in ("put-empty", "copy", "upload-complete"))
    assert (empty.key, empty.size_bytes) == ("empty", 0)
    assert (copy.key, copy.kind) == ("copy.json", "created")
    assert (upload.key, upload.size_bytes) == ("mp/x.bin", 10485760)
    assert upload.version == "fa28747bfd625c5d6dd5a83d8d14eacd-2"


def test_tags_are_no_change_of_content(payload: Payload) -> None:
    tagged, put = one(payload, "tagging"), one(payload, "put-large")
    assert (tagged.kind, tagged.tags, tagged.version) == ("other", {"k": "v"}, put.version)
    assert tagged.id != put.id


def test_a_rename_tells_where_it_was_and_orders_nothing(payload: Payload) -> None:
    moved = one(payload, "rename")
    assert (moved.kind, moved.key, moved.from_key, moved.at) == ("moved", "moved/big2.bin", "big.bin", LATER)
    body = json.loads(payload("seaweedfs/put-large"))
    body["key"] = "/buckets/demo/moved/big2.bin"
    body["message"]["new_parent_path"], body["message"]["new_entry"]["name"] = "/buckets/demo/moved", "big2.bin"
    (there,) = parse("seaweedfs", {}, json.dumps(body).encode()).events
    assert [newer(moved, there), newer(there, moved)] == [None, None]


def test_a_rename_to_another_bucket_is_a_deletion_and_a_creation(payload: Payload) -> None:
    body = json.loads(payload("seaweedfs/rename"))
    body["message"]["new_parent_path"] = "/buckets/other"
    left, arrived = parse("seaweedfs", {}, json.dumps(body).encode()).events
    assert (left.kind, left.bucket, left.key) == ("deleted", "demo", "big.bin")
    assert (arrived.kind, arrived.bucket, arrived.key) == ("created", "other", "big2.bin")


def test_a_rename_out_of_sight_is_a_deletion_and_into_sight_a_creation(payload: Payload) -> None:
    body = json.loads(payload("seaweedfs/rename"))
    body["message"]["new_parent_path"] = "/trash"
    assert [(e.kind, e.key) for e in parse("seaweedfs", {}, json.dumps(body).encode()).events] == [
        ("deleted", "big.bin")
    ]
    body["key"], body["message"]["new_parent_path"] = "/buckets/demo/.uploads/1/0001.part", "/buckets/demo"
    assert [(e.kind, e.key) for e in parse("seaweedfs", {}, json.dumps(body).encode()).events] == [
        ("created", "big2.bin")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "put-directory",
        "put-folder-marker",
        "rename-directory",
        "upload-part",
        "owner",
        "versioned-directory",
        "versioned-noncurrent",
    ],
)
def test_directories_and_the_servers_own_files_are_ignored(name: str, payload: Payload) -> None:
    parsed = parse("seaweedfs", {}, payload(f"seaweedfs/{name}"))
    assert (parsed.events, parsed.ignored, parsed.bad) == ((), 1, ())


def test_versions_are_versions_of_their_object(payload: Payload) -> None:
    put, marker = one(payload, "versioned-put"), one(payload, "versioned-delete-marker")
    assert (put.kind, put.bucket, put.key) == ("created", "versioned", "d/v.txt")
    assert (put.version_id, put.exact) == ("67179f668ae1eee19f673ba6780ad245", True)
    assert (marker.kind, marker.key, marker.version) == ("deleted", "d/v.txt", None)
    assert marker.version_id == "67179f66068f087d27a70b2f88881f1d"
    assert newer(marker, put) is True


def test_a_file_that_only_looks_like_a_version_is_an_object(payload: Payload) -> None:
    body = json.loads(payload("seaweedfs/put"))
    body["key"] = "/buckets/demo/a.versions/v_1"
    body["message"]["new_parent_path"], body["message"]["new_entry"]["name"] = "/buckets/demo/a.versions", "v_1"
    assert parse("seaweedfs", {}, json.dumps(body).encode()).events[0].key == "a.versions/v_1"


def test_an_entry_without_a_time_or_a_message_without_entries_is_bad(payload: Payload) -> None:
    body = json.loads(payload("seaweedfs/put"))
    body["message"]["new_entry"]["attributes"]["mtime"] = -62135596800
    assert parse("seaweedfs", {}, json.dumps(body).encode()).bad[0].reason == "has no time of its file"
    body["message"] = {}
    assert parse("seaweedfs", {}, json.dumps(body).encode()).bad[0].reason == "has neither an old nor a new entry"
    with pytest.raises(Invalid):
        parse("seaweedfs", {}, b'{"key":"/buckets/a/b"}')

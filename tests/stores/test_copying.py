"""Copying inside object stores: which requests go out, when a store is trusted, and what becomes of every answer."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

import bucketmq
from bucketmq.bucket import copying
from bucketmq.bucket.objects import ObjectStore
from bucketmq.bucket.port import Attributes, Found, Missing, Refused, Store, Unknown, Version, Written
from bucketmq.bucket.urls import open_store
from bucketmq.errors import BucketMQError, Denied, Invalid, Unavailable, Unsupported
from bucketmq.procedures.objects.copy import Copying, copy_many
from bucketmq.testing.contract import created, names, read, state
from stores import clouds

SECRET, TOKEN = "wJalrXUtnFEMI-K7MDENG", "FwoGZXIvYXdzEBYaD"
NO_ANSWER = 0
ODD_KEYS = ["a b/c+d", "what?#", "100%/%41", "Grüße/日本語", "a~b!$&'()*,;=:@[]"]
OWN = Attributes("text/x-odd", {"made-by": "agent 7"})


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[clouds.CloudServer]:
    with clouds.cloud(clouds.S3) as running:
        yield running


@pytest.fixture
def careless() -> Iterator[clouds.CloudServer]:
    with clouds.cloud(clouds.CarelessS3) as running:
        yield running


def opened(server: clouds.CloudServer, prefix: str = "") -> ObjectStore:
    store = open_store(
        f"s3://bucket{prefix}?endpoint={server.endpoint}&access_key_id=AKID&secret_access_key={SECRET}"
        f"&session_token={TOKEN}&region=auto&timeout=0.4&connect_timeout=0.4"
    )[0]
    assert isinstance(store, ObjectStore)
    return store


def made(store: Store, key: str, body: bytes = b"body") -> Found:
    return state(store, key, created(store, key, body))


def proven(server: clouds.CloudServer) -> tuple[ObjectStore, Found]:
    """A store that has found out that it copies, and an object; the server has forgotten how."""
    store = opened(server)
    source = made(store, "a/key")
    assert isinstance(store.copy("a/key", "first", source, OWN), Written)
    server.requests.clear()
    return store, source


def sent(server: clouds.CloudServer) -> list[tuple[str, str]]:
    return [(request.method, unquote(request.path.partition("?")[0])) for request in server.requests]


# asking


def test_a_copy_on_s3_is_one_request_with_two_conditions_and_attributes_of_its_own(server: clouds.CloudServer) -> None:
    store, source = proven(server)
    assert store.copy("a/key", "to/key", source, OWN) == Written(source.version, None)
    assert sent(server) == [("PUT", "/bucket/to/key")]
    headers = server.requests[0].headers
    assert (headers["if-none-match"], headers["x-amz-copy-source-if-match"]) == ("*", source.version)
    assert (headers["content-type"], headers["x-amz-meta-made-by"]) == ("text/x-odd", "agent 7")
    for name in ("host", "x-amz-copy-source", "x-amz-copy-source-if-match", "x-amz-meta-made-by", "if-none-match"):
        assert name in headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert read(store, "to/key").attributes == OWN


def test_google_takes_both_generations_in_headers_and_is_asked_for_the_new_one() -> None:
    with clouds.cloud(clouds.Google) as google:
        store = open_store(f"gs://bucket?endpoint={google.endpoint}&anonymous=true")[0]
        source = made(store, "a b+c")
        store.copy("a b+c", "first", source, OWN)
        google.requests.clear()
        copied = store.copy("a b+c", "to/d e", source, OWN)
        assert sent(google) == [("PUT", "/bucket/to/d e"), ("HEAD", "/bucket/to/d e")]
        headers = google.requests[0].headers
        assert headers["x-goog-copy-source-if-generation-match"] == source.version
        assert headers["x-goog-if-generation-match"] == "0"
        assert isinstance(copied, Written)
        assert (read(store, "to/d e").version, read(store, "to/d e").attributes) == (copied.version, OWN)


def test_azure_copies_between_two_signed_addresses_and_the_copy_is_looked_at() -> None:
    with clouds.cloud(clouds.Azure) as azure:
        store = open_store(f"az://bucket?endpoint={azure.endpoint}&account=account&account_key=a2V5")[0]
        source = made(store, "a b+c")
        store.copy("a b+c", "first", source, OWN)
        azure.requests.clear()
        assert isinstance(store.copy("a b+c", "to/d e", source, OWN), Written)
        assert sent(azure) == [("PUT", "/bucket/to/d e"), ("HEAD", "/bucket/to/d e")]
        assert azure.requests[0].headers["x-ms-source-if-match"] == source.version
        assert "sig=" in azure.requests[0].path
        assert read(store, "to/d e").attributes == OWN
        with pytest.raises(Invalid, match=r"more than az://bucket at .* copies"):
            store.copy("a b+c", "large", Found(6 << 30, source.version, 0.0), OWN)


# trusting


def test_nothing_is_tried_before_the_first_copy_and_then_once_below_the_prefix(server: clouds.CloudServer) -> None:
    store = opened(server, "/team/inbox")
    assert store.copies
    sources = [made(store, f"team/inbox/{n}", b"%d" % n) for n in range(3)]
    server.requests.clear()
    for n, source in enumerate(sources):
        assert isinstance(store.copy(f"team/inbox/{n}", f"team/inbox/copy-{n}", source), Written)
    elsewhere = [path for _, path in sent(server) if not path.startswith("/bucket/team/inbox/probe/")]
    assert elsewhere == [f"/bucket/team/inbox/copy-{n}" for n in range(3)]
    assert len(server.requests) == 7 + 3
    assert len(server.objects) == 6


def test_a_store_that_copies_over_objects_is_not_trusted_and_not_asked_again(careless: clouds.CloudServer) -> None:
    store = opened(careless)
    source = made(store, "a/key")
    for _ in range(2):
        with pytest.raises(Unsupported, match="read it, then create 'target'"):
            store.copy("a/key", "target", source, OWN)
        assert not store.copies
        trial, careless.requests[:] = sent(careless), []
    assert trial == []
    assert list(careless.objects) == ["a/key"]


@pytest.mark.parametrize("status", [400, 403, 501])
def test_a_store_that_takes_no_copies_is_done_without(server: clouds.CloudServer, status: int) -> None:
    store = opened(server)
    source = made(store, "a/key")
    server.copies_answer = status
    with pytest.raises(Unsupported):
        store.copy("a/key", "target", source, OWN)
    assert (store.copies, list(server.objects)) == (False, ["a/key"])


def test_a_server_that_answers_copies_with_an_error_of_its_own_is_asked_twice(server: clouds.CloudServer) -> None:
    store = opened(server)
    source = made(store, "a/key")
    server.requests.clear()
    server.copies_answer = 500
    with pytest.raises(Unsupported):
        store.copy("a/key", "target", source, OWN)
    assert sum("x-amz-copy-source" in request.headers for request in server.requests) == 2
    assert (store.copies, list(server.objects)) == (False, ["a/key"])


def test_a_trial_that_cannot_begin_is_made_again_next_time(server: clouds.CloudServer) -> None:
    store = opened(server)
    source = made(store, "a/key")
    server.faults["PUT"] = 503
    with pytest.raises(Unavailable):
        store.copy("a/key", "target", source, OWN)
    server.faults.clear()
    assert isinstance(store.copy("a/key", "target", source, OWN), Written)


def test_without_credentials_nothing_is_asked(server: clouds.CloudServer) -> None:
    store = open_store(f"s3://bucket?endpoint={server.endpoint}&anonymous=true")[0]
    assert not store.copies
    with pytest.raises(Unsupported):
        store.copy("key", "target", Found(0, Version('"v"'), 0.0))
    assert server.requests == []


def test_keys_of_the_environment_sign_too(server: clouds.CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "FROMENV"), ("SECRET_ACCESS_KEY", SECRET), ("SESSION_TOKEN", TOKEN)):
        monkeypatch.setenv(f"AWS_{name}", value)
    store = open_store(f"s3://bucket?endpoint={server.endpoint}&region=auto")[0]
    assert isinstance(store.copy("a/key", "target", made(store, "a/key"), OWN), Written)
    headers = server.requests[-1].headers
    assert "Credential=FROMENV/" in headers["authorization"]
    assert headers["x-amz-security-token"] == TOKEN


# what comes of it


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (412, Refused()),
        (409, Refused()),
        (404, Refused()),
        (500, Unknown("HTTP 500")),
        (503, Unknown("HTTP 503")),
        (NO_ANSWER, Unknown("no answer in time")),
    ],
)
def test_what_becomes_of_a_copy(server: clouds.CloudServer, status: int, answer: Refused | Unknown) -> None:
    store, source = proven(server)
    server.faults["PUT"] = status
    assert store.copy("a/key", "target", source, OWN) == answer
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("code", "answer"),
    [("PreconditionFailed", Refused()), ("InternalError", Unknown("HTTP 500 InternalError"))],
)
def test_an_error_that_comes_after_the_200_counts(
    server: clouds.CloudServer, code: str, answer: Refused | Unknown
) -> None:
    store, source = proven(server)
    server.copies_answer = f"<Error><Code>{code}</Code></Error>"
    assert store.copy("a/key", "target", source, OWN) == answer


@pytest.mark.parametrize(("status", "kind"), [(403, Denied), (301, Invalid), (400, Unavailable)])
def test_any_other_answer_is_an_error_that_shows_no_secret(
    server: clouds.CloudServer, status: int, kind: type[BucketMQError]
) -> None:
    store, source = proven(server)
    server.faults["PUT"] = status
    with pytest.raises(kind, match="cannot copy 'a/key' to 'target'") as caught:
        store.copy("a/key", "target", source, OWN)
    shown = "".join(traceback.format_exception(caught.value)) + repr(store) + repr(vars(store))
    assert not any(secret in shown for secret in (SECRET, TOKEN, "Signature="))


def written_in_parts(server: clouds.CloudServer, size_bytes: int) -> Found:
    kept = server.objects["a/key"]
    server.objects["parts"] = kept._replace(headers={clouds.PARTS_HASH: '"parts-2"'})
    return Found(size_bytes, Version('"parts-2"'), 0.0)


def test_a_copy_that_is_not_whole_is_taken_away_and_the_store_not_trusted_any_more(server: clouds.CloudServer) -> None:
    store, source = proven(server)
    longer = written_in_parts(server, source.size_bytes + 1)
    with pytest.raises(Unsupported, match=r"whole \(4 bytes of 5\)"):
        store.copy("parts", "target", longer, OWN)
    assert (store.look("target"), store.copies) == (Missing(), False)


def test_what_was_written_in_parts_is_compared_by_size(server: clouds.CloudServer) -> None:
    store, source = proven(server)
    answer = store.copy("parts", "target", written_in_parts(server, source.size_bytes), OWN)
    assert isinstance(answer, Written)
    assert answer.version == source.version
    assert sent(server) == [("PUT", "/bucket/target"), ("HEAD", "/bucket/target")]


# real servers


def test_seaweedfs_checks_the_signature_of_odd_keys_and_attributes(seaweedfs_url: str) -> None:
    store = open_store(seaweedfs_url)[0]
    odd = Attributes("text/x-odd; charset=utf-8", {"two-spaces": "a  b", "plus": "a+b%20c"})
    for key in ODD_KEYS:
        source = made(store, f"odd/{key}", key.encode())
        assert isinstance(store.copy(f"odd/{key}", f"odd-copies/{key}", source, odd), Written), key
        copied = read(store, f"odd-copies/{key}")
        assert (copied.body, copied.attributes) == (key.encode(), odd)
    assert store.copies


def test_what_is_too_large_for_one_request_is_copied_in_parts(
    seaweedfs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(copying.S3Copy, "bytes_max", 6 << 20)
    store = open_store(seaweedfs_url)[0]
    body = bytes(range(256)) * (11 << 12) + b"end"
    source = made(store, "parts/large", body)
    assert store.copy("parts/large", "parts/stale", Found(source.size_bytes, Version('"0"'), 0.0), OWN) == Refused()
    assert isinstance(store.copy("parts/large", "parts/copy", source, OWN), Written)
    assert (read(store, "parts/copy").body == body, read(store, "parts/copy").attributes) == (True, OWN)
    assert store.copy("parts/large", "parts/copy", source, OWN) == Refused()
    assert names(store, "parts/") == ["parts/copy", "parts/large"]


def test_a_move_and_a_promotion_inside_the_store_read_no_body(seaweedfs_url: str) -> None:
    with bucketmq.connect(seaweedfs_url.replace("?", "/moved?", 1)) as bucket:
        bucket.put_many({f"a/{n}": b"x" * 1_000_000 for n in range(5)})
        before = bucket.requests
        bucket.move("a/0", "b/0")
        bucket.copy("b/0", "c/0")
        bucket.move_many([bucketmq.Move(f"a/{n}", f"b/{n}") for n in range(1, 5)])
        opened = bucket.run(bucket.api.open())
        bucket.run(copy_many(opened, [Copying(f"b/{n}", f"released/{n}") for n in range(5)]))
        spent = bucket.requests - before
        assert (spent.copy, spent.get, spent.bytes_in) == (11, 0, 0)
        assert spent.bytes_out < 20_000
        assert [len(bucket.get(f"b/{n}").body) for n in range(5)] == [1_000_000] * 5


def test_where_the_server_ignores_the_condition_a_move_reads_as_before(moto_url: str) -> None:
    with bucketmq.connect(moto_url.replace("?", "/moved?", 1)) as bucket:
        bucket.put_many({"a": "1", "b": "2", "c": "taken"})
        bucket.move("a", "moved-a")
        with pytest.raises(Invalid, match="not touched"):
            bucket.copy("b", "c")
        before = bucket.requests
        bucket.move("b", "moved-b")
        spent = bucket.requests - before
        assert (spent.copy, spent.look, spent.get) == (0, 0, 1)
        assert [bucket.get(key).body for key in ("moved-a", "moved-b", "c")] == [b"1", b"2", b"taken"]

"""Removing and renaming on object stores: which requests go out, and what becomes of every answer."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from email.utils import formatdate
from urllib.parse import unquote

import pytest

from bucketmq.bucket.objects import TOMBSTONE, TOMBSTONE_SECONDS, TOMBSTONE_TYPE
from bucketmq.bucket.port import Attributes, Missing, Refused, Removed, Store, Unknown, Version, Written
from bucketmq.bucket.urls import open_store
from bucketmq.errors import BucketMQError, Denied, Invalid, Unavailable, Unsupported
from bucketmq.testing.contract import created, names, read
from stores import clouds

SECRET = "TOPSECRETTOPSECRET"
TOKEN = "SESSIONTOKENSESSIONTOKEN"
NO_ANSWER = 0

ODD_KEYS = ["a b/c+d", "what?#", "100%/%41", "Grüße/日本語", "a~b!$&'()*,;=:@[]"]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.fixture
def google() -> Iterator[clouds.CloudServer]:
    with clouds.cloud(clouds.Google) as running:
        yield running


@pytest.fixture
def azure() -> Iterator[clouds.CloudServer]:
    with clouds.cloud(clouds.Azure) as running:
        yield running


def opened(server: clouds.CloudServer, prefix: str = "", more: str = "") -> Store:
    return open_store(
        f"s3://bucket{prefix}?endpoint={server.endpoint}&access_key_id=AKID&secret_access_key={SECRET}"
        f"&session_token={TOKEN}&region=auto&timeout=0.4&connect_timeout=0.4{more}"
    )[0]


def proven(server: clouds.CloudServer, more: str = "") -> Store:
    """A store that has found out how to remove; the server has forgotten about it."""
    store = opened(server, more=more)
    assert store.remove("no such key", Version('"any"')) == Refused()
    server.requests.clear()
    return store


def sent(server: clouds.CloudServer) -> list[tuple[str, str]]:
    return [(request.method, unquote(request.path.partition("?")[0])) for request in server.requests]


# where the store honours a condition


def test_a_remove_is_one_delete_under_a_condition(server: clouds.CloudServer) -> None:
    store = proven(server)
    version = created(store, "a/key", b"body")
    server.requests.clear()
    assert store.remove("a/key", version) == Removed()
    assert sent(server) == [("DELETE", "/bucket/a/key")]
    assert server.requests[0].headers["if-match"] == version


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_are_signed_as_they_are(server: clouds.CloudServer, key: str) -> None:
    store = proven(server)
    version = created(store, key, b"body")
    assert store.remove(key, version) == Removed()
    assert server.objects == {}


def test_the_condition_is_tried_out_once_below_the_prefix_and_leaves_nothing(server: clouds.CloudServer) -> None:
    store = opened(server, "/team/inbox")
    versions = [created(store, f"team/inbox/{n}", b"%d" % n) for n in range(3)]
    server.requests.clear()
    for n, version in enumerate(versions):
        assert store.remove(f"team/inbox/{n}", version) == Removed()
    elsewhere = [path for _, path in sent(server) if not path.startswith("/bucket/team/inbox/probe/")]
    assert elsewhere == [f"/bucket/team/inbox/{n}" for n in range(3)]
    assert len(server.requests) == 6 + 3
    assert server.objects == {}


def test_google_takes_the_generation_in_a_header(google: clouds.CloudServer) -> None:
    store = open_store(f"gs://bucket?endpoint={google.endpoint}&anonymous=true")[0]
    store.remove("no such key", Version("7"))
    version = created(store, "a b+c", b"body")
    google.requests.clear()
    assert store.remove("a b+c", version) == Removed()
    assert sent(google) == [("DELETE", "/bucket/a b+c")]
    assert google.requests[0].headers["x-goog-if-generation-match"] == version


def test_azure_takes_the_version_beside_a_signed_address(azure: clouds.CloudServer) -> None:
    store = open_store(f"az://bucket?endpoint={azure.endpoint}&account=account&account_key=a2V5")[0]
    store.remove("no such key", Version('"7"'))
    version = created(store, "a b+c", b"body")
    azure.requests.clear()
    assert store.remove("a b+c", version) == Removed()
    assert sent(azure) == [("DELETE", "/bucket/a b+c")]
    assert azure.requests[0].headers["if-match"] == version
    assert "sig=" in azure.requests[0].path


def test_metadata_names_are_identifiers_on_azure(azure: clouds.CloudServer) -> None:
    store = open_store(f"az://bucket?endpoint={azure.endpoint}&account=account&account_key=a2V5")[0]
    given = {"made-by": "1", "a.b": "2", "9": "3", "plain_name": "4"}
    assert isinstance(store.create("key", b"", Attributes("", given)), Written)
    assert "x-ms-meta-made_x2d_by" in azure.requests[0].headers
    assert read(store, "key").attributes.metadata == given


def test_metadata_and_content_type_are_headers_on_s3(server: clouds.CloudServer) -> None:
    store = opened(server)
    store.create("key", b"", Attributes("text/x-odd", {"made-by": "agent 7"}))
    assert server.requests[0].headers["content-type"] == "text/x-odd"
    assert server.requests[0].headers["x-amz-meta-made-by"] == "agent 7"


@pytest.mark.parametrize("status", [404, 409, 412])
def test_a_failed_condition_is_refused(server: clouds.CloudServer, status: int) -> None:
    store = proven(server)
    server.faults["DELETE"] = status
    assert store.remove("a/key", Version('"v"')) == Refused()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "reason"),
    [(500, "HTTP 500"), (502, "HTTP 502"), (503, "HTTP 503"), (429, "HTTP 429"), (NO_ANSWER, "no answer in time")],
)
def test_a_remove_without_a_clear_answer_is_unknown_and_was_sent_once(
    server: clouds.CloudServer, status: int, reason: str
) -> None:
    store = proven(server)
    server.faults["DELETE"] = status
    assert store.remove("a/key", Version('"v"')) == Unknown(reason)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "kind"), [(403, Denied), (401, Denied), (301, Invalid), (400, Unavailable)])
def test_any_other_answer_is_an_error_that_shows_no_secret(
    server: clouds.CloudServer, status: int, kind: type[BucketMQError]
) -> None:
    store = proven(server)
    server.faults["DELETE"] = status
    with pytest.raises(kind) as caught:
        store.remove("a/key", Version('"v"'))
    shown = "".join(traceback.format_exception(caught.value)) + repr(store) + repr(vars(store))
    assert SECRET not in shown
    assert TOKEN not in shown
    assert "Signature=" not in shown


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
def test_a_trial_that_gets_no_answer_is_made_again_next_time(server: clouds.CloudServer, method: str) -> None:
    store = opened(server)
    version = created(store, "a/key", b"body")
    server.faults[method] = 503
    with pytest.raises(Unavailable):
        store.remove("a/key", version)
    assert read(store, "a/key").body == b"body"

    server.faults.clear()
    assert store.remove("a/key", version) == Removed()
    assert ("PUT", "/bucket/a/key") not in sent(server)[1:]  # no tombstone


# where it does not


def test_a_condition_that_is_ignored_is_not_trusted(careless: clouds.CloudServer) -> None:
    store = proven(careless)
    stale = created(store, "a/key", b"one")
    assert isinstance(store.replace("a/key", b"two", stale), Written)
    careless.requests.clear()
    assert store.remove("a/key", stale) == Refused()
    assert sent(careless) == [("PUT", "/bucket/a/key")]
    assert read(store, "a/key").body == b"two"


def test_who_may_not_delete_is_told_before_anything_is_changed(server: clouds.CloudServer) -> None:
    store = opened(server)
    version = created(store, "a/key", b"body")
    server.faults["DELETE"] = 403
    with pytest.raises(Denied):
        store.remove("a/key", version)
    assert read(store, "a/key").body == b"body"


def test_a_tombstone_decides_and_is_deleted(careless: clouds.CloudServer) -> None:
    store = proven(careless)
    version = created(store, "a/key", b"body")
    careless.requests.clear()
    assert store.remove("a/key", version) == Removed()
    assert sent(careless) == [("PUT", "/bucket/a/key"), ("DELETE", "/bucket/a/key")]
    assert careless.requests[0].headers["if-match"] == version
    assert careless.requests[0].headers["content-type"] == TOMBSTONE_TYPE
    assert careless.objects == {}


def left_behind(server: clouds.CloudServer, store: Store, key: str) -> None:
    """A tombstone whose delete did not get through."""
    version = created(store, key, b"body")
    server.faults["DELETE"] = 503
    assert store.remove(key, version) == Removed()
    server.faults.clear()
    assert server.objects[key].body == TOMBSTONE


def test_a_tombstone_that_stays_is_no_object(careless: clouds.CloudServer) -> None:
    left_behind(careless, proven(careless), "a/key")
    for store in (proven(careless), opened(careless)):
        assert store.get("a/key") == Missing()
        assert store.look("a/key") == Missing()
        assert names(store, "a/") == []
    store.delete("a/key")
    assert careless.objects == {}


def test_a_fresh_tombstone_refuses_creates_and_an_old_one_does_not(careless: clouds.CloudServer) -> None:
    left_behind(careless, proven(careless), "a/key")
    store = opened(careless)
    # Its delete may be on its way, and would take a new object with it.
    assert store.create("a/key", b"new") == Refused()
    assert store.look("a/key") == Missing()
    assert store.create("a/key", b"new") == Refused()

    kept = careless.objects["a/key"]
    long_ago = formatdate(timeval=1_700_000_000, usegmt=True)
    assert TOMBSTONE_SECONDS < 10_000_000
    careless.objects["a/key"] = kept._replace(date=long_ago)
    assert store.create("a/key", b"new") == Refused()
    assert store.get("a/key") == Missing()
    assert isinstance(store.create("a/key", b"new", Attributes("text/plain")), Written)
    assert read(store, "a/key").body == b"new"
    assert store.create("a/key", b"again") == Refused()


def test_an_old_tombstone_that_another_one_took_is_not_taken_again(careless: clouds.CloudServer) -> None:
    left_behind(careless, proven(careless), "a/key")
    kept = careless.objects["a/key"]
    careless.objects["a/key"] = kept._replace(date=formatdate(timeval=1_700_000_000, usegmt=True))
    one, other = opened(careless), opened(careless)
    assert one.get("a/key") == other.get("a/key") == Missing()
    assert isinstance(one.create("a/key", b"one"), Written)
    assert other.create("a/key", b"other") == Refused()
    assert read(other, "a/key").body == b"one"


@pytest.mark.parametrize("status", [503, NO_ANSWER])
def test_a_tombstone_of_which_nobody_can_tell_is_unknown(careless: clouds.CloudServer, status: int) -> None:
    store = proven(careless)
    version = created(store, "a/key", b"body")
    careless.requests.clear()
    careless.faults["PUT"] = status
    assert isinstance(store.remove("a/key", version), Unknown)
    assert sent(careless) == [("PUT", "/bucket/a/key")]


# rename


@pytest.mark.parametrize("key", ODD_KEYS)
@pytest.mark.parametrize("target", ODD_KEYS[:2])
def test_a_rename_is_a_copy_with_a_header(server: clouds.CloudServer, key: str, target: str) -> None:
    store = opened(server, more="&tigris=true")
    version = created(store, key, b"body")
    server.requests.clear()
    assert store.rename(key, f"to/{target}", version) == Removed()
    assert sent(server) == [("HEAD", f"/bucket/{key}"), ("PUT", f"/bucket/to/{target}")]
    headers = server.requests[1].headers
    assert headers["x-tigris-rename"] == "true"
    assert headers["if-none-match"] == "*"
    source = headers["x-amz-copy-source"]
    assert source.isascii()
    assert not set(source) & set(" +?#")
    assert unquote(source).removeprefix("/") == f"bucket/{key}"
    assert list(server.objects) == [f"to/{target}"]


def test_a_rename_of_another_state_is_refused_and_nothing_is_copied(server: clouds.CloudServer) -> None:
    store = opened(server, more="&tigris=true")
    stale = created(store, "key", b"one")
    assert isinstance(store.replace("key", b"two", stale), Written)
    server.requests.clear()
    assert store.rename("key", "target", stale) == Refused()
    assert store.rename("missing", "target", stale) == Refused()
    assert [method for method, _ in sent(server)] == ["HEAD", "HEAD"]


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
def test_what_becomes_of_a_rename(server: clouds.CloudServer, status: int, answer: Refused | Unknown) -> None:
    store = opened(server, more="&tigris=true")
    version = created(store, "key", b"body")
    server.requests.clear()
    server.faults["PUT"] = status
    assert store.rename("key", "target", version) == answer
    assert len(server.requests) == 2


def test_a_rename_that_is_not_allowed_is_denied(server: clouds.CloudServer) -> None:
    store = opened(server, more="&tigris=true")
    version = created(store, "key", b"body")
    server.faults["PUT"] = 403
    with pytest.raises(Denied, match="cannot rename 'key' to 'target'"):
        store.rename("key", "target", version)


def test_other_stores_do_not_rename(server: clouds.CloudServer) -> None:
    store = opened(server)
    assert not store.renames
    with pytest.raises(Unsupported, match="create 'target', then remove 'key'"):
        store.rename("key", "target", Version('"v"'))
    assert server.requests == []


@pytest.mark.parametrize(
    ("endpoint", "renames"),
    [
        ("https://t3.storage.dev", True),
        ("https://fly.storage.tigris.dev", True),
        ("https://bucket.t3.storage.dev", True),
        ("https://eu.tigris.dev", True),
        ("https://nottigris.dev", False),
        ("https://t3.storage.dev.example.com", False),
        ("https://s3.example.com", False),
    ],
)
def test_tigris_is_known_by_its_endpoint(endpoint: str, renames: bool) -> None:
    store = open_store(f"s3://bucket?endpoint={endpoint}&access_key_id=AKID&secret_access_key={SECRET}")[0]
    assert store.renames is renames
    assert SECRET not in repr(vars(store))


# real servers


@pytest.mark.parametrize("name", ["seaweedfs_url", "moto_url"])
def test_real_servers_delete_under_a_condition(request: pytest.FixtureRequest, name: str) -> None:
    store = open_store(request.getfixturevalue(name))[0]
    assert store.remove("no such key", Version('"any"')) == Refused()
    assert vars(store)["_honours_delete_if"] is True

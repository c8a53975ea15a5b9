"""What becomes of every kind of failure on the way to an object store, and that a conditional write goes out once."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Iterator

import pytest
from obstore.exceptions import GenericError
from obstore.store import S3Store

from bucketmq.bucket import diagnosis
from bucketmq.bucket.objects import ObjectStore
from bucketmq.bucket.port import Missing, Refused, Store, Unknown, Version, Written
from bucketmq.bucket.urls import open_store
from bucketmq.errors import BucketMQError, Denied, Invalid, NotFound, Unavailable, Unsupported
from stores.faults import (
    CUT_EARLY,
    CUT_LATE,
    CUT_SHORT,
    DATE,
    HANG,
    Answer,
    FaultServer,
    Promise,
    fault_server,
    s3_error,
)

SECRET = "TOPSECRETTOPSECRET"
ETAG = Version('"0123abc"')

WRITES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create("a/key", b"body"),
    "replace": lambda store: store.replace("a/key", b"body", ETAG),
}
OTHERS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a/key"),
    "delete": lambda store: store.delete("a/key"),
    "list": lambda store: store.list("a/", after="", limit=10),
}
LOOK: dict[str, Callable[[Store], object]] = {"look": lambda store: store.look("a/key")}
"""A HEAD: its answers have no body, so no code to tell why."""
ALL = WRITES | OTHERS


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as running:
        yield running


@pytest.fixture
def store(server: FaultServer) -> Store:
    return _open(server.port)


def _open(port: int, more: str = "") -> Store:
    return open_store(
        f"s3://bucket?endpoint=http://127.0.0.1:{port}&access_key_id=AKID&secret_access_key={SECRET}"
        f"&region=eu-west-1&timeout=0.4&connect_timeout=0.4{more}"
    )[0]


# writes


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize(
    "answer",
    [
        s3_error(412, "PreconditionFailed"),
        s3_error(409, "ConditionalRequestConflict"),
        s3_error(409, "OperationAborted"),
        Answer(412),
        Answer(409),
    ],
    ids=lambda answer: f"{answer.status}-{len(answer.body)}",
)
def test_a_failed_condition_is_refused(server: FaultServer, store: Store, verb: str, answer: Answer) -> None:
    server.behaviour = answer
    assert WRITES[verb](store) == Refused()
    assert len(server.requests) == 1


def test_a_replace_of_what_is_not_there_is_refused(server: FaultServer, store: Store) -> None:
    server.behaviour = s3_error(404, "NoSuchKey")
    assert WRITES["replace"](store) == Refused()
    assert len(server.requests) == 1


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (s3_error(500, "InternalError"), "HTTP 500 InternalError"),
        (s3_error(503, "SlowDown"), "HTTP 503 SlowDown"),
        (Answer(502), "HTTP 502"),
        (Answer(504), "HTTP 504"),
        (Answer(429, "slower please"), "HTTP 429"),
        (Answer(408), "HTTP 408"),
        (s3_error(400, "RequestTimeout"), "HTTP 400 RequestTimeout"),
        (HANG, "no answer in time"),
        (CUT_EARLY, "the connection broke"),
        (CUT_LATE, "the connection broke"),
    ],
    ids=str,
)
def test_a_write_without_a_clear_answer_is_unknown_and_was_sent_once(
    server: FaultServer, store: Store, verb: str, behaviour: Answer | str, reason: str
) -> None:
    server.behaviour = behaviour
    assert WRITES[verb](store) == Unknown(reason)
    assert len(server.requests) == 1


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("behaviour", [CUT_EARLY, CUT_LATE])
def test_a_write_on_a_kept_connection_that_is_cut_is_sent_once(
    server: FaultServer, store: Store, verb: str, behaviour: str
) -> None:
    server.behaviour = Answer(200, "", {"ETag": ETAG})
    assert isinstance(WRITES[verb](store), Written)
    server.behaviour = behaviour
    assert isinstance(WRITES[verb](store), Unknown)
    assert len(server.requests) == 2


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_after_the_server_hung_up_is_sent_once(server: FaultServer, store: Store, verb: str) -> None:
    # The client library may find the kept connection dead and open another one. The server must see one request.
    server.behaviour = Answer(200, "", {"ETag": ETAG})
    server.hangs_up = True
    for n in range(1, 20):
        assert isinstance(WRITES[verb](store), Written | Unknown)
        assert len(server.requests) <= n


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_that_found_nobody_is_unknown(verb: str) -> None:
    assert WRITES[verb](_open(_closed_port())) == Unknown("no connection")


@pytest.mark.parametrize("verb", WRITES)
def test_a_write_without_a_version_in_the_answer_is_unknown(server: FaultServer, store: Store, verb: str) -> None:
    server.behaviour = Answer(200)
    assert isinstance(WRITES[verb](store), Unknown)
    assert len(server.requests) == 1


def test_a_large_body_is_one_request(server: FaultServer) -> None:
    server.behaviour = Answer(200, "", {"ETag": ETAG})
    patient = _open(server.port, "&timeout=20")
    assert patient.create("a/key", bytes(20_000_000)) == Written(ETAG, None)
    assert len(server.requests) == 1


def test_conditions_are_in_the_request(server: FaultServer, store: Store) -> None:
    server.behaviour = Answer(200, "", {"ETag": '"new"'})
    assert store.create("a/key", b"body") == Written(Version('"new"'), None)
    assert store.replace("a/key", b"body", ETAG) == Written(Version('"new"'), None)
    create, replace = server.requests
    assert create.startswith("PUT /bucket/a/key ")
    assert "\r\nif-none-match: *\r\n" in create
    assert f"\r\nif-match: {ETAG}\r\n" in replace


def test_unquoted_etags_leave_the_quotes_out(server: FaultServer) -> None:
    server.behaviour = Answer(200, "", {"ETag": '"new"', "Last-Modified": DATE})
    store = _open(server.port, "&unquoted_etags=true")
    assert store.create("a/key", b"body") == Written(Version("new"), None)
    found = store.get("a/key")
    assert not isinstance(found, Missing)
    store.replace("a/key", b"body", found.version)
    assert "\r\nif-match: new\r\n" in server.requests[-1]


# the other verbs


@pytest.mark.parametrize("verb", OTHERS | LOOK)
@pytest.mark.parametrize(
    "behaviour",
    [s3_error(500, "InternalError"), s3_error(503, "SlowDown"), Answer(429), HANG, CUT_EARLY, CUT_LATE],
    ids=str,
)
def test_other_verbs_without_an_answer_are_unavailable(
    server: FaultServer, store: Store, verb: str, behaviour: Answer | str
) -> None:
    server.behaviour = behaviour
    with pytest.raises(
        Unavailable, match=r"cannot (read|delete|list|look at) 'a/.*; see whether the endpoint is right"
    ) as caught:
        (OTHERS | LOOK)[verb](store)
    assert caught.value.__cause__ is not None
    assert len(server.requests) == 1


def test_half_a_body_is_unavailable(server: FaultServer, store: Store) -> None:
    server.behaviour = CUT_SHORT
    with pytest.raises(Unavailable):
        store.get("a/key")


def test_a_listing_that_is_not_one_is_unavailable(server: FaultServer, store: Store) -> None:
    server.behaviour = Answer(200, "")
    with pytest.raises(Unavailable):
        store.list("a/", after="", limit=10)


@pytest.mark.parametrize("verb", OTHERS)
def test_other_verbs_that_find_nobody_are_unavailable(verb: str) -> None:
    with pytest.raises(Unavailable, match="no connection"):
        OTHERS[verb](_open(_closed_port()))


def test_what_is_not_there_is_missing_and_can_be_deleted(server: FaultServer, store: Store) -> None:
    server.behaviour = s3_error(404, "NoSuchKey")
    assert store.get("a/key") == Missing()
    assert store.look("a/key") == Missing()
    store.delete("a/key")


def test_an_object_without_a_version_is_unsupported(server: FaultServer, store: Store) -> None:
    server.behaviour = Answer(200, "body", {"Last-Modified": DATE})
    with pytest.raises((Unsupported, Unavailable)):
        store.get("a/key")


def test_a_short_listing_is_one_request_though_more_would_follow(server: FaultServer, store: Store) -> None:
    contents = "".join(
        f"<Contents><Key>a/{n}</Key><Size>1</Size><ETag>e</ETag>"
        "<LastModified>2026-11-15T12:00:00.000Z</LastModified></Contents>"
        for n in range(3)
    )
    server.behaviour = Answer(
        200,
        f"<ListBucketResult><IsTruncated>true</IsTruncated>{contents}"
        "<NextContinuationToken>next</NextContinuationToken></ListBucketResult>",
    )
    page = store.list("a/", after="a/", limit=2)
    assert [entry.key for entry in page.entries] == ["a/0", "a/1"]
    assert page.more
    assert len(server.requests) == 1
    assert server.requests[0].startswith("GET /bucket?list-type=2&prefix=a%2F&start-after=a")


# errors of every verb


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize(
    "answer",
    [
        s3_error(403, "AccessDenied"),
        s3_error(403, "SignatureDoesNotMatch"),
        Answer(401),
        s3_error(400, "ExpiredToken"),
        s3_error(400, "InvalidToken"),
    ],
    ids=lambda answer: str(answer.status) + answer.body[29:50],
)
def test_bad_credentials_are_denied(server: FaultServer, store: Store, verb: str, answer: Answer) -> None:
    server.behaviour = answer
    with pytest.raises(Denied, match="check the credentials"):
        ALL[verb](store)
    assert len(server.requests) == 1


AZURE_SKEW = (
    '<?xml version="1.0" encoding="utf-8"?><Error><Code>AuthenticationFailed</Code><Message>Server failed to '
    "authenticate the request. Make sure the value of Authorization header is formed correctly.</Message>"
    "<AuthenticationErrorDetail>{}</AuthenticationErrorDetail></Error>"
)
CLOCKS = {
    "s3": s3_error(403, "RequestTimeTooSkewed"),
    "azure, an old request": Answer(403, AZURE_SKEW.format("Request date header too old: 'Mon, 01 Jan 2024'")),
    "azure, no date that counts": Answer(403, AZURE_SKEW.format("The Date header in the request is incorrect.")),
    "azure, a SAS": Answer(403, AZURE_SKEW.format("Signature not valid in the specified time frame: Start [...]")),
}


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize("answer", CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_is_off_is_named_as_the_cause(server: FaultServer, verb: str, answer: Answer) -> None:
    server.behaviour = answer
    azure = f"az://bucket?endpoint=http://127.0.0.1:{server.port}&account=a&account_key=a2V5&timeout=0.4"
    for store in (_open(server.port), open_store(azure)[0]):
        with pytest.raises(Denied, match=r"clock differs too much .*: set it") as caught:
            ALL[verb](store)
        assert "credentials" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "Generic GCS error: Error performing token request: Error performing POST https://oauth2.googleapis.com/token"
        ' in 9ms - Server returned non-2xx status code: 400 Bad Request: {"error":"invalid_grant","error_description":"'
        'Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat"}',
        "Generic S3 error: Error performing POST https://sts.eu-west-1.amazonaws.com/ in 1s - Server returned non-2xx "
        "status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><Message>Signature expired: 20261115T1 "
        "is now earlier than 20261116T1</Message></Error>",
    ],
    ids=["google", "sts"],
)
def test_a_token_server_that_does_not_like_the_clock_is_understood(text: str) -> None:
    assert "clock" in diagnosis.diagnosis(GenericError(text))[1]


@pytest.mark.parametrize("status", [401, 403])
def test_a_look_with_bad_credentials_is_denied(server: FaultServer, store: Store, status: int) -> None:
    server.behaviour = Answer(status)
    with pytest.raises(Denied, match="check the credentials"):
        store.look("a/key")


@pytest.mark.parametrize("verb", ALL)
def test_a_missing_bucket_is_not_found(server: FaultServer, store: Store, verb: str) -> None:
    server.behaviour = s3_error(404, "NoSuchBucket")
    with pytest.raises(NotFound, match=r"there is no bucket s3://bucket at 127\.0\.0\.1"):
        ALL[verb](store)


@pytest.mark.parametrize("verb", ALL)
def test_another_region_is_named_as_the_cause(server: FaultServer, store: Store, verb: str) -> None:
    server.behaviour = Answer(301)
    with pytest.raises(Invalid, match="give it as region="):
        ALL[verb](store)


@pytest.mark.parametrize("verb", WRITES)
def test_a_store_without_conditional_writes_is_unsupported(server: FaultServer, store: Store, verb: str) -> None:
    server.behaviour = s3_error(501, "NotImplemented")
    with pytest.raises(Unsupported, match="lacks conditional writes"):
        WRITES[verb](store)


@pytest.mark.parametrize("verb", ALL)
def test_anything_else_is_unavailable_with_its_cause(server: FaultServer, store: Store, verb: str) -> None:
    server.behaviour = s3_error(400, "InvalidRequest")
    with pytest.raises(Unavailable, match="HTTP 400 InvalidRequest") as caught:
        ALL[verb](store)
    assert caught.value.__cause__ is not None
    assert len(server.requests) == 1


def test_credentials_that_do_not_come_are_denied_and_nothing_is_sent(server: FaultServer) -> None:
    def expired() -> object:
        raise RuntimeError("the token expired")

    client = S3Store(
        "bucket",
        config={"endpoint": f"http://127.0.0.1:{server.port}"},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
        credential_provider=expired,  # type: ignore[arg-type]
    )
    store = ObjectStore(client, place="s3://bucket", lists_in_order=True)
    for verb in ALL.values():
        with pytest.raises(Denied, match="no credentials came"):
            verb(store)
    assert server.requests == []


@pytest.mark.parametrize(
    "text",
    [
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: error",
        "Generic S3 error: Error performing GET http://169.254.170.2/v2/credentials in 1s - HTTP error: error",
        "Generic GCS error: Error performing token request: Error performing GET http://metadata/ in 1ms - HTTP error",
        "Generic S3 error: Error performing POST https://sts.eu-west-1.amazonaws.com/ in 1s - HTTP error: error",
        "Generic S3 error: Error performing CreateSession request: Error performing GET https://b/?session in 1s",
    ],
)
def test_a_machine_without_a_role_is_told_to_set_credentials(text: str) -> None:
    error = GenericError(text)
    assert diagnosis.diagnosis(error)[0] is Denied
    assert not diagnosis.may_have_landed(error)


@pytest.mark.parametrize("verb", ALL)
def test_what_a_server_writes_in_its_answer_misleads_nobody(server: FaultServer, store: Store, verb: str) -> None:
    server.behaviour = Answer(500, "Error performing token request to http://169.254.169.254/, redirect, 403 Forbidden")
    if verb in WRITES:
        assert WRITES[verb](store) == Unknown("HTTP 500")
    else:
        with pytest.raises(Unavailable):
            ALL[verb](store)


def test_words_about_a_clock_mislead_nobody(server: FaultServer, store: Store) -> None:
    server.behaviour = Answer(500, "Request date header too old")
    with pytest.raises(Unavailable):
        store.get("key")
    server.behaviour = s3_error(403, "AccessDenied")
    with pytest.raises(Denied, match="check the credentials"):
        store.get("Signature expired")


def test_an_object_too_large_to_read_is_refused_before_its_body(server: FaultServer, store: Store) -> None:
    """Its size comes with the head of the answer, and its body never."""
    server.behaviour = Promise(10**12)
    with pytest.raises(Invalid, match=r"'a/key' has 1000000000000 bytes and is not read"):
        store.get("a/key")


def test_a_closed_store_frees_its_connections_and_says_so(server: FaultServer) -> None:
    server.behaviour = Answer(200, "x", {"ETag": ETAG, "Last-Modified": DATE})
    store = _open(server.port)
    store.get("a/key")
    assert server.connections == 1
    store.close()
    store.close()
    assert server.hung_up.wait(10)
    assert server.connections == 0
    for verb in ALL.values():
        with pytest.raises(Invalid, match="was closed; connect again"):
            verb(store)


def test_a_key_that_looks_like_an_error_misleads_nobody(server: FaultServer, store: Store) -> None:
    server.behaviour = s3_error(412, "PreconditionFailed")
    assert store.create("a/<Code>NoSuchBucket<", b"") == Refused()
    server.behaviour = Answer(412)
    assert store.create("a/<Code>NoSuchBucket</Code>", b"") == Refused()
    assert store.create("Generic S3 error: Error performing token request", b"") == Refused()


# secrets and processes


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize(
    "behaviour", [s3_error(403, "SignatureDoesNotMatch"), s3_error(400, "Odd"), HANG, CUT_LATE], ids=str
)
def test_no_error_shows_a_secret(server: FaultServer, store: Store, verb: str, behaviour: Answer | str) -> None:
    server.behaviour = behaviour
    try:
        shown = repr(ALL[verb](store))
    except BucketMQError as error:
        shown = "".join(traceback.format_exception(error))
    assert SECRET not in shown
    assert SECRET not in repr(store)
    assert SECRET not in repr(vars(store))


def test_a_forked_child_must_connect_again(store: Store) -> None:
    child = os.fork()
    if child == 0:
        refused = 0
        for verb in ALL.values():
            try:
                verb(store)
            except Invalid as error:
                refused += "connect again after the fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(ALL)


# real servers


@pytest.mark.parametrize("verb", ALL)
def test_moto_says_that_the_bucket_is_missing(moto_url: str, verb: str) -> None:
    store, _ = open_store(moto_url.replace("s3://bucketmq", "s3://no-such-bucket"))
    with pytest.raises(NotFound):
        ALL[verb](store)


@pytest.mark.parametrize("verb", ALL)
def test_seaweedfs_denies_a_wrong_secret(seaweedfs_url: str, verb: str) -> None:
    store, _ = open_store(seaweedfs_url, secret_access_key=SECRET)
    with pytest.raises(Denied) as caught:
        ALL[verb](store)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port

"""Signatures agree with the reference package, and nothing a caller sends gets past or breaks the check."""

from __future__ import annotations

import base64
import secrets as chance
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from bucketmq.errors import Invalid
from bucketmq.events.signing import (
    Rejected,
    Verified,
    authorization,
    authorized,
    check_secret,
    masked,
    new_secret,
    same_secret,
    sign,
    verify,
)

OLD = new_secret(bytes(range(24)))
NEW = new_secret(bytes(range(100, 164)))
OTHER = new_secret(b"z" * 32)
NOW = 1_700_000_000
BODY = b'{"events":[]}'


def signed(*secrets: str, at: int = NOW, message_id: str = "msg_1", body: bytes = BODY) -> dict[str, str]:
    return sign(secrets or (OLD,), message_id, at, body)


def reason(headers: object, *, body: bytes = BODY, now: float = NOW) -> str:
    found = verify([OLD, NEW], headers, body, now)  # type: ignore[arg-type]
    assert isinstance(found, Rejected), found
    return found.reason


# Against the reference


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="."), min_size=1), st.text())
def test_a_signature_is_what_the_reference_package_makes(message_id: str, body: str) -> None:
    at = datetime.fromtimestamp(NOW, UTC)
    if "\x00" in message_id or len(message_id) > 256:
        return
    try:
        body.encode()
    except UnicodeEncodeError:
        return
    assert signed(message_id=message_id, body=body.encode())["webhook-signature"] == Webhook(OLD).sign(
        message_id, at, body
    )


def test_the_reference_package_accepts_our_requests_with_either_secret() -> None:
    headers = signed(OLD, NEW, at=int(time.time()))
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(BODY, headers) == {"events": []}
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers)


def test_we_accept_what_the_reference_package_signs() -> None:
    signature = Webhook(NEW).sign("msg_1", datetime.fromtimestamp(NOW, UTC), BODY.decode())
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(NOW), "webhook-signature": signature}
    assert verify([OLD, NEW], headers, BODY, NOW) == Verified("msg_1", NOW, 1)


# Signing


def test_there_is_one_signature_for_each_secret() -> None:
    both = signed(OLD, NEW)["webhook-signature"].split(" ")
    assert both == [signed(OLD)["webhook-signature"], signed(NEW)["webhook-signature"]]


def test_bodies_that_are_no_text_are_signed_too() -> None:
    body = b"\xff\x00\xfe"
    assert isinstance(verify([OLD], signed(body=body), body, NOW), Verified)


@pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\nb", "ü", "x" * 257, "\x7f"])
def test_an_id_that_could_be_mistaken_is_not_signed(message_id: str) -> None:
    with pytest.raises(Invalid, match="message id"):
        signed(message_id=message_id)


def test_a_time_before_1970_and_no_secret_are_refused() -> None:
    with pytest.raises(Invalid, match="timestamp"):
        signed(at=-1)
    with pytest.raises(Invalid, match="without a secret"):
        sign([], "msg_1", NOW, BODY)


# Checking


def test_any_of_several_secrets_and_signatures_may_fit() -> None:
    assert verify([OLD], signed(OTHER, OLD), BODY, NOW) == Verified("msg_1", NOW, 0)
    assert verify([NEW, OLD], signed(OLD), BODY, NOW) == Verified("msg_1", NOW, 1)
    assert verify([OLD, NEW], signed(OLD, NEW), BODY, NOW) == Verified("msg_1", NOW, 0)


def test_header_names_are_read_in_any_case_and_pairs_will_do() -> None:
    headers = {name.title(): value for name, value in signed().items()}
    assert isinstance(verify([OLD], headers, BODY, NOW), Verified)
    assert isinstance(verify([OLD], list(headers.items()), BODY, NOW), Verified)


def test_other_versions_of_signatures_are_passed_over() -> None:
    headers = signed()
    headers["webhook-signature"] = f"v1a,AAAA  v2,x nonsense {headers['webhook-signature']}"
    assert isinstance(verify([OLD], headers, BODY, NOW), Verified)


def test_a_changed_body_id_time_or_secret_fits_nothing() -> None:
    assert reason(signed(), body=BODY + b" ") == "no signature fits"
    assert reason(signed() | {"webhook-id": "msg_2"}) == "no signature fits"
    assert reason(signed() | {"webhook-timestamp": str(NOW + 1)}) == "no signature fits"
    assert reason(signed(OTHER)) == "no signature fits"
    assert verify([], signed(), BODY, NOW) == Rejected("no signature fits")


def test_a_replayed_request_is_too_old_and_one_from_the_future_too_new() -> None:
    assert isinstance(verify([OLD], signed(), BODY, NOW + 300), Verified)
    assert isinstance(verify([OLD], signed(), BODY, NOW - 300), Verified)
    assert "too long ago" in reason(signed(), now=NOW + 300.5)
    assert "future" in reason(signed(), now=NOW - 300.5)
    assert isinstance(verify([OLD], signed(), BODY, NOW + 900, tolerance_seconds=1000), Verified)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_each_header_must_be_there_once(name: str) -> None:
    headers = signed()
    assert reason({each: value for each, value in headers.items() if each != name}) == f"the header {name} is missing"
    assert reason(headers | {name: ""}) == f"the header {name} is missing"
    assert reason([*headers.items(), (name.upper(), headers[name])]) == f"the header {name} is there twice"


@pytest.mark.parametrize(
    "stamp", ["x", "1.5", "-1", "1e9", " 1700000000", "+1700000000", "\u0661", "9" * 16, "9" * 99], ids=ascii
)
def test_a_time_that_is_no_number_of_seconds_is_rejected(stamp: str) -> None:
    assert "not a number of seconds" in reason(signed() | {"webhook-timestamp": stamp})


@pytest.mark.parametrize(
    "message_id", ["a.b", "a b", "a\n", "ü", "x" * 257, "x" * 10_000], ids=lambda given: ascii(given)[:20]
)
def test_an_id_that_is_none_is_rejected(message_id: str) -> None:
    assert "not an id" in reason(signed() | {"webhook-id": message_id})


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("v1,", "no signature fits"),
        ("v1,!!!!", "no signature fits"),
        ("v1,ab", "no signature fits"),
        ("v1,a,b,c", "no signature fits"),
        ("v1", "no v1 signature"),
        (",", "no v1 signature"),
        ("   ", "no v1 signature"),
        ("v1a,AAAA", "no v1 signature"),
        ("v1,ü", "not a list"),
        ("v1,\udcff", "not a list"),
        pytest.param("v1," + "A" * 5000, "not a list", id="too long"),
        pytest.param("v1,A " * 33, "more than 32", id="too many"),
    ],
)
def test_a_signature_header_that_is_none_is_rejected(signature: str, why: str) -> None:
    assert why in reason(signed() | {"webhook-signature": signature})


def test_a_signature_written_otherwise_is_not_the_same() -> None:
    """Base64 has several spellings of the same bytes; one is accepted, so that a signature is one text."""
    right = signed()["webhook-signature"]
    assert right.endswith("=")
    for wrong in (right.rstrip("="), right + "=", right[:-2] + chr(ord(right[-2]) + 1) + "="):
        assert reason(signed() | {"webhook-signature": wrong}) == "no signature fits"


@given(
    st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()), st.binary()
)
def test_no_headers_or_body_make_the_check_fail(headers: dict[str, str], body: bytes) -> None:
    assert isinstance(verify([OLD], signed() | headers, body, NOW), Rejected | Verified)


def test_every_secret_is_tried_however_early_one_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the check takes must not say which secret fits: count the comparisons instead of the time."""
    import hmac

    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
    counts = []
    for first in (OLD, NEW, OTHER):
        compared.clear()
        verify([OLD, NEW], signed(first, OTHER), BODY, NOW)
        counts.append(len(compared))
        compared.clear()
        same_secret(first.encode(), [OLD, NEW])
        counts.append(len(compared))
    assert counts == [4, 2] * 3


# Secrets


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_new_secret_is_one_and_the_reference_package_reads_it(size: int) -> None:
    random = chance.token_bytes(size)
    secret = new_secret(random)
    assert check_secret(secret) == secret
    assert Webhook(secret)._whsecret == random


@pytest.mark.parametrize("size", [0, 23, 65])
def test_a_secret_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(Invalid, match="24 to 64"):
        new_secret(bytes(size))
    with pytest.raises(Invalid, match="24 to 64"):
        check_secret("whsec_" + base64.b64encode(bytes(size)).decode())


def test_padding_may_be_left_out() -> None:
    padded = new_secret(bytes(32))
    assert padded.endswith("=")
    assert sign([padded], "m", NOW, BODY) == sign([padded.rstrip("=")], "m", NOW, BODY)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_%%%%", "sec_" + "A" * 32, "A" * 32, "whsec_ü" + "A" * 32, "whsk_" + "A" * 43]
)
def test_what_is_no_secret_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_secret(secret)
    assert len(secret) < 12 or secret not in str(caught.value)


def test_a_secret_is_shown_by_its_end() -> None:
    assert masked("whsec_" + "A" * 28 + "wxyz") == "whsec_…wxyz"
    assert masked("whsec_" + "A" * 39 + "wxyz=") == "whsec_…wxyz"
    assert masked("a-bearer-token-of-some-length") == "…ngth"
    assert masked("short") == "…"
    assert masked("env:HOOK_SECRET") == "env:HOOK_SECRET"


# Bearer and basic


def test_one_of_several_tokens_is_enough() -> None:
    assert same_secret(b"two", ["one", "two"])
    assert same_secret("zwölf".encode(), ["zwölf"])
    assert not same_secret(b"tw", ["one", "two"])
    assert not same_secret(b"two", [])


def test_an_empty_secret_allows_nobody() -> None:
    assert not same_secret(b"", [""])
    assert not authorized("Bearer ", bearer=[""])
    assert not authorized("Basic ", basic=[""])


@pytest.mark.parametrize("header", ["Bearer tok", "bearer tok", "BEARER  tok"])
def test_a_bearer_token_is_recognised(header: str) -> None:
    assert authorized(header, bearer=["old", "tok"])
    assert not authorized(header, basic=["tok"])


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "tok", "Bearer", "Bearer tok2", "Bearertok", "Bearer \udcff", "Bearer " + "x" * 10_000),
        *("Basic tok", "Basic !!!", "Basic dXNlcg==", "Basic ü", "Digest tok"),
    ],
    ids=lambda header: ascii(header)[:20],
)
def test_anything_else_is_not_authorized(header: str | None) -> None:
    assert not authorized(header, bearer=["tok"], basic=["user:word"])


def test_what_is_sent_is_what_is_accepted() -> None:
    assert authorized(authorization(bearer="tok"), bearer=["tok"])
    assert authorized(authorization(basic="user:wörd:x"), basic=["user:wörd:x"])
    assert authorization() is None


@pytest.mark.parametrize("bearer", ["", "a\r\nx: 1", "ü", "a\x00"])
def test_a_token_that_cannot_be_a_header_is_refused(bearer: str) -> None:
    with pytest.raises(Invalid):
        authorization(bearer=bearer)


def test_a_basic_secret_needs_a_colon_and_excludes_a_token() -> None:
    with pytest.raises(Invalid, match="user:password"):
        authorization(basic="user")
    with pytest.raises(Invalid, match="not both"):
        authorization(bearer="t", basic="u:p")

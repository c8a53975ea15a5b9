"""Who may sign: thresholds, roles, ends, rotation, and key files."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from apps.artifacts.making import (
    ADA,
    BEN,
    CYD,
    MALLORY,
    TRUST,
    Shop,
    make_trust,
    resealed,
    trust_bytes,
    trusted,
)
from bucketmq.apps.artifacts import envelope, keyfiles, keys, places, verify
from bucketmq.apps.artifacts.keys import Environment, Trust
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.errors import Denied, Invalid, NotFound

ANYBODY_SIGNS = [
    base64.b64encode(bytes.fromhex(each)).decode()
    for each in (
        "00" * 32,
        "01" + "00" * 31,
        "00" * 31 + "80",
        "01" + "00" * 30 + "80",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
]
"""Public keys of a small order: a signature can be made for them without any private key."""


def newest(shop: Shop, pin: bytes) -> Trust:
    bucket = shop.connect()
    found: Trust = bucket.run(verify.newest_trust(bucket.api, pin))[0]
    return found


def test_a_threshold_counts_each_key_once() -> None:
    both = make_trust(builds_threshold=2)
    one = envelope.seal("x", b"1", (ADA, ADA, ADA))
    with pytest.raises(Untrusted, match="signed by 1 of the 2 keys"):
        keys.require_signed(one, both, "builds", 0.0, "it")
    two = envelope.seal("x", b"1", (ADA, BEN))
    assert [each.owner for each in keys.require_signed(two, both, "builds", 0.0, "it")] == ["ada", "ben"]


@pytest.mark.parametrize(
    ("trust", "why"),
    [
        (make_trust(trusted(BEN)), "not trusted"),
        (make_trust(trusted(ADA, "reports", "trust"), trusted(BEN)), "may not sign this"),
        (make_trust(trusted(ADA, expires_at="2026-01-01T00:00:00Z"), trusted(BEN)), "expired at 2026-01-01"),
    ],
)
def test_a_key_that_may_not_sign_is_named_with_the_reason(trust: Trust, why: str) -> None:
    signed = envelope.seal("x", b"1", (ADA,))
    with pytest.raises(Untrusted, match=why):
        keys.require_signed(signed, trust, "builds", 1_800_000_000.0, "it")


def test_a_signature_of_one_kind_of_document_is_none_of_another() -> None:
    signed = envelope.seal("kind/one", b"1", (ADA,))
    other = msgspec.structs.replace(signed, payload_type="kind/two")
    assert not envelope.is_signed_by(other, ADA.public)


def test_trust_is_followed_from_the_pin_through_rotations(shop: Shop) -> None:
    pin = trust_bytes(TRUST)
    assert newest(shop, pin) == TRUST
    second = make_trust(trusted(BEN), trusted(CYD), number=2)
    shop.world.write(places.trust(2), trust_bytes(second, ADA, BEN))
    third = make_trust(trusted(CYD), number=3)
    shop.world.write(places.trust(3), trust_bytes(third, BEN, CYD))
    assert newest(shop, pin) == third


@pytest.mark.parametrize(
    ("second", "by"),
    [
        (make_trust(trusted(MALLORY), number=2), (MALLORY,)),  # nobody of the first
        (make_trust(trusted(MALLORY), number=2), (ADA,)),  # not by its own
        (make_trust(number=3), (ADA,)),  # leaves one out
        (make_trust(number=1), (ADA,)),  # the first again
    ],
)
def test_a_trust_document_that_does_not_follow_is_refused(shop: Shop, second: Trust, by: tuple[object, ...]) -> None:
    body = envelope.encode(envelope.seal(keys.TRUST, msgspec.json.encode(second), by))  # type: ignore[arg-type]
    shop.world.write(places.trust(2), body)
    with pytest.raises(Untrusted):
        newest(shop, trust_bytes(TRUST))


def test_a_trust_that_is_over_is_refused_even_if_nobody_touched_it(shop: Shop) -> None:
    with pytest.raises(Untrusted, match="no newer one"):
        newest(shop, trust_bytes(make_trust(expires_at="2026-01-01T00:00:00Z")))


def test_a_pin_that_was_changed_is_refused(shop: Shop) -> None:
    forged = resealed(trust_bytes(TRUST), lambda payload: payload["keys"].pop(), MALLORY)
    with pytest.raises(Untrusted):
        newest(shop, forged)


@pytest.mark.parametrize(
    "bad",
    [
        make_trust(builds_threshold=3),
        make_trust(trust_threshold=0),
        make_trust(trusted(ADA), trusted(ADA)),
        make_trust(expires_at="soon"),
        make_trust(environments=(Environment("production", after="staging"), Environment("staging"))),
        make_trust(environments=(Environment("staging"), Environment("staging"))),
        make_trust(keys.TrustedKey("eve", "c2hvcnQ=", ("builds", "trust"))),
        *(make_trust(trusted(ADA), keys.TrustedKey("eve", each, ("builds",))) for each in ANYBODY_SIGNS),
        make_trust(number=0),
    ],
)
def test_a_trust_that_cannot_work_is_refused_before_it_is_signed(bad: Trust) -> None:
    with pytest.raises(Invalid):
        keys.seal_trust(bad, (ADA,))


def test_a_key_file_is_for_its_owner_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "ada.key"
    made = keyfiles.make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert keyfiles.load_key(path).id == made.id
    with pytest.raises(Invalid, match="there already"):
        keyfiles.make_key(path)
    path.chmod(0o640)
    with pytest.raises(Denied, match="chmod 600"):
        keyfiles.load_key(path)
    path.chmod(0o600)
    path.write_text("-----BEGIN PRIVATE KEY-----\nsecret-looking\n-----END PRIVATE KEY-----\n")
    with pytest.raises(Invalid) as error:
        keyfiles.load_key(path)
    assert "secret-looking" not in str(error.value)
    with pytest.raises(NotFound, match="keygen"):
        keyfiles.load_key(tmp_path / "none")
    assert "PRIVATE" not in repr(made) and made.id[:12] in repr(made)


def test_ends_are_compared_as_times_and_not_as_texts() -> None:
    assert keys.is_over("2026-01-01T00:00:00+05:00", 1_767_207_600.0)

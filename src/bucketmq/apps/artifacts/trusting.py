"""Publishing trust documents: the first, and the next ones when keys or environments change."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.artifacts import envelope, keys, places
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.environments import DAY_SECONDS
from bucketmq.apps.artifacts.keys import Environment, Trust, TrustedKey
from bucketmq.apps.artifacts.verify import newest_trust
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import time_text
from bucketmq.procedures.objects.put import put
from bucketmq.procedures.objects.read import read_object
from bucketmq.procedures.requests import Now, Procedure


class TrustFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people write: a TOML file with keys and environments."""

    keys: tuple[TrustedKey, ...]
    environments: tuple[Environment, ...]
    builds_threshold: int = 1
    trust_threshold: int = 1
    expires_days: int = 365


def read_file(path: Path) -> TrustFile:
    try:
        raw = tomllib.loads(path.read_text())
        found = msgspec.convert(raw, TrustFile)
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror}; name a TOML file with keys and environments"
        ) from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} does not say whom to trust: {error}") from None
    for what, kind in (("keys", TrustedKey), ("environments", Environment)):
        known = kind.__struct_fields__
        odd = next((name for each in raw[what] for name in each if name not in known), None)
        if odd is not None:  # not passed over: it may be a gate, mistyped
            raise Invalid(f"{path}: {what} have no {odd[:80]!r}; they have {', '.join(known)}")
    return found


def publish_trust(
    bus: BucketApi, wanted: TrustFile, signing: tuple[SigningKey, ...], pin: bytes | None
) -> Procedure[tuple[Trust, bytes]]:
    """The next document of the chain that the pin leads to, or the first one; and its bytes, to be pinned elsewhere.

    A publisher that died is met here: the same document again is found in the bucket. One GET and a put.
    """
    bucket = yield from bus.open()
    before = None if pin is None else (yield from newest_trust(bus, pin))
    now = yield from Now()
    number = 1 if before is None else before[0].number + 1
    if before is not None and _same(before[0], wanted):
        return before
    trust = Trust(
        number,
        time_text(now + wanted.expires_days * DAY_SECONDS),
        wanted.keys,
        wanted.environments,
        wanted.builds_threshold,
        wanted.trust_threshold,
    )
    body = envelope.encode(keys.seal_trust(trust, signing))
    if before is None:
        keys.read_trust(body, "this trust document")
    else:
        keys.follows(before[0], body, "this trust document")
    key = places.trust(number)
    try:
        yield from put(bucket, key, body, content_type="application/json", only_new=True)
    except Contended:
        there = (yield from read_object(bucket, key)).body
        if before is None:
            found, _ = keys.read_trust(there, key)
            if _same(found, wanted):  # and signed by these keys: who published it died before it was pinned
                return found, there
            raise Invalid(
                f"there is a trust document in this bucket already ({key}); to change it, name the pin that you have: "
                "--pin FILE"
            ) from None
        return keys.follows(before[0], there, key)[0], there
    return trust, body


def _same(trust: Trust, wanted: TrustFile) -> bool:
    names = ("keys", "environments", "builds_threshold", "trust_threshold")
    return all(getattr(trust, name) == getattr(wanted, name) for name in names)

"""Who may speak to whom: Standard Webhooks v1 signatures, made and checked, and bearer and basic secrets.

Senders call `sign` and `authorization`; receivers call `verify` and `authorized` on the raw body before they parse it.
Time and chance are arguments. Where secrets are kept and which answer a rejected caller gets do not belong here.

The signature is HMAC-SHA256 from the standard library. The package `standardwebhooks` reads the clock itself, knows one
secret at a time, needs the body to be text and raises whatever a broken header makes it raise; the tests check
against it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from bucketmq.errors import Invalid

SECRET_PREFIX = "whsec_"
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
_SECRET_BYTES = f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
TOLERANCE_SECONDS = 300.0
ID_CHARS_MAX = 256
SIGNATURES_MAX = 32
SIGNATURE_HEADER_CHARS_MAX = 4096
AUTHORIZATION_CHARS_MAX = 8192

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

# What is signed is id.timestamp.body: a dot in one of the first two would let one signature stand for two meanings.
_ID = re.compile(r"[!-\-/-~]+\Z")
_TIMESTAMP = re.compile(r"[0-9]{1,15}\Z")

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Verified(msgspec.Struct, frozen=True):
    """The body is from somebody who has the secret, and fresh. The id tells repeats apart."""

    message_id: str
    timestamp: int
    secret: int
    """Which of the secrets it was, counted from 0: shows when an old one is not used any more."""


class Rejected(msgspec.Struct, frozen=True):
    """Not to be believed. The reason is for our own log; the caller hears the same whatever it is."""

    reason: str


def new_secret(random: bytes) -> str:
    """A signing secret from 24 to 64 random bytes."""
    if not SECRET_BYTES_MIN <= len(random) <= SECRET_BYTES_MAX:
        raise Invalid(f"a signing secret needs {_SECRET_BYTES} random bytes, not {len(random)}")
    return SECRET_PREFIX + base64.b64encode(random).decode()


def check_secret(secret: str) -> str:
    """Raise `Invalid` for what is not a signing secret, without repeating it."""
    _key(secret)
    return secret


def masked(secret: str) -> str:
    """A secret as it may be shown: enough to tell two apart. `env:NAME` is a name, not a secret."""
    if secret.startswith("env:"):
        return secret
    prefix = SECRET_PREFIX if secret.startswith(SECRET_PREFIX) else ""
    rest = secret[len(prefix) :].rstrip("=")
    return f"{prefix}…{rest[-4:] if len(rest) >= 16 else ''}"


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a signed request, one signature for each secret so that the receiver can change over."""
    if not secrets:
        raise Invalid("a request cannot be signed without a secret; give at least one")
    if len(message_id) > ID_CHARS_MAX or not _ID.match(message_id):
        raise Invalid(
            f"message id {message_id[:100]!r} must be ASCII without spaces and dots, 1 to {ID_CHARS_MAX} long"
        )
    stamp = str(timestamp)
    if not _TIMESTAMP.match(stamp):
        raise Invalid(f"timestamp {stamp[:40]} must be whole seconds since 1970")
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: stamp,
        SIGNATURE_HEADER: " ".join(_signature(_key(each), message_id, stamp, body) for each in secrets),
    }


def verify(
    secrets: Sequence[str], headers: Headers, body: bytes, now: float, *, tolerance_seconds: float = TOLERANCE_SECONDS
) -> Verified | Rejected:
    """Whether a request was signed with one of `secrets`, at most `tolerance_seconds` from `now`.

    Anything a caller can send gives a value; only a malformed secret of ours raises `Invalid`. The time it takes
    does not depend on which secret or signature fits.
    """
    keys = [_key(each) for each in secrets]
    found: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        lower = name.lower()
        if lower in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER):
            if lower in found:
                return Rejected(f"the header {lower} is there twice")
            found[lower] = value
    for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER):
        if not found.get(name):
            return Rejected(f"the header {name} is missing")
    message_id, stamp, given = found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER]
    if len(message_id) > ID_CHARS_MAX or not _ID.match(message_id):
        return Rejected(f"{ID_HEADER} is not an id")
    if not _TIMESTAMP.match(stamp):
        return Rejected(f"{TIMESTAMP_HEADER} is not a number of seconds")
    if len(given) > SIGNATURE_HEADER_CHARS_MAX or not given.isascii():
        return Rejected(f"{SIGNATURE_HEADER} is not a list of signatures")
    if abs(now - int(stamp)) > tolerance_seconds:
        return Rejected(f"signed {'too long ago' if now > int(stamp) else 'in the future'}, at {stamp}")
    signatures = [each for each in given.split(" ") if each]
    if len(signatures) > SIGNATURES_MAX:
        return Rejected(f"more than {SIGNATURES_MAX} signatures")
    if not any(each.startswith("v1,") for each in signatures):
        return Rejected("no v1 signature")
    matched = -1
    for number, key in enumerate(keys):
        # The written form is compared: bytes that decode to the right ones but are written otherwise are not accepted.
        expected = _signature(key, message_id, stamp, body).encode()
        fits = False
        for each in signatures:
            fits |= hmac.compare_digest(expected, each.encode())
        if fits and matched < 0:
            matched = number
    if matched < 0:
        return Rejected("no signature fits")
    return Verified(message_id, int(stamp), matched)


def same_secret(given: bytes, allowed: Sequence[str]) -> bool:
    """Whether `given` is one of `allowed`, in a time that tells nothing about them. An empty one allows nobody."""
    digest = hashlib.sha256(given).digest()
    same = False
    for each in allowed:
        expected = hashlib.sha256(each.encode("utf-8", "surrogatepass")).digest()
        same |= hmac.compare_digest(digest, expected) and each != ""
    return same


def authorization(*, bearer: str | None = None, basic: str | None = None) -> str | None:
    """The value of the `Authorization` header that shows a token, or `user:password`; None without either."""
    if bearer is not None and basic is not None:
        raise Invalid("a request can carry a bearer token or a basic secret, not both; remove one")
    if bearer is not None:
        if not bearer or not bearer.isascii() or not bearer.isprintable():
            raise Invalid("a bearer token must be plain ASCII on one line")
        return f"Bearer {bearer}"
    if basic is not None:
        if ":" not in basic:
            raise Invalid("a basic secret must be written user:password")
        return "Basic " + base64.b64encode(basic.encode()).decode()
    return None


def authorized(header: str | None, *, bearer: Sequence[str] = (), basic: Sequence[str] = ()) -> bool:
    """Whether an `Authorization` header shows one of these tokens or `user:password`s."""
    if header is None or len(header) > AUTHORIZATION_CHARS_MAX:
        return False
    scheme, _, rest = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return same_secret(rest.strip(" ").encode("utf-8", "surrogatepass"), bearer)
        case "basic":
            try:
                return same_secret(base64.b64decode(rest.strip(" "), validate=True), basic)
            except (binascii.Error, ValueError):
                return False
        case _:
            return False


def _signature(key: bytes, message_id: str, stamp: str, body: bytes) -> str:
    mac = hmac.new(key, f"{message_id}.{stamp}.".encode(), hashlib.sha256)
    mac.update(body)
    return "v1," + base64.b64encode(mac.digest()).decode()


def _key(secret: str) -> bytes:
    if not secret.startswith(SECRET_PREFIX):
        raise Invalid(f"a signing secret must begin with {SECRET_PREFIX}; this one, {masked(secret)}, does not")
    text = secret[len(SECRET_PREFIX) :].rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"signing secret {masked(secret)} is not base64 after {SECRET_PREFIX}; make a new one") from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise Invalid(f"signing secret {masked(secret)} has {len(key)} bytes; it must have {_SECRET_BYTES}")
    return key

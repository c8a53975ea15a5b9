"""Who may sign what: trusted keys with roles, thresholds and an end, and the environments with their gates. Pure.

The trust is a signed document with a number, `keys/{number}.json`, created once. Whoever verifies is given one of them
out of band (the pin) and follows the chain from there: each document must be signed by enough keys of the one before,
and by enough of its own. So keys are rotated and removed without touching any verifier, and nobody who can merely write
to the bucket can add a key, or lower a threshold or the approvals of an environment.

| role | may sign |
|---|---|
| `builds` | manifests |
| `environments` | pointers: promotions, rollbacks |
| `approves` | approvals |
| `reports` | what deploy agents report |
| `trust` | the next trust document |
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

import msgspec

from bucketmq.apps.artifacts import envelope as dsse
from bucketmq.apps.artifacts.envelope import Envelope, SigningKey
from bucketmq.apps.artifacts.manifest import check_name
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.errors import Denied, Invalid, NotFound
from bucketmq.events.event import seconds_of

Role = Literal["builds", "environments", "approves", "reports", "trust"]
ROLES: tuple[Role, ...] = get_args(Role)

TRUST = "application/vnd.bucketmq.artifacts.trust+json"

_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = frozenset((0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH))
"""The y of the eight points of Ed25519 under which anybody can make signatures; 32 zeros are one of them."""

Document = TypeVar("Document")


class TrustedKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A public key and what it may sign."""

    owner: str
    """Who holds it, as people and histories call them."""
    public: str
    """The 32 bytes of an Ed25519 key in base64."""
    roles: tuple[Role, ...]
    expires_at: str = ""

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.public)

    @property
    def id(self) -> str:
        return dsse.key_id(self.raw)


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place that artifacts are promoted to, and its gate."""

    name: str
    after: str = ""
    """The environment where the same digest must be current and healthy first."""
    healthy: int = 1
    """How many agents of that environment must report so."""
    approvals: int = 0
    """How many people must approve, the one who promotes not counted."""
    expires_days: int = 30
    """For how long a pointer holds: agents refuse an older one, so that nobody can keep news from them for ever."""


class Trust(msgspec.Struct, frozen=True):
    """What the payload of `keys/{number}.json` holds."""

    number: int
    expires_at: str
    keys: tuple[TrustedKey, ...]
    environments: tuple[Environment, ...]
    builds_threshold: int = 1
    """How many keys must sign a manifest."""
    trust_threshold: int = 1
    """How many keys must sign the next trust document."""
    format: int = 1

    def environment(self, name: str) -> Environment:
        for each in self.environments:
            if each.name == name:
                return each
        there = ", ".join(each.name for each in self.environments) or "none"
        raise NotFound(f"the trusted keys know no environment {name!r}; there are: {there}")

    def key(self, id: str) -> TrustedKey | None:
        return next((each for each in self.keys if each.id == id), None)

    def threshold(self, role: Role) -> int:
        return {"builds": self.builds_threshold, "trust": self.trust_threshold}.get(role, 1)


def check_trust(trust: Trust) -> Trust:
    """Raise `Invalid` unless it can be used as it is."""
    ids: list[str] = []
    for each in trust.keys:
        try:
            raw = base64.b64decode(each.public, validate=True)
        except ValueError:
            raw = b""
        if len(raw) != 32:
            raise Invalid(f"the public key of {each.owner!r} is not 32 bytes in base64; copy what keygen printed")
        if int.from_bytes(raw, "little") % 2**255 % _PRIME in _SMALL_ORDER:
            raise Invalid(f"anybody could sign for {each.owner!r}: that is not a key; copy what keygen printed")
        if not each.owner or not each.owner.isprintable() or len(each.owner) > 100:
            raise Invalid("every key needs an owner: a printable name of up to 100 characters")
        if not each.roles:
            raise Invalid(f"the key of {each.owner!r} has no role; give it some of: {', '.join(ROLES)}")
        _check_time(each.expires_at or trust.expires_at, f"the key of {each.owner!r}")
        ids.append(each.id)
    if len(set(ids)) != len(ids):
        raise Invalid("one key is there twice; a threshold counts each key once: remove one of them")
    _check_time(trust.expires_at, "the trust document")
    for role in ROLES:
        having = sum(role in each.roles for each in trust.keys)
        if role in ("builds", "trust") and not 1 <= trust.threshold(role) <= having:
            raise Invalid(f"{trust.threshold(role)} keys must sign ({role}), and {having} may; add keys or lower it")
    seen: set[str] = set()
    for each_environment in trust.environments:
        check_name(each_environment.name)
        if each_environment.name in seen:
            raise Invalid(f"the environment {each_environment.name!r} is there twice; name each once")
        if each_environment.after and each_environment.after not in seen:
            raise Invalid(
                f"{each_environment.name!r} comes after {each_environment.after!r}, which must stand before it"
            )
        if each_environment.approvals < 0 or each_environment.healthy < 1 or each_environment.expires_days < 1:
            raise Invalid(f"{each_environment.name!r}: approvals from 0 on, healthy and expires_days from 1 on")
        seen.add(each_environment.name)
    if trust.number < 1:
        raise Invalid("trust documents are numbered from 1 on")
    return trust


def _check_time(text: str, what: str) -> None:
    try:
        seconds_of(text)
    except (ValueError, OverflowError):
        raise Invalid(f"{what} ends at {text[:60]!r}; write it like 2027-01-31T00:00:00Z") from None


def is_over(expires_at: str, now_seconds: float) -> bool:
    """Whether an end has come; one that cannot be read has."""
    try:
        return bool(expires_at) and seconds_of(expires_at) <= now_seconds
    except (ValueError, OverflowError):
        return True


def signers(envelope: Envelope, trust: Trust, role: Role, now_seconds: float) -> list[TrustedKey]:
    """The trusted keys that have signed this and may: each once, none that has expired."""
    return [
        each
        for each in trust.keys
        if role in each.roles and not is_over(each.expires_at, now_seconds) and dsse.is_signed_by(envelope, each.raw)
    ]


def require_signed(envelope: Envelope, trust: Trust, role: Role, now_seconds: float, what: str) -> list[TrustedKey]:
    """Those who signed, or `Untrusted` if they are too few, saying who the others are."""
    found = signers(envelope, trust, role, now_seconds)
    wanted = trust.threshold(role)
    if len(found) >= wanted:
        return found
    others = "; ".join(_why_not(each.keyid, trust, role, now_seconds) for each in envelope.signatures[:5])
    raise Untrusted(
        f"{what} is signed by {len(found)} of the {wanted} keys that it needs (role {role}; trust {trust.number}): "
        f"{others or 'nobody signed it'}. Do not use it; have it signed by a trusted key, or find out who wrote it"
    )


def _why_not(keyid: str, trust: Trust, role: Role, now_seconds: float) -> str:
    key = trust.key(keyid)
    if key is None:
        return f"key {keyid[:12]!r} is not trusted (foreign, or removed)"
    if role not in key.roles:
        return f"the key of {key.owner} may not sign this (roles: {', '.join(key.roles)})"
    if is_over(key.expires_at, now_seconds):
        return f"the key of {key.owner} expired at {key.expires_at}"
    return f"key of {key.owner}"


def open_signed(
    kind: type[Document], payload_type: str, body: bytes, *, trust: Trust, role: Role, now_seconds: float, what: str
) -> tuple[Document, list[TrustedKey]]:
    """A signed document of ours and who signed it, or `Untrusted`."""
    envelope = dsse.read(Envelope, body, what)
    if envelope.payload_type != payload_type:
        raise Untrusted(f"{what} holds a document of another kind, {envelope.payload_type[:80]!r}; do not use it")
    found = require_signed(envelope, trust, role, now_seconds, what)
    return dsse.read(kind, envelope.body, what), found


def seal_trust(trust: Trust, keys: tuple[SigningKey, ...]) -> Envelope:
    return dsse.seal(TRUST, msgspec.json.encode(check_trust(trust)), keys)


def read_trust(body: bytes, what: str) -> tuple[Trust, Envelope]:
    """A trust document that its own keys have signed. Whether it may be believed is for the caller: it is a pin, or
    `follows` the one before."""
    envelope = dsse.read(Envelope, body, what)
    if envelope.payload_type != TRUST:
        raise Untrusted(f"{what} is not a trust document but {envelope.payload_type[:80]!r}; do not use it")
    trust = dsse.read(Trust, envelope.body, what)
    try:
        check_trust(trust)
    except Invalid as error:
        raise Untrusted(f"{what} cannot be used: {error}") from None
    _enough(trust, trust, envelope, f"{what} by its own keys")
    return trust, envelope


def follows(before: Trust, body: bytes, what: str) -> tuple[Trust, Envelope]:
    """The next document of the chain, or `Untrusted`."""
    trust, envelope = read_trust(body, what)
    if trust.number != before.number + 1:
        raise Untrusted(f"{what} has number {trust.number}, and {before.number + 1} comes next; do not use it")
    _enough(before, trust, envelope, f"{what} by the keys of {before.number}")
    return trust, envelope


def _enough(by: Trust, trust: Trust, envelope: Envelope, what: str) -> None:
    having = [each for each in by.keys if "trust" in each.roles and dsse.is_signed_by(envelope, each.raw)]
    if len(having) < by.trust_threshold:
        raise Untrusted(
            f"{what}: signed by {len(having)} of the {by.trust_threshold} keys that it needs (role trust); "
            f"do not use it, and find out who wrote number {trust.number}"
        )


def check_fresh(trust: Trust, now_seconds: float) -> Trust:
    """The newest trust, or `Untrusted` once it is over: somebody may be keeping a newer one from us."""
    if is_over(trust.expires_at, now_seconds):
        raise Untrusted(
            f"trust {trust.number} ended at {trust.expires_at}, and there is no newer one; publish the next: "
            "bucketmq artifacts trust FILE --key KEY"
        )
    return trust


def require_role(trust: Trust, keys: Sequence[SigningKey], role: Role, now_seconds: float) -> TrustedKey:
    """The first of our own keys, which must be trusted for this: told before anything is written."""
    if not keys:
        raise Denied(f"this needs a key of the role {role}; name its file: --key FILE")
    found = trust.key(keys[0].id)
    if found is None or role not in found.roles or is_over(found.expires_at, now_seconds):
        raise Denied(
            f"{_why_not(keys[0].id, trust, role, now_seconds)}; use a key with the role {role}, or publish a trust "
            "document that has this one"
        )
    return found

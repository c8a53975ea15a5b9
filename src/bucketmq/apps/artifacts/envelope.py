"""DSSE envelopes: bytes, what kind of bytes they are, and signatures over both. Pure.

Every document of this application that decides anything is the payload of such an envelope: manifests, trusted keys,
pointers, approvals, reports. The kind is part of what is signed, so no document passes for one of another kind. Who may
sign what is `keys`; the files in which private keys lie are `keyfiles`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.errors import Invalid

SIGNATURES_MAX = 64
ENVELOPE_BYTES_MAX = 64 << 20
"""A manifest of a hundred thousand files has some 20 MB."""

Document = TypeVar("Document")


class Signature(msgspec.Struct, frozen=True):
    """One signature. The id only says which key to try."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """As https://github.com/secure-systems-lab/dsse has it, in JSON."""

    payload_type: str
    payload: str
    signatures: tuple[Signature, ...]

    @property
    def body(self) -> bytes:
        """The payload itself."""
        return decode64(self.payload, "the payload of an envelope")


class SigningKey:
    """A private key. It never shows itself: neither by `repr` nor in an error."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = raw_public(private.public_key())
        self.id = key_id(self.public)

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"<SigningKey {self.id[:12]}>"


def key_id(public: bytes) -> str:
    """How a public key is called: the SHA-256 of its 32 bytes."""
    return hashlib.sha256(public).hexdigest()


def raw_public(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: both parts with their lengths, so that no two documents have the same."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload_type: str, payload: bytes, keys: tuple[SigningKey, ...]) -> Envelope:
    """The payload, signed by each of the keys."""
    if not keys:
        raise Invalid(
            "there is no key to sign with; name one: --key FILE (make one with: bucketmq artifacts keygen FILE)"
        )
    text = base64.b64encode(payload).decode()
    return Envelope(payload_type, text, tuple(_signature(each, payload_type, payload) for each in keys))


def countersign(envelope: Envelope, key: SigningKey) -> Envelope:
    """The same with one more signature; unchanged if the key has signed it before."""
    if any(each.keyid == key.id for each in envelope.signatures):
        return envelope
    added = _signature(key, envelope.payload_type, envelope.body)
    return msgspec.structs.replace(envelope, signatures=(*envelope.signatures, added))


def _signature(key: SigningKey, payload_type: str, payload: bytes) -> Signature:
    return Signature(key.id, base64.b64encode(key.sign(pae(payload_type, payload))).decode())


def is_signed_by(envelope: Envelope, public: bytes) -> bool:
    """Whether one of the signatures is of this key, over exactly this payload and kind."""
    wanted = key_id(public)
    message = pae(envelope.payload_type, envelope.body)
    for each in envelope.signatures[:SIGNATURES_MAX]:
        if each.keyid != wanted:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(decode64(each.sig, "a signature"), message)
        except (InvalidSignature, Untrusted):
            continue
        return True
    return False


def encode(envelope: object) -> bytes:
    return msgspec.json.encode(envelope) + b"\n"


def read(kind: type[Document], body: bytes, what: str) -> Document:
    """A document out of bytes that anybody may have written, or `Untrusted`."""
    if len(body) > ENVELOPE_BYTES_MAX:
        raise Untrusted(f"{what} has {len(body):,} bytes, more than any document of this kind; do not use it")
    try:
        document = msgspec.json.decode(body, type=kind)
        if msgspec.json.encode(document) != body.removesuffix(b"\n"):  # not as we write it
            json.loads(body, object_pairs_hook=_each_once)
        return document
    except (ValueError, RecursionError) as error:
        raise Untrusted(f"{what} cannot be read ({error}); do not use it, and restore it from a copy") from None


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A field that is there twice says one thing to us and another to those who take the first."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def decode64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Untrusted(f"{what} is not base64; do not use it, and restore it from a copy") from None

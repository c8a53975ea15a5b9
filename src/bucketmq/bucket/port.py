"""The store port: verbs on keys, and the values they answer with.

Queues live by five of them: `get create replace delete list`. Users' own objects need four more, `look remove rename
copy`.

This is all the rest of the project knows about object storage. A store is a place where whole objects are written and
read by key; it is not a file system. There are no partial writes, no appends, no locks.

The contract, each line a test in `bucketmq.testing.contract`:

 1. `get` answers the whole of one written state of the object, or `Missing`. Never a mixture, never a prefix.
 2. `create` writes only if the key has no object. Of any number of creates of one key, at most one is `Written`.
 3. `replace` writes only over the state that `version` marks. Of any number of replaces of one state, at most one is
    `Written`. A replace of a missing key is `Refused`.
 4. A `Written` object is durable and visible to every later `get` and `list`, in every process.
 5. `Refused` means this call wrote nothing. It does not say why: the condition may be false, a conflicting request may
    be in flight, or an earlier attempt of our own may have landed. Read back.
 6. `Unknown` means the write may have landed, may land yet, or may never land. It is not an error.
 7. Conditional writes are sent once. No adapter and no client library below it repeats them.
 8. `version` changes whenever the object's bytes change. Equal bytes may get an equal version (S3 does), so a caller
    of `replace` must never write the same bytes twice.
 9. `delete` is unconditional and repeatable; deleting what is missing is fine.
10. `list` answers keys that begin with `prefix`, which is empty or ends with '/', and sort after `after`: the smallest
    such keys in byte order, at most `limit` of them. When `lists_in_order` is true, the call costs the same however
    many keys lie before. When it is false, it may cost a pass over the prefix; never decide by it on a hot path.
11. `stored_at` is the store's own clock, in seconds since 1970, with whatever precision the store has.
12. Keys are validated before any request: see `check_key`. No key can leave the store's root.
13. `attributes` given with a write are part of the object: `get` and `look` answer them with the body they were
    written with, never those of another state. Metadata names are lower case.
14. `look` answers what `get` would, without the body.
15. `remove` deletes only the state that `version` marks. Of any number of replaces and removes of one state, at most
    one succeeds. `Refused` and `Unknown` mean what they mean for writes; a remove of a missing key is `Refused`.
16. `rename`, where `renames` is true, moves the state that `version` marks to a key that has no object, in one step.
17. Every failure that is not one of the answers above is a `BucketMQError`: `Unavailable` when trying again may help,
    `Denied`, `NotFound` (the bucket itself), `Unsupported`.
18. `copy`, where `copies` is true, gives a key that has no object the bytes of the state `source`, with attributes of
    its own. The bytes do not go through this process, and all of them are there when it is `Written`. A store that
    finds out only then that it cannot raises `Unsupported`, has written nothing, and turns `copies` false; `Invalid`
    is for one object that is too large for it.

`etag`, `generation`, HTTP statuses and file names are words for adapters; they do not leave this package.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import NewType, Protocol, runtime_checkable

import msgspec

from bucketmq.errors import Invalid
from bucketmq.values import Value

Version = NewType("Version", str)

KEY_BYTES_MAX = 900
"""Longest key in UTF-8 bytes; S3 allows 1,024 and the user's prefix comes on top."""

OBJECT_BYTES_MAX = 5 * 1024**3
"""Largest object that `get` reads: an object is in memory as a whole, and S3 takes no more in one write."""

METADATA_BYTES_MAX = 2048
"""All names and values of an object's metadata together; S3 allows no more."""

CONTENT_TYPE_BYTES_MAX = 255


class Attributes(msgspec.Struct, frozen=True):
    """What a store keeps beside an object's bytes. Empty for everything this project writes for itself."""

    content_type: str = ""
    metadata: dict[str, str] = {}


PLAIN = Attributes()


class Object(msgspec.Struct, frozen=True):
    """One state of an object."""

    body: bytes
    version: Version
    stored_at: float
    attributes: Attributes = PLAIN


class Found(Value, msgspec.Struct, frozen=True):
    """One state of an object, without its body."""

    size_bytes: int
    version: Version
    stored_at: float
    attributes: Attributes = PLAIN


class Missing(msgspec.Struct, frozen=True):
    """There is no object under the key."""


class Written(msgspec.Struct, frozen=True):
    """The write landed. `stored_at` is the store's clock at the write, or None where the store does not tell."""

    version: Version
    stored_at: float | None


class Removed(msgspec.Struct, frozen=True):
    """The state is gone, by this call."""


class Refused(msgspec.Struct, frozen=True):
    """This call wrote nothing (contract 5)."""


class Unknown(msgspec.Struct, frozen=True):
    """It is not known whether the write landed (contract 6)."""

    reason: str


class Entry(msgspec.Struct, frozen=True):
    """One line of a listing."""

    key: str
    size_bytes: int
    stored_at: float
    version: Version | None = None
    """The state listed, where listings tell."""


class Page(msgspec.Struct, frozen=True):
    """One answer of `list`; `more` says that the limit cut it."""

    entries: tuple[Entry, ...]
    more: bool


class Store(Protocol):
    """Blocking, safe to call from many threads at once."""

    lists_in_order: bool
    """Contract 10: whether `list` is ordered and cheap."""

    local: bool
    """Whether a request takes microseconds, so that doing two at once is not worth a thread."""

    renames: bool
    """Contract 16: whether `rename` may be called."""

    copies: bool
    """Contract 18: whether `copy` may be called. What a store has not tried yet counts as true."""

    exact_versions: bool
    """Whether no two writes of one key ever get the same version, not even of the same bytes."""

    def get(self, key: str) -> Object | Missing: ...

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown: ...

    def replace(
        self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown: ...

    def delete(self, key: str) -> None: ...

    def look(self, key: str) -> Found | Missing: ...

    def remove(self, key: str, version: Version) -> Removed | Refused | Unknown: ...

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused | Unknown: ...

    def copy(
        self, key: str, target: str, source: Found, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown: ...

    def list(self, prefix: str, *, after: str, limit: int) -> Page: ...

    def close(self) -> None:
        """Free descriptors and connections, once no call is under way. Closing again does nothing."""


@runtime_checkable
class Gathering(Protocol):
    """A store to which several requests, made one after the other, cost less than each alone."""

    def together(self) -> AbstractContextManager[None]:
        """A block in which this thread's requests are answered before what they did lasts (contract 4): that holds when
        the block has ended. If its end raises a `BucketMQError`, nobody can tell whether it does."""


def check_key(key: str) -> None:
    """Raise `Invalid` unless `key` is a relative path of plain segments that every store can hold."""
    if not key or len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
        raise Invalid(f"key {key[:80]!r} must have 1 to {KEY_BYTES_MAX} bytes in UTF-8; use a shorter name or prefix")
    # Printable text is the rule; only what is not is looked at character by character.
    if not key.isprintable() and any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in key):
        raise Invalid(f"key {key[:80]!r} has control characters or broken Unicode; use printable text")
    if "\\" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise Invalid(f"key {key[:80]!r} must be segments joined by '/', none of them empty, '.' or '..', no backslash")


def check_size(key: str, size_bytes: int) -> None:
    """Raise `Invalid` for an object that is too large to be read, before it is."""
    if size_bytes > OBJECT_BYTES_MAX:
        raise too_large(key, size_bytes)


def too_large(key: str, size_bytes: int) -> Invalid:
    return Invalid(
        f"{key!r} has {size_bytes} bytes and is not read: an object must fit into memory, and have at most "
        f"{OBJECT_BYTES_MAX} bytes; read it with another tool, or remove it if it should not be there"
    )


def check_attributes(attributes: Attributes) -> None:
    """Raise `Invalid` unless every store can keep `attributes` and give them back as they are."""
    if attributes is PLAIN:
        return
    kind = attributes.content_type
    if kind and (not isinstance(kind, str) or len(kind) > CONTENT_TYPE_BYTES_MAX or not _VALUE.fullmatch(kind)):
        raise Invalid(f"{kind!r:.80} is not a content type; use one such as 'text/plain'")
    for name, value in attributes.metadata.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise Invalid(f"metadata is text by name; {name!r:.80} is {value!r:.80}: write numbers as text")
        if not _NAME.fullmatch(name):
            raise Invalid(f"metadata name {name[:80]!r} must be made of a-z, 0-9 and '-', '_', '.'; use another name")
        if value and not _VALUE.fullmatch(value):
            raise Invalid(
                f"the value of metadata {name!r} must be printable ASCII without spaces at its ends; "
                "encode other text, or put it into the body"
            )
    size = sum(len(name) + len(value) for name, value in attributes.metadata.items())
    if size > METADATA_BYTES_MAX:
        raise Invalid(f"metadata of {size} bytes exceeds {METADATA_BYTES_MAX}; put what is large into the body")


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")  # a header loses the spaces at its ends

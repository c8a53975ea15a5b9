"""Object stores over the network: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage.

Each verb that queues use is one request through obstore, whose own retries are off: a conditional write that is
repeated behind our back would be refused by its own first attempt. This module turns what comes back into the answers
and errors of `bucketmq.bucket.port`. Trying again, and finding out what became of an unknown write, is for
callers.
URLs, credentials and settings belong to `bucketmq.bucket.urls` and `bucketmq.bucket.cloud`.

`remove` is one DELETE under a condition where the store honours one, which the first `remove` finds out with six
requests on an object of its own. Where it does not, `remove` replaces the object by a tombstone, under the version's
condition, which decides who wins, and then deletes the tombstone. `get`, `look` and, where versions are hashes, `list`
do not see tombstones, so a process killed between the two leaves nothing that anyone here would take for an object.
Two things are weaker there. What another program writes between the two requests, without a condition, is deleted. A
tombstone that was left behind refuses creates of its key for `TOMBSTONE_SECONDS`: before, its maker's delete might
still arrive and take the new object with it.

`copy` is for stores that honour a condition on the source and one on the target, which the first `copy` finds out with
seven requests on objects of its own (decision 0045). Others turn `copies` false, and callers read and create.

`rename` is for Tigris alone, and looks at the source first: the store takes no condition for it together with a rename.
A replace of the source that lands between the two requests is what gets renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from bucketmq.bucket.copying import CopyWay
from bucketmq.bucket.diagnosis import diagnosis, is_disliked, is_refusal, lacks_bucket, may_have_landed, reason
from bucketmq.bucket.listing import check_listing
from bucketmq.bucket.port import (
    PLAIN,
    Attributes,
    Entry,
    Found,
    Missing,
    Object,
    Page,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
    check_attributes,
    check_key,
    check_size,
)
from bucketmq.bucket.removal import DeleteIf
from bucketmq.bucket.sending import CannotSign
from bucketmq.errors import BucketMQError, Invalid, NotFound, Unavailable, Unsupported

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, UpdateVersion
    from obstore.store import AzureStore, GCSStore, S3Store

CHUNK_MAX = 1000
"""Keys in one answer of S3; a listing of fewer costs one request."""

TOMBSTONE = b"BucketMQ removed the object that was here; what is left can be deleted.\n"
TOMBSTONE_TYPE = "application/x-bucketmq-removed"
TOMBSTONE_SECONDS = 900
"""A tombstone this old is overwritten: the request that was to delete it is long over."""

_DELETE_SECONDS = 30  # later than this after its tombstone no delete is sent
_TOMBSTONES_MAX = 1000  # remembered, of those found by reading
_TOMBSTONE_MD5 = hashlib.md5(TOMBSTONE, usedforsecurity=False).hexdigest()


class ObjectStore:
    """One bucket or container. A listing is one request for each thousand keys it passes over, `remove` one or two,
    `rename` two, any other verb one.

    `place` is how the bucket is called in messages. `by_generation` is for stores that count the states of an object
    instead of hashing them. `unquoted_etags` is for servers that take a quoted hash for a wrong one. `spells_names`
    is for stores whose metadata names must be identifiers. `delete_if` and `copy_ways` may honour conditions (of
    the latter, the first one that takes an object of this size is used), `renamer` copies with a header that makes it
    a rename, and `scratch` is where the proofs of the former may write.
    """

    local = False

    def __init__(
        self,
        client: S3Store | GCSStore | AzureStore,
        *,
        place: str,
        lists_in_order: bool,
        exact_versions: bool = False,
        by_generation: bool = False,
        unquoted_etags: bool = False,
        spells_names: bool = False,
        delete_if: DeleteIf | None = None,
        copy_ways: Sequence[CopyWay] = (),
        renamer: S3Store | None = None,
        scratch: str = "probe/",
    ) -> None:
        self.lists_in_order = lists_in_order
        self.renames = renamer is not None
        self.copies = bool(copy_ways)
        self.exact_versions = exact_versions
        self._open_client: S3Store | GCSStore | AzureStore | None = client
        self._spells_names = spells_names
        self._delete_if = delete_if
        self._honours_delete_if: bool | None = None if delete_if else False
        self._copy_ways = tuple(copy_ways)
        self._honoured: dict[CopyWay, bool] = {}
        self._proving = threading.RLock()
        self._renamer = renamer
        self._scratch = scratch
        self._tombstones: dict[str, Version] = {}
        self._place = place
        self._by_generation = by_generation
        self._unquoted_etags = unquoted_etags
        self._pid = os.getpid()

    def get(self, key: str) -> Object | Missing:
        self._check(key)
        try:
            answer = self._client.get(key)
            check_size(key, answer.meta["size"])
            body = bytes(answer.bytes())
            found = self._found(key, answer.meta, answer.attributes)
        except Invalid:  # it is too large, and a ValueError
            raise
        except FileNotFoundError as error:
            self._check_bucket(error)
            return Missing()
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"read {key!r}", error) from error
        if isinstance(found, Missing):
            return found
        return Object(body, found.version, found.stored_at, found.attributes)

    def look(self, key: str) -> Found | Missing:
        """One HEAD. Its answer has no body, so a missing bucket looks like a missing object."""
        self._check(key)
        try:
            answer = self._client.get(key, options={"head": True})
            return self._found(key, answer.meta, answer.attributes)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return Missing()
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"look at {key!r}", error) from error

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        self._check(key)
        tombstone = self._tombstones.pop(key, None)
        if tombstone is not None:
            return self.replace(key, body, tombstone, attributes)
        try:
            return self._put(key, body, "create", attributes)
        except FileNotFoundError as error:
            raise self._no_bucket() from error  # what else could be missing?

    def replace(
        self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown:
        self._check(key)
        # The two fields are exclusive: obstore takes a None for a value.
        condition: UpdateVersion = {"version": version} if self._by_generation else {"e_tag": version}
        try:
            return self._put(key, body, condition, attributes)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return Refused()

    def delete(self, key: str) -> None:
        self._check(key)
        try:
            self._client.delete(key)
        except FileNotFoundError as error:
            self._check_bucket(error)
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"delete {key!r}", error) from error

    def remove(self, key: str, version: Version) -> Removed | Refused | Unknown:
        self._check(key)
        if self._deletes_by_condition():
            return self._delete_at(key, version)
        begin = time.monotonic()
        answer = self.replace(key, TOMBSTONE, version, Attributes(TOMBSTONE_TYPE))
        if not isinstance(answer, Written):
            return answer
        if time.monotonic() - begin < _DELETE_SECONDS:
            with contextlib.suppress(BucketMQError):  # it is gone for everybody; only the tombstone stays
                self.delete(key)
        return Removed()

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused | Unknown:
        self._check(key)
        self._check(target)
        if self._renamer is None:
            raise Unsupported(
                f"{self._place} cannot rename {key!r} in one step; create {target!r}, then remove {key!r}"
            )
        found = self.look(key)
        if isinstance(found, Missing) or found.version != version:
            return Refused()
        try:
            self._renamer.copy(key, target, overwrite=False)
        except (BaseError, OSError, ValueError) as error:
            return self._not_done(f"rename {key!r} to {target!r}", error)
        return Removed()

    def copy(self, key: str, target: str, source: Found, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        """One request, and a look at what came of it where its version does not show that the bytes are the same."""
        self._check(key)
        self._check(target)
        # An old tombstone at the target would refuse the copy for ever; a create knows how to overwrite it.
        if target in self._tombstones or not self.copies:
            raise self._no_copy(key, target, "under a condition")
        way = next((way for way in self._copy_ways if source.size_bytes <= way.bytes_max), None)
        if way is None or not self._is_honoured(way):
            if way is self._copy_ways[0]:
                self.copies = False
                raise self._no_copy(key, target, "under a condition")
            raise Invalid(f"{key!r} has {source.size_bytes} bytes, more than {self._place} copies; use another tool")
        return self._copy_by(way, key, target, source, attributes)

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        self._check_process()
        check_listing(prefix, after, limit)
        try:
            found = self._entries(prefix, after, limit)
            if self.lists_in_order:
                entries = tuple(itertools.islice(found, limit + 1))
            else:
                entries = tuple(heapq.nsmallest(limit + 1, found, key=lambda entry: entry.key))
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"list {prefix!r}", error) from error
        return Page(entries[:limit], more=len(entries) > limit)

    def close(self) -> None:
        """Drop the clients, and with them their connections. The threads that carry requests belong to obstore: they
        are a few for the whole process, whatever is open."""
        self._open_client = self._delete_if = self._renamer = None
        self._copy_ways = ()

    @property
    def _client(self) -> S3Store | GCSStore | AzureStore:
        assert self._open_client is not None
        return self._open_client

    def __repr__(self) -> str:
        return f"ObjectStore({self._place!r})"

    def _found(self, key: str, meta: ObjectMeta, attributes: Mapping[str, str]) -> Found | Missing:
        version = self._version(meta["e_tag"], meta["version"])
        if version is None:
            raise Unsupported(f"{self._place} sends no version with {key!r}; it cannot hold a queue")
        stored_at = meta["last_modified"].timestamp()
        found = Found(meta["size"], version, stored_at, self._read_attributes(attributes))
        if found.attributes.content_type != TOMBSTONE_TYPE or found.size_bytes != len(TOMBSTONE):
            return found
        if time.time() - stored_at > TOMBSTONE_SECONDS:
            if len(self._tombstones) >= _TOMBSTONES_MAX:
                self._tombstones.clear()
            self._tombstones[key] = version
        return Missing()

    def _deletes_by_condition(self) -> bool:
        if self._honours_delete_if is None:
            with self._proving:
                if self._honours_delete_if is None:
                    self._honours_delete_if = self._prove_deletes()
        return self._honours_delete_if

    def _prove_deletes(self) -> bool:
        """Whether a wrong version deletes nothing, the right one deletes, and what is missing is refused."""
        with self._trial("conditional deletes") as (key, state):
            return (
                self._is_refused(key, self._wrong(state.version))
                and isinstance(self.look(key), Found)
                and not self._is_refused(key, state.version)
                and self._is_refused(key, state.version)
            )

    @contextlib.contextmanager
    def _trial(self, what: str, attributes: Attributes = PLAIN) -> Iterator[tuple[str, Found]]:
        """An object to try something out with, and its state."""
        key = f"{self._scratch}{uuid.uuid4().hex}"
        body = f"a trial of {what}\n".encode()
        written = self.create(key, body, attributes)
        if not isinstance(written, Written):
            raise Unavailable(f"cannot write {key!r} in {self._place} to try out {what}; try again")
        try:
            yield key, Found(len(body), written.version, 0.0)
        finally:
            self.delete(key)

    def _is_refused(self, key: str, version: Version) -> bool:
        try:
            answer = self._delete_at(key, version)
        except BucketMQError as error:
            if is_disliked(error):
                return False
            raise
        if isinstance(answer, Unknown):
            raise Unavailable(f"cannot try out conditional deletes in {self._place}: {answer.reason}; try again")
        return isinstance(answer, Refused)

    def _delete_at(self, key: str, version: Version) -> Removed | Refused | Unknown:
        assert self._delete_if is not None
        try:
            self._delete_if(key, version)
        except CannotSign as error:
            raise self._failed(f"remove {key!r}", error) from error
        except (BaseError, OSError, ValueError) as error:
            return self._not_done(f"remove {key!r}", error)
        return Removed()

    def _is_honoured(self, way: CopyWay) -> bool:
        """Whether the store copies this way under both conditions. A server that twice gives no clear answer to a copy,
        though it answers everything else, does not."""
        with self._proving:
            if way not in self._honoured:
                try:
                    proven = self._prove_copies(way)
                    self._honoured[way] = bool(self._prove_copies(way) if proven is None else proven)
                except BucketMQError as error:
                    if not is_disliked(error):
                        raise
                    self._honoured[way] = False
            return self._honoured[way]

    def _prove_copies(self, way: CopyWay) -> bool | None:
        """Whether a wrong version copies nothing, the right one copies with attributes of its own, and no object is
        copied over. None if an answer is not clear."""
        first, second = (Attributes("text/plain", {"copy": name}) for name in ("first", "second"))
        with self._trial("conditional copies", Attributes("text/x-source", {"source": "yes"})) as (key, source):
            wrong = Found(source.size_bytes, self._wrong(source.version), 0.0)
            target = f"{key}-copy"
            try:
                for state, attributes, right in (
                    (wrong, first, Refused),
                    (source, first, Written),
                    (source, second, Refused),
                ):
                    answer = self._copy_by(way, key, target, state, attributes)
                    if not isinstance(answer, right):
                        return None if isinstance(answer, Unknown) else False
                found = self.look(target)
                return isinstance(found, Found) and (found.size_bytes, found.attributes) == (source.size_bytes, first)
            finally:
                self.delete(target)

    def _copy_by(
        self, way: CopyWay, key: str, target: str, source: Found, attributes: Attributes
    ) -> Written | Refused | Unknown:
        what = f"copy {key!r} to {target!r}"
        try:
            mark = way(key, target, source, self._written_attributes(attributes) or {})
        except CannotSign as error:
            raise self._failed(what, error) from error
        except (BaseError, OSError, ValueError) as error:
            return self._not_done(what, error)
        version = self._version(mark, None)
        if version == source.version and not self.exact_versions:
            return Written(version, None)  # equal hashes: the bytes are the same
        return self._whole_copy(key, target, source, attributes, version)

    def _whole_copy(
        self, key: str, target: str, source: Found, attributes: Attributes, version: Version | None
    ) -> Written | Unknown:
        """Look at a copy. One that is not whole is taken away, and the store is not asked for another."""
        try:
            found = self.look(target)
        except Unavailable as error:
            return Unknown(str(error))
        if isinstance(found, Missing) or version not in (None, found.version):
            return Written(version, None) if version else Unknown("the store sent no version")
        if version is None and found.attributes.metadata != attributes.metadata:
            return Unknown("the store sent no version, and another object is there by now")
        if found.size_bytes != source.size_bytes:
            self.copies = False
            self.remove(target, found.version)
            raise self._no_copy(key, target, f"whole ({found.size_bytes} bytes of {source.size_bytes})")
        return Written(found.version, found.stored_at)

    def _wrong(self, version: Version) -> Version:
        """A version that no state of an object has."""
        return Version(f"{int(version) + 1}" if self._by_generation else '"0x8D0000000000000"')

    def _no_copy(self, key: str, target: str, how: str) -> Unsupported:
        return Unsupported(f"{self._place} cannot copy {key!r} to {target!r} {how}; read it, then create {target!r}")

    def _not_done(self, what: str, error: Exception) -> Refused | Unknown:
        """What it means that a conditional request did not succeed."""
        self._check_bucket(error)
        if is_refusal(error):
            return Refused()
        if may_have_landed(error):
            return Unknown(reason(error))
        raise self._failed(what, error) from error

    def _read_attributes(self, given: Mapping[str, str]) -> Attributes:
        content_type, metadata = "", {}
        for name, value in given.items():
            if name == "Content-Type":
                content_type = value
            elif name not in _NO_METADATA:
                metadata[_unspelled(name.lower()) if self._spells_names else name.lower()] = value
        return Attributes(content_type, metadata)

    def _written_attributes(self, attributes: Attributes) -> dict[str, str] | None:
        if attributes is PLAIN:
            return None
        check_attributes(attributes)
        written = {"Content-Type": attributes.content_type} if attributes.content_type else {}
        for name, value in attributes.metadata.items():
            written[_spelled(name) if self._spells_names else name] = value
        return written

    def _put(self, key: str, body: bytes, mode: PutMode, attributes: Attributes) -> Written | Refused | Unknown:
        written = self._written_attributes(attributes)
        try:
            result = self._client.put(key, body, mode=mode, use_multipart=False, attributes=written)
        except (AlreadyExistsError, PreconditionError) as error:
            self._check_bucket(error)
            return Refused()
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            if may_have_landed(error):
                return Unknown(reason(error))
            raise self._failed(f"write {key!r}", error) from error
        version = self._version(result["e_tag"], result["version"])
        return Unknown("the store sent no version") if version is None else Written(version, None)

    def _version(self, e_tag: str | None, generation: str | None) -> Version | None:
        mark = generation if self._by_generation else e_tag
        if mark is None:
            return None
        return Version(mark.strip('"') if self._unquoted_etags else mark)

    def _entries(self, prefix: str, after: str, limit: int) -> Iterator[Entry]:
        chunks = self._client.list(prefix or None, offset=after or None, chunk_size=min(limit + 1, CHUNK_MAX))
        for chunk in chunks:
            for meta in chunk:
                key = meta["path"]
                if key > after and key.startswith(prefix):
                    version = self._version(_quoted(meta["e_tag"]), meta["version"])
                    if not _is_tombstone(meta["size"], version):
                        yield Entry(key, meta["size"], meta["last_modified"].timestamp(), version)

    def _check(self, key: str) -> None:
        check_key(key)
        self._check_process()

    def _check_process(self) -> None:
        # The threads that carry obstore's requests do not survive a fork: a request in the child would wait for ever.
        if self._open_client is None:
            raise Invalid(f"the connection to {self._place} was closed; connect again")
        if os.getpid() != self._pid:
            raise Invalid(f"the connection to {self._place} was made in another process; connect again after the fork")

    def _check_bucket(self, error: Exception) -> None:
        if lacks_bucket(error):
            raise self._no_bucket() from error

    def _no_bucket(self) -> NotFound:
        return NotFound(f"there is no bucket {self._place}; create it, or correct the name, region or endpoint")

    def _failed(self, what: str, error: Exception) -> BucketMQError:
        kind, cure = diagnosis(error)
        if kind is NotFound:
            return self._no_bucket()
        return kind(f"cannot {what} in {self._place}: {reason(error)}; {cure}")


def _quoted(e_tag: str | None) -> str | None:
    """As in the header of an answer. Azure leaves the quotes out in listings."""
    return e_tag if e_tag is None or e_tag.endswith('"') else f'"{e_tag}"'


def _is_tombstone(size_bytes: int, version: Version | None) -> bool:
    return size_bytes == len(TOMBSTONE) and version is not None and version.strip('"') == _TOMBSTONE_MD5


def _spelled(name: str) -> str:
    """A metadata name as an identifier: what cannot stand in one becomes its number."""
    return _NOT_IN_IDENTIFIERS.sub(lambda found: f"_x{ord(found[0]):x}_", name)


def _unspelled(name: str) -> str:
    return _SPELLED.sub(lambda found: chr(int(found[1], 16)), name)


_NOT_IN_IDENTIFIERS = re.compile(r"^[0-9]|[.-]")
_SPELLED = re.compile(r"_x(2d|2e|3[0-9])_")

_NO_METADATA = frozenset(
    {"Content-Disposition", "Content-Encoding", "Content-Language", "Cache-Control", "Storage-Class"}
)

"""Verifying: whether what lies in the bucket is what was built, to the last byte, by somebody who may.

Everything is read with the eyes of somebody who was told only a pin: the trust, the manifest's signatures, that it is
about this name and this version, then every file. Each file is read once and hashed once, those of a batch on several
threads; files are in memory one batch of 32 MiB at a time, or one file that is larger than that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.artifacts import archives, envelope, keys, manifest, memory, places
from bucketmq.apps.artifacts.keys import Trust
from bucketmq.apps.artifacts.manifest import MANIFEST, File, Manifest, ManifestDocument, Opened
from bucketmq.apps.artifacts.refusals import Untrusted, listed
from bucketmq.errors import BucketMQError, NotFound
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import in_batches
from bucketmq.procedures.objects.listing import all_items
from bucketmq.procedures.objects.read import fetch, read_object
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Call, Now, Procedure


class Verified(msgspec.Struct, frozen=True):
    """An artifact that may be used."""

    manifest: Manifest
    digest: str
    signed_by: tuple[str, ...]
    """The owners of the keys."""
    trust: int
    """The number of the trust document by which it was judged."""


class Arrived(NamedTuple):
    """A file and the bytes that were found for it."""

    file: File
    body: bytes


Take = Callable[[Arrived], str | None]
"""Looks at a file; says what is wrong with it. Called on several threads at once, for different files."""


def newest_trust(bus: BucketApi, pin: bytes) -> Procedure[tuple[Trust, bytes]]:
    """The newest trust that the pin leads to, and its document. One GET, and one more for each that is newer."""
    bucket = yield from bus.open()
    trust, _ = keys.read_trust(pin, "the pinned trust document")
    body = pin
    while True:
        key = places.trust(trust.number + 1)
        try:
            found = (yield from read_object(bucket, key)).body
        except NotFound:
            return keys.check_fresh(trust, (yield from Now())), body
        trust, body = keys.follows(trust, found, key)[0], found


def read_manifest(bucket: OpenBucket, place: str, name: str, version: str) -> Procedure[Opened]:
    """The manifest at a place, for this name and version and no other. One GET. Signatures are not looked at."""
    key = f"{place}{MANIFEST}"
    try:
        found = yield from read_object(bucket, key)
    except NotFound:
        raise NotFound(
            f"there is no {name} {version} ({key}); it was not published, or its publisher has not finished yet"
        ) from None
    opened = manifest.opened(envelope.read(ManifestDocument, found.body, key), key)
    if (opened.manifest.name, opened.manifest.version) != (name, version):
        raise Untrusted(
            f"{key} is the manifest of {opened.manifest.name} {opened.manifest.version}: somebody put an old or "
            "foreign one there; do not use it"
        )
    return opened


def trusted_manifest(
    bucket: OpenBucket, trust: Trust, place: str, name: str, version: str
) -> Procedure[tuple[Opened, tuple[str, ...]]]:
    """The same, signed by as many trusted keys as it needs; and their owners."""
    opened = yield from read_manifest(bucket, place, name, version)
    now = yield from Now()
    found = keys.require_signed(opened.envelope, trust, "builds", now, f"the manifest of {name} {version}")
    return opened, tuple(each.owner for each in found)


def verify(
    bus: BucketApi, trust: Trust, name: str, version: str, *, environment: str = "", take: Take | None = None
) -> Procedure[Verified]:
    """An artifact as it was published, or as it lies in an environment; `Untrusted` says what is wrong with it.

    One GET for each file, one for the manifest, one LIST for each 999 files. `take` sees every file, too.
    """
    bucket = yield from bus.open()
    place = places.release(environment, name, version) if environment else places.build(name, version)
    opened, owners = yield from trusted_manifest(bucket, trust, place, name, version)
    problems = yield from check_files(bucket, place, opened.manifest, take=take or judge)
    if problems:
        raise Untrusted(
            f"{name} {version} in {place} is not what {', '.join(owners)} signed: {listed(problems)}. Do not use it; "
            "publish it again under another version, and find out who changed it"
        )
    return Verified(opened.manifest, opened.digest, owners, trust.number)


def check_files(bucket: OpenBucket, place: str, wanted: Manifest, *, take: Take) -> Procedure[list[str]]:
    """What is wrong with the files at a place: missing, too many, of another size or content."""
    listed_sizes = yield from sizes_at(bucket, place)
    listed_sizes.pop(MANIFEST, None)
    paths = {each.path for each in wanted.files}
    problems = [f"{path!r} does not belong to it" for path in listed_sizes if path not in paths]
    there: list[File] = []
    for each in wanted.files:
        if each.path not in listed_sizes:
            problems.append(f"{each.path!r} is missing")
        elif listed_sizes[each.path] != each.size_bytes:
            problems.append(f"{each.path!r} has {listed_sizes[each.path]:,} bytes instead of {each.size_bytes:,}")
        else:
            there.append(each)
    if problems:
        return problems  # bytes need not be read to know that it cannot be used
    memory.keep()
    for batch in in_batches(there, lambda each: each.size_bytes):
        arrived, missing = yield from _arrived(bucket, place, batch)
        problems += missing
        problems += yield from Call(lambda all_of_it: _looked_at(take, all_of_it), arrived)
        del arrived  # before the next batch is read
    return problems


def _arrived(bucket: OpenBucket, place: str, batch: Sequence[File]) -> Procedure[tuple[list[Arrived], list[str]]]:
    """The files of a batch that are there, and what to say of the others. One GET each."""
    arrived: list[Arrived] = []
    missing: list[str] = []
    found = yield from abreast([fetch(bucket, place + each.path) for each in batch])
    for file, read in zip(batch, found, strict=True):
        if isinstance(read, NotFound):
            missing.append(f"{file.path!r} is missing")
        elif isinstance(read, BucketMQError):
            raise read
        else:
            arrived.append(Arrived(file, read.body))
    return arrived, missing


def _looked_at(take: Take, arrived: list[Arrived]) -> list[str]:
    found = memory.on_threads(take, arrived, sum(len(each.body) for each in arrived))
    return [problem for problem in found if problem]


def sizes_at(bucket: OpenBucket, place: str) -> Procedure[dict[str, int]]:
    """The files at a place with their sizes. One LIST for each 999 keys."""
    return {each.key.removeprefix(place): each.size_bytes or 0 for each in (yield from all_items(bucket, place))}


def judge(arrived: Arrived) -> str | None:
    """Whether a file is the one that was signed, and nothing in it is dangerous to unpack."""
    return changed(arrived) or archives.problem_of(arrived.file.path, arrived.body)


def changed(arrived: Arrived) -> str | None:
    """Whether a file has the size and the digest that were signed."""
    file, body = arrived
    if len(body) != file.size_bytes or hashlib.sha256(body).hexdigest() != file.sha256:
        return f"{file.path!r} has other bytes than were signed"
    return None

"""Publishing: files first, the signed manifest last. One object is the commit, so an artifact is never half there.

A version that exists is never changed. Publishing the same bytes again is not an error: that completes what a publisher
that died has left, or finds it complete. Files are read once and hashed once. A store takes an object whole, so a file
must fit into memory; those below 32 MiB travel in batches of that size.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.artifacts import archives, envelope, manifest, memory, places
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.manifest import MANIFEST, File, Manifest
from bucketmq.apps.artifacts.refusals import listed
from bucketmq.apps.artifacts.verify import read_manifest, sizes_at
from bucketmq.bucket.port import OBJECT_BYTES_MAX
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import time_text
from bucketmq.procedures.objects.batches import Failed, in_batches
from bucketmq.procedures.objects.put import Put, put_many
from bucketmq.procedures.objects.read import fetch, read_object
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Call, Now, Procedure


class Source(msgspec.Struct, frozen=True):
    """A file on this machine that is to be published."""

    path: str
    """As it is called in the artifact."""
    local: Path
    size_bytes: int
    executable: bool = False


class Published(msgspec.Struct, frozen=True):
    """An artifact that exists."""

    manifest: Manifest
    digest: str
    new: bool
    """Whether this call made it; False if it was there already, with the same files."""


def sources_of(given: Sequence[Path]) -> list[Source]:
    """What to publish: files by their names, folders with everything below them. No links and no devices."""
    found: list[Source] = []
    for each in given:
        if each.is_symlink() or not each.exists():
            raise Invalid(f"{each} is {'a link' if each.is_symlink() else 'not there'}; name a file or a folder")
        if each.is_dir():
            found += _below(each, "")
        else:
            found.append(_source(each, each.name))
    return found


def _below(folder: Path, prefix: str) -> Iterator[Source]:
    for each in sorted(folder.iterdir()):
        if each.is_dir() and not each.is_symlink():
            yield from _below(each, f"{prefix}{each.name}/")
        else:
            yield _source(each, f"{prefix}{each.name}")


def _source(local: Path, path: str) -> Source:
    found = local.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise Invalid(f"{local} is a link or no plain file; an artifact holds files alone: copy what it leads to")
    if found.st_size > OBJECT_BYTES_MAX:
        raise Invalid(f"{local} has {found.st_size:,} bytes, {OBJECT_BYTES_MAX:,} are allowed; split it")
    return Source(manifest.check_path(path), local, found.st_size, bool(found.st_mode & stat.S_IXUSR))


class _Bytes(msgspec.Struct, frozen=True):
    """A file that was read."""

    file: File
    body: bytes
    problem: str | None


def read_sources(sources: Sequence[Source]) -> list[_Bytes]:
    """Read and hash files, each once; hashing on several threads."""
    bodies = []
    for each in sources:
        with _opened(each) as file:
            bodies.append(file.readall())
    return memory.on_threads(_hashed, list(zip(sources, bodies, strict=True)), sum(map(len, bodies)))


def _hashed(given: tuple[Source, bytes]) -> _Bytes:
    source, body = given
    found = File(source.path, len(body), hashlib.sha256(body).hexdigest(), source.executable)
    return _Bytes(found, body, archives.problem_of(source.path, body))


def _hash_source(source: Source) -> File:
    """Hash a file whose bytes are not needed, in small pieces."""
    with _opened(source) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return File(source.path, file.tell(), digest, source.executable)


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[io.FileIO]:
    try:
        fd = os.open(source.local, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with io.FileIO(fd, "rb") as file:
            yield file
    except OSError as error:
        raise Invalid(f"{source.local} cannot be read: {error.strerror}") from None


def publish(
    bus: BucketApi,
    name: str,
    version: str,
    sources: Sequence[Source],
    keys: tuple[SigningKey, ...],
    *,
    builder: str = "",
    commit: str = "",
    source: str = "",
    run: str = "",
) -> Procedure[Published]:
    """Write the files, then the manifest, signed by all of `keys`.

    One PUT for each file; for each 500 files or 32 MiB two PUTs and a DELETE; one LIST, and for the manifest three PUTs
    and a DELETE. A file that is there already is read and compared instead. `Invalid` if the version exists with other
    files, or if somebody left other files without a manifest there.
    """
    if not keys:
        envelope.seal(manifest.PAYLOAD_TYPE, b"", ())  # says what to do, before anything is written
    bucket = yield from bus.open()
    place = places.build(name, version)
    wanted = sorted(sources, key=lambda each: each.path)
    manifest.made(name, version, (File(each.path, 0, "0" * 64) for each in wanted), built_at="", builder="")
    there = yield from sizes_at(bucket, place)
    if MANIFEST in there:
        return (yield from _existing(bucket, place, name, version, wanted))
    names = {each.path for each in wanted}
    foreign = [path for path in there if path not in names]
    if foreign:
        raise Invalid(_left_behind(place, [f"{path!r} is not among the files to publish" for path in foreign]))
    memory.keep()
    files: list[File] = []
    for batch in in_batches(wanted, lambda each: each.size_bytes):
        files += yield from _write(bucket, place, batch, there)
    now = time_text((yield from Now()))
    made = manifest.made(
        name, version, files, built_at=now, builder=builder or "https://bucketmq.dev/artifacts/cli", commit=commit,
        source=source, run=run,
    )  # fmt: skip
    document = manifest.sealed(made, keys)
    wish = Put(f"{place}{MANIFEST}", envelope.encode(document), "application/json", only_new=True)
    (outcome,) = yield from put_many(bucket, [wish])
    if isinstance(outcome, Failed):
        if outcome.kind != Contended.kind:
            raise outcome.error
        return (yield from _same(bucket, place, name, version, tuple(files)))
    return Published(made, manifest.opened(document, wish.key).digest, new=True)


def _write(bucket: OpenBucket, place: str, batch: Sequence[Source], there: dict[str, int]) -> Procedure[list[File]]:
    """Write one batch of files; those that are there must be the same."""
    read: list[_Bytes] = yield from Call(read_sources, batch)
    bad = next((each.problem for each in read if each.problem), None)
    if bad is not None:
        raise Invalid(f"{place} cannot be published: {bad}")
    fresh = [each for each in read if each.file.path not in there]
    outcomes = yield from put_many(bucket, [Put(place + each.file.path, each.body, only_new=True) for each in fresh])
    doubtful = [each for each in read if each.file.path in there]
    for each, outcome in zip(fresh, outcomes, strict=True):
        if isinstance(outcome, Failed):
            if outcome.kind != Contended.kind:
                raise outcome.error
            doubtful.append(each)  # another publisher of this version was faster
    for each in doubtful:
        found = yield from fetch(bucket, place + each.file.path)
        if found.body != each.body:
            raise Invalid(_left_behind(place, [f"{each.file.path!r} is there with other bytes"]))
    return [each.file for each in read]


def _left_behind(place: str, problems: list[str]) -> str:
    return (
        f"files of an unfinished publish lie in {place}, of a publisher that died or still works: "
        f"{listed(problems)}. Publish under another version, or delete them if nobody is at it"
    )


def _existing(
    bucket: OpenBucket, place: str, name: str, version: str, wanted: Sequence[Source]
) -> Procedure[Published]:
    """The version exists: fine if it has these very files."""
    size = sum(each.size_bytes for each in wanted)
    files = yield from Call(lambda all_of_them: memory.on_threads(_hash_source, all_of_them, size), wanted)
    return (yield from _same(bucket, place, name, version, tuple(files)))


def _same(bucket: OpenBucket, place: str, name: str, version: str, files: tuple[File, ...]) -> Procedure[Published]:
    opened = yield from read_manifest(bucket, place, name, version)
    if opened.manifest.files != files:
        raise Invalid(
            f"{name} {version} exists since {opened.manifest.built_at} with other files, and versions never change; "
            "publish under another version"
        )
    return Published(opened.manifest, opened.digest, new=False)


def sign(bus: BucketApi, name: str, version: str, key: SigningKey) -> Procedure[bool]:
    """Add a signature to a manifest, where more than one must sign; False if it is there. A GET and three PUTs.

    What is signed does not change, and neither does the digest.
    """
    bucket = yield from bus.open()
    place = places.build(name, version)
    at = f"{place}{MANIFEST}"
    while True:
        opened = yield from read_manifest(bucket, place, name, version)
        signed = envelope.countersign(opened.envelope, key)
        if signed == opened.envelope:
            return False
        found = yield from read_object(bucket, at)
        before = envelope.read(manifest.ManifestDocument, found.body, at)
        if before.envelope != opened.envelope:
            continue  # somebody signed in between
        body = envelope.encode(msgspec.structs.replace(before, envelope=signed))
        wish = Put(at, body, "application/json", if_version=found.version)
        (outcome,) = yield from put_many(bucket, [wish])
        if not isinstance(outcome, Failed):
            return True
        if outcome.kind not in (Contended.kind, NotFound.kind):
            raise outcome.error

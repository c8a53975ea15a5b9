"""Manifests: which files an artifact has, with their digests, and the signed statement that says so. Pure.

`builds/{name}/{version}/manifest.json` is written last, so an artifact is there whole or not at all. It holds the
manifest for people and programs, and an envelope whose payload is an in-toto statement with SLSA provenance v1. The
statement is the truth: `opened` makes the manifest out of it and refuses a document whose readable part differs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any
from unicodedata import normalize

import msgspec

from bucketmq.apps.artifacts import envelope as dsse
from bucketmq.apps.artifacts.envelope import Envelope, SigningKey
from bucketmq.apps.artifacts.refusals import Untrusted, listed
from bucketmq.bucket.port import check_key
from bucketmq.errors import Invalid

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://bucketmq.dev/artifacts/build/v1"

MANIFEST = "manifest.json"
FILES_MAX = 100_000
PATH_BYTES_MAX = 500
TEXT_CHARS_MAX = 1_000

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}\Z")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of an artifact."""

    path: str
    size_bytes: int
    sha256: str
    executable: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """What an artifact is: what the statement says, in the words of this project."""

    name: str
    version: str
    files: tuple[File, ...]
    """In the order of their paths."""
    built_at: str
    builder: str
    """Who built it: a URI, as SLSA wants it."""
    commit: str = ""
    source: str = ""
    """Where the commit is: a URI."""
    run: str = ""
    """The run of the builder that made it."""

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)


class ManifestDocument(msgspec.Struct, frozen=True):
    """`manifest.json`."""

    manifest: Manifest
    envelope: Envelope
    format: int = 1


class Opened(msgspec.Struct, frozen=True):
    """A manifest that agrees with its statement. Who signed it is another question: `keys`."""

    manifest: Manifest
    envelope: Envelope
    digest: str
    """SHA-256 of the statement: names the artifact's content wherever it lies, however many sign it."""


class _Resource(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    uri: str = ""
    digest: dict[str, str] = {}
    annotations: dict[str, Any] = {}


class _BuildDefinition(msgspec.Struct, frozen=True, rename="camel"):
    build_type: str
    external_parameters: dict[str, str]
    resolved_dependencies: tuple[_Resource, ...] = ()


class _Builder(msgspec.Struct, frozen=True):
    id: str


class _Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    finished_on: str
    invocation_id: str = ""


class _RunDetails(msgspec.Struct, frozen=True):
    builder: _Builder
    metadata: _Metadata


class _Provenance(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: _BuildDefinition
    run_details: _RunDetails


class _Statement(msgspec.Struct, frozen=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    type: str
    subject: tuple[_Resource, ...]
    predicate_type: str
    predicate: _Provenance


def check_name(name: str) -> str:
    """The name of an artifact or an environment."""
    if not _NAME.match(name) or name.endswith(".json"):
        raise Invalid(f"{name[:120]!r} cannot be a name; use a-z, 0-9 and . _ -, up to 100, not ending in .json")
    return name


def check_version(version: str) -> str:
    if not _VERSION.match(version):
        raise Invalid(f"{version[:120]!r} cannot be a version; use letters, digits and . _ + -, up to 100")
    return version


def check_path(path: str) -> str:
    """Raise `Invalid` unless a file may lie there, on every store and in every folder."""
    try:
        check_key(path)
    except Invalid as error:
        raise Invalid(f"{path[:120]!r} cannot be the path of a file: {error}") from None
    if len(path.encode()) > PATH_BYTES_MAX:
        raise Invalid(f"the path {path[:80]!r}... has more than {PATH_BYTES_MAX} bytes; use a shorter one")
    if not path.isprintable():
        raise Invalid(f"the path {path[:80]!r} has characters that cannot be seen; use another name")
    if path.lower() == MANIFEST:
        raise Invalid(f"{path!r} is the name of the manifest itself; give the file another name")
    return path


def made(name: str, version: str, files: Iterable[File], **about: str) -> Manifest:
    """A manifest in its normal form, or `Invalid`."""
    ordered = tuple(sorted(files, key=lambda each: each.path))
    manifest = Manifest(check_name(name), check_version(version), ordered, **about)
    problems = _faults(manifest)
    if problems:
        raise Invalid(f"{name} {version} cannot be published: {listed(problems)}")
    return manifest


def _faults(manifest: Manifest) -> list[str]:
    """What is wrong with the files of a manifest by itself."""
    problems: list[str] = []
    if not manifest.files:
        problems.append("it has no files; name at least one")
    if len(manifest.files) > FILES_MAX:
        problems.append(f"it has {len(manifest.files):,} files, {FILES_MAX:,} are allowed; pack them into archives")
    seen: dict[str, str] = {}
    for each in manifest.files:
        try:
            check_path(each.path)
        except Invalid as error:
            problems.append(str(error))
        if not _SHA256.match(each.sha256) or each.size_bytes < 0:
            problems.append(f"{each.path!r} has no SHA-256 digest and size")
        folded = normalize("NFC", normalize("NFC", each.path).casefold())
        if folded in seen:
            problems.append(f"{seen[folded]!r} and {each.path!r} are one file where case or accents do not count")
        seen[folded] = each.path
    for path in seen:
        above = path.rpartition("/")[0]
        while above:
            if above in seen:
                problems.append(f"{seen[above]!r} is a file and a folder")
            above = above.rpartition("/")[0]
    for what in ("built_at", "builder", "commit", "source", "run"):
        text = getattr(manifest, what)
        if len(text) > TEXT_CHARS_MAX or not text.isprintable():
            problems.append(f"{what} must be printable text of up to {TEXT_CHARS_MAX} characters")
    return problems


def sealed(manifest: Manifest, keys: tuple[SigningKey, ...]) -> ManifestDocument:
    """The document of `manifest.json`, signed."""
    return ManifestDocument(manifest, dsse.seal(PAYLOAD_TYPE, msgspec.json.encode(_statement_of(manifest)), keys))


def opened(document: ManifestDocument, what: str) -> Opened:
    """What the statement says, or `Untrusted` if it is not one, or the readable part says something else."""
    if document.envelope.payload_type != PAYLOAD_TYPE:
        raise Untrusted(
            f"{what} holds {document.envelope.payload_type[:80]!r}, not an in-toto statement; do not use it"
        )
    payload = document.envelope.body
    statement = dsse.read(_Statement, payload, f"the statement of {what}")
    manifest = _manifest_of(statement, what)
    if manifest != document.manifest:
        raise Untrusted(f"the readable part of {what} says something else than what was signed; do not use it")
    return Opened(manifest, document.envelope, hashlib.sha256(payload).hexdigest())


def _statement_of(manifest: Manifest) -> _Statement:
    sources: tuple[_Resource, ...] = ()
    if manifest.commit or manifest.source:
        digest = {"gitCommit": manifest.commit} if manifest.commit else {}
        sources = (_Resource(uri=manifest.source, digest=digest),)
    return _Statement(
        STATEMENT_TYPE,
        tuple(
            _Resource(name=each.path, digest={"sha256": each.sha256}, annotations=_annotations(each))
            for each in manifest.files
        ),
        PREDICATE_TYPE,
        _Provenance(
            _BuildDefinition(BUILD_TYPE, {"name": manifest.name, "version": manifest.version}, sources),
            _RunDetails(_Builder(manifest.builder), _Metadata(manifest.built_at, manifest.run)),
        ),
    )


def _annotations(file: File) -> dict[str, Any]:
    return {"sizeBytes": file.size_bytes} | ({"executable": True} if file.executable else {})


def _manifest_of(statement: _Statement, what: str) -> Manifest:
    """The other way round. Every subject needs a digest of its content: a name alone vouches for nothing."""
    if statement.type != STATEMENT_TYPE or statement.predicate_type != PREDICATE_TYPE:
        raise Untrusted(f"{what} is signed, but not as SLSA provenance v1; do not use it")
    definition, details = statement.predicate.build_definition, statement.predicate.run_details
    if definition.build_type != BUILD_TYPE:
        raise Untrusted(f"{what} is of the build type {definition.build_type[:80]!r}, which this release does not know")
    files = []
    for each in statement.subject:
        size = each.annotations.get("sizeBytes")
        if "sha256" not in each.digest or not isinstance(size, int):
            raise Untrusted(f"{what} vouches for {each.name[:120]!r} but not for its content; do not use it")
        files.append(File(each.name, size, each.digest["sha256"], each.annotations.get("executable") is True))
    source = definition.resolved_dependencies[0] if definition.resolved_dependencies else _Resource()
    wanted = definition.external_parameters
    try:
        manifest = Manifest(
            check_name(wanted.get("name", "")),
            check_version(wanted.get("version", "")),
            tuple(files),
            details.metadata.finished_on,
            details.builder.id,
            source.digest.get("gitCommit", ""),
            source.uri,
            details.metadata.invocation_id,
        )
    except Invalid as error:
        raise Untrusted(f"{what}: {error}; do not use it") from None
    problems = _faults(manifest)
    if problems:
        raise Untrusted(f"{what} is not a manifest: {listed(problems)}; do not use it")
    return manifest


class Difference(msgspec.Struct, frozen=True):
    """What changed from one manifest to another."""

    added: tuple[File, ...]
    removed: tuple[File, ...]
    changed: tuple[tuple[File, File], ...]
    same: int
    fields: dict[str, tuple[str, str]]
    """Commit, builder and the like, where they differ: before and after."""


def difference(before: Manifest, after: Manifest) -> Difference:
    old, new = ({each.path: each for each in one.files} for one in (before, after))
    both = [(old[path], new[path]) for path in old if path in new]
    changed = tuple((one, other) for one, other in both if one.sha256 != other.sha256)
    fields = {
        what: (getattr(before, what), getattr(after, what))
        for what in ("version", "commit", "source", "builder", "run", "built_at")
        if getattr(before, what) != getattr(after, what)
    }
    return Difference(
        tuple(each for path, each in new.items() if path not in old),
        tuple(each for path, each in old.items() if path not in new),
        changed,
        len(both) - len(changed),
        fields,
    )

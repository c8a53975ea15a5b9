"""Manifests, statements and envelopes: what is signed, how it is read back, and what is no manifest."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.artifacts.making import ADA, BEN, MALLORY
from bucketmq.apps.artifacts import envelope, manifest
from bucketmq.apps.artifacts.manifest import File, Manifest
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.errors import Invalid

DIGEST = "ab" * 32
text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
path = st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=3).map("/".join)


def a_manifest(*paths: str, **about: str) -> Manifest:
    about = {"built_at": "2026-11-18T00:00:00Z", "builder": "https://ci.example"} | about
    return manifest.made("shop", "1.0", [File(each, 3, DIGEST) for each in paths], **about)


def test_what_is_signed_is_length_prefixed_as_dsse_has_it() -> None:
    signed = envelope.pae("http://example.com/HelloWorld", b"hello world")
    assert signed == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_the_statement_is_in_toto_with_slsa_provenance() -> None:
    document = manifest.sealed(a_manifest("a.txt", commit="c0ffee", source="git+https://git.example/shop"), (ADA,))
    assert document.envelope.payload_type == "application/vnd.in-toto+json"
    statement = msgspec.json.decode(base64.b64decode(document.envelope.payload))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": "a.txt", "digest": {"sha256": DIGEST}, "annotations": {"sizeBytes": 3}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"name": "shop", "version": "1.0"}
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "c0ffee"}
    assert statement["predicate"]["runDetails"]["builder"] == {"id": "https://ci.example"}


@given(paths=st.sets(path, min_size=1, max_size=6), commit=text, source=text, run=text, builder=text)
def test_every_manifest_comes_back_from_its_statement(
    paths: set[str], commit: str, source: str, run: str, builder: str
) -> None:
    try:
        made = a_manifest(*paths, commit=commit, source=source, run=run, builder=builder)
    except Invalid as error:
        assert "a file and a folder" in str(error)
        return
    body = envelope.encode(manifest.sealed(made, (ADA,)))
    opened = manifest.opened(envelope.read(manifest.ManifestDocument, body, "it"), "it")
    assert opened.manifest == made
    assert envelope.is_signed_by(opened.envelope, ADA.public)
    assert not envelope.is_signed_by(opened.envelope, MALLORY.public)


def test_a_second_signature_changes_neither_the_digest_nor_the_first() -> None:
    document = manifest.sealed(a_manifest("a"), (ADA,))
    before = manifest.opened(document, "it")
    signed = envelope.countersign(document.envelope, BEN)
    assert envelope.countersign(signed, BEN) == signed
    after = manifest.opened(msgspec.structs.replace(document, envelope=signed), "it")
    assert after.digest == before.digest
    assert envelope.is_signed_by(after.envelope, ADA.public) and envelope.is_signed_by(after.envelope, BEN.public)


@pytest.mark.parametrize(
    "bad",
    [
        *("../up", "/etc/passwd", "a/../b", "a\\b", "a//b", "", "nul\x00", "manifest.json", "MANIFEST.json", "x" * 600),
        *("app\u202egnp.exe", "a\u200bb", "line\u2028s", "\ud800"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(bad: str) -> None:
    with pytest.raises(Invalid):
        manifest.check_path(bad)


@pytest.mark.parametrize(
    "paths",
    [("a", "A"), ("a", "a/b"), ("x/Y/z", "x/y"), ("\u00e9", "e\u0301"), ("\u00c9/a", "e\u0301"), ("ß", "SS"), ()],
)
def test_files_that_cannot_lie_side_by_side_everywhere_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(Invalid):
        a_manifest(*paths)


@pytest.mark.parametrize("bad", ["Shop", "", "../shop", "a/b", ".hidden", "shop.json", "x" * 101])
def test_a_name_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(Invalid):
        manifest.check_name(bad)


def test_a_readable_part_that_differs_from_what_was_signed_is_refused() -> None:
    document = manifest.sealed(a_manifest("a"), (ADA,))
    other = msgspec.structs.replace(document, manifest=a_manifest("a", "b"))
    with pytest.raises(Untrusted, match="something else than what was signed"):
        manifest.opened(other, "it")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"manifest":1}', b"[" * 5000])
def test_bytes_that_are_no_manifest_are_refused_and_not_obeyed(body: bytes) -> None:
    with pytest.raises(Untrusted, match="cannot be read"):
        envelope.read(manifest.ManifestDocument, body, "it")


def twice(body: bytes, field: bytes, value: bytes) -> bytes:
    """A document with another value of a field before the right one."""
    assert field in body
    return body.replace(field, field + value + b"," + field, 1)


def test_a_field_that_is_there_twice_is_refused_in_what_is_signed_and_around_it() -> None:
    document = envelope.encode(manifest.sealed(a_manifest("a"), (ADA,)))
    for field, value in (
        (b'"commit":', b'"0"'),
        (b'"payload":', b'""'),
        (b'"version":', b'"9.9"'),
        (b'"path":', b'"b"'),
    ):
        with pytest.raises(Untrusted, match="there twice"):
            envelope.read(manifest.ManifestDocument, twice(document, field, value), "it")
    payload = twice(manifest.sealed(a_manifest("a"), (ADA,)).envelope.body, b'"sha256":', b'"00"')
    signed = envelope.seal(manifest.PAYLOAD_TYPE, payload, (ADA,))
    with pytest.raises(Untrusted, match="there twice"):
        manifest.opened(manifest.ManifestDocument(a_manifest("a"), signed), "it")


def test_a_manifest_that_another_program_wrote_in_other_words_is_the_same() -> None:
    document = envelope.encode(manifest.sealed(a_manifest("a"), (ADA,)))
    spaced = msgspec.json.format(document, indent=2)
    assert envelope.read(manifest.ManifestDocument, spaced, "it") == envelope.read(
        manifest.ManifestDocument, document, "it"
    )


def test_a_difference_names_what_was_added_removed_and_changed() -> None:
    before, after = a_manifest("a", "b", "c", commit="1"), a_manifest("b", "c", "d", commit="2")
    files = tuple(msgspec.structs.replace(each, sha256="cd" * 32) if each.path == "c" else each for each in after.files)
    found = manifest.difference(before, msgspec.structs.replace(after, files=files))
    assert [each.path for each in found.added] == ["d"]
    assert [each.path for each in found.removed] == ["a"]
    assert [one.path for one, _ in found.changed] == ["c"]
    assert found.same == 1
    assert found.fields == {"commit": ("1", "2")}

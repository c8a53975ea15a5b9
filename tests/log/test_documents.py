"""The small JSON documents: written and read back, refused when spoiled, told apart from those of another format."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketmq.errors import Corrupt
from bucketmq.log import documents
from bucketmq.log.documents import SPLIT_FORMAT, Dedup, DedupEntry, FailureLine, Group, Hint, Later, Trim
from bucketmq.queue.head import Head, Held, Lease, Span, Waiting
from bucketmq.queue.settings import FORMAT, Settings
from bucketmq.testing import strategies

offsets = st.integers(0, 2**63 - 1)
trims = st.builds(Trim, low=offsets)
hints = st.builds(Hint, base=offsets)
dedups = st.builds(
    Dedup,
    version=st.integers(0, 10**9),
    sent=st.dictionaries(
        st.text(),
        st.builds(DedupEntry, id=strategies.ids(), at=strategies.times(), shard=st.integers(0, 1023), base=offsets),
        max_size=3,
    ),
) | st.builds(Dedup, format=st.just(SPLIT_FORMAT), split=st.booleans())
laters = st.builds(
    Later,
    version=st.integers(0, 10**9),
    groups=st.lists(
        st.builds(
            Group,
            names=st.lists(st.text(), max_size=3).map(tuple),
            targets=st.lists(strategies.targets(), max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    finished=st.dictionaries(st.text(), strategies.times(), max_size=3),
)
failure_lines = st.lists(
    st.builds(FailureLine, shard=st.integers(0, 1023), offset=offsets, failure=strategies.failures()), max_size=4
)
everything = st.one_of(strategies.heads(), strategies.settings(), trims, hints, dedups, laters)

KINDS = [Head, Settings, Trim, Hint, Dedup, Later]
SMALLEST = [Head(0, 0), Settings(), Trim(0), Hint(0), Dedup(), Later()]


@given(everything)
def test_documents_come_back_as_they_were_written(document):
    assert documents.decode(type(document), documents.encode(document), "it") == document


@given(strategies.heads())
def test_heads_come_back_as_they_were_written(head):
    assert documents.decode_head(documents.encode(head), "it") == head


@given(strategies.settings())
def test_settings_come_back_as_they_were_written(settings):
    assert documents.decode_settings(documents.encode(settings), "it") == settings


@given(failure_lines)
def test_failure_records_come_back_as_they_were_written(lines):
    body = documents.encode_failures(lines)

    assert documents.decode_failures(body, "it") == lines
    assert body.count(b"\n") == len(lines)


@given(everything)
def test_a_document_is_one_line_of_plain_json_that_names_its_format(document):
    body = documents.encode(document)

    assert body.endswith(b"\n")
    assert body.count(b"\n") == 1
    assert json.loads(body)["format"] == document.format


@pytest.mark.parametrize("document", SMALLEST)
def test_a_document_of_another_format_says_to_upgrade(document):
    unknown = (SPLIT_FORMAT if isinstance(document, Dedup) else FORMAT) + 1
    newer = msgspec.structs.replace(document, format=unknown)

    with pytest.raises(Corrupt, match=rf"a/key has format {unknown}.*upgrade bucketmq"):
        documents.decode(type(document), documents.encode(newer), "a/key")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b'{"format":3}', b'{"format":3,"next":{"a":[]},"low":"x","version":"v7"}'])
def test_a_document_of_another_format_says_to_upgrade_however_different_it_looks(kind, body):
    with pytest.raises(Corrupt, match="upgrade bucketmq"):
        documents.decode(kind, body, "it")


@pytest.mark.parametrize("document", SMALLEST)
def test_fields_that_a_later_release_adds_are_passed_over(document):
    body = documents.encode(document).replace(b"{", b'{"added":{"a":[1,null]},', 1)

    assert documents.decode(type(document), body, "it") == document


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body", [b"", b"\n", b"null", b"[]", b'"x"', b"{", b"\xff", b'{"format":null}', b"{}{}", b"\0"]
)
def test_what_is_no_such_document_is_corrupt_and_named(kind, body):
    with pytest.raises(Corrupt, match=rf"a/key cannot be read as {kind.__name__}"):
        documents.decode(kind, body, "a/key")


@pytest.mark.parametrize(
    "head",
    [
        Head(3, 4),
        Head(3, 0, waiting=(Waiting(Span(0, 0, 2)), Waiting(Span(0, 1, 3)))),
        Head(3, 0, leases=(Lease(1, "w", 0.0, (Held(Span(0, 0, 1)),)),)),
    ],
)
def test_a_head_that_breaks_a_rule_is_corrupt_and_named(head):
    with pytest.raises(Corrupt, match="a/key: head"):
        documents.decode_head(documents.encode(head), "a/key")


@pytest.mark.parametrize("bad", [Settings(shards=0), Settings(attempts_max=0), Settings(in_flight_max=-1)])
def test_settings_that_cannot_work_are_corrupt_and_named(bad):
    with pytest.raises(Corrupt, match="a/key: "):
        documents.decode_settings(documents.encode(bad), "a/key")


def readers():
    for kind in KINDS:
        yield lambda body, kind=kind: documents.decode(kind, body, "it")
    yield lambda body: documents.decode_head(body, "it")
    yield lambda body: documents.decode_settings(body, "it")
    yield lambda body: documents.decode_failures(body, "it")


deep = b"[" * 100_000 + b"]" * 100_000
bodies = (
    st.binary()
    | strategies.spoiled(everything.map(documents.encode))
    | strategies.spoiled(failure_lines.map(documents.encode_failures))
)


@given(bodies)
@example(deep)
@example(b'{"next":0,"segment":0,"leases":' + deep + b"}")
@example(b'{"next":0,"segment":0,"added":' + deep + b"}")
@example(b'{"added":' * 100_000 + b"1" + b"}" * 100_000)
@example(b'{"low":' + b"9" * 5000 + b"}")
def test_any_bytes_are_a_document_or_corrupt_and_nothing_else(body):
    for read in readers():
        with contextlib.suppress(Corrupt):
            read(body)


@given(strategies.spoiled(strategies.heads().map(documents.encode)))
def test_a_head_read_from_spoiled_bytes_keeps_the_rules_and_can_be_written_again(body):
    try:
        head = documents.decode_head(body, "it")
    except Corrupt:
        return
    assert documents.decode_head(documents.encode(head), "it") == head
    assert head.done_below <= head.next
    assert head.needs_from <= head.segment


@pytest.mark.parametrize(
    "body", [b"{}\n", b'{"shard":0,"offset":1}\n', b"x\n", b'{"shard":0,"offset":"1","failure":{}}\n']
)
def test_what_is_no_failure_record_is_corrupt_and_named(body):
    with pytest.raises(Corrupt, match="a/key is not a failure record"):
        documents.decode_failures(body, "a/key")

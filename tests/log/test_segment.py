"""Segments: what is written is read back, readable without us, and nothing spoiled is taken for messages."""

from __future__ import annotations

import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketmq.errors import Corrupt, Invalid
from bucketmq.log import segment
from bucketmq.log.bodies import DEPTH_MAX, decode_body, encode_body, from_base64, to_base64
from bucketmq.log.segment import Part, Parts, Segment
from bucketmq.queue.message import Message
from bucketmq.testing import strategies

AT = "2026-11-15T12:00:00.000Z"
LINE = b'{"id":"a","at":"2026-11-15T12:00:00.000Z","body":1}\n'

batches = st.lists(strategies.messages(), min_size=1, max_size=6)
parts = st.builds(Part, key=st.text(min_size=1), count=st.integers(1, 10**9), size_bytes=st.integers(0, 10**12))
seconds = st.integers(0, 253_402_300_799_999).map(lambda milliseconds: milliseconds / 1000)


@given(batches, st.integers(0, 10**18))
def test_messages_come_back_as_they_were_written(messages, base):
    found = Segment(base, segment.encode(messages))

    assert (found.base, found.count, found.end) == (base, len(messages), base + len(messages))
    assert found.messages(base, found.end) == messages
    assert found.first_line() == messages[0]
    assert found.parts == ()


@given(batches, st.data())
def test_a_slice_is_the_same_whether_or_not_the_whole_was_decoded_before(messages, data):
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    body = segment.encode(messages)
    cold, warm = Segment(100, body), Segment(100, body)
    warm.messages(100, 100 + len(messages))

    assert cold.messages(100 + start, 100 + stop) == messages[start:stop]
    assert warm.messages(100 + start, 100 + stop) == messages[start:stop]


@given(batches)
def test_every_line_is_plain_json_that_needs_no_library_of_ours(messages):
    lines = segment.encode(messages).decode().split("\n")

    assert lines.pop() == ""
    for line, message in zip(lines, messages, strict=True):
        plain = json.loads(line)
        assert (plain["id"], plain["at"]) == (message.id, message.at)
        assert plain.get("key") == message.key
        assert plain.get("headers") == message.headers


@given(batches, batches)
def test_segments_put_end_to_end_are_one_segment(some, others):
    joined = Segment(0, segment.encode(some) + segment.encode(others))

    assert joined.messages(0, joined.end) == some + others


@given(strategies.json_values())
def test_any_json_body_comes_back_equal_and_of_the_same_type(body):
    (found,) = segment.decode_lines(segment.encode([Message("a", AT, body=body)]), "it")

    assert found.body == body
    assert type(found.body) is type(body)
    assert decode_body(encode_body(body), "it") == body


@given(st.binary())
def test_bytes_come_back_through_base64(data):
    (found,) = segment.decode_lines(segment.encode([Message("a", AT, body_base64=to_base64(data))]), "it")

    assert from_base64(found.body_base64, "it") == data


def test_a_null_body_and_no_body_are_different():
    null, absent = Message("a", AT, body=None), Message("a", AT)

    assert segment.encode([null]) == b'{"id":"a","at":"2026-11-15T12:00:00.000Z","body":null}\n'
    assert segment.encode([absent]) == b'{"id":"a","at":"2026-11-15T12:00:00.000Z"}\n'
    assert segment.decode_lines(segment.encode([null, absent]), "it") == [null, absent]


@pytest.mark.parametrize("body", ["\n", "a\r\nb", "\u2028\u2029\x85", "\0", '"', "\\", "🐝", "\x1f\x7f"])
def test_no_text_breaks_a_line_in_two(body):
    found = Segment(0, segment.encode([Message("a", AT, body=body), Message(body, AT, key=body)]))

    assert found.count == 2
    assert [message.body for message in found.messages(0, 1)] == [body]
    assert found.messages(1, 2)[0].key == body


@given(batches, st.integers(0, 5))
def test_a_segment_is_for_all_unless_it_is_a_fence_or_a_line_is_for_one_subscription(messages, place):
    plain = [msgspec.structs.replace(each, to=None, fence=None) for each in messages]
    place %= len(plain)
    one = [*plain[:place], msgspec.structs.replace(plain[place], to="audit"), *plain[place + 1 :]]
    fence = msgspec.structs.replace(plain[0], fence=4)

    assert Segment(0, segment.encode(plain)).is_for_all
    assert not Segment(0, segment.encode(one)).is_for_all
    assert not Segment(0, segment.encode([fence])).is_for_all
    assert Segment(0, segment.encode([fence])).fence == 4
    assert Segment(0, segment.encode(one)).fence is None


def test_a_body_that_mentions_to_and_fence_is_for_all():
    found = Segment(0, segment.encode([Message("a", AT, body={"to": "rosa", "fence": 7})]))

    assert found.is_for_all
    assert found.fence is None


def test_the_first_message_is_read_without_the_others():
    found = Segment(0, LINE + b"spoiled\n")

    assert found.first_line() == Message("a", AT, body=1)
    assert found.messages(0, 1) == [Message("a", AT, body=1)]


@given(st.lists(parts, min_size=1, max_size=5), strategies.ids(), st.integers(0, 10**15))
def test_a_segment_of_parts_counts_the_messages_of_its_parts(listed, name, base):
    found = Segment(base, segment.encode_parts(name, listed))

    assert found.parts == tuple(listed)
    assert found.end == base + sum(part.count for part in listed)
    assert found.first_line() == Parts(tuple(listed), name)


@pytest.mark.parametrize(
    "listed", ["", '{"key":"k","count":0,"size_bytes":1}', '{"key":"k","count":-3,"size_bytes":1}',
               '{"key":"k","count":5,"size_bytes":1},{"key":"l","count":0,"size_bytes":0}'],
)  # fmt: skip
def test_a_segment_of_parts_without_messages_is_corrupt_because_the_log_could_not_go_on_behind_it(listed):
    with pytest.raises(Corrupt, match="segment 7"):
        Segment(7, b'{"parts":[%s],"id":"p"}\n' % listed.encode())


@pytest.mark.parametrize("body", [b"", LINE[:-1], LINE + LINE[:20], b'{"parts":[],"id":"p"}'])
def test_a_segment_that_is_cut_off_is_corrupt(body):
    with pytest.raises(Corrupt, match=r"segment 7 .*restore"):
        Segment(7, body)


@pytest.mark.parametrize(
    "body",
    [
        LINE + b"\n" + LINE,  # an empty line
        LINE[:-1] + LINE,  # two messages in one line
        LINE.replace(b",", b",\n", 1),  # one message in two lines
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"id":1,"at":"x"}\n',
        b'{"id":"a"}\n',
        b'{"id":"\xff","at":"x"}\n',
        b'{"id":"\\ud800","at":"x"}\n',
        b'\xef\xbb\xbf{"id":"a","at":"x"}\n',
        LINE + LINE.replace(b"1}", b"}"),
    ],
)
def test_a_segment_whose_lines_are_not_one_message_each_is_corrupt(body):
    found = Segment(7, body)

    with pytest.raises(Corrupt, match=r"segment 7|offset"):
        found.messages(7, found.end)
    with pytest.raises(Corrupt):
        found.first_line()
        Segment(7, body + LINE).messages(7, found.end)  # a slice, which is decoded line by line


def read_all(body: bytes) -> None:
    found = Segment(0, body)
    found.first_line()
    if not found.parts:
        assert len(found.messages(0, found.end)) == found.count
        assert [message for at in range(found.count) for message in found.messages(at, at + 1)]


deep = b"[" * 100_000 + b"]" * 100_000
bodies = (
    st.binary()
    | st.binary().map(lambda data: data + b"\n")
    | strategies.spoiled(batches.map(segment.encode))
    | strategies.spoiled(st.builds(segment.encode_parts, strategies.ids(), st.lists(parts, min_size=1, max_size=3)))
)


@given(bodies)
@example(b'{"id":"a","at":"x","body":' + deep + b"}\n")
@example(b'{"id":"a","at":"x","other":' + deep + b"}\n")
@example(b'{"parts":' + deep + b"}\n")
@example(deep + b"\n")
@example(b'{"id":"a","at":"x","body":' + b"9" * 5000 + b"}\n")
@example(b'{"id":"a","at":"x","body":1e999}\n')
@example(b'"\xff"')
@example(b'{"id":"\xff","at":"x"}\n' * 2)
def test_any_bytes_are_a_segment_or_corrupt_and_nothing_else(body):
    for read in (read_all, lambda data: segment.decode_lines(data, "it"), lambda data: decode_body(data, "it")):
        with contextlib.suppress(Corrupt):
            read(body)


@given(strategies.spoiled(batches.map(segment.encode)))
def test_what_is_read_from_spoiled_bytes_can_be_written_and_read_again(body):
    try:
        found = segment.decode_lines(body, "it")
    except Corrupt:
        return
    assert segment.decode_lines(segment.encode(found), "it") == found


cycle: list[object] = []
cycle.append(cycle)


@pytest.mark.parametrize("body", [object(), {(1, 2): 3}, "\ud800", {"\ud800": 1}, ["a", "\udfff"], 1j, cycle])
def test_a_body_that_json_cannot_hold_is_invalid(body):
    with pytest.raises(Invalid, match="JSON"):
        segment.encode([Message("a", AT, body=body)])
    with pytest.raises(Invalid, match="JSON"):
        encode_body(body)


def nested(depth: int) -> object:
    value: object = "x"
    for level in range(depth):
        value = [value, level] if level % 2 else {"k": value}
    return value


def test_a_body_may_nest_as_deep_as_the_limit_and_no_deeper():
    assert encode_body(nested(DEPTH_MAX))
    assert segment.encode([Message("a", AT, body=nested(DEPTH_MAX))])
    with pytest.raises(Invalid, match="nested deeper"):
        encode_body(nested(DEPTH_MAX + 1))
    with pytest.raises(Invalid, match="nested deeper"):
        segment.encode([Message("a", AT), Message("b", AT, body=nested(DEPTH_MAX + 1)), Message("c", AT)])


def test_a_body_may_be_as_wide_as_it_likes_and_hold_brackets_as_text():
    wide = [{"k": [["\\", '"', '\\"[', "[" * 300, {"[": "]]]"}]]}] * 300

    assert decode_body(encode_body(wide), "it") == wide


@given(strategies.json_values(max_leaves=60), st.integers(0, 6))
def test_the_depth_of_a_body_is_measured_right(body, limit):
    def depth(value: object) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    wrapped: object = [[[]] * DEPTH_MAX, body]  # enough brackets that the depth is measured at all
    for _ in range(DEPTH_MAX - limit):
        wrapped = [wrapped]
    if depth(wrapped) > DEPTH_MAX:
        with pytest.raises(Invalid, match="nested deeper"):
            encode_body(wrapped)
    else:
        assert encode_body(wrapped)


def test_the_deepest_body_can_be_read_from_deep_within_a_program():
    line = segment.encode([Message("a", AT, body=nested(DEPTH_MAX))])

    def deeper(levels: int) -> list[Message]:
        return deeper(levels - 1) if levels else segment.decode_lines(line, "it")

    assert deeper(500)[0].body == nested(DEPTH_MAX)


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=8), st.integers(1, 12))
def test_a_long_line_is_found_wherever_it_is(lines, size_bytes):
    assert segment.has_long_line(b"\n".join(lines), size_bytes) == any(len(line) > size_bytes for line in lines)


@given(seconds)
def test_times_come_back_to_the_millisecond(moment):
    assert segment.time_seconds(segment.time_text(moment)) == pytest.approx(moment, abs=0.00101)


@given(seconds, seconds)
def test_times_as_text_sort_as_times(one, other):
    if one + 0.002 < other:
        assert segment.time_text(one) < segment.time_text(other)


def test_a_time_is_written_as_rfc_3339_in_utc_with_milliseconds():
    assert segment.time_text(0) == "1970-01-01T00:00:00.000Z"
    assert segment.time_text(1_763_208_000.25) == "2025-11-15T12:00:00.250Z"
    assert segment.time_seconds("2025-11-15T13:00:00.250+01:00") == 1_763_208_000.25


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2025-11-15", "2025-11-15T12:00:00", "2025-13-01T00:00:00Z", "\ud800"]
)
def test_a_time_that_is_not_rfc_3339_is_corrupt(text):
    # Without an offset from UTC it would mean something else on every machine.
    with pytest.raises(Corrupt):
        segment.time_seconds(text)


@given(st.text())
def test_any_text_is_a_time_or_corrupt_and_nothing_else(text):
    with contextlib.suppress(Corrupt):
        assert math.isfinite(segment.time_seconds(text))


@given(st.text() | strategies.spoiled(st.binary().map(to_base64).map(str.encode)).map(lambda b: b.decode("latin1")))
def test_any_text_is_base64_or_corrupt_and_nothing_else(text):
    with contextlib.suppress(Corrupt):
        assert isinstance(from_base64(text, "it"), bytes)


@pytest.mark.parametrize("text", ["a", "é", "QQ", "QQ==\n", "Q Q=", "QQ==QQ=="])
def test_what_is_not_base64_is_corrupt(text):
    with pytest.raises(Corrupt, match="base64"):
        from_base64(text, "it")

"""Reading objects: every format, and whatever people call a log."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.apps.logs.parse import Line, TooLarge, read
from bucketmq.apps.logs.parse.lines import TEXT_CHARS_MAX, level_of, time_of
from bucketmq.apps.logs.parse.read import DAMAGED

AT = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
MAX = 1 << 20


def lines(content: str | bytes, **options: str) -> list[Line]:
    data = content.encode() if isinstance(content, str) else content
    return list(read(data, at=AT, bytes_max=MAX, **options))


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


JSON = '{"time":"2026-11-18T01:02:03Z","level":"ERROR","msg":"it broke","request_id":"r1"}'


def test_a_line_of_json_has_a_time_a_level_a_text_and_a_key() -> None:
    assert lines(JSON) == [Line(at("2026-11-18T01:02:03Z"), "error", "it broke", "r1")]
    own = '{"ts":1794963723.5,"severity":"warn","message":"m","order":7}'
    assert lines(own, key_field="order") == [Line(1794963723.5, "warning", "m", "7")]


def test_packed_or_not_is_the_same() -> None:
    data = f"{JSON}\n{JSON}\n".encode()
    packed = gzip.compress(data[:90]) + gzip.compress(data[90:])  # two members, as rotated logs have them
    zstd = pa.Codec("zstd").compress(data, asbytes=True)
    assert lines(packed) == lines(zstd) == lines(data) and len(lines(data)) == 2


def test_a_bomb_is_refused_before_it_is_in_memory() -> None:
    bomb = gzip.compress(b"a" * (64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge, match="unpacks to more than"):
        lines(bomb)
    with pytest.raises(TooLarge):
        lines(pa.Codec("zstd").compress(b"a" * (64 << 20), asbytes=True))
    with pytest.raises(TooLarge):
        lines(b"x" * (MAX + 1))


def test_what_ends_in_the_middle_gives_what_came_before_and_says_so() -> None:
    data = "\n".join(f"line {n} of a long file {n * n}" for n in range(5_000)).encode()
    for packed in (gzip.compress(data), pa.Codec("zstd").compress(data, asbytes=True)):
        found = lines(packed[: len(packed) * 2 // 3])
        assert found[-1].text == DAMAGED and found[-1].level == "error"
    assert len(lines(gzip.compress(data)[:9_000])) > 100
    assert [line.text for line in lines(gzip.compress(b"x") + b"\0" * 100)] == ["x"], "padding is no damage"


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", gzip.compress(b""), b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_lines(content: bytes) -> None:
    assert lines(content) == []


def test_broken_encodings_are_lines_all_the_same() -> None:
    assert lines(b"caf\xe9 closed\nok") == [Line(None, "", "caf\ufffd closed"), Line(None, "", "ok")]
    assert [each.text for each in lines("\ufeffgrüß".encode("utf-16-le"))] == ["grüß"]
    assert [each.text for each in lines(b'{"msg": "\xff\xfe"}\n{"msg": "ok"}')][-1] == "ok"


def test_a_giant_line_costs_no_more_than_its_beginning() -> None:
    (found,) = lines(b"x" * (MAX - 1))
    assert len(found.text) == TEXT_CHARS_MAX
    (found,) = lines(json.dumps({"msg": "y" * 500_000}))
    assert len(found.text) == TEXT_CHARS_MAX


def test_syslog_of_old_and_of_now() -> None:
    old = "<34>Nov 18 01:02:03 host sshd[42]: Failed password for root\nNov 17 23:00:00 host cron: done"
    assert lines(old) == [
        Line(at("2026-11-18T01:02:03Z"), "critical", "sshd: Failed password for root"),
        Line(at("2026-11-17T23:00:00Z"), "", "cron: done"),
    ]
    new = '<165>1 2026-11-18T01:02:03.5+01:00 host app 7 ID47 [x@1 a="]"][y@2] \ufeffstarted\n<14>1 - h - - - - ready'
    assert lines(new) == [
        Line(at("2026-11-18T00:02:03.5Z"), "notice", "app: started"),
        Line(None, "info", "ready"),
    ]


def test_a_time_without_a_year_is_never_in_the_future() -> None:
    (found,) = read(b"Dec 31 23:59:59 h a: b", at=at("2027-01-01T00:00:10Z"), bytes_max=MAX)
    assert found.at == at("2026-12-31T23:59:59Z")
    (found,) = lines("Feb 29 10:00:00 h a: b")
    assert found.at is None, "there was none in either year"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-18 01:02:03,250 WARN  [main] a.B: x", "2026-11-18T01:02:03.25Z"),
        ("2026/11/18 01:02:03 x", "2026-11-18T01:02:03Z"),
        ("26/11/18 01:02:03 INFO x", "2026-11-18T01:02:03Z"),
        ("[Wed Nov 18 01:02:03 2026] [error] x", "2026-11-18T01:02:03Z"),
        ("11-18 01:02:03.811  1 2 D tag: x", "2026-11-18T01:02:03.811Z"),
        ("1794963723 x", "2026-11-18T01:02:03Z"),
        ("2026-11-18T01:02:03-08:00 x", "2026-11-18T09:02:03Z"),
    ],
)
def test_times_of_plain_text(text: str, expected: str) -> None:
    (found,) = lines(text)
    assert found.at == pytest.approx(at(expected))


def test_a_stack_trace_belongs_to_its_line_and_names_the_error() -> None:
    java = (
        "2026-11-18 01:02:03 ERROR request failed\njava.lang.IllegalStateException: no\n\tat a.B.c(B.java:7)\n"
        "Caused by: java.io.IOException: disk full\n\t... 3 more\n2026-11-18 01:02:04 INFO next"
    )
    assert [each.text for each in lines(java)] == ["ERROR request failed | java.io.IOException: disk full", "INFO next"]
    python = 'Traceback (most recent call last):\n  File "a.py", line 1\n    x()\nValueError: bad\nready\n'
    assert [each.text for each in lines(python)] == ["Traceback (most recent call last): | ValueError: bad", "ready"]
    in_json = json.dumps({"msg": "failed", "stack": "Traceback (most recent call last):\n  File\nKeyError: 'x'"})
    assert lines(in_json)[0].text == "failed | KeyError: 'x'"


def test_otlp_in_one_line_or_in_many() -> None:
    record = {
        "timeUnixNano": "1794963723000000000",
        "severityNumber": 17,
        "body": {"stringValue": "payment failed"},
        "traceId": "abc",
        "attributes": [{"key": "exception.type", "value": {"stringValue": "Timeout"}}, {"key": "x"}, 7],
    }
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, {"body": {"intValue": "3"}}]}]}, "odd"]}
    expected = [Line(1794963723.0, "error", "payment failed | Timeout: ", "abc"), Line(None, "", "3")]
    assert lines(json.dumps(request)) == lines(json.dumps(request, indent=2)) == expected
    record["severityNumber"] = "SEVERITY_NUMBER_ERROR2"
    assert lines(json.dumps(request)) == expected


def test_json_that_is_none_is_text() -> None:
    assert [each.text for each in lines('{"msg": "cut of\n{"msg":"ok"}\n[1]')] == ['{"msg": "cut of', "ok", "[1]"]
    assert lines("{" * 100_000)[0].text == "{" * TEXT_CHARS_MAX


def test_levels_and_times_by_any_name() -> None:
    assert [level_of(each) for each in ("Fatal", "W", "err", 9, 50, None, "x")] == [
        "critical", "warning", "error", "info", "error", "", "",
    ]  # fmt: skip
    assert time_of(1794963723123) == pytest.approx(1794963723.123)
    assert time_of("1794963723") == 1794963723.0
    assert (time_of("soon"), time_of(7), time_of(True), time_of(None)) == (None, None, None, None)


@pytest.mark.parametrize("zero", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1970-01-01T00:00:07Z"])
def test_the_zero_of_a_clock_is_no_time(zero: str) -> None:
    assert [each.at for each in lines(json.dumps({"time": zero, "msg": "x"}))] == [None]
    assert [each.at for each in lines(f"{zero} started")] == [None]


@given(st.binary(max_size=2_000))
def test_any_bytes_are_read(content: bytes) -> None:
    for each in read(content, at=AT, bytes_max=MAX):
        assert isinstance(each.text, str) and len(each.text) <= TEXT_CHARS_MAX


COMMON = [
    (
        'time=2026-11-18T08:00:00Z level=error msg="failed to \\"sync\\"" err=timeout',
        "error",
        'failed to "sync" | timeout',
    ),
    ("ts=2026-11-18T08:00:00.1Z caller=main.go:12 level=warn msg=slow trace_id=t7", "warning", "slow"),
    ("E1118 08:00:00.123456   12345 reflector.go:138] failed to list", "error", "reflector.go: failed to list"),
    ("11-18 08:00:00.123  1702  2395 A WindowManager: no window", "critical", "WindowManager: no window"),
    ("2026-11-18T08:00:00.123456789Z stderr F ERROR it broke", "error", "ERROR it broke"),
    ('2026-11-18T08:00:00.1Z stdout F {"level":"warn","msg":"slow"}', "warning", "slow"),
    ("2026-11-18T08:00:00.1Z stdout F level=info msg=fine", "info", "fine"),
    ("2026-11-18T08:00:00.123Z\terror\tmain.go:12\tit broke", "error", "error\tmain.go:12\tit broke"),
    ("Nov 18 08:00:00 host sshd[123]: error: no key", "error", "sshd: error: no key"),
    ('{"log":"ERROR it broke\\n","stream":"stderr","time":"2026-11-18T08:00:00.1Z"}', "error", "ERROR it broke"),
    ('{"@timestamp":"2026-11-18T08:00:00Z","log":{"level":"error"},"message":"no"}', "error", "no"),
    ('{"timestamp":"2026-11-18T08:00:00Z","level":"ERROR","fields":{"message":"no"}}', "error", "no"),
    ('{"timestamp":"2026-11-18T08:00:00Z","severity":"ERROR","textPayload":"no"}', "error", "no"),
]


@pytest.mark.parametrize(("text", "level", "said"), COMMON)
def test_what_common_programs_write_has_its_time_level_and_text(text: str, level: str, said: str) -> None:
    (line,) = lines(text)
    assert line.at is not None and datetime.fromtimestamp(line.at, UTC).isoformat().startswith("2026-11-18T08:00:00")
    assert (line.level, line.text) == (level, said)


@pytest.mark.parametrize(("status", "level"), [(200, "info"), (404, "info"), (503, "error")])
def test_a_line_of_an_access_log_is_an_error_if_the_server_failed(status: int, level: str) -> None:
    text = f'192.0.2.7 - ada [18/Nov/2026:10:00:00 +0200] "GET /x HTTP/1.1" {status} 2326 "-" "curl/8"'
    (line,) = lines(text)
    assert line.at is not None and datetime.fromtimestamp(line.at, UTC).isoformat().startswith("2026-11-18T08:00:00")
    assert (line.level, line.text) == (level, text)


def test_a_stack_trace_of_a_container_belongs_to_its_line() -> None:
    printed = ["it broke", "Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'x'", "next"]
    text = "\n".join(f"2026-11-18T08:00:0{n}.1Z stderr F {each}" for n, each in enumerate(printed))
    first, second = lines(text)
    assert first.text == "it broke | KeyError: 'x'" and second.text == "next"


def test_words_with_equals_signs_are_text() -> None:
    for text in ("x=1 and more", "a=b", "retry=3 for order 7", 'k="open'):
        assert [line.text for line in lines(text)] == [text]

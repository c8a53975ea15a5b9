"""From what a user gives as a body to bytes and a content type, and back."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.errors import Invalid
from bucketmq.procedures.objects.content import decode_content, encode_content


@pytest.mark.parametrize(
    ("key", "body", "data", "content_type"),
    [
        ("a", b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        ("a.png", bytearray(b"x"), b"x", "image/png"),
        ("a", memoryview(b"x"), b"x", "application/octet-stream"),
        ("a", "é", "é".encode(), "text/plain; charset=utf-8"),
        ("a.html", "<p>", b"<p>", "text/html"),
        ("a", {"n": 1}, b'{"n":1}', "application/json"),
        ("a.txt", [1, None], b"[1,null]", "application/json"),
        ("a", None, b"null", "application/json"),
    ],
)
def test_bytes_and_text_stay_as_they_are_and_anything_else_is_json(
    key: str, body: object, data: bytes, content_type: str
) -> None:
    assert encode_content(key, body) == (data, content_type)
    assert encode_content(key, body, "application/x-mine") == (data, "application/x-mine")


@pytest.mark.parametrize("body", [object(), {"a": object()}, "half \ud800"])
def test_what_cannot_be_written_is_refused_by_the_key_it_was_for(body: Any) -> None:
    with pytest.raises(Invalid, match=r"docs/a\.json"):
        encode_content("docs/a.json", body)


def test_json_comes_back_and_anything_else_is_refused() -> None:
    assert decode_content("a", b'{"n":1}') == {"n": 1}
    for body in (b"", b"text", b"\xff", b"[" * 100_000):
        with pytest.raises(Invalid, match="'a' is not JSON"):
            decode_content("a", body)

"""The verb send: a body from the command line, a file or standard input, or one message for each line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from bucketmq.cli.options import Json, QueueName, Url, open_bucket, pairs_of
from bucketmq.cli.output import emit, emit_text, plural, say
from bucketmq.client import Queue
from bucketmq.errors import Invalid

BATCH = 1_000
"""Lines sent in one segment."""

STDIN = "-"


def send(
    queue: QueueName,
    body: Annotated[str | None, typer.Argument(metavar="[BODY]", help="JSON; '-' reads standard input.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the body from a file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="One message for each line of the input.")] = False,
    text: Annotated[bool, typer.Option("--text", help="The body is text, not JSON.")] = False,
    raw: Annotated[bool, typer.Option("--bytes", help="The body is bytes, not JSON.")] = False,
    key: Annotated[str | None, typer.Option(help="Ordering key: messages of one key go to one shard.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")] = None,
    delay: Annotated[float | None, typer.Option(metavar="SECONDS", help="Deliver it after this long.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Deliver it then: 2030-01-31T12:00:00Z.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="Send it once, however often this is tried.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send a message; prints its id when it is durable.

    The queue is made if there is none.
    """
    if text and raw:
        raise Invalid("a body is --text or --bytes, not both")
    if lines and (dedup_key is not None or raw):
        raise Invalid("--lines cannot be combined with --dedup-key or --bytes; send those one by one")
    headers = pairs_of(header, "{} is not a header; write NAME=VALUE, like trace=abc") or None
    how: dict[str, Any] = {"key": key, "headers": headers, "delay_seconds": delay, "at": _time(at)}
    with open_bucket(url) as bucket, _input(body, file) as source:
        to = bucket.queue(queue)
        if lines:
            _send_lines(to, source, how, text=text, as_json=as_json)
            return
        answer = to.send(_body(source.read(), text=text, raw=raw), dedup_key=dedup_key, **how)
    if as_json:
        emit(answer)
        return
    emit_text(answer.id)
    where = "delayed" if answer.offset is None else f"shard {answer.shard}, offset {answer.offset}"
    say(f"{'was already sent to' if answer.duplicate else 'sent to'} {queue} ({where})")


def _time(text: str | None) -> datetime | float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a time; write 2030-01-31T12:00:00Z or seconds since 1970") from None


def _input(body: str | None, file: Path | None) -> AbstractContextManager[BinaryIO]:
    """Where the body comes from, opened."""
    if file is not None and body is not None:
        raise Invalid("give the body or --file, not both")
    if file is not None and str(file) != STDIN:
        try:
            return file.open("rb")
        except OSError as error:
            raise Invalid(f"cannot read {file}: {error.strerror}; give a file that exists and is readable") from error
    if body is not None and body != STDIN:
        return BytesIO(body.encode(errors="surrogateescape"))
    if body is None and file is None and sys.stdin.isatty():
        raise Invalid("there is no body; give one, like '{\"n\": 1}', or pipe it in")
    return nullcontext(sys.stdin.buffer)


def _body(raw_body: bytes, *, text: bool, raw: bool) -> Any:
    if raw:
        return raw_body
    if text:
        return _text(raw_body)
    try:
        return msgspec.json.decode(raw_body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is not JSON ({error}); send it with --text or --bytes, or quote it") from error


def _text(raw_body: bytes) -> str:
    try:
        return raw_body.decode()
    except UnicodeDecodeError as error:
        raise Invalid("the body is not UTF-8 text; send it with --bytes") from error


def _send_lines(to: Queue, source: BinaryIO, how: dict[str, Any], *, text: bool, as_json: bool) -> None:
    """One segment for every thousand lines. What was sent before an error stays sent; the last line says how much."""
    sent = 0
    try:
        for bodies in _batches(_bodies(source, text=text)):
            answers = to.send_many(bodies, **how)
            sent += len(answers)
            if as_json:
                for answer in answers:
                    emit(answer)
    finally:
        say(f"sent {plural(sent, 'message')} to {to.name}")


def _bodies(source: Iterable[bytes], *, text: bool) -> Iterator[Any]:
    for number, line in enumerate(source, start=1):
        stripped = line.rstrip(b"\r\n")
        if not stripped.strip():
            continue
        try:
            yield _body(stripped, text=text, raw=False)
        except Invalid as error:
            raise Invalid(f"line {number}: {error}") from error


def _batches(bodies: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(bodies, BATCH)):
        yield batch

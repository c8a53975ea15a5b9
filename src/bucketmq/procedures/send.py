"""Send: from a caller's bodies to lines in the log.

A send is one PUT, shared with whatever else the process is sending to the same shard. A delay adds nothing but goes to
another place (`procedures.later`); a deduplication key adds one PUT (`procedures.dedup`); a large body adds one PUT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.log import segment as lines
from bucketmq.procedures.append import Fenced, post
from bucketmq.procedures.dedup import send_once
from bucketmq.procedures.later import put_later
from bucketmq.procedures.opened import OpenQueue, Parcel
from bucketmq.procedures.queues import refresh_settings
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.verbs import create_named
from bucketmq.queue.message import BodyAt, Message

BODY_BYTES_MAX = 256 << 20
KEY_CHARS_MAX = 512
HEADERS_BYTES_MAX = 64 << 10
DELAY_SECONDS_MAX = 10 * 366 * 86400.0


class Receipt(msgspec.Struct, frozen=True):
    """What a send answers: the message's id; where it lies, if it is in the log; whether it was there before."""

    id: str
    shard: int | None = None
    offset: int | None = None
    duplicate: bool = False


class Outgoing(msgspec.Struct, frozen=True):
    """One message as the caller gave it, checked."""

    body: Any
    key: str | None = None
    headers: dict[str, str] | None = None
    dedup_key: str | None = None


def outgoing(body: Any, key: object, headers: object, dedup_key: object) -> Outgoing:
    """Check what a caller wants to send; `Invalid` says what is wrong with it."""
    for name, text in (("key", key), ("dedup_key", dedup_key)):
        if text is not None and (not isinstance(text, str) or not 0 < len(text) <= KEY_CHARS_MAX):
            raise Invalid(f"{name} must be text of 1 to {KEY_CHARS_MAX} characters, not {str(text)[:60]!r}")
        if isinstance(text, str) and not _is_unicode(text):
            raise Invalid(f"{name} has broken Unicode (a lone surrogate); encode it")
    return Outgoing(body, key, _headers(headers), dedup_key)  # type: ignore[arg-type]  # checked above


def _headers(headers: object) -> dict[str, str] | None:
    if headers is None or headers == {}:
        return None
    if not isinstance(headers, Mapping) or not all(
        isinstance(text, str) and _is_unicode(text) for pair in headers.items() for text in pair
    ):
        raise Invalid("headers must map text to text; write other values as text or put them into the body")
    if sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_BYTES_MAX:
        raise Invalid(f"headers are larger than {HEADERS_BYTES_MAX} characters; put large values into the body")
    return dict(headers)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def send(queue: OpenQueue, wanted: Sequence[Outgoing], delay_seconds: float = 0.0) -> Procedure[list[Receipt]]:
    """Send messages; returns when they are durable. Those for one shard arrive together or not at all."""
    if not wanted:
        return []
    if not 0 <= delay_seconds <= DELAY_SECONDS_MAX:
        raise Invalid(f"the delay must be 0 to {DELAY_SECONDS_MAX:.0f} seconds, not {delay_seconds}")
    name: str = yield NewId()
    now = yield Now()
    messages = yield from _build(queue, wanted, name, lines.time_text(now))
    if delay_seconds > 0:
        if any(each.dedup_key is not None for each in wanted):
            raise Invalid("a message cannot have both a delay and a dedup_key; choose one")
        yield from put_later(queue, messages, now + delay_seconds, name)
        return [Receipt(message.id) for message in messages]
    if any(each.dedup_key is not None for each in wanted):
        return (yield from _send_deduplicated(queue, wanted, messages))
    return (yield from _post_all(queue, messages))


def _build(queue: OpenQueue, wanted: Sequence[Outgoing], name: str, at: str) -> Procedure[list[Message]]:
    messages = []
    inline_bytes_max = queue.settings.inline_bytes_max
    for place, each in enumerate(wanted):
        id_ = name if len(wanted) == 1 else f"{name}-{place}"
        body = each.body
        if isinstance(body, bytes | bytearray | memoryview):
            raw = bytes(body)
            if len(raw) > inline_bytes_max:
                messages.append((yield from _spill(queue, each, id_, at, raw, json=False)))
            else:
                messages.append(Message(id_, at, each.key, each.headers, body_base64=lines.to_base64(raw)))
        elif _may_be_large(body) and len(raw := lines.encode_body(body)) > inline_bytes_max:
            messages.append((yield from _spill(queue, each, id_, at, raw, json=True)))
        else:
            messages.append(Message(id_, at, each.key, each.headers, body))
    return messages


def _may_be_large(body: Any) -> bool:
    """A cheap look, so that small bodies are encoded once: numbers cannot be large."""
    return not isinstance(body, int | float | None)


def _spill(queue: OpenQueue, each: Outgoing, id_: str, at: str, raw: bytes, *, json: bool) -> Procedure[Message]:
    if len(raw) > BODY_BYTES_MAX:
        raise Invalid(
            f"the body has {len(raw):,} bytes, more than {BODY_BYTES_MAX:,}; put it into the bucket and send its key"
        )
    yield from create_named(queue.keys.body(id_), raw)
    return Message(id_, at, each.key, each.headers, body_at=BodyAt(f"bodies/{id_}", len(raw), json))


def _send_deduplicated(
    queue: OpenQueue, wanted: Sequence[Outgoing], messages: Sequence[Message]
) -> Procedure[list[Receipt]]:
    receipts: list[Receipt] = []
    for each, message in zip(wanted, messages, strict=True):
        if each.dedup_key is None:
            receipts += yield from _post_all(queue, [message])
            continue
        sent = yield from send_once(queue, each.dedup_key, message)
        receipts.append(Receipt(sent.id, sent.shard, sent.offset, sent.duplicate))
    return receipts


def _post_all(queue: OpenQueue, messages: Sequence[Message]) -> Procedure[list[Receipt]]:
    queue.turn += 1
    turn = queue.turn
    receipts: dict[int, Receipt] = {}
    while len(receipts) < len(messages):
        settings = yield from refresh_settings(queue)
        by_shard: dict[int, list[int]] = {}
        for place, message in enumerate(messages):
            if place not in receipts:
                by_shard.setdefault(shard_of(settings.shards, message.key, turn), []).append(place)
        try:
            for shard, places in by_shard.items():
                chosen = messages if len(places) == len(messages) else [messages[place] for place in places]
                base = yield from _post(queue, shard, chosen)
                for step, place in enumerate(places):
                    receipts[place] = Receipt(messages[place].id, shard, base + step)
        except Fenced:
            continue
    return [receipts[place] for place in range(len(messages))]


def _post(queue: OpenQueue, shard: int, messages: Sequence[Message]) -> Procedure[int]:
    parcel = Parcel(lines.encode(messages), len(messages), messages[0].id)
    return (yield from post(queue, queue.log(shard), parcel))

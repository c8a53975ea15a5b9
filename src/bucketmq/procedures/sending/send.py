"""Send: from a caller's bodies to lines in the log.

A send is one PUT, shared with whatever else the process is sending to the same shard. A delay adds nothing but goes to
another place (`sending.delayed`); a deduplication key adds one PUT (`sending.dedup`); a large body adds one PUT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.log import segment as lines
from bucketmq.log.bodies import check_finite, encode_body, from_base64, to_base64
from bucketmq.procedures.opened import OpenQueue, Parcel
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.segments.append import Fenced, post
from bucketmq.procedures.sending.dedup import send_once
from bucketmq.procedures.sending.delayed import put_later
from bucketmq.procedures.sending.shards import sending_settings
from bucketmq.procedures.verbs import create_named
from bucketmq.queue.message import BodyAt, Message
from bucketmq.queue.routing import shard_of
from bucketmq.values import Value

BODY_BYTES_MAX = 256 << 20
SEND_BYTES_MAX = 128 << 20
KEY_CHARS_MAX = 512
HEADERS_BYTES_MAX = 64 << 10
RAW = (bytes, bytearray, memoryview)
DELAY_SECONDS_MAX = 10 * 366 * 86400.0


class Sent(Value, msgspec.Struct, frozen=True, gc=False):
    """What a send answers: the message's id; where it lies, if it is in the log; whether it was there before."""

    id: str
    shard: int | None = None
    offset: int | None = None
    duplicate: bool = False


class Letters(msgspec.Struct, frozen=True):
    """Messages as a caller gave them, checked. `keys` has one for each body, or is empty."""

    bodies: list[Any]
    keys: list[str | None]
    headers: dict[str, str] | None = None
    dedup_key: str | None = None

    def key(self, place: int) -> str | None:
        return self.keys[place] if self.keys else None


KeyOf = str | Callable[[Any], str | None] | None
"""A key for all messages, or a function that finds a body's key."""


def letters(bodies: Iterable[Any], key: KeyOf, headers: object, dedup_key: object = None) -> Letters:
    """Check what a caller wants to send; `Invalid` says what is wrong with it."""
    if not isinstance(bodies, Iterable):
        raise Invalid(f"bodies are a list, not {bodies!r:.80}; to send one message: send")
    listed = list(bodies)
    keys = [] if key is None else [key(body) for body in listed] if callable(key) else [key] * len(listed)
    for name, text in [("dedup_key", dedup_key), *(("key", each) for each in set(keys))]:
        if text is not None and (not isinstance(text, str) or not 0 < len(text) <= KEY_CHARS_MAX):
            raise Invalid(f"{name} must be text of 1 to {KEY_CHARS_MAX} characters, not {str(text)[:60]!r}")
        if isinstance(text, str) and not _is_unicode(text):
            raise Invalid(f"{name} has broken Unicode (a lone surrogate); encode it")
    return Letters(listed, keys, _headers(headers), dedup_key)  # type: ignore[arg-type]  # checked above


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


def send(queue: OpenQueue, wanted: Letters, delay_seconds: float = 0.0) -> Procedure[list[Sent]]:
    """Send messages; returns when they are durable. Those for one shard arrive together or not at all."""
    if not wanted.bodies:
        return []
    if not 0 <= delay_seconds <= DELAY_SECONDS_MAX:
        raise Invalid(f"the delay must be 0 to {DELAY_SECONDS_MAX:.0f} seconds, not {delay_seconds}")
    if delay_seconds > 0 and wanted.dedup_key is not None:
        raise Invalid("a message cannot have both a delay and a dedup_key; choose one")
    name = yield from NewId()
    now = yield from Now()
    messages = _build(wanted, name, lines.time_text(now))
    data = lines.encode(messages)
    check_finite(wanted.bodies, data)
    if lines.has_long_line(data, queue.settings.inline_bytes_max):
        messages = yield from _spill_large(queue, messages)
        data = lines.encode(messages)
    if len(data) > SEND_BYTES_MAX:
        raise Invalid(f"{len(data):,} bytes in one send, more than {SEND_BYTES_MAX:,}; send them in several calls")
    if delay_seconds > 0:
        yield from put_later(queue, data, now + delay_seconds, name)
        return [Sent(message.id) for message in messages]
    if wanted.dedup_key is not None:
        sent = yield from send_once(queue, wanted.dedup_key, messages[0])
        return [Sent(sent.id, sent.shard, sent.base, sent.id != messages[0].id)]
    return (yield from _post_all(queue, messages, data))


def send_messages(queue: OpenQueue, messages: list[Message]) -> Procedure[list[Sent]]:
    """Send messages that are built already. Those for one shard arrive together or not at all."""
    return (yield from _post_all(queue, messages, lines.encode(messages))) if messages else []


def _build(wanted: Letters, name: str, at: str) -> list[Message]:
    headers = wanted.headers
    if len(wanted.bodies) == 1:
        return [_message(name, at, wanted.key(0), headers, wanted.bodies[0])]
    if not wanted.keys and not any(issubclass(kind, RAW) for kind in set(map(type, wanted.bodies))):
        return [Message(f"{name}-{place}", at, None, headers, body) for place, body in enumerate(wanted.bodies)]
    keys = wanted.keys or repeat(None)
    return [
        _message(f"{name}-{place}", at, key, headers, body)
        for place, (body, key) in enumerate(zip(wanted.bodies, keys, strict=False))
    ]


def _message(id_: str, at: str, key: str | None, headers: dict[str, str] | None, body: Any) -> Message:
    if isinstance(body, RAW):
        return Message(id_, at, key, headers, body_base64=to_base64(bytes(body)))
    return Message(id_, at, key, headers, body)


def _spill_large(queue: OpenQueue, messages: list[Message]) -> Procedure[list[Message]]:
    """Put every body that is too large for a line into an object of its own. One PUT each."""
    spilled = []
    for message in messages:  # all of them before the first is written
        _raw_body(message)
    for message in messages:
        json, raw = _raw_body(message)
        if len(raw) <= queue.settings.inline_bytes_max:
            spilled.append(message)
            continue
        yield from create_named(queue.keys.body(message.id), raw)
        at = BodyAt(f"bodies/{message.id}", len(raw), json)
        spilled.append(Message(message.id, message.at, message.key, message.headers, body_at=at))
    return spilled


def _raw_body(message: Message) -> tuple[bool, bytes]:
    """Whether the body is JSON, and its bytes."""
    json = message.body_base64 is None
    raw = encode_body(message.body) if json else from_base64(message.body_base64 or "", message.id)
    if len(raw) > BODY_BYTES_MAX:
        raise Invalid(f"the body has {len(raw):,} bytes, more than {BODY_BYTES_MAX:,}; send the key of an object")
    return json, raw


def _post_all(queue: OpenQueue, messages: list[Message], data: bytes) -> Procedure[list[Sent]]:
    """Post each shard's messages together. A shard count raised in between is noticed, and the rest sorted again."""
    turn = queue.turn
    left: Sequence[int] = range(len(messages))
    answers: list[Sent] = [Sent("")] * len(messages)
    while left:
        shards = (yield from sending_settings(queue)).shards
        by_shard = _by_shard(shards, messages, left, turn)
        try:
            for shard, places in by_shard.items():
                chosen = data if len(places) == len(messages) else _lines_at(data, places)
                parcel = Parcel(chosen, len(places), messages[places[0]].id, shards)
                base = yield from post(queue, queue.log(shard), parcel)
                if len(places) == len(messages):
                    return [Sent(message.id, shard, base + step) for step, message in enumerate(messages)]
                for step, place in enumerate(places):
                    answers[place] = Sent(messages[place].id, shard, base + step)
                by_shard = {**by_shard, shard: range(0)}
        except Fenced:
            left = [place for places in by_shard.values() for place in places]
            continue
        return answers
    return answers


def _by_shard(shards: int, messages: list[Message], places: Sequence[int], turn: int) -> dict[int, Sequence[int]]:
    if shards == 1:
        return {0: places}
    keys = {messages[place].key for place in places}
    if len(keys) == 1:
        return {shard_of(shards, messages[places[0]].key, turn): places}
    homes = {key: shard_of(shards, key, turn) for key in keys}
    found: dict[int, list[int]] = {}
    for place in places:
        found.setdefault(homes[messages[place].key], []).append(place)
    return dict(found)


def _lines_at(data: bytes, places: Sequence[int]) -> bytes:
    every = data.split(b"\n")
    return b"".join(every[place] + b"\n" for place in places)

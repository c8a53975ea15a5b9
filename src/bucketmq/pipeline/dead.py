"""Rows that failed, on their way to the dead letters: a column of JSON beside the others, and messages in the end.

A dead letter looks as `procedures.sending.dead_letters` makes it: the message as it was sent, and how it died, with the
pipeline's name for the subscription. So it is shown, and sent again, like any other.
"""

from __future__ import annotations

import math
import uuid
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.log.bodies import encode_body, from_base64, to_base64
from bucketmq.pipeline.chain import Failed
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import NewId, Procedure
from bucketmq.procedures.sending.dead_letters import FAILURES_MAX
from bucketmq.procedures.verbs import create_named
from bucketmq.queue.message import BodyAt, Died, Failure, Message

if TYPE_CHECKING:
    import pyarrow as pa

DEAD = "_dead"
"""The column that has a `Fallen` in rows that failed or come back, and null in the others."""


class Back(msgspec.Struct, frozen=True):
    """A row that its stage wants to see again: in which log, when, and for the how manieth time."""

    queue: str
    delay_seconds: float
    times: int


class Fallen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row that failed: the message that it was, where it lay, and what went wrong in whose hands."""

    message: Message
    subscription: str
    shard: int
    offset: int
    error: str
    before: tuple[Failure, ...] = ()
    """Of the earlier lives of a message that was redriven, and of the times it came back in this one."""
    back: Back | None = None
    """Not dead: it comes back."""


_decoder = msgspec.json.Decoder(Fallen)


def times_back(raw: pa.RecordBatch, row: int) -> int:
    """How often a row of the source has come back because a stage asked for it."""
    died = raw.column("died")[row].as_py() if "died" in raw.schema.names else None
    return msgspec.json.decode(died, type=Died).later if died else 0


def fallen_message(raw: pa.RecordBatch, subscription: str, failed: Failed, back: Back | None = None) -> str:
    """A row of the source, as JSON for the column `_dead`."""
    row = raw.slice(failed.row, 1).to_pylist()[0]
    body = msgspec.UNSET if row["body"] is None else msgspec.Raw(row["body"].encode())
    if row["body"] is None and row["body_bytes"] is None:
        body = msgspec.Raw(b"null")
    at = row["sent_at"].astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    message = Message(
        row["id"],
        at,
        row["key"],
        dict(row["headers"]) if row["headers"] else None,
        body,
        body_base64=None if row["body_bytes"] is None else to_base64(row["body_bytes"]),
    )
    before = msgspec.json.decode(row["died"], type=Died).failures if row.get("died") else ()
    fallen = Fallen(message, subscription, row["shard"], row["offset"], failed.error, before, back)
    return msgspec.json.encode(fallen).decode()


def fallen_row(raw: pa.RecordBatch, subscription: str, failed: Failed) -> str:
    """A row of a table, which never was a message: it becomes one now, under a name of its own."""
    name = f"row-{uuid.uuid4().hex}"
    row = raw.slice(failed.row, 1)
    body = {column: _only_value(values) for column, values in zip(row.schema.names, row.columns, strict=True)}
    fallen = Fallen(Message(name, "", None, None, body), subscription, 0, 0, failed.error)
    return msgspec.json.encode(fallen).decode()


def _only_value(column: pa.Array) -> Any:
    """The value of a column of one row, as JSON has it. A time for which Python has no room is text, and so is a number
    that JSON has not: `nan`, `inf`. A row dies as it was."""
    from bucketmq.pipeline.lines import plain

    try:
        return _finite(plain(column.to_pylist()[0], column.type))
    except (OverflowError, ValueError):
        told = column.cast(_times_as_text(column.type))
        return _finite(plain(told.to_pylist()[0], told.type))


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_times_as_text(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_times_as_text(kind.key_type), _times_as_text(kind.item_type))
    return pa.list_(_times_as_text(kind.value_type)) if pa.types.is_list(kind) else kind


def read(text: str) -> Fallen:
    """What the column holds."""
    return _decoder.decode(text)


def letter(fallen: Fallen, at: str) -> Message:
    """The dead letter of a row that died at `at`, or the message of one that comes back."""
    failures = (*fallen.before, Failure(1, fallen.error, at))[-FAILURES_MAX:]
    died = Died(fallen.subscription, fallen.shard, fallen.offset, at, 1, failures)
    message = fallen.message
    if fallen.back is not None:  # the same message for the same reader: nobody else sees it twice
        died = msgspec.structs.replace(died, attempts=fallen.back.times, later=fallen.back.times)
        return msgspec.structs.replace(message, died=died, to=fallen.subscription)
    return msgspec.structs.replace(message, at=message.at or at, died=died)


def with_own_body(queue: OpenQueue, message: Message) -> Procedure[Message]:
    """A body that is too large for a line goes into an object of its own, under a name of its own. One PUT then."""
    json = message.body_base64 is None
    body = encode_body(message.body) if json else from_base64(message.body_base64 or "", message.id)
    if len(body) <= queue.settings.inline_bytes_max:
        return message
    name = f"{message.id}.{(yield from NewId())}"
    yield from create_named(queue.keys.body(name), body)
    at = BodyAt(f"bodies/{name}", len(body), json)
    return msgspec.structs.replace(message, body=msgspec.UNSET, body_base64=None, body_at=at)

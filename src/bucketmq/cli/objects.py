"""Verbs for users' objects: put, get, mv, rm, and trigger, which makes an event without an object. Each reports its
event, so that rules and watchers see it."""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from bucketmq.cli.exits import Code
from bucketmq.cli.options import Json, Url, open_bucket, pairs_of
from bucketmq.cli.output import answer, emit, emit_bytes, emit_text, plural, say
from bucketmq.cli.send import STDIN
from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent
from bucketmq.procedures.objects.batches import Stored
from bucketmq.procedures.objects.read import Read

Key = Annotated[str, typer.Argument(metavar="KEY", help="The object's key, like pending/7.json.")]


def put(
    key: Key,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="What to store; '-' reads standard input.")] = STDIN,
    *,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Guessed from the key's ending if left out.")
    ] = None,
    meta: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Metadata; may be repeated.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Refuse (exit code 4) if there is an object already.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Store an object and report the change.

    The event is not lost if this process dies in between: a note written first makes sure of it.
    """
    metadata = pairs_of(meta, "metadata is NAME=VALUE, not {}") or None
    with open_bucket(url) as bucket:
        stored = bucket.put(key, _content(file), content_type=content_type, metadata=metadata, only_new=new)
    _show_stored(stored, as_json=as_json)


def _content(file: str) -> bytes:
    if file == STDIN:
        if sys.stdin.isatty():
            raise Invalid("there is nothing to store; name a file, or pipe it in")
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {file}: {error.strerror}") from error


def _show_stored(stored: Stored, *, as_json: bool) -> None:
    if as_json:
        emit({"key": stored.key, "version": stored.version, "event": stored.event, "reported": stored.reported})
        return
    event = stored.event
    came = f" from {event.from_key}" if event.from_key is not None else ""
    emit_text(stored.version)
    say(f"{event.kind} {stored.key}{came}, event {event.id}{'' if stored.reported else ' (to be reported later)'}")


def get(
    key: Key,
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the bytes here.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print an object's bytes as they are; with --json, also what the store knows of it.

    On a terminal, control characters are shown instead of obeyed, and what is not text is refused.
    """
    with open_bucket(url, probe=False) as bucket:
        found = bucket.get(key)
    if output is not None:
        try:
            output.write_bytes(found.body)
        except OSError as error:
            raise Invalid(f"cannot write {output}: {error.strerror}") from error
    if as_json:
        emit(_read_row(found, body=output is None))
    elif output is None:
        emit_bytes(found.body)
    else:
        say(f"{plural(len(found.body), 'byte')} of {key} in {output}")


def _read_row(found: Read, *, body: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": found.key,
        "version": found.version,
        "size_bytes": len(found.body),
        "stored_at": datetime.fromtimestamp(found.stored_at, UTC).isoformat(),
        "content_type": found.content_type,
        "metadata": found.metadata,
    }
    return row | _body(found) if body else row


def _body(found: Read) -> dict[str, Any]:
    """The body: as JSON if it says that it is and holds, as text if it is, else in base64."""
    try:
        if found.content_type.partition(";")[0].strip().endswith("json"):
            return {"body": msgspec.json.decode(found.body)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return {"body": found.body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(found.body).decode()}


def mv(
    key: Key,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The key it gets.")],
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Write over another object at the target.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move an object and report one change, "moved".

    Another object at the target stays as it is unless you say --replace. May be repeated after a crash at any point.
    """
    with open_bucket(url) as bucket:
        stored = bucket.move(key, target, replace=replace)
    _show_stored(stored, as_json=as_json)


def rm(key: Key, url: Url = None, as_json: Json = False) -> None:
    """Delete an object and report the change; exit code 3 if there is none."""
    with open_bucket(url) as bucket:
        was_there = bucket.delete(key)
    text = f"deleted {key}" if was_there else f"there is no object {key}"
    answer({"key": key, "deleted": was_there}, text, as_json=as_json)
    if not was_there:
        raise typer.Exit(Code.EMPTY)


def trigger(
    key: Key,
    *,
    kind: Annotated[
        Literal["created", "changed", "deleted"], typer.Option(help="What the event says happened.")
    ] = "created",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Report a made-up event, to try rules and watchers with.

    The object need not be there; if it is, the event has its size and content type.
    """
    with open_bucket(url) as bucket:
        event = bucket.trigger(key, kind=kind)
    if as_json:
        emit(event)
    else:
        _show_event(event)


def _show_event(event: ObjectEvent) -> None:
    for name, value in msgspec.to_builtins(event).items():
        emit_text(f"{name:<13} {value}")
    say("reported; rules and watchers that match will be given it")

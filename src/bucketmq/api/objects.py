"""What a user can ask of the objects of a bucket and of what happens to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bucketmq.api.opening import Opening
from bucketmq.bucket.port import Found
from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, event_id, time_text
from bucketmq.procedures.objects.batches import Failed, Stored
from bucketmq.procedures.objects.content import decode_content, encode_content, encode_put
from bucketmq.procedures.objects.copy import copy
from bucketmq.procedures.objects.keys import check_object_key, full_key
from bucketmq.procedures.objects.move import Move, move, move_many
from bucketmq.procedures.objects.put import Put, put, put_many
from bucketmq.procedures.objects.read import Read, read_many, read_object
from bucketmq.procedures.objects.recover import Recovered, recover
from bucketmq.procedures.objects.remove import Delete, Deleted, remove, remove_many
from bucketmq.procedures.objects.report import report
from bucketmq.procedures.objects.sweep import Progress, Swept, sweep
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.rules import registry
from bucketmq.procedures.rules.audit import LATE_SECONDS, Audited, audit
from bucketmq.procedures.verbs import look
from bucketmq.rulebook import ignore

Item = TypeVar("Item")


class ObjectsApi(Opening):
    """The objects and events of one bucket."""

    def put(
        self,
        key: str,
        body: object,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        only_new: bool = False,
        if_version: str | None = None,
    ) -> Procedure[Stored]:
        """Write an object (bytes, text, or anything else as JSON) and report the change, whatever dies in between."""
        data, kind = encode_content(key, body, content_type)
        bucket = yield from self.open()
        return (
            yield from put(
                bucket, key, data, content_type=kind, metadata=metadata, only_new=only_new, if_version=if_version
            )
        )

    def get(self, key: str) -> Procedure[Read]:
        """The object: body, version, content type, metadata. `NotFound` if there is none. One GET."""
        return (yield from read_object((yield from self.open()), key))

    def get_json(self, key: str) -> Procedure[Any]:
        """The JSON value that the object holds. One GET."""
        return decode_content(key, (yield from self.get(key)).body)

    def look(self, key: str) -> Procedure[Found | None]:
        """What the store knows of the object without its body; None if there is none. One HEAD."""
        bucket = yield from self.open()
        found = yield from look(full_key(bucket, check_object_key(key)))
        return found if isinstance(found, Found) else None

    def delete(self, key: str, *, if_version: str | None = None) -> Procedure[bool]:
        """Delete an object and report it; False if there was none."""
        return (yield from remove((yield from self.open()), key, if_version=if_version))

    def move(self, key: str, target: str, *, if_version: str | None = None, replace: bool = False) -> Procedure[Stored]:
        """Move an object and report one `moved` event. Never destroys another object at the target unless `replace`;
        may be repeated after a crash at any point."""
        bucket = yield from self.open()
        return (yield from move(bucket, key, target, if_version=if_version, replace=replace))

    def put_many(self, objects: Mapping[str, object] | Iterable[Put]) -> Procedure[list[Stored | Failed]]:
        """Write many objects and report them together: a mapping of keys to bodies, or `Put`s, which have conditions,
        content types and metadata each.

        What became of each, in the same order: `Stored`, or `Failed` with the reason. Whatever dies in between, what
        was written is reported. Input that cannot be written raises `Invalid` before anything is.

        One PUT for an object that is new; where there is one already a HEAD and another PUT. For each 500 objects or
        32 MiB two PUTs and a DELETE.
        """
        wanted = [Put(key, body) for key, body in objects.items()] if isinstance(objects, Mapping) else objects
        encoded = [encode_put(_is(Put, each)) for each in several(wanted, "objects")]
        return (yield from put_many((yield from self.open()), encoded))

    def get_many(self, keys: Iterable[str]) -> Procedure[list[Read | Failed]]:
        """Many objects at once, in the order of their keys; `Failed` (`not_found`) for one that is not there. One GET
        each."""
        return (yield from read_many((yield from self.open()), list(several(keys, "keys"))))

    def move_many(self, moves: Mapping[str, str] | Iterable[Move]) -> Procedure[list[Stored | Failed]]:
        """Move many objects and report them together: a mapping of keys to targets, or `Move`s, which have conditions.

        Each is moved as `move` does it, and may be repeated after a crash at any point. What became of each, in the
        same order: `Stored` at its target, or `Failed` with the reason.

        One HEAD (a GET where the store does not copy), one PUT and one DELETE each; where it renames, two looks and a
        rename. For each 100 objects two PUTs and a DELETE.
        """
        wanted = [Move(key, target) for key, target in moves.items()] if isinstance(moves, Mapping) else moves
        return (yield from move_many((yield from self.open()), [_is(Move, each) for each in several(wanted, "moves")]))

    def delete_many(self, keys: Iterable[str | Delete]) -> Procedure[list[Deleted | Failed]]:
        """Delete many objects and report them together; a `Delete` in place of a key has a condition.

        What became of each, in the same order: `Deleted`, which says whether there was one, or `Failed` with the
        reason. One HEAD and one DELETE each; for each 500 objects two PUTs and a DELETE.
        """
        wanted = [Delete(each) if isinstance(each, str) else _is(Delete, each) for each in several(keys, "keys")]
        return (yield from remove_many((yield from self.open()), wanted))

    def copy(self, key: str, target: str, *, if_version: str | None = None, replace: bool = False) -> Procedure[Stored]:
        """Copy an object to another key and report it; with its content type and metadata. Never destroys another
        object at the target unless `replace`.

        Inside the store where it can, of any size; elsewhere the object is read and written. One HEAD (or GET), three
        PUTs and one DELETE.
        """
        bucket = yield from self.open()
        return (yield from copy(bucket, key, target, if_version=if_version, replace=replace))

    def report(self, events: Sequence[ObjectEvent]) -> Procedure[int]:
        """Make events durable, wherever they come from; returns how many. One PUT."""
        return (yield from report((yield from self.open()), events))

    def trigger(self, key: str, *, kind: str = "created") -> Procedure[ObjectEvent]:
        """Report a made-up event, to try rules and watchers with. It says what is known of the object, if it exists."""
        if kind not in ("created", "changed", "deleted"):
            raise Invalid(f"an event to try things with is created, changed or deleted, not {kind!r}")
        found = yield from self.look(key)
        now = yield from Now()
        event = ObjectEvent(
            id=event_id("trigger", "", key, kind, time_text(now)),
            kind=kind,  # type: ignore[arg-type]  # one of those above
            key=key,
            at=time_text(now),
            source="trigger",
            size_bytes=found.size_bytes if found is not None else None,
            content_type=found.attributes.content_type or None if found is not None else None,
        )
        yield from self.report([event])
        return event

    def sweep(
        self, prefix: str = "", *, baseline: bool = False, name: str | None = None, progress: Progress = ignore
    ) -> Procedure[Swept]:
        """List, compare with the inventory, report what is new, changed or gone since the last sweep.

        The first sweep reports what is there already, or with `baseline` only notes it.
        """
        bucket = yield from self.open()
        return (yield from sweep(bucket, prefix=prefix, baseline=baseline, name=name, progress=progress))

    def recover(self) -> Procedure[Recovered]:
        """Report what writers that died had written and not reported. `notify` and watchers do this by themselves."""
        return (yield from recover((yield from self.open())))

    def audit(
        self, rule: str, *, prefix: str = "", late_seconds: float = LATE_SECONDS, repair: bool = False
    ) -> Procedure[Audited]:
        """Compare the events that a rule was given and has delivered with a listing of the bucket."""
        bucket = yield from self.open()
        kept = yield from registry.get_rule(bucket, rule)
        return (yield from audit(bucket, kept, prefix=prefix, late_seconds=late_seconds, repair=repair))


def several(given: Iterable[Item], what: str) -> Iterable[Item]:
    """What a caller gave as a list. One text, or one mapping, is one thing and would be taken apart."""
    if isinstance(given, str | bytes | bytearray | memoryview | Mapping):
        raise Invalid(f"{what} are a list, not {given!r:.80}; write [{given!r:.80}]")
    if not isinstance(given, Iterable):
        raise Invalid(f"{what} are a list, not {given!r:.80}")
    return given


def _is(kind: type[Item], given: object) -> Item:
    if not isinstance(given, kind):
        raise Invalid(f"what is to be done is given as {kind.__name__}(...), not as {given!r}")
    return given

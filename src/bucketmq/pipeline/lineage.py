"""Lineage: what was made of a source object is replaced when it is replaced, and goes when it goes.

A register for each source object and pipeline lists what was made of it, and of which state; each object tells the same
in its metadata. The steps are those of decision 0031:

1. read the register: a run for an older state than it knows is late, and only cleans up behind itself
2. announce: write the register with this state and all keys, old and new
3. write the objects; one that came of a newer state stays
4. read the register again: if a newer state was announced meanwhile, remove what only this run made
5. remove what is listed and was not made now
6. write the register with what is there now

So the new is written before the old goes, and whatever is there is listed. A run that died anywhere is run again, and
finds in the register what it has to do. Nothing is ever listed in the bucket.

In a bucket that is not the pipeline's own, the source's key is told with the name of the bucket it is in (`home_of`):
pipelines of the same name may write there from several.

The register of a source that is gone keeps late runs from bringing results back. `tidy_lineage` removes it when it is
old: a run for a state of that age that finds no register asks the source instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from bucketmq.bucket.port import Found, Missing, Written
from bucketmq.errors import Contended, Invalid, Unavailable
from bucketmq.events.event import plain_version, seconds_of
from bucketmq.events.order import CLOCKS_SECONDS
from bucketmq.log import documents
from bucketmq.log.layout import EventKeys
from bucketmq.pipeline.ends import ToObjects
from bucketmq.pipeline.objects import Did, Wanted, all_abreast, write_objects
from bucketmq.pipeline.states import State
from bucketmq.pipeline.things import SOURCE_KEY, SOURCE_ORDER, Origin, Thing, source_mark
from bucketmq.procedures.objects.batches import apart
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.objects.remove import remove, remove_state
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Call, Create, NewId, Now, Procedure, Replace
from bucketmq.procedures.verbs import Patience, create_named, get_document, list_page, look
from bucketmq.values import Value

Became = Did | Literal["late", "removed"]
"""What became of a thing, or of one that was made before."""

IsCurrent = Callable[[State], bool]
"""Whether a state is the one that the source object is in now: asked where times cannot tell which came later."""


ASKED_SECONDS = 7 * 86400.0
"""A run for a state that is older than this and finds no register asks whether the source is in that state."""

GONE_SECONDS = 2 * ASKED_SECONDS
"""So long at least the register of a source that is gone stays. Twice the other, for clocks that are wrong by days."""


class Home(msgspec.Struct, frozen=True):
    """`inventory/home.json`: what a bucket is called in the registers of other buckets."""

    name: str
    format: int = 1


class Lineage(msgspec.Struct, frozen=True, omit_defaults=True):
    """`inventory/lineage/<pipeline>/<hash>.json`: what a pipeline has made of one source object."""

    source: str
    at: str
    order: int
    """Grows with every new state of the source; objects carry it, so that of two the newer is known."""
    made: tuple[str, ...] = ()
    """Every object that may be there."""
    version: str | None = None
    gone: bool = False
    revision: int = 1
    """Grows by one with every change, so that no two states of the register have the same bytes."""
    format: int = 1

    def is_of(self, state: State) -> bool:
        """Whether it stands for this state: several sources report one write, each at its own time."""
        if self.gone != state.gone:
            return False
        return self.at == state.at if state.gone or state.version is None else self.version == state.version


class Of(msgspec.Struct, frozen=True):
    """All that was made of a state of a source object."""

    state: State
    things: Sequence[tuple[ToObjects, Thing]]
    cause: Cause = NO_CAUSE

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(thing.key for _, thing in self.things))


def follow(
    bucket: OpenBucket, pipeline: str, made: Sequence[Of], is_current: IsCurrent, *, home: str = ""
) -> Procedure[list[Became]]:
    """Write all that was made of states of source objects, and remove what was made of them before and is not any more.

    `home` is the name of the bucket that the sources are in, if it is another. The steps are taken for all of them
    together, and their objects are written as one batch.
    Beside what the objects cost, for each source: a GET, a PUT and a GET the first time; two GETs when nothing changes;
    a GET, two PUTs and a GET when something goes, and for that a HEAD and a delete.
    """
    became: list[Became] = []
    for group in apart(made, lambda each: {each.state.key}):
        became += yield from _follow_group([_Following(bucket, pipeline, each, is_current, home) for each in group])
    return became


def _follow_group(runs: Sequence[_Following]) -> Procedure[list[Became]]:
    entered = yield from all_abreast([each.announce() for each in runs])
    late: list[Became] = ["late" for run, found in zip(runs, entered, strict=True) if not found for _ in run.of.things]
    living = [(run, found) for run, found in zip(runs, entered, strict=True) if found is not None]
    wanted = [each for run, found in living for each in run.wanted(found)]
    wrote = iter((yield from write_objects(runs[0].bucket, wanted)))
    ended = yield from all_abreast([run.finish(found, [next(wrote) for _ in run.of.things]) for run, found in living])
    return [*late, *(each for its in ended for each in its)]


class _Following:
    """The steps for one source object."""

    def __init__(self, bucket: OpenBucket, pipeline: str, of: Of, is_current: IsCurrent, home: str) -> None:
        self.bucket = bucket
        self.of = of
        self._source = f"{home}:{of.state.key}" if home else of.state.key
        self._key = EventKeys(bucket.prefix).lineage(pipeline, self._source)
        self._is_current = is_current

    def announce(self) -> Procedure[Lineage | None]:
        """The register with this state in it; None if this run is late, and has cleaned up behind itself."""
        of = self.of
        entered = yield from _announce(self._key, self._source, of.state, of.keys, self._is_current)
        if entered.is_of(of.state):
            return entered
        yield from _clear(self.bucket, entered, set(of.keys) - set(entered.made), of.cause)
        return None

    def wanted(self, entered: Lineage) -> list[Wanted]:
        origin = Origin(self._source, self.of.state.version or self.of.state.at, entered.order)
        return [Wanted(target, thing, self.of.cause, origin) for target, thing in self.of.things]

    def finish(self, entered: Lineage, wrote: Sequence[Did]) -> Procedure[list[Became]]:
        """Remove what is listed and was not made now, when all objects are written."""
        ours, cause = self.of.keys, self.of.cause
        patience = Patience(f"updating {self._key}")
        while True:
            found = yield from get_document(Lineage, self._key)
            if found is None:  # somebody deleted it: what we wrote is there, and the next run finds it by its keys
                return [*wrote]
            now, stored = found
            if now.order > entered.order:
                yield from _clear(self.bucket, now, set(ours) - set(now.made), cause)
                return ["late"] * len(wrote)
            gone = [each for each in now.made if each not in ours]
            if not gone:
                return [*wrote]
            yield from _clear(self.bucket, now, gone, cause, own=True)
            after = msgspec.structs.replace(now, made=ours, revision=now.revision + 1)
            reply = yield from Replace(self._key, documents.encode(after), stored.version)
            if isinstance(reply, Written):
                removed: list[Became] = ["removed"] * len(gone)
                return [*wrote, *removed]
            yield from patience.again(reply)


def _announce(key: str, source: str, state: State, ours: tuple[str, ...], is_current: IsCurrent) -> Procedure[Lineage]:
    """The register with this state and all that may be there; or as it is, if it knows a newer one."""
    patience = Patience(f"announcing in {key}")
    while True:
        found = yield from get_document(Lineage, key)
        if found is None:
            if not (yield from _may_begin(state, is_current)):
                return Lineage(source, state.at, order=0, gone=True)  # nothing came of a state before: all stays
            order = yield from _order(0)
            after = Lineage(source, state.at, order, ours, state.version, state.gone)
            reply = yield from Create(key, documents.encode(after))
        else:
            before, stored = found
            same = before.is_of(state)
            if not same and (yield from _is_late(before, state, is_current)):
                return before
            made = tuple(dict.fromkeys((*before.made, *ours)))
            order = before.order if same else (yield from _order(before.order))
            at = max(before.at, state.at)
            if same and (made, at) == (before.made, before.at):
                return before
            after = Lineage(source, at, order, made, state.version, state.gone, before.revision + 1)
            reply = yield from Replace(key, documents.encode(after), stored.version)
        if isinstance(reply, Written):
            return after
        yield from patience.again(reply)


def _may_begin(state: State, is_current: IsCurrent) -> Procedure[bool]:
    """Whether a state without a register is news. An old one may be of a source whose register was removed since."""
    if state.gone or (yield from Now()) - seconds_of(state.at) <= ASKED_SECONDS:
        return True
    current: bool = yield from Call(is_current, state)
    return current


def _order(before: int) -> Procedure[int]:
    """A larger number than any that objects of this source have, even if the register was lost: milliseconds."""
    return max(before + 1, int((yield from Now()) * 1000))


def _is_late(before: Lineage, state: State, is_current: IsCurrent) -> Procedure[bool]:
    """Whether the register knows a newer state. Where clocks may be wrong about it, the source is asked."""
    if is_newer(before.at, state.at) or is_newer(state.at, before.at):
        return is_newer(before.at, state.at)
    current: bool = yield from Call(is_current, state)
    return not current


def is_newer(at: str, than: str) -> bool:
    """Whether a time certainly is later than another: clocks differ, and stores round to seconds."""
    return seconds_of(at) - seconds_of(than) > CLOCKS_SECONDS


def _clear(
    bucket: OpenBucket, register: Lineage, keys: Iterable[str], cause: Cause, *, own: bool = False
) -> Procedure[None]:
    """Remove objects that came of earlier states of the source, or with `own` of this one. Others' stay."""
    for key in sorted(keys):
        patience = Patience(f"removing {key}")
        while True:
            found = yield from look(full_key(bucket, key))
            if isinstance(found, Missing) or not _came_of(found, register, own=own):
                break
            try:
                yield from remove(bucket, key, if_version=plain_version(found.version), cause=cause)
            except Contended as error:  # written again since: look whose it is
                yield from patience.again(error)
            else:
                break


def _came_of(found: Found, register: Lineage, *, own: bool) -> bool:
    there = found.attributes.metadata
    order = there.get(SOURCE_ORDER, "")
    if there.get(SOURCE_KEY) != source_mark(register.source) or not order.isdecimal():
        return False
    return int(order) < register.order or (own and int(order) == register.order)


def home_of(bucket: OpenBucket) -> Procedure[str]:
    """What this bucket is called in the registers of others: made once, and never changed. One GET."""
    key = EventKeys(bucket.prefix).home
    found = yield from get_document(Home, key)
    if found is None:
        yield from create_named(key, documents.encode(Home((yield from NewId()))))
        found = yield from get_document(Home, key)
        if found is None:
            raise Unavailable(f"{key} was deleted while it was made; try again")
    return found[0].name


class Tidied(Value, msgspec.Struct, frozen=True):
    """What became of registers of sources that are gone."""

    looked_at: int
    removed: int


def tidy_lineage(
    bucket: OpenBucket, pipeline: str = "", *, older_seconds: float = GONE_SECONDS, dry_run: bool = False
) -> Procedure[Tidied]:
    """Remove the registers of source objects that are gone for long, of one pipeline or of all.

    A LIST per 1,000 registers, a GET for each that is old enough, and a DELETE under a condition for each that goes.
    """
    if older_seconds < GONE_SECONDS:
        raise Invalid(f"a register keeps late runs from bringing results back; it stays {GONE_SECONDS:.0f} s at least")
    by = (yield from Now()) - older_seconds
    looked_at, removed, after = 0, 0, ""
    while True:
        page = yield from list_page(EventKeys(bucket.prefix).lineages(pipeline), after=after)
        old = [entry.key for entry in page.entries if entry.stored_at < by]
        looked_at += len(page.entries)
        removed += sum((yield from all_abreast([_tidy(key, dry_run=dry_run) for key in old])))
        if not page.more:
            return Tidied(looked_at, removed)
        after = page.entries[-1].key


def _tidy(key: str, *, dry_run: bool) -> Procedure[bool]:
    found = yield from get_document(Lineage, key)
    if found is None or not found[0].gone or found[0].made:
        return False
    return dry_run or (yield from remove_state(key, found[1].version)) == "removed"


def is_current(bucket: OpenBucket, state: State) -> Procedure[bool]:
    """Whether the source object is in this state now. One HEAD."""
    found = yield from look(full_key(bucket, state.key))
    if isinstance(found, Missing):
        return state.gone
    return not state.gone and state.version in (None, plain_version(found.version))

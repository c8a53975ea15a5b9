"""Writing what came out of a chain: which objects, in which bucket, together with what. Watchers and Spark's tasks do
the same here; buckets they open, and messages they send, in their own ways.

Objects of a target that follows its source are written as one `Writing` for each source object and bucket; any other
object is one by itself. Those of one bucket are carried out together. The order of requests is `pipeline.objects` and
`pipeline.lineage`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from bucketmq.bucket.urls import without_secrets
from bucketmq.errors import BucketMQError
from bucketmq.pipeline.chain import Passed, Ran
from bucketmq.pipeline.copies import copy_objects
from bucketmq.pipeline.ends import Target, ToObjects, ToQueue, is_following
from bucketmq.pipeline.intake import Bucket, Taken, causes_of
from bucketmq.pipeline.lineage import Became, Of, follow, home_of, is_current, is_newer
from bucketmq.pipeline.objects import Wanted, check_keys, that_count, write_objects
from bucketmq.pipeline.shape import column_of
from bucketmq.pipeline.states import STATE, State, as_column, gathered, of_column
from bucketmq.pipeline.things import Thing
from bucketmq.pipeline.things import of_column as things_of_column
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure

if TYPE_CHECKING:
    import pyarrow as pa


class Writing(msgspec.Struct, frozen=True):
    """Objects that are written together: one, or all that was made of a state of a source object."""

    bucket: str | None
    """The URL of another bucket."""
    things: tuple[tuple[ToObjects, Thing], ...]
    cause: Cause = NO_CAUSE
    state: State | None = None

    @property
    def moves(self) -> bool:
        """Whether it takes its source away, which others may be made of."""
        return any(target.move for target, _ in self.things)


class Settled(msgspec.Struct, frozen=True):
    """Rows in the shape of the targets, and what writes made because of each carry."""

    batch: pa.RecordBatch
    causes: Sequence[Cause]


def settled(targets: Sequence[Target], taken: Taken, ran: Ran) -> Iterator[Settled]:
    """What is to be written of a batch that went through the chain. Where targets follow their source: also of objects
    that went, and of those of which the stages made nothing."""
    causes = [causes_of_passed(taken, each) for each in ran.passed]
    following = [column_of(place) for place, each in enumerate(targets) if is_following(each)]
    if not following:
        yield from map(Settled, ran.batches, causes)
        return
    yield from map(Settled, gathered(ran.batches, following), causes)
    made = {each.key for batch in ran.batches for each in of_column(batch.column(STATE)) if each is not None}
    lost = {each.row for each in ran.failed} | {each.row for each in ran.put_off}
    told = enumerate(zip(taken.states, taken.causes, strict=True))
    nothing = [each for row, each in told if row not in lost and each[0].key not in made]
    without = [*nothing, *taken.gone]
    if without:
        yield Settled(_states_alone(targets, [state for state, _ in without]), [cause for _, cause in without])


def causes_of_passed(taken: Taken, passed: Passed) -> Sequence[Cause]:
    """What each row that passed carries."""
    of = passed.rows if passed.of is None else passed.of
    return causes_of([taken.causes[row] for row in of] if taken.causes else (), passed.batch.num_rows)


def _states_alone(targets: Sequence[Target], states: Sequence[State]) -> pa.RecordBatch:
    import pyarrow as pa

    columns = {column_of(place): pa.nulls(len(states)) for place in range(len(targets))}
    return pa.RecordBatch.from_pydict({**columns, STATE: as_column(states)})


def writings_of(targets: Sequence[Target], batch: pa.RecordBatch, causes: Sequence[Cause]) -> list[Writing]:
    """The objects that rows in the shape of the targets become; moves come last."""
    return sorted(_writings(targets, batch, causes), key=lambda each: each.moves)


def _writings(targets: Sequence[Target], batch: pa.RecordBatch, causes: Sequence[Cause]) -> list[Writing]:
    told = causes or [NO_CAUSE] * batch.num_rows
    objects = [(place, each) for place, each in enumerate(targets) if isinstance(each, ToObjects)]
    columns = {place: _things(batch, place) for place, _ in objects}
    writings: list[Writing] = []
    for place, target in objects:
        if not is_following(target):
            rows = zip(columns[place], told, strict=True)
            things = that_count(target, ((thing, cause) for row, cause in rows for thing in row or ()))
            writings += [Writing(target.bucket, ((target, thing),), cause) for thing, cause in things]
    if STATE not in batch.schema.names:
        return writings
    newest: dict[tuple[str | None, str], list[Writing]] = {}
    for row, state in enumerate(of_column(batch.column(STATE))):
        if state is None:
            continue
        its: dict[str | None, list[tuple[ToObjects, Thing]]] = {}
        for place, target in objects:
            if is_following(target):
                its.setdefault(target.bucket, []).extend((target, thing) for thing in columns[place][row] or ())
        for bucket, together in its.items():
            others = newest.setdefault((bucket, state.key), [])
            if not any(each.state is not None and is_newer(each.state.at, state.at) for each in others):
                others[:] = [each for each in others if each.state is None or not is_newer(state.at, each.state.at)]
                others.append(Writing(bucket, tuple(together), told[row], state))
    return [*writings, *(each for others in newest.values() for each in others)]


def _things(batch: pa.RecordBatch, place: int) -> list[list[Thing] | None]:
    return things_of_column(batch.column(column_of(place)))


def messages_of(target: ToQueue, place: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that become messages of a target, with their columns."""
    import pyarrow as pa

    column = batch.column(column_of(place)).drop_null()
    if not len(column):
        return pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field("body", pa.string())]))
    return pa.RecordBatch.from_struct_array(column)


class Buckets:
    """The buckets that a pipeline writes to: its own, and those of its targets. `of` has one open, by its URL, which is
    None for its own."""

    def __init__(self, pipeline: str, targets: Sequence[Target], of: Callable[[str | None], Bucket]) -> None:
        self._pipeline = pipeline
        self._targets = targets
        self.of = of

    def open_all(self) -> None:
        """Open all of them: one that is unavailable is not the rows' fault."""
        for target in self._targets:
            if isinstance(target, ToObjects | ToQueue) and target.bucket is not None:
                with elsewhere(target.bucket):
                    self.of(target.bucket)

    def check_keys(self, url: str | None, keys: Sequence[str]) -> None:
        """`Invalid` if a bucket can have no object under one of the keys."""
        with elsewhere(url):
            there = self.of(url)
            there.run(check_keys(there.open, keys))

    def carry_out(self, writings: Sequence[Writing]) -> list[Became]:
        """Write what goes to one bucket, together; what became of each."""
        url = writings[0].bucket
        with elsewhere(url):
            there = self.of(url)
            home = "" if url is None or all(each.state is None for each in writings) else self._name
            became: list[Became] = there.run(self._carried_out(there.open, writings, home))
            return became

    def _carried_out(self, bucket: OpenBucket, writings: Sequence[Writing], home: str) -> Procedure[list[Became]]:
        plain = [
            Wanted(target, thing, each.cause)
            for each in writings
            if each.state is None
            for target, thing in each.things
        ]
        copies = [each for each in plain if each.target.copy_of is not None]
        others = [each for each in plain if each.target.copy_of is None]
        made = [Of(each.state, each.things, each.cause) for each in writings if each.state is not None]
        return [
            *(yield from write_objects(bucket, others)),
            *(yield from copy_objects(bucket, copies)),
            *(yield from follow(bucket, self._pipeline, made, self._is_current, home=home)),
        ]

    @functools.cached_property
    def _name(self) -> str:
        """What the pipeline's bucket is called in others."""
        home = self.of(None)
        return str(home.run(home_of(home.open)))

    def _is_current(self, state: State) -> bool:
        home = self.of(None)
        return bool(home.run(is_current(home.open, state)))


@contextmanager
def elsewhere(bucket: str | None) -> Iterator[None]:
    """Errors of another bucket say which one it is."""
    try:
        yield
    except BucketMQError as error:
        if bucket is None:
            raise
        raise type(error)(f"bucket {without_secrets(bucket)} of a target: {error}") from error

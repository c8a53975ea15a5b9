"""The chore `replay`: a filtered time span of a queue's log and archive, sent again.

Into a queue it is one transaction of the sink, published once whichever process dies when. To one subscription, or to
the rule that is one, the driver sends, because such messages lie in segments of their own; what of a replay is in the
log already, by the names it left in the headers, is not sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid, NotFound
from bucketmq.events import filters
from bucketmq.events.filters import Decision
from bucketmq.log.bodies import decode_body, to_base64
from bucketmq.log.segment import time_text
from bucketmq.pipeline.dead import with_own_body
from bucketmq.procedures.bulk.publish import Publication
from bucketmq.procedures.objects.report import REPLAY_HEADER
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.pace import BATCH, RATE_PER_SECOND, Pace
from bucketmq.procedures.queues import EVENTS
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.rules.choice import event_of
from bucketmq.procedures.rules.registry import get_rule
from bucketmq.procedures.sending.directed import send_to
from bucketmq.procedures.upkeep.readers import all_readers
from bucketmq.procedures.verbs import get_document
from bucketmq.queue.message import Message
from bucketmq.queue.settings import DEAD_SUFFIX, check_name
from bucketmq.spark.history.standing import standings
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


OF_HEADER = "bucketmq-replay-of"
"""In a message that was replayed to one subscription: the shard and offset of the one it repeats."""


class Replayed(msgspec.Struct, frozen=True):
    """What a replay sent."""

    id: str
    messages: int
    """Sent by this run; in a dry run, those that would be."""
    already: bool
    """Whether some or all of it had been sent before, under the same id."""


def run(
    spark: SparkSession,
    bucket_url: str,
    *,
    queue: str,
    replay_id: str,
    to_queue: str | None = None,
    subscription: str | None = None,
    rule: str | None = None,
    since: str | None = None,
    until: str | None = None,
    key: str | None = None,
    where: str | None = None,
    rate_per_second: float = RATE_PER_SECOND,
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
) -> Replayed:
    """Send messages of `queue` again: to `to_queue` (itself if need be), or to one subscription of it, or to a rule.

    Which: sent from `since` until before `until` (like 2026-11-16T12:00:00Z), with this `key`, for which `where` holds,
    an SQL predicate over the columns of `bucketmq.history`. Run again under the same `replay_id` it sends what is
    missing, if anything. Into a queue that is remembered for as long as the sink remembers a transaction; to a
    subscription for as long as the messages are in the log or the archive, and for one replay at a time.
    """
    check_name(replay_id, "replay id")
    if [to_queue, subscription, rule].count(None) != 2:
        raise Invalid("a replay has one target: to_queue, subscription or rule")
    if rule is not None and queue != EVENTS:
        raise Invalid(f"rules are given what is in the queue {EVENTS!r}; replay that one, not {queue!r}")
    pace = Pace(rate_per_second)
    given = dict(options or {})
    rows = _chosen(spark, bucket_url, queue, given, _predicates(replay_id, since, until, key, where))
    if to_queue is not None:
        return _into_queue(rows, bucket_url, to_queue, given, replay_id, dry_run=dry_run)
    target = _Subscription(place_of(bucket_url, queue, given), replay_id, subscription=subscription, rule=rule)
    return target.replay(rows, pace, dry_run=dry_run)


def _predicates(replay_id: str, since: str | None, until: str | None, key: str | None, where: str | None) -> list[Any]:
    from pyspark.sql import functions as F

    found = [F.col("to").isNull(), F.expr(f"not coalesce(headers['{REPLAY_HEADER}'] = '{replay_id}', false)")]
    if since is not None:
        found.append(F.col("sent_at") >= F.lit(_moment(since, "since")))
    if until is not None:
        found.append(F.col("sent_at") < F.lit(_moment(until, "until")))
    if key is not None:
        found.append(F.col("key") == key)
    if where is not None:
        found.append(F.expr(where))
    return found


def _moment(text: str, what: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{what} must be a time like 2026-11-16T12:00:00Z, not {text[:60]!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _chosen(spark: SparkSession, url: str, queue: str, options: dict[str, str], predicates: Iterable[Any]) -> DataFrame:
    from bucketmq.spark.history.tables import history

    rows = history(spark, url, queue, options=options)
    for each in predicates:
        rows = rows.where(each)
    return rows


def _into_queue(
    rows: DataFrame, url: str, target: str, options: dict[str, str], replay_id: str, *, dry_run: bool
) -> Replayed:
    """As one transaction of the sink, in the order in which the messages were sent."""
    if target.endswith(DEAD_SUFFIX):
        raise Invalid(f"{target!r} is for dead letters; replay into another queue")
    transaction = f"replay-{replay_id}"
    place = place_of(url, target, options)
    if _published(place, transaction) is not None:
        return Replayed(replay_id, 0, already=True)
    if dry_run:
        return Replayed(replay_id, rows.count(), already=False)
    kept = f"map_filter(coalesce(headers, map()), (name, _) -> name != '{REPLAY_HEADER}')"
    letters = rows.orderBy("sent_at", "shard", "offset").selectExpr(
        "key", f"map_concat({kept}, map('{REPLAY_HEADER}', '{replay_id}')) as headers", "body", "body_bytes"
    )
    writer = letters.write.format("bucketmq").options(**options).option("path", url).option("queue", target)
    writer.option("txn", transaction).mode("append").save()
    done = _published(place, transaction)
    return Replayed(replay_id, 0 if done is None else sum(each.count for each in done.segments), already=False)


def _published(place: Place, transaction: str) -> Publication | None:
    """What the transaction published into a queue, if it is done; nothing where there is no queue yet."""
    try:
        there = opened(place)
    except NotFound:
        return None
    return there.run(_register(there.queue, transaction))


def _register(queue: OpenQueue, transaction: str) -> Procedure[Publication | None]:
    """What the transaction published, if it is done."""
    found = yield from get_document(Publication, queue.keys.publication(transaction))
    return found[0] if found is not None and found[0].done and found[0].batch >= 0 else None


class _Subscription:
    """A replay to one subscription of the queue itself."""

    def __init__(self, place: Place, replay_id: str, *, subscription: str | None, rule: str | None) -> None:
        self._place = place
        self._id = replay_id
        self._here = opened(place)
        self._rule = None if rule is None else self._here.run(get_rule(self._here.queue.bucket, rule))
        name = subscription if self._rule is None else self._rule.subscription
        assert name is not None
        self._name = check_name(name, "subscription name")
        if self._rule is None:
            self._here.run(_check_reads(self._here.queue, self._name))

    def replay(self, rows: DataFrame, pace: Pace, *, dry_run: bool) -> Replayed:
        from pyspark.sql import functions as F

        from bucketmq.spark.history.tables import history

        event = F.get_json_object("body", "$.id")
        sent = (
            history(rows.sparkSession, self._place.url, self._place.queue, options=dict(self._place.options))
            .where(F.expr(f"coalesce(headers['{REPLAY_HEADER}'] = '{self._id}', false)") & (F.col("to") == self._name))
            .select(F.expr(f"headers['{OF_HEADER}']").alias("place_of_it"), event.alias("event_of_it"))
        )
        already = not sent.isEmpty()
        left = rows.withColumn("its_place", F.expr("concat(shard, '/', offset)"))
        if self._rule is None:
            left = left.join(sent, F.col("its_place") == F.col("place_of_it"), "left_anti")
        else:  # an event is sent once, however often it is in the log
            left = left.withColumn("event", event).dropDuplicates(["event"])
            left = left.join(sent, F.col("event") == F.col("event_of_it"), "left_anti")
        columns = left.orderBy("sent_at", "shard", "offset").select("its_place", "key", "headers", "body", "body_bytes")
        count = 0
        messages = self._messages(columns.toLocalIterator(prefetchPartitions=True))
        while batch := tuple(islice(messages, BATCH)):
            if not dry_run:
                self._here.run(_send(self._here.queue, self._name, batch, pace))
            count += len(batch)
        return Replayed(self._id, count, already=already)

    def _messages(self, rows: Iterator[Any]) -> Iterator[Message]:
        chosen = None if self._rule is None else filters.parse(self._rule.filter)
        for row in rows:
            headers = {**(row.headers or {}), REPLAY_HEADER: self._id, OF_HEADER: row.its_place}
            if row.body_bytes is not None:
                message = Message("", "", row.key, headers, body_base64=to_base64(bytes(row.body_bytes)))
            else:
                body = None if row.body is None else decode_body(row.body.encode(), f"the message at {row.its_place}")
                message = Message("", "", row.key, headers, body)
            event = None if chosen is None else event_of(message)
            if chosen is None or (event is not None and chosen.decide(event) is not Decision.NO_MATCH):
                yield message


def _check_reads(queue: OpenQueue, name: str) -> Procedure[None]:
    """Raise `NotFound` unless a subscription or a query on Spark has this name: no other reader would ever be given
    what is sent to it."""
    names = {*(yield from standings(queue)), *(yield from all_readers(queue))}
    if name not in names:
        there = ", ".join(sorted(names)) or "none"
        raise NotFound(f"queue {queue.name!r} has no reader {name!r}; there are {there}")


def _send(queue: OpenQueue, subscription: str, batch: tuple[Message, ...], pace: Pace) -> Procedure[None]:
    yield from pace.take(len(batch))
    name = yield from NewId()
    at = time_text((yield from Now()))
    named = []
    for place, each in enumerate(batch):
        named.append((yield from with_own_body(queue, msgspec.structs.replace(each, id=f"{name}-{place}", at=at))))
    yield from send_to(queue, subscription, named)

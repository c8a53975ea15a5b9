"""The chore `audit`: sent = settled + dead + unsettled, per queue, subscription or rule, and day.

Every message of log and archive is looked at on the executors, beside the heads and the dead letters. Offsets are
dense, so what is neither in the log nor in the archive, and was not trimmed, is lost: it is counted, too. What a rule
was given is judged by the library's own audit (`procedures.rules.audit`), shard by shard, as far as the log goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.client import connect
from bucketmq.events import filters
from bucketmq.events.rule import Rule
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import EVENTS, reload_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules.audit import LATE_SECONDS, Audited, Books, open_dead_letters, read_shard
from bucketmq.procedures.rules.registry import list_rules
from bucketmq.procedures.segments.tail import listed_tail, trim_mark
from bucketmq.procedures.upkeep.archive import Archive, read_archive
from bucketmq.queue.head import Span
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.queue.spans import without
from bucketmq.spark.history.standing import UNSETTLED
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place, place_of
from bucketmq.spark.running.tasks import on_executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COLUMNS = """queue string, subscription string, rule string, day string, sent bigint, settled bigint, dead bigint,
    unsettled bigint, expired bigint, lost bigint, complete boolean"""


_BECAME = ("settled", "dead", "unsettled", "expired")
"""What became of a message, as lines count it."""

DAY = "date_format(to_utc_timestamp(sent_at, current_timezone()), 'yyyy-MM-dd')"
"""The day in UTC, whatever the session's time zone is."""


class Line(msgspec.Struct, frozen=True):
    """What was sent on a day, for one subscription, or matched one rule: `sent` is the sum of the numbers behind it."""

    queue: str
    subscription: str | None
    """None for a queue that nobody reads; what is sent there is settled at once."""
    rule: str | None
    """The rule, in lines about what matched one."""
    day: str | None
    """In UTC; None for what is lost and has no neighbour."""
    sent: int
    settled: int
    """Dead letters that were dealt with included."""
    dead: int
    """Dead letters that were not redriven."""
    unsettled: int
    """Ready, in flight or delayed."""
    expired: int
    lost: int
    complete: bool


class Audit(msgspec.Struct, frozen=True):
    """What an audit found. `str()` of it is a table."""

    lines: tuple[Line, ...]
    complete: bool
    """Whether nothing is lost."""

    def __str__(self) -> str:
        names = Line.__struct_fields__
        cells = [[_text(getattr(line, name)) for name in names] for line in self.lines]
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        rows = [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (names, *cells)]
        return "\n".join(row.rstrip() for row in rows)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return "-" if value is None else str(value)


def run(
    spark: SparkSession,
    bucket_url: str,
    *,
    queue: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Audit:
    """Account for every message of a queue, or of all queues, dead letters' own apart. Reads them all."""
    given = dict(options or {})
    names = [queue] if queue is not None else _queues(bucket_url, given)
    lines: list[Line] = []
    for name in names:
        lines += _queue_lines(spark, place_of(bucket_url, name, given))
        if name == EVENTS:
            lines += _rule_lines(spark, place_of(bucket_url, name, given))
    return Audit(tuple(lines), all(line.complete for line in lines))


def table(spark: SparkSession, audit: Audit) -> DataFrame:
    """The lines of an audit as a DataFrame."""
    return spark.createDataFrame([msgspec.structs.astuple(line) for line in audit.lines], COLUMNS)


def _queues(url: str, options: Mapping[str, str]) -> list[str]:
    with connect(url, probe=False, **options) as bucket:
        return bucket.queues()


class Bounds(msgspec.Struct, frozen=True):
    """What of a queue there should be: of each shard the offsets from `starts` up to `ends`, without the trimmed."""

    starts: dict[int, int]
    ends: dict[int, int]
    trimmed: dict[int, tuple[tuple[int, int], ...]]


def bounds(queue: OpenQueue, ends: Mapping[int, int] | None) -> Procedure[Bounds]:
    """The bounds as they are now; `ends` as they were before, if they were asked for before."""
    yield from reload_settings(queue)
    archive = yield from read_archive(queue)
    starts, trimmed, tails = {}, {}, {}
    for shard in range(queue.settings.shards):
        low = yield from trim_mark(queue.log(shard))
        starts[shard] = archive.since.get(shard, low)
        trimmed[shard] = _trimmed(archive, shard, low)
        tails[shard] = (yield from listed_tail(queue, queue.log(shard))) if ends is None else ends.get(shard, 0)
    return Bounds(starts, tails, trimmed)


def _trimmed(archive: Archive, shard: int, low: int) -> tuple[tuple[int, int], ...]:
    """What was trimmed and not archived: skipped but not lost, and what was trimmed since an archive was released."""
    skipped, lost = ([Span(0, *span) for span in each.get(shard, ())] for each in (archive.skipped, archive.lost))
    trimmed = tuple((span.start, span.stop) for span in without(skipped, lost))
    mark = archive.watermark.get(shard, low)
    return (*trimmed, (mark, low)) if mark < low else trimmed


def _queue_lines(spark: SparkSession, place: Place) -> list[Line]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from bucketmq.spark.history.view import View

    here = opened(place)
    before = here.run(bounds(here.queue, None))
    view = View(spark, place.url, dict(place.options), strict=False)
    ends = spark.createDataFrame(list(before.ends.items()), "shard int, its_end bigint")
    records = (
        view.records(place.queue)
        .select("shard", "offset", "fence", "outcomes", F.expr(DAY).alias("day"))
        .join(F.broadcast(ends), "shard")
        .where("offset < its_end")
    )
    by_offset = Window.partitionBy("shard").orderBy("offset")
    neighbours = records.select(
        "shard",
        "offset",
        "day",
        F.lead("offset").over(by_offset).alias("following"),
        F.lag("offset").over(by_offset).alias("previous"),
    ).where("following is null or following > offset + 1 or previous is null")
    edges = [(row.shard, row.offset, row.following, row.day) for row in neighbours.collect()]
    counted = _counted(records, _open_letters(view, place.queue)).collect()
    after = here.run(bounds(here.queue, before.ends))  # what trimming took meanwhile is not lost
    lost = _lost(after, sorted(edges))
    return _lines(place.queue, counted, lost)


def _open_letters(view: Any, queue: str) -> DataFrame | None:
    """The dead letters that were not redriven, by where they died."""
    if queue.endswith(DEAD_SUFFIX):
        return None
    dead: DataFrame = view.records(queue + DEAD_SUFFIX, must_exist=False)
    open_ = f"died is not null and coalesce(outcomes['main'], 'done') in {UNSETTLED}"
    return (
        dead.where(open_)
        .selectExpr("died.subscription as subscription", "died.shard as shard", "died.offset as offset", "true as open")
        .distinct()
    )


def _counted(records: DataFrame, letters: DataFrame | None) -> DataFrame:
    """Per subscription and day: how many messages, and what became of them."""
    from pyspark.sql import functions as F

    rows = records.where("fence is null").select(
        "shard", "offset", "day", F.explode_outer("outcomes").alias("subscription", "outcome")
    )
    if letters is None:
        rows = rows.withColumn("open", F.lit(None).cast("boolean"))
    else:
        rows = rows.join(letters, ["subscription", "shard", "offset"], "left")
    became = F.expr(
        f"case when open then 'dead' when outcome in {UNSETTLED} then 'unsettled' "
        "when outcome = 'expired' then 'expired' else 'settled' end"
    )
    sums = [F.count_if(F.col("became") == kind).alias(kind) for kind in _BECAME]
    return rows.withColumn("became", became).groupBy("subscription", "day").agg(F.count("*").alias("sent"), *sums)


def _lost(bounds: Bounds, edges: Sequence[tuple[int, int, int | None, str]]) -> dict[str | None, int]:
    """How many messages are missing, by the day of the one before them, or behind them if there is none before."""
    found: dict[str | None, int] = {}
    for shard, start in bounds.starts.items():
        its = [(offset, following, day) for number, offset, following, day in edges if number == shard]
        end = bounds.ends.get(shard, 0)
        holes = [(offset + 1, end if following is None else following, day) for offset, following, day in its]
        first = (start, its[0][0], its[0][2]) if its else (start, end, None)
        for low, high, day in (first, *holes):
            missing = max(0, high - low) - sum(_overlap((low, high), span) for span in bounds.trimmed[shard])
            if missing > 0:
                found[day] = found.get(day, 0) + missing
    return found


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def _lines(queue: str, counted: Iterable[Any], lost: Mapping[str | None, int]) -> list[Line]:
    rows = {(row.subscription, row.day): row for row in counted}
    subscriptions = sorted({name for name, _ in rows if name is not None}) or [None]
    lines = []
    for name in subscriptions:
        for day in sorted({day for of, day in rows if of == name} | lost.keys(), key=str):
            lines.append(_line(queue, name, day, rows.get((name, day)), lost.get(day, 0)))
    return lines


def _line(queue: str, subscription: str | None, day: str | None, row: Any, lost: int) -> Line:
    settled, dead, unsettled, expired = (0 if row is None else row[kind] for kind in _BECAME)
    sent = lost + (0 if row is None else row.sent)
    complete = lost == 0 and sent == settled + dead + unsettled + expired
    return Line(queue, subscription, None, day, sent, settled, dead, unsettled, expired, lost, complete)


class _Count(msgspec.Struct, frozen=True):
    """What one task counts: what a rule was given of one shard."""

    place: Place
    rule: Rule
    shard: int
    dead: frozenset[tuple[int, int]]


def _rule_lines(spark: SparkSession, place: Place) -> list[Line]:
    here = opened(place)
    kept = here.run(list_rules(here.queue.bucket))
    rules = [each.rule for _, each in sorted(kept.items()) if each.rule.removed_at is None]
    tasks = []
    for rule in rules:
        dead = here.run(open_dead_letters(here.queue.bucket, rule))
        tasks += [_Count(place, rule, shard, dead) for shard in range(here.queue.settings.shards)]
    days: dict[tuple[str, str], list[Audited]] = {}
    for counts in on_executors(spark, _count, tasks):
        for day, audited in counts.items():
            days.setdefault((audited.rule, day), []).append(audited)
    names = {rule.name: rule.subscription for rule in rules}
    return [_rule_line(names[rule], rule, day, audited) for (rule, day), audited in sorted(days.items())]


def _rule_line(subscription: str, rule: str, day: str, audited: Sequence[Audited]) -> Line:
    matched = sum(each.matched for each in audited)
    delivered = sum(each.delivered for each in audited)
    unsettled = sum(each.ready + each.in_flight + each.delayed for each in audited)
    dead = matched - delivered - unsettled
    return Line(EVENTS, subscription, rule, day, matched, delivered, dead, unsettled, 0, 0, complete=True)


def _count(task: _Count) -> dict[str, Audited]:
    """What a rule was given of a shard, by the day of the change. On an executor."""
    here = opened(task.place)
    days: dict[str, Audited] = {}
    books = Books(
        task.rule,
        filters.parse(task.rule.filter),
        LATE_SECONDS,
        lambda event: days.setdefault(event.at[:10], Audited(task.rule.name)),
        task.dead,
    )
    here.run(read_shard(here.queue, task.shard, books))
    return {day: audited for day, audited in days.items() if audited.matched}

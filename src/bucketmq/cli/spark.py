"""Verbs about what queues know of Spark queries: their readers, their transactions, what they left behind.

None of them needs Spark. Running pipelines is `bucketmq.cli.pipeline`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from bucketmq.cli.exits import agree
from bucketmq.cli.options import Json, QueueName, Url, Yes, the_url
from bucketmq.cli.output import answer, emit, plural, say
from bucketmq.errors import Invalid


def forget(
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The reader, as stats shows it, or the transaction.")],
    *,
    txn: Annotated[
        bool, typer.Option("--txn", help="A transaction that wrote to the queue, not a reader of it.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Forget a query that ended for good, after asking.

    A reader that is forgotten no longer holds back trimming. Of a transaction (--txn) the queue forgets which batches
    were published: run again, they would be published again.
    """
    from bucketmq.spark.upkeep import readers

    place = the_url(url), queue, name
    readers.find(*place, txn=txn)  # or there is nothing to ask about
    what = "what was published by" if txn else "the reader"
    agree(f"Forget {what} {name} of {queue}?", yes=yes)
    known = readers.forget(*place, txn=txn)
    row = {"queue": queue, "name": name, "kind": "transaction" if txn else "reader", "was": msgspec.to_builtins(known)}
    answer(row, f"forgot {what} {name}", as_json=as_json)


def orphans(queue: QueueName, url: Url = None, as_json: Json = False) -> None:
    """Delete what failed writes left behind: parts older than a day that nothing names.

    Trimming does this by itself, once a day.
    """
    from bucketmq.spark.upkeep import orphans as spark_orphans

    removed = spark_orphans.remove(the_url(url), queue)
    answer({"queue": queue, "removed": removed}, f"removed {plural(removed, 'orphan')}", as_json=as_json)


def restore_checkpoint(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The new checkpoint; must be empty or not there.")],
    *,
    queue: Annotated[
        str, typer.Option("--queue", metavar="QUEUE", help="The queue written to, for --txn, or read, for --reader.")
    ],
    txn: Annotated[
        str | None, typer.Option("--txn", metavar="NAME", help="The query's id, or the txn of its sink.")
    ] = None,
    reader: Annotated[
        str | None, typer.Option("--reader", metavar="NAME", help="The subscription of its source.")
    ] = None,
    batch: Annotated[int, typer.Option(min=0, help="With --reader: the last batch that the target knows.")] = 0,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make the checkpoint of a Spark query again, where it was lost.

    From what its sink noted in the queue it wrote to (--txn), and nothing is doubled; or from how far its reader came
    in the queue it read (--reader), whatever it wrote to, and the last batches may run again. Queries with state
    cannot be restored.
    """
    from bucketmq.spark.upkeep import restore

    if (txn is None) == (reader is None):
        raise Invalid("give --txn or --reader, one of them")
    place = the_url(url)
    if txn is not None:
        restored = restore.restore_checkpoint(place, queue, txn, folder)
    else:
        assert reader is not None
        restored = restore.restore_from_reader(place, queue, reader, folder, batch=batch)
    if as_json:
        emit({"checkpoint": folder, **msgspec.to_builtins(restored)})
        return
    for name, offsets in restored.offsets.items():
        say(f"{name} is read on at {', '.join(f'{offset:,} of shard {shard}' for shard, offset in offsets.items())}")
    say(f"{folder} is ready; the next batch is number {restored.batch + 1}")

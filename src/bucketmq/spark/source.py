"""The data source by its name, `bucketmq`: what Spark asks first, and hands everything else on.

Reading is `spark.read.reader`, writing `spark.write.sink`. Nothing here makes a request: Spark makes new ones of these
objects for every step of a query.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter

from bucketmq.errors import Invalid
from bucketmq.pipeline.bodies import RESCUED
from bucketmq.spark.options import ASKED_FOR, COLUMNS, FORMAT, SourceOptions, sink_options, source_options
from bucketmq.spark.read.reader import BatchReader, StreamReader
from bucketmq.spark.setup.interpreter import use_this_python
from bucketmq.spark.write.objects_sink import ObjectsBatchWriter, ObjectsStreamWriter
from bucketmq.spark.write.sink import BatchWriter, StreamWriter
from bucketmq.spark.write.targets_sink import TargetsBatchWriter, TargetsStreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """Make `format("bucketmq")` known to a session. Doing it again does no harm.

    A session of this machine also starts the Python of this program from now on, unless PYSPARK_PYTHON names another:
    `python3` from PATH, which Spark takes by itself, may have no bucketmq.
    """
    use_this_python(spark)
    spark.dataSource.register(BucketMQSource)


class BucketMQSource(DataSource):
    """A queue as a table: `spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `format("bucketmq")`.

    ```python
    bucketmq.connect("/data/inbox").queue("orders").send_many([{"n": 1}, {"n": 2}], key="user-7")
    orders = spark.read.format("bucketmq").option("path", "/data/inbox").option("queue", "orders").load()
    orders.select("key", "body", "shard", "offset").show()
    ```

    ```text
    +------+-------+-----+------+
    |   key|   body|shard|offset|
    +------+-------+-----+------+
    |user-7|{"n":1}|    0|     0|
    |user-7|{"n":2}|    0|     1|
    +------+-------+-----+------+
    ```

    Columns of the source:

    | column | type | what |
    |---|---|---|
    | `id` | string | the message's id |
    | `key` | string | its ordering key, or null |
    | `headers` | map<string,string> | or null |
    | `body` | string | the body as JSON text (a text has its quotes); null for JSON's null and for bytes |
    | `body_bytes` | binary | the body of a message that was sent as bytes, else null |
    | `sent_at` | timestamp | when it was sent |
    | `shard`, `offset` | int, long | where it lies; offsets of a shard are dense |
    | `died` | string | only if `columns` names it: how a redriven message died, as JSON |

    With `bodySchema` the body is a struct of these fields, and `_rescued` (string) has, as JSON, what did not fit.
    A message that was sent again to one subscription alone (a redriven dead letter) is a row for the stream that has
    its name as `subscription`, and for no other.

    Options of both:

    | option | default | what |
    |---|---|---|
    | `path` | | URL of the bucket, as for `bucketmq.connect`; secrets come from the environment of every process |
    | `queue` | | name of the queue; `events` for the bucket's events, `<queue>.dead` for dead letters (source) |
    | `endpoint`, `region`, ... | | whatever else the store takes; see `bucketmq.bucket.urls.open_store` |

    Options of the source:

    | option | default | what |
    |---|---|---|
    | `startingOffsets` | `earliest` | or `latest`, `{"0": 120, "1": 7}`, or a time like `2026-11-16T12:00:00Z` |
    | `endingOffsets` | `latest` | the same, for batch reads: the first offset that is not read |
    | `maxRowsPerTrigger` | none | exactly, as long as there are so many; divided between shards by what each has |
    | `maxBytesPerTrigger` | none | about; bytes like `64m` |
    | `minPartitions` | none | otherwise about two for each core, each at least 1 MiB |
    | `rowsPerPartition` | none | so many rows are worth a task of their own, however small: for rows that take long |
    | `pollInterval` | `1s` | how often the ends of the shards are asked for, at most |
    | `failOnDataLoss` | `true` | whether a query fails when messages were trimmed before it read them |
    | `columns` | all | some of the columns, like `key,body`: Spark cannot ask for fewer by itself |
    | `bodySchema` | none | fields of the body, like `user string, amount double` |
    | `subscription` | none | for streams: a name for the query as a reader of the queue, one query at a time |

    The queue knows how far a stream has come, in its document `readers/<name>.json`: `stats` tells its lag, and
    trimming leaves what it still needs if it has a name (`subscription`). It is told every five seconds at most, of
    batches that are done for good. A stream without a name gets one for its lag's sake, and holds nothing back.

    ```python
    nightly = spark.readStream.format("bucketmq").option("path", "/data/inbox").option("queue", "orders")
    copy = nightly.option("subscription", "nightly").load().writeStream.format("noop")
    copy.option("checkpointLocation", "/data/nightly").trigger(availableNow=True).start().awaitTermination()
    print(bucketmq.connect("/data/inbox").queue("orders").stats().readers[0].lag)
    ```

    ```text
    0
    ```

    `startingOffsets` counts when a query has no checkpoint yet, and no reader of its name is known to the queue: then
    it begins where that one is. A time means the first segment stored at or after it; a
    shard that is not named begins at its beginning, and ends at its end.

    Options of the sink:

    | option | default | what |
    |---|---|---|
    | `txn` | the query's id | the transaction: a batch of it is published once; batch writes have none by default |
    | `batch` | `0` | the number of a batch write within its `txn`; numbers below the last are taken for published |
    | `bodyFormat` | `json` | `json`: a body of text is JSON; `text`: it is text |
    | `objects` | none | a key template like `pending/{id}.json`, instead of `queue`: every row becomes an object |
    | `body` | all | with `objects`: the column that is the content; otherwise the row as a JSON object |
    | `contentType` | by the key | with `objects`: the content type |
    | `ifExists` | `replace` | with `objects`: `keep` what is there, `replace` it, or by what is `newer` or `newest` |
    | `newerBy` | none | with `ifExists` `newer` or `newest`: the column that tells, a whole number or a time |

    (`targets` and `deadLetters` are what a pipeline gives the sink; start it with `bucketmq.spark.start`.)

    The sink takes the columns `body` (or `value`: text, bytes, or anything that JSON has, such as a struct), `key`,
    `headers`, `body_bytes`; and overlooks `id`, `sent_at`, `shard` and `offset`, so that rows of the source can be
    written as they are. Other columns are an error. Objects take any columns; see `pipeline.ends.ToObjects`. They
    are written when a task runs, at least once, and a row that changes nothing is not written again.

    | capability | |
    |---|---|
    | batch and micro-batch read | yes, as Arrow batches |
    | read limits, `availableNow`, lag in the progress (`latestOffset`) | yes |
    | batch and streaming write, append | yes, once for each transaction and batch |
    | overwrite, complete and update mode | no: a queue has no rows to replace |
    | continuous and real-time trigger, async progress | no: Spark has none for Python sources |
    | column and filter pushdown | no; use the option `columns` |
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        options = self._source(streaming="endingoffsets" not in {name.lower() for name in self.options})
        types = COLUMNS | ASKED_FOR | {"sent_at": "timestamp_ltz"}  # "timestamp" may be set to mean another one
        columns = list(options.columns)
        if options.body_schema is not None and "body" in columns:
            types["body"] = _struct_of(options.body_schema)
            types[RESCUED] = "string"
            columns.insert(columns.index("body") + 1, RESCUED)
        return ", ".join(f"`{name}` {types[name]}" for name in columns)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._source(streaming=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._source(streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _check_append(overwrite)
        options = sink_options(self.options)
        if options.ends is not None:
            return TargetsBatchWriter(options, schema)
        return (BatchWriter if options.objects is None else ObjectsBatchWriter)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _check_append(overwrite)
        options = sink_options(self.options)
        if options.ends is not None:
            return TargetsStreamWriter(options, schema)
        return (StreamWriter if options.objects is None else ObjectsStreamWriter)(options, schema)

    def _source(self, *, streaming: bool) -> SourceOptions:
        return source_options(self.options, streaming=streaming)


def _struct_of(fields: str) -> str:
    text = fields.strip()
    if re.search(r"\bnot\s+null\b", text, re.IGNORECASE):
        raise Invalid("bodySchema has NOT NULL, but a body may lack any field; leave it out and filter the rows")
    return text if re.match(r"struct\s*<", text, re.IGNORECASE) else f"struct<{text}>"


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise Invalid('a queue is appended to and has nothing to overwrite; write with mode("append")')

"""The options of the Spark source and sink: texts, checked once, as values that travel to the executors.

Spark hands options over as texts with names in any case. What those of the store mean (endpoint, region, ...) belongs
to `bucketmq.bucket.urls`; here they are only told apart. Secrets belong into the environment of driver and executors:
what a user writes into an option anyway travels with the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bucketmq.bucket.settings import OPTIONS
from bucketmq.bucket.urls import check_url, without_secrets
from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import PLACED_COLUMNS
from bucketmq.pipeline.ends import Target, ToObjects
from bucketmq.procedures.queues import EVENTS, check_queue_name
from bucketmq.queue.settings import DEAD_SUFFIX, SHARDS_MAX, check_name

FORMAT = "bucketmq"

EARLIEST = "earliest"
LATEST = "latest"
STARTING = "startingOffsets"
ENDING = "endingOffsets"

STORE_OPTIONS = {name for names in OPTIONS.values() for name in names}

SINK_OPTIONS = (
    "txn",
    "batch",
    "bodyFormat",
    "deadLetters",
    "objects",
    "body",
    "contentType",
    "ifExists",
    "newerBy",
    "targets",
)
SPARKS_OWN = frozenset({"checkpointlocation", "path", "outputmode", "queryname"})
"""Options that Spark itself puts into a source's or a sink's."""

COLUMNS = PLACED_COLUMNS
"""The columns of the source, in their order, and their types."""

ASKED_FOR = {"died": "string"}
"""Columns that are there if they are asked for by name. Of a redriven message: how it died, as JSON."""

Where = str | dict[int, int] | float
"""A place in every shard: "earliest", "latest", an offset for each shard, or a time in seconds since 1970."""


class Place(msgspec.Struct, frozen=True):
    """A queue in a bucket, as an executor opens it."""

    url: str
    queue: str
    options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Place({without_secrets(self.url)!r}, {self.queue!r})"


class SourceOptions(msgspec.Struct, frozen=True):
    """What a reader wants."""

    place: Place
    starting: Where = EARLIEST
    ending: Where = LATEST
    rows_max: int | None = None
    bytes_max: int | None = None
    partitions_min: int | None = None
    partition_rows: int | None = None
    """So many rows are worth a task of their own, however few bytes they are."""
    poll_seconds: float = 1.0
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = tuple(COLUMNS)
    body_schema: str | None = None
    subscription: str | None = None
    """The name of the reader that a stream is for the queue."""


class Ends(msgspec.Struct, frozen=True):
    """The targets of a pipeline, in the order of their columns."""

    pipeline: str
    targets: tuple[Target, ...]


class SinkOptions(msgspec.Struct, frozen=True):
    """What a writer wants."""

    place: Place
    transaction: str | None = None
    batch: int = 0
    text: bool = False
    """Whether a body of text is text, and not JSON."""
    checkpoint: str | None = None
    dead_letters: str | None = None
    """The queue whose dead letters rows with a column `_dead` become."""
    objects: ToObjects | None = None
    """Where rows become objects, and not messages: how."""
    ends: Ends | None = None
    """Where rows have the shape of a pipeline's targets: which."""


def targets_option(pipeline: str, targets: tuple[Target, ...]) -> str:
    """The targets of a pipeline as the text of an option."""
    return msgspec.json.encode(Ends(pipeline, targets)).decode()


def other_place(home: Place, url: str | None, queue: str) -> Place:
    """A queue in the pipeline's bucket, or in that of a target. Options of the store hold for all of its kind."""
    if url is None:
        return msgspec.structs.replace(home, queue=queue)
    kin = check_url(url) == check_url(home.url)
    return place_of(url, queue, dict(home.options) if kin else {})


def place_of(url: str, queue: str, options: Mapping[str, str]) -> Place:
    """A queue in a bucket, dead letters too; `options` are those of the store. Makes no request."""
    return _Options({**options, "path": url, "queue": queue}, ()).place(allow_dead=True)


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a reader, or `Invalid`. Makes no request."""
    options = _Options(given, SOURCE_OPTIONS)
    texts = {name: text for name in SOURCE_OPTIONS if (text := options.text(name)) is not None}
    if streaming and ENDING in texts:
        raise Invalid("a stream has no end: leave endingOffsets out, or use spark.read")
    if not streaming:
        for limit in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
            if limit in texts:
                raise Invalid(f"{limit} is for streams; use endingOffsets, or spark.readStream with availableNow")
        if "subscription" in texts:
            raise Invalid("subscription is for streams, which have progress; leave it out, or use spark.readStream")
    meant = {field: read(name, texts[name]) for name, (field, read) in _SOURCE.items() if name in texts}
    found = SourceOptions(options.place(allow_dead=True), **meant)
    if not streaming and found.starting == LATEST:
        raise Invalid("a batch read that starts at the latest offset reads nothing; choose another startingOffsets")
    return found


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a writer, or `Invalid`. Makes no request."""
    options = _Options(given, SINK_OPTIONS)
    transaction = options.text("txn")
    if transaction is not None:
        check_name(transaction, "txn")
    batch = options.text("batch")
    if batch is not None and (not batch.isdecimal() or transaction is None):
        raise Invalid(f"batch must be a whole number from 0 and goes with a txn, not {batch!r}")
    kind = options.text("bodyFormat") or "json"
    if kind not in ("json", "text"):
        raise Invalid(f"bodyFormat must be json or text, not {kind!r}")
    dead_letters = options.text("deadLetters")
    if dead_letters is not None:
        check_queue_name(dead_letters)
    objects, ends = options.objects(), options.ends()
    if (dead_letters is None) != (ends is None):
        raise Invalid("deadLetters and targets go together: they are what a pipeline gives the sink")
    return SinkOptions(
        place=options.sink_place(objects, dead_letters),
        transaction=transaction,
        batch=int(batch or 0),
        text=kind == "text",
        checkpoint=options.text("checkpointLocation"),
        dead_letters=dead_letters,
        objects=objects,
        ends=ends,
    )


class _Options:
    """Texts by names in any case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        allowed = {name.lower() for name in known} | STORE_OPTIONS | SPARKS_OWN | {"queue"}
        unknown = sorted(set(self._given) - allowed)
        if unknown:
            other = " here, it is for the other direction" if unknown[0] in _BOTH else ""
            raise Invalid(
                f"unknown option {unknown[0]!r}{other}; there are path, queue, {', '.join(known)}, "
                "and those of the store such as endpoint and region"
            )

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def ends(self) -> Ends | None:
        text = self.text("targets")
        if text is None:
            return None
        for name in ("queue", "objects", "bodyFormat"):
            if self.text(name) is not None:
                raise Invalid(f"{name} is for rows of one kind; a pipeline's targets say themselves where they go")
        return msgspec.json.decode(text, type=Ends)

    def objects(self) -> ToObjects | None:
        template = self.text("objects")
        if template is None:
            for name in ("body", "contentType", "ifExists", "newerBy"):
                if self.text(name) is not None:
                    raise Invalid(f"{name} is for writing objects; name their keys with the option objects")
            return None
        for name in ("queue", "bodyFormat"):
            if self.text(name) is not None:
                raise Invalid(f"{name} is for writing messages; rows become objects here, as the option objects says")
        return ToObjects(
            template=template,
            body=self.text("body"),
            content_type=self.text("contentType"),
            if_exists=self.text("ifExists") or "replace",  # type: ignore[arg-type]  # checked where it is made
            newer_by=self.text("newerBy"),
        )

    def sink_place(self, objects: ToObjects | None, dead_letters: str | None) -> Place:
        """The queue that is written to: by name, the events of objects, or dead letters where nothing else is."""
        if objects is not None:
            return self.place(allow_dead=False, default=EVENTS)
        if dead_letters is not None and self.text("queue") is None:
            return self.place(allow_dead=True, default=dead_letters + DEAD_SUFFIX)
        return self.place(allow_dead=False)

    def place(self, *, allow_dead: bool, default: str | None = None) -> Place:
        url, queue = self.text("path"), self.text("queue") or default
        if not url:
            raise Invalid("option path is missing: the URL of the bucket, like s3://bucket/prefix or file:///folder")
        if not queue:
            raise Invalid("option queue is missing: the name of the queue in the bucket")
        if url.startswith("memory:"):
            raise Invalid("memory:// lies in one process, and Spark has several; use a folder or an object store")
        check_name(queue, "queue name")
        if queue.endswith(DEAD_SUFFIX) and not allow_dead:
            raise Invalid(f"{queue!r} is for dead letters; write to another queue")
        store = tuple(sorted((name, text) for name, text in self._given.items() if name in STORE_OPTIONS))
        return Place(whole(url), queue, store)


def _where(name: str, text: str) -> Where:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.lstrip().startswith("{"):
        return _by_shard(name, text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f'{name} must be earliest, latest, offsets like {{"0": 120}} or a time like '
            f"2026-11-16T12:00:00Z, not {text[:60]!r}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _by_shard(name: str, text: str) -> dict[int, int]:
    try:
        found = msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError as error:
        raise Invalid(f'{name} must map shards to offsets, like {{"0": 120, "1": 7}}: {error}') from None
    if not all(0 <= shard < SHARDS_MAX and offset >= 0 for shard, offset in found.items()):
        raise Invalid(f"{name} has a shard or offset below 0, or a shard above {SHARDS_MAX - 1}: {text[:60]}")
    return found


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise Invalid(f"{name} must be a whole number from 1, not {text[:40]!r}")
    return int(text)


def _size(name: str, text: str) -> int:
    number, factor = _measured(text.strip().lower().removesuffix("b"), {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30})
    if not number.isdecimal() or int(number) < 1:
        raise Invalid(f"{name} must be bytes, like 64m or 67108864, not {text[:40]!r}")
    return int(number) * int(factor)


def _seconds(name: str, text: str) -> float:
    number, factor = _measured(text, {"ms": 0.001, "s": 1.0, "m": 60.0})
    try:
        found = float(number) * factor
    except ValueError:
        found = -1.0
    if not 0 <= found <= 3600:
        raise Invalid(f"{name} must be 0 to 3600 seconds, like 1, 500ms or 2s, not {text[:40]!r}")
    return found


def _measured(text: str, units: Mapping[str, float]) -> tuple[str, float]:
    """A number as text, and what it is to be multiplied with."""
    number = text.strip().lower()
    unit = next((each for each in units if number.endswith(each)), "")
    return number.removesuffix(unit).strip(), units.get(unit, 1)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise Invalid(f"{name} must be true or false, not {text[:40]!r}")
    return text.lower() == "true"


def _columns(name: str, text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if len(set(names)) < len(names) or not set(names) <= {*COLUMNS, *ASKED_FOR}:
        raise Invalid(f"{name} must be some of {', '.join(COLUMNS | ASKED_FOR)}, each once, not {text[:80]!r}")
    return names


_SOURCE: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    STARTING: ("starting", _where),
    ENDING: ("ending", _where),
    "maxRowsPerTrigger": ("rows_max", _count),
    "maxBytesPerTrigger": ("bytes_max", _size),
    "minPartitions": ("partitions_min", _count),
    "rowsPerPartition": ("partition_rows", _count),
    "pollInterval": ("poll_seconds", _seconds),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "columns": ("columns", _columns),
    "bodySchema": ("body_schema", lambda _, text: text),
    "subscription": ("subscription", lambda name, text: check_name(text, name)),
}
"""The options of the source: the field of `SourceOptions` that each is, and what reads it."""

SOURCE_OPTIONS = tuple(_SOURCE)


def whole(url: str) -> str:
    """A folder by its whole path: executors begin in other folders than the driver, which asks here."""
    is_path = "://" not in url and url.partition(":")[0].lower() not in OPTIONS
    return str(Path(url).absolute()) if is_path else url


_BOTH = {name.lower() for name in (*SOURCE_OPTIONS, *SINK_OPTIONS)}

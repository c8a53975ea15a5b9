"""The two pipelines of `logs`, as values.

| pipeline | from | to |
|---|---|---|
| `log-counts` | objects below `logs/` | rows of the table `log-counts`, grouped by their object; a message for each object in `log-windows`; what was learnt in `log-news` |
| `log-watch` | `log-windows` | incidents that began or are over in `log-news`; a summary of each service |

The first is pure: an object that comes again replaces its own rows, so nothing is counted twice, and it can be run
again. The second keeps state by service; it knows the objects that it has counted.
"""  # noqa: E501  # a table

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.logs.detect import Limits, State, Window, step
from bucketmq.apps.logs.drain import Index
from bucketmq.apps.logs.models import read_model
from bucketmq.apps.logs.names import COUNTS, LOGS, NEWS, SERVICES, WATCH, WINDOWS, service_of
from bucketmq.errors import Invalid
from bucketmq.pipeline import FromEvents, FromQueue, Outcomes, Pipeline, ToObjects, ToQueue, ToUpserts, stage

if TYPE_CHECKING:
    import pyarrow as pa

    from bucketmq.apps.logs.matching import Tally
    from bucketmq.client import Bucket

OBJECT = "key string, at timestamp, content binary, content_version string"
COUNT = (
    "id string, source string, at timestamp, service string, minute timestamp, template_id string, template string, "
    "level string, lines bigint, gone boolean"
)
"""A row of the table: so many lines of a template in a minute, in an object."""
TALLIED = f"{COUNT}, kind string, body string"
WINDOW = "service string, window string"
FOUND = "service string, kind string, revision bigint, body string"

MODEL_SECONDS = 5.0
"""A model that was read so long ago is read again before it is used."""
OBJECT_BYTES_MAX = 64 << 20
WINDOW_COUNTS_MAX = 5_000
WINDOW_TEMPLATES_MAX = 500
"""What of an object detectors are told at most: the most severe and most frequent templates."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How objects are read. Called once in a process, where the stage runs."""

    url: str = ""
    """Where models are; without it every object is learnt from nothing, which gives more special templates."""
    skew_seconds: float = 300.0
    unpacked_bytes_max: int = 256 << 20
    key_field: str = ""
    key_pattern: str = ""

    def __call__(self) -> Reader:
        return Reader(self)


class Reader:
    """Models of services, as they were a moment ago."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._bucket: Bucket | None = None
        self._models: dict[str, tuple[float, Index]] = {}

    def index(self, service: str) -> Index:
        """The templates of a service. One GET, every few seconds."""
        if not self.reading.url:
            return Index(())
        now = time.monotonic()
        read_at, index = self._models.get(service, (float("-inf"), Index(())))
        if now - read_at < MODEL_SECONDS:
            return index
        from bucketmq.client import connect

        if self._bucket is None:
            self._bucket = connect(self.reading.url, probe=False)  # it only reads
        model = self._bucket.run(read_model(self._bucket.run(self._bucket.api.open()), service))
        index = model.index()
        self._models[service] = (now, index)
        return index

    def close(self) -> None:
        if self._bucket is not None:
            self._bucket.close()


def tallied(batch: pa.RecordBatch, reader: Reader) -> Outcomes:
    """The function of the stage `match`: objects in; the rows of each, what detectors want to know, and what is new."""
    rows: list[dict[str, Any]] = []
    of: list[int] = []
    failed: dict[int, str] = {}
    for place, each in enumerate(batch.to_pylist()):
        if each["content"] is None:
            continue  # it went again before it was read; what it had been counted for stays
        try:
            its = rows_of(each["key"], each["at"], each["content"], reader, version=each["content_version"] or "")
        except Invalid as error:
            failed[place] = str(error)
            continue
        rows += its
        of += [place] * len(its)
    columns = [name.split()[0] for name in TALLIED.split(", ")]
    return Outcomes(rows={name: [row.get(name) for row in rows] for name in columns}, of=of, failed=failed)


def rows_of(key: str, at: datetime, content: bytes, reader: Reader, *, version: str = "") -> list[dict[str, Any]]:
    """All rows of one object."""
    from bucketmq.apps.logs.matching import tally
    from bucketmq.apps.logs.parse import read

    reading = reader.reading
    service = service_of(key)
    written = at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    lines = list(read(content, at=written, bytes_max=reading.unpacked_bytes_max, key_field=reading.key_field))
    found = tally(
        lines,
        reader.index(service),
        at=written,
        skew_seconds=reading.skew_seconds,
        key_pattern=reading.key_pattern,
    )
    common = {"source": key, "at": at, "service": service}
    if not found.lines:
        return [{**common, "id": "", "gone": True, "kind": "count"}]
    templates = {each.id: each.template for each in found.seen}
    rows: list[dict[str, Any]] = [
        {
            **common,
            "id": f"{minute}-{id}-{level}",
            "minute": datetime.fromtimestamp(minute, UTC),
            "template_id": id,
            "template": templates[id],
            "level": level,
            "lines": count,
            "gone": False,
            "kind": "count",
        }
        for minute, id, level, count in found.counts
    ]
    window = {"service": service, "window": msgspec.json.encode(window_of(found, key, version, written)).decode()}
    rows.append({**common, "kind": "window", "body": msgspec.json.encode(window).decode()})
    new = [each for each in found.seen if each.new]
    if new:
        learnt = {"kind": "learnt", "service": service, "source": key, "seen": new}
        rows.append({**common, "kind": "learnt", "body": msgspec.json.encode(learnt).decode()})
    return rows


def window_of(found: Tally, key: str, version: str, at: float) -> Window:
    """What detectors are told: all of it, unless it is too much; then the most severe and most frequent templates."""
    from bucketmq.apps.logs.parse import LEVELS

    kept = sorted(found.seen, key=lambda each: (-LEVELS.index(each.level), -each.count, each.id))
    ids = {each.id for each in kept[:WINDOW_TEMPLATES_MAX]}
    counts = [each for each in found.counts if each[1] in ids]
    return Window(
        at=at,
        source=key,
        version=version,
        lines=found.lines,
        skewed=found.skewed,
        counts=counts[-WINDOW_COUNTS_MAX:],
        templates={each.id: each.template for each in kept if each.id in ids},
        examples={each.id: each.examples for each in kept if each.id in ids},
        fresh=sorted(each.id for each in kept if each.new and each.id in ids),
        sessions=found.sessions,
    )


def counting(reading: Reading) -> Pipeline:
    """The pipeline `log-counts`."""
    return Pipeline(
        name=COUNTS,
        about="count the lines of logs by template and minute, and learn templates",
        source=FromEvents(
            filter=f'WHERE `key` LIKE "{LOGS}%" AND kind != "deleted"', content="bytes", size_bytes_max=OBJECT_BYTES_MAX
        ),
        stages=(stage(name="match", takes=OBJECT, gives=TALLIED, uses=reading, rows_max=16)(tallied),),
        targets=(
            ToUpserts(
                table=COUNTS,
                key="id",
                group="source",
                newer_by="at",
                delete_when="gone",
                columns=tuple(each.split()[0] for each in COUNT.split(", ")),
                where='kind = "count"',
            ),
            ToQueue(queue=WINDOWS, body="body", key="service", where='kind = "window"'),
            ToQueue(queue=NEWS, body="body", key="service", where='kind = "learnt"'),
        ),
    )


def checked_pattern(pattern: str) -> str:
    if pattern:
        import re2  # type: ignore[import-untyped]

        try:
            groups = re2.compile(pattern).groupindex
        except re2.error as error:
            raise Invalid(f"sequence_pattern {pattern!r} is not an expression of RE2: {error}") from None
        if list(groups) != ["key"]:
            raise Invalid(f"sequence_pattern {pattern!r} needs one named group, (?P<key>...), and no other")
    return pattern


class Given(msgspec.Struct, frozen=True):
    """The limits of the detectors, for the stage that uses them."""

    limits: Limits

    def __call__(self) -> Limits:
        return self.limits


def watched(key: str, rows: pa.RecordBatch, state: dict[str, Any] | None, limits: Limits) -> Any:
    """The function of the stage `watch`: what objects of a service came to, one after the other, and ticks."""
    kept = msgspec.json.decode(state["state"], type=State) if state else State()
    found: list[tuple[str, int, str]] = []
    windows = [msgspec.json.decode(each, type=Window) for each in rows.column("window").to_pylist()]
    for window in sorted(windows, key=lambda each: (each.at, each.source)):
        before = kept
        kept, changes = step(key, kept, window, limits)
        for change in changes:
            found.append(("incident", 0, msgspec.json.encode({"kind": "incident", "change": change}).decode()))
        if kept.lines != before.lines:
            found.append(("service", kept.lines, msgspec.json.encode(summary_of(key, kept, window.at)).decode()))
    last = {kind: place for place, (kind, _, _) in enumerate(found)}.get("service")
    found = [each for place, each in enumerate(found) if each[0] != "service" or place == last]
    made = {
        "service": [key] * len(found),
        "kind": [kind for kind, _, _ in found],
        "revision": [revision for _, revision, _ in found],
        "body": [body for _, _, body in found],
    }
    return made, {"state": msgspec.json.encode(kept).decode()}


def summary_of(service: str, state: State, at: float) -> dict[str, Any]:
    """`log-services/{service}.json`."""
    return {
        "service": service,
        "lines": state.lines,
        "late": state.late,
        "skewed": state.skewed,
        "began_at": state.began,
        "newest_at": state.newest,
        "arrived_at": at,
        "sequences": state.sequences.seen,
    }


def watching(limits: Limits) -> Pipeline:
    """The pipeline `log-watch`."""
    return Pipeline(
        name=WATCH,
        about="find what is out of the ordinary in each service",
        source=FromQueue(WINDOWS, WINDOW),
        stages=(
            stage(name="watch", takes=WINDOW, gives=FOUND, key="service", state="state string", uses=Given(limits))(
                watched
            ),
        ),
        targets=(
            ToObjects(
                template=SERVICES + "{service}.json",
                body="body",
                content_type="application/json",
                if_exists="newer",
                newer_by="revision",
                where='kind = "service"',
            ),
            ToQueue(queue=NEWS, body="body", key="service", where='kind = "incident"'),
        ),
    )

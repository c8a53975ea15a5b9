"""What people see of logs: services, templates, the timeline, and the lines behind a template. Reads only.

The page and the verbs are made of these. Whatever is shown of a line went through the masks for secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.logs.alerts import documents_in
from bucketmq.apps.logs.drain import Index, covers, id_of, words_of
from bucketmq.apps.logs.models import Model, read_model
from bucketmq.apps.logs.names import COUNTS, LOGS, SERVICES
from bucketmq.apps.logs.parse import LEVELS, Line
from bucketmq.errors import NotFound
from bucketmq.procedures.objects.listing import all_items
from bucketmq.procedures.objects.read import Read
from bucketmq.procedures.requests import Procedure

if TYPE_CHECKING:
    import pyarrow as pa

OBJECTS_READ = 5
"""Objects that are looked through for the lines of a template."""
LINES_MAX = 200
BYTES_MAX = 64 << 20
ERROR = LEVELS.index("error")
COLUMNS = ("source", "service", "minute", "template_id", "template", "level", "lines")


class Service(msgspec.Struct, frozen=True):
    """A service, as its detectors know it."""

    service: str
    lines: int = 0
    late: int = 0
    skewed: int = 0
    began_at: float = 0.0
    newest_at: float = 0.0
    arrived_at: float = 0.0
    sequences: int = 0


class Pattern(msgspec.Struct, frozen=True):
    """A template and how often it came."""

    id: str
    template: str
    level: str
    first_at: float
    lines: int
    example: str
    minutes: list[int] = []
    """For the timeline: lines in each part of it."""


class Shown(msgspec.Struct, frozen=True):
    """A line for people."""

    at: float | None
    level: str
    text: str
    source: str


def services(bus: BucketApi) -> Procedure[list[Service]]:
    """All that ever wrote something. A LIST, and a GET for each."""
    items = yield from all_items((yield from bus.open()), SERVICES)
    found = yield from bus.get_many([item.key for item in items])
    return documents_in(found, Service)


def counts(bus: BucketApi) -> Procedure[pa.Table]:
    """The rows of the table; none if there is none yet. A GET for the head and one for each file."""
    import pyarrow as pa

    try:
        return (yield from bus.table(COUNTS).read(columns=COLUMNS))
    except NotFound:
        kinds = {"minute": pa.timestamp("us", "UTC"), "lines": pa.int64()}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS]).empty_table()


def between(table: pa.Table, since: float, until: float, service: str = "") -> pa.Table:
    """The rows of some time, and of one service."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def moment(at: float) -> Any:
        return pa.scalar(datetime.fromtimestamp(at, UTC), pa.timestamp("us", "UTC"))

    minute = table.column("minute").cast(pa.timestamp("us", "UTC"))
    wanted = pc.and_(pc.greater_equal(minute, moment(since)), pc.less(minute, moment(until)))
    if service:
        wanted = pc.and_(wanted, pc.equal(table.column("service"), service))
    return table.filter(wanted)


def timeline(table: pa.Table, since: float, until: float, parts: int) -> dict[str, list[int]]:
    """Lines and errors in equal parts of a time."""
    found = {"lines": [0] * parts, "errors": [0] * parts}
    for place, level, count in _placed(table, since, until, parts):
        found["lines"][place] += count
        if LEVELS.index(level) >= ERROR:
            found["errors"][place] += count
    return found


def _placed(table: pa.Table, since: float, until: float, parts: int) -> Iterator[tuple[int, str, int]]:
    size = (until - since) / parts
    rows = zip(*(table.column(name).to_pylist() for name in ("minute", "level", "lines")), strict=True)
    for minute, level, count in rows:
        yield min(parts - 1, max(0, int((minute.timestamp() - since) / size))), level, count


def patterns(model: Model, table: pa.Table, since: float, until: float, *, parts: int = 1) -> list[Pattern]:
    """The templates of a service with how often each came, the most frequent first. Lines that were counted under a
    more special template, before it was merged into another, count for the other."""
    index, known = model.index(), {each.id: each for each in model.templates}
    minutes: dict[str, list[int]] = {}
    texts: dict[str, str] = {}
    now_id: dict[str, str] = {}
    ids, templates = table.column("template_id").to_pylist(), table.column("template").to_pylist()
    for id, template, (place, _, count) in zip(ids, templates, _placed(table, since, until, parts), strict=True):
        current = now_id.get(id) or now_id.setdefault(id, current_id(index, id, template))
        texts.setdefault(current, template)
        minutes.setdefault(current, [0] * parts)[place] += count
    found = []
    for id in dict.fromkeys([*known, *minutes]):
        one = known.get(id)
        its = minutes.get(id, [0] * parts)
        found.append(
            Pattern(
                id,
                one.template if one is not None else texts[id],
                one.level if one is not None else "",
                one.first_at if one is not None else 0.0,
                sum(its),
                one.example if one is not None else "",
                its,
            )
        )
    return sorted(found, key=lambda each: (-each.lines, each.id))


def current_id(index: Index, id: str, template: str) -> str:
    """What a template that was counted is called now."""
    covering = index.match(tuple(template.split()) or ("",))
    return id if covering is None else id_of(covering)


def lines_of(bus: BucketApi, service: str, template_id: str, *, limit: int = LINES_MAX) -> Procedure[list[Shown]]:
    """The newest lines of a template, from the objects that have some. A few GETs."""
    model = yield from read_model((yield from bus.open()), service)
    table = yield from counts(bus)
    index = model.index()
    sources: dict[str, datetime] = {}
    templates: set[str] = set()
    columns = (table.column(name).to_pylist() for name in ("source", "service", "minute", "template_id", "template"))
    for source, of, minute, id, template in zip(*columns, strict=True):
        if of == service and template_id in (id, current_id(index, id, template)):
            templates.add(template)
            sources[source] = max(minute, sources.get(source, minute))
    if not templates:
        raise NotFound(f"service {service!r} has no template {template_id!r} (see: bucketmq logs templates {service})")
    newest = sorted(sources, key=lambda source: (sources[source], source), reverse=True)[:OBJECTS_READ]
    wanted = [tuple(each.split()) or ("",) for each in templates]
    found: list[tuple[float, Shown]] = []
    for each in (yield from bus.get_many(newest[::-1])):
        if isinstance(each, Read):
            shown = shown_lines(each, [line for line in _lines(each) if line is not None], wanted=wanted)
            found += [(_moment(line, each), line) for line in shown]
    return _newest(found, limit)[::-1]


def tail(bus: BucketApi, service: str, *, limit: int = 50, level: str = "") -> Procedure[list[Shown]]:
    """The newest lines of a service. A LIST per 1,000 objects of it, and a few GETs."""
    items = yield from all_items((yield from bus.open()), f"{LOGS}{service}/")
    newest = sorted(items, key=lambda item: (item.stored_at, item.key), reverse=True)[:OBJECTS_READ]
    if not newest:
        raise NotFound(f"there are no logs of a service {service!r}; they lie below {LOGS}{service}/DATE/")
    found: list[tuple[float, Shown]] = []
    for each in (yield from bus.get_many([item.key for item in newest[::-1]])):
        if isinstance(each, Read):
            worst = LEVELS.index(level)
            shown = shown_lines(each, [line for line in _lines(each) if LEVELS.index(line.level) >= worst][-limit:])
            found += [(_moment(line, each), line) for line in shown]
    return _newest(found, limit)


def _moment(line: Shown, read: Read) -> float:
    """When a line was written; one that does not say, when its object was."""
    return read.stored_at if line.at is None else line.at


def _newest(found: Sequence[tuple[float, Shown]], limit: int) -> list[Shown]:
    """The newest lines, in their order; those of one moment as they stand in their objects."""
    return [line for _, line in sorted(found, key=lambda each: each[0])[-limit:]]


def _lines(read: Read) -> list[Line]:
    from bucketmq.apps.logs.parse import read as read_lines
    from bucketmq.errors import Invalid

    try:
        return list(read_lines(read.body, at=read.stored_at, bytes_max=BYTES_MAX))
    except Invalid:
        return []


def shown_lines(read: Read, lines: Sequence[Line], *, wanted: Sequence[tuple[str, ...]] = ()) -> list[Shown]:
    """Lines as they may be shown, those of some templates if any are named."""
    import pyarrow as pa

    from bucketmq.apps.logs.masks import masked, without_secrets
    from bucketmq.apps.logs.matching import examples_of

    if wanted and lines:
        words = [words_of(text) for text in without_secrets(masked(_texts(lines))).to_pylist()]
        lines = [line for line, its in zip(lines, words, strict=True) if any(covers(each, its) for each in wanted)][
            -LINES_MAX:
        ]
    texts = examples_of(_texts(lines)) if lines else pa.array([], pa.string()).to_pylist()
    return [Shown(line.at, line.level, text, read.key) for line, text in zip(lines, texts, strict=True)]


def _texts(lines: Sequence[Line]) -> pa.Array:
    import pyarrow as pa

    return pa.array([line.text for line in lines], pa.string())


def forget_old(bus: BucketApi, before: float) -> Procedure[int]:
    """Remove what objects were counted for whose newest line is older; how many objects."""
    table = yield from counts(bus)
    newest: dict[str, float] = {}
    for source, minute in zip(table.column("source").to_pylist(), table.column("minute").to_pylist(), strict=True):
        newest[source] = max(newest.get(source, 0.0), minute.timestamp())
    old = sorted(source for source, at in newest.items() if at < before)
    if old:
        yield from bus.table(COUNTS).delete(*old)
    return len(old)

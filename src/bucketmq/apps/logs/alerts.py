"""Alerts as objects: one for each incident, at `alerts/open/{fingerprint}.json` until it is over.

The key is what makes it one alert: however often and by however many an incident is found, there is one object. When
it is over the object is moved to `alerts/resolved/{fingerprint}-{since}.json`, whose name tells incidents of the same
kind apart, so that a message that comes again opens nothing that was resolved. Each step may be repeated after a crash
at any point. Nothing is written here that was not masked before.

Muted incidents are kept at `alerts/muted/`, where no rule looks. Who muted what until when is a register.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.logs.detect import Change, Kind, Severity
from bucketmq.apps.logs.matching import MINUTE, TemplateUse
from bucketmq.apps.logs.models import Model, merge_into
from bucketmq.apps.logs.names import AUDIT, HUSHED, MUTED, MUTES, OPEN, RESOLVED, ends_key, fingerprint
from bucketmq.apps.logs.parse import LEVELS
from bucketmq.apps.logs.settings import LogSettings
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import time_text
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.listing import all_items
from bucketmq.procedures.objects.read import Read
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import Patience, get_document, update_document
from bucketmq.queue.settings import FORMAT

Document = TypeVar("Document")

BURST = 5
"""More new patterns of a service than this within ten minutes are one incident: a deployment that renamed things."""
BURST_SECONDS = 600.0
HISTORY_SHOWN = 200
ENDS_MAX = 500
"""Ends of new patterns that are kept of a service, the latest ones. Their beginning is at most a redelivery away."""

SEVERITIES: dict[str, Severity] = {"critical": "critical", "error": "error", "warning": "warning"}


class Alert(msgspec.Struct, frozen=True):
    """What an alert object holds. `text`, `summary`, `severity`, `dedup_key`, `state` and `link` go into notices."""

    id: str
    service: str
    kind: Kind
    severity: Severity
    summary: str
    text: str
    since: int
    opened_at: str
    state: Literal["open", "resolved"] = "open"
    resolved_at: str = ""
    template_id: str = ""
    template: str = ""
    why: str = ""
    count: int = 0
    usual: float = 0.0
    examples: list[str] = []
    source: str = ""
    link: str = ""
    """The runbook."""
    muted_at: str = ""
    """When it was muted. From then on the rule tells nothing of this incident, also when it is heard of again."""
    schema: int = 1

    @property
    def dedup_key(self) -> str:
        return f"{self.id}-{self.since}"


class Mute(msgspec.Struct, frozen=True):
    """Who muted an incident, until when and why."""

    by: str
    at: float
    until: float
    note: str = ""
    what: str = ""
    """For people: which service and pattern it was."""


class Ends(msgspec.Struct, frozen=True, omit_defaults=True):
    """When new patterns of a service ended, by fingerprint: the register of ends that came before their beginning."""

    ends: dict[str, int] = {}
    format: int = FORMAT


class Mutes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The register."""

    mutes: dict[str, Mute] = {}
    format: int = FORMAT


def handle(bus: BucketApi, news: dict[str, Any], settings: LogSettings) -> Procedure[list[str]]:
    """One message of the queue `log-news`: what changed, by fingerprint. `ValidationError` if it is not one of ours."""
    match news.get("kind"):
        case "learnt":
            seen = msgspec.convert(news["seen"], list[TemplateUse])
            return (yield from learn(bus, str(news["service"]), seen, str(news["source"]), settings))
        case "incident":
            change = msgspec.convert(news["change"], Change)
            done = yield from (close if change.over else open_alert)(bus, change, settings)
            return [change.fingerprint] if done else []
        case _:
            raise msgspec.ValidationError("news are 'learnt' or 'incident'")


def learn(
    bus: BucketApi, service: str, seen: Sequence[TemplateUse], source: str, settings: LogSettings
) -> Procedure[list[str]]:
    """Merge what an object brought into its service's model, and alert if something is new that should not be.

    What an object introduced is known by its name in the model, so a crash between the model and the alert is made good
    when the message comes again.
    """
    bucket = yield from bus.open()
    model = yield from merge_into(bucket, service, seen, source)
    told = []
    for change in new_patterns(model, seen, source, settings):
        if (yield from open_alert(bus, change, settings)):
            told.append(change.fingerprint)
    return told


def new_patterns(model: Model, seen: Sequence[TemplateUse], source: str, settings: LogSettings) -> list[Change]:
    """The alerts that new templates of an object are worth: none while the service is learnt, one for each that is
    severe enough, one for all where there are many."""
    learning_until = model.began_at + settings.learning_minutes * MINUTE
    worst = LEVELS.index(settings.new_pattern_level)
    by_id = {each.id: each for each in seen}
    new = [
        by_id[each.id]
        for each in model.templates
        if each.source == source and each.id in by_id and each.first_at >= learning_until
    ]
    new = [each for each in new if LEVELS.index(each.level) >= worst]
    if not new:
        return []
    newest = max(each.first_at for each in new)
    lately = [each for each in model.templates if each.first_at > max(newest - BURST_SECONDS, learning_until - 1)]
    if len(lately) > BURST:
        examples = [line for each in new for line in each.examples[:1]]
        why = f"{len(lately)} new patterns within {BURST_SECONDS / 60:.0f} minutes: was something deployed?"
        # The first of the burst names the incident, so that all objects of one deployment have the same.
        since = int(min(each.first_at for each in lately) // BURST_SECONDS * BURST_SECONDS)
        return [_new(model.service, None, new, since=since, why=why, examples=examples, source=source)]
    return [
        _new(
            model.service,
            each,
            [each],
            since=int(each.first_at),
            why="never seen before",
            examples=each.examples,
            source=source,
        )
        for each in new
    ]


def _new(
    service: str,
    one: TemplateUse | None,
    new: Sequence[TemplateUse],
    *,
    since: int,
    why: str,
    examples: Sequence[str],
    source: str,
) -> Change:
    kind: Kind = "new-patterns" if one is None else "new-pattern"
    template_id = "" if one is None else one.id
    level = max((each.level for each in new), key=LEVELS.index)
    return Change(
        over=False,
        fingerprint=fingerprint(service, kind, template_id),
        service=service,
        kind=kind,
        since=since,
        at=int(max(each.first_at for each in new)),
        severity=SEVERITIES.get(level, "info"),
        template_id=template_id,
        template="" if one is None else one.template,
        why=why,
        count=sum(each.count for each in new),
        examples=list(examples)[:10],
        source=source,
    )


TITLES: dict[Kind, str] = {
    "new-pattern": "new pattern",
    "new-patterns": "many new patterns",
    "spike": "spike",
    "silence": "silence",
    "errors": "more errors than usual",
    "sequence": "odd sequences",
}


def alert_of(change: Change, settings: LogSettings, *, now: float) -> Alert:
    """The alert that an incident becomes."""
    title = f"{change.service}: {TITLES[change.kind]}"
    shown = f"{title}: {change.template}" if change.template else title
    lines = [change.why, *(["", *change.examples] if change.examples else [])]
    return Alert(
        id=change.fingerprint,
        service=change.service,
        kind=change.kind,
        severity=change.severity,
        summary=shown[:300],
        text="\n".join(lines),
        since=change.since,
        opened_at=time_text(now),
        template_id=change.template_id,
        template=change.template,
        why=change.why,
        count=change.count,
        usual=change.usual,
        examples=change.examples,
        source=change.source,
        link=_runbook(settings.runbook_url, change),
    )


def _runbook(template: str, change: Change) -> str:
    from urllib.parse import quote

    values = {"service": change.service, "kind": change.kind, "template": change.template_id}
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template


def document(alert: Alert) -> dict[str, Any]:
    return {**msgspec.to_builtins(alert), "dedup_key": alert.dedup_key}


def open_alert(bus: BucketApi, change: Change, settings: LogSettings) -> Procedure[bool]:
    """Write the alert, unless it is there, is over, or is muted; whether it was written.

    Whoever opens looks for the end before and after, and whoever ends leaves it to be found before they look for the
    alert: however the two meet, the end wins. So does a mute. Three HEADs, four GETs, and a put.
    """
    now = yield from Now()
    alert = alert_of(change, settings, now=now)
    for told in (resolved_key(alert.id, alert.since), hushed_key(alert)):
        if (yield from bus.look(told)) is not None:
            return False
    if (yield from _has_ended(bus, change)):
        yield from _put_resolved(bus, alert)
        return False
    place = OPEN if (yield from _muted_by(bus, alert.id)) is None else MUTED
    key = f"{place}{alert.id}.json"
    patience = Patience(f"opening alert {alert.id}")
    while True:
        try:
            yield from bus.put(key, document(alert), only_new=True)
            break
        except Contended:
            there = yield from _read(bus, key)
        if there is not None and there[0].state == "open":
            return False  # the same incident, or an earlier one of its kind that is not over: one alert
        if there is not None:
            yield from _put_away(bus, there[0], there[1])
        yield from patience.again("another incident of its kind is being put away")
    is_over = (yield from bus.look(resolved_key(alert.id, alert.since))) is not None
    if is_over or (yield from _has_ended(bus, change)):
        there = yield from _read(bus, key)
        if there is not None and there[0].since == alert.since:
            yield from resolve(bus, there, muted=place == MUTED)
        return False
    by = None if place == MUTED else (yield from _muted_by(bus, alert.id))
    if by is not None:  # meanwhile, and found nothing to hide
        yield from _hide(bus, alert.id, by)
    return place == OPEN and by is None


def close(bus: BucketApi, change: Change, settings: LogSettings) -> Procedure[bool]:
    """The incident is over: the alert says so, and is moved to those that are. False if none was open.

    An alert that began after that is of another incident: the news are old, and come again. Where there is none at all,
    the news that it began are still to come, from another keeper or because they failed once: then it is written as
    over, so that they open nothing that nobody would resolve. A detector does not know when a new pattern was first
    learnt; that it ended is written into a register, and is found by those who learn of it later.
    """
    if not change.since:
        yield from _note_end(bus, change)
    found = was_open = False
    for place in (OPEN, MUTED):
        there = yield from _read(bus, f"{place}{change.fingerprint}.json")
        found = found or there is not None
        if there is not None and there[0].since <= change.at:
            ended = yield from resolve(bus, there, count=change.count, muted=place == MUTED)
            was_open = was_open or (ended and place == OPEN)
    if not found and change.since:
        now = yield from Now()
        muted = yield from _muted_by(bus, change.fingerprint)
        yield from _put_resolved(bus, alert_of(change, settings, now=now), muted=muted is not None)
        there = yield from _read(bus, f"{OPEN}{change.fingerprint}.json")
        if there is not None and there[0].since == change.since:  # it was opened meanwhile
            return (yield from resolve(bus, there, count=change.count))
    return was_open


def _put_resolved(bus: BucketApi, alert: Alert, *, muted: bool = False) -> Procedure[None]:
    """Write an alert to those that are over, unless it is there."""
    at = time_text((yield from Now()))
    over = msgspec.structs.replace(alert, state="resolved", resolved_at=at, muted_at=at if muted else "")
    try:
        yield from bus.put(resolved_key(over.id, over.since), document(over), only_new=True)
    except Contended:
        pass  # it was resolved before


def _note_end(bus: BucketApi, change: Change) -> Procedure[None]:
    bucket = yield from bus.open()

    def noted(register: Ends) -> Ends:
        ends = {**register.ends, change.fingerprint: max(change.at, register.ends.get(change.fingerprint, 0))}
        latest = sorted(ends, key=lambda id: (-ends[id], id))[:ENDS_MAX]
        return msgspec.structs.replace(register, ends={id: ends[id] for id in sorted(latest)})

    yield from update_document(Ends, full_key(bucket, ends_key(change.service)), Ends(), noted)


def _has_ended(bus: BucketApi, change: Change) -> Procedure[bool]:
    """Whether the end of a new pattern is known that was last seen then. One GET; none for other kinds."""
    if change.kind not in ("new-pattern", "new-patterns"):
        return False
    bucket = yield from bus.open()
    found = yield from get_document(Ends, full_key(bucket, ends_key(change.service)))
    return found is not None and found[0].ends.get(change.fingerprint, -1) >= change.at


def _muted_by(bus: BucketApi, id: str) -> Procedure[str | None]:
    """Who muted it, if somebody did and it holds. One GET."""
    bucket = yield from bus.open()
    muted = (yield from read_mutes(bucket)).mutes.get(id)
    return muted.by if muted is not None and muted.until > (yield from Now()) else None


def resolve(bus: BucketApi, there: tuple[Alert, Read], *, count: int = 0, muted: bool = False) -> Procedure[bool]:
    """Say in an alert that it is over, and move it to those that are. One that is muted is not told."""
    alert, found = there
    if alert.state == "open":
        at = time_text((yield from Now()))
        over = msgspec.structs.replace(
            alert,
            state="resolved",
            resolved_at=at,
            count=max(alert.count, count),
            text=f"over\n{alert.text}",
            muted_at=alert.muted_at or (at if muted else ""),
        )
        try:
            yield from bus.put(found.key, document(over), if_version=found.version)
        except Contended:
            return False  # another keeper is at it, and will finish, or the message comes again
        again = yield from _read(bus, found.key)
        if again is None:
            return True
        alert, found = again
    return (yield from _put_away(bus, alert, found))


def _put_away(bus: BucketApi, alert: Alert, found: Read) -> Procedure[bool]:
    try:
        yield from bus.move(found.key, resolved_key(alert.id, alert.since), if_version=found.version, replace=True)
    except (Contended, NotFound):
        return False
    return True


def resolved_key(id: str, since: int) -> str:
    return f"{RESOLVED}{id}-{since}.json"


def hushed_key(alert: Alert) -> str:
    return f"{HUSHED}{alert.dedup_key}.json"


def _read(bus: BucketApi, key: str) -> Procedure[tuple[Alert, Read] | None]:
    try:
        found = yield from bus.get(key)
    except NotFound:
        return None
    return msgspec.json.decode(found.body, type=Alert), found


def open_alerts(bus: BucketApi, prefix: str = OPEN) -> Procedure[list[Alert]]:
    """The newest alerts below a prefix, the newest first. A LIST per 1,000 of them, and a GET for each shown."""
    bucket = yield from bus.open()
    items = yield from all_items(bucket, prefix)
    items = sorted(items, key=lambda item: -item.stored_at)[:HISTORY_SHOWN]
    found = yield from bus.get_many([item.key for item in items])
    return sorted(documents_in(found, Alert), key=lambda each: (each.opened_at, each.id), reverse=True)


def documents_in(found: Iterable[object], kind: type[Document]) -> list[Document]:
    """What objects below a prefix hold, without those that somebody else put there."""
    kept = []
    for each in found:
        if isinstance(each, Read):
            with contextlib.suppress(msgspec.DecodeError):
                kept.append(msgspec.json.decode(each.body, type=kind))
    return kept


def check_id(id: str) -> str:
    """`Invalid` unless it is the id of an alert: it becomes a part of keys."""
    if not re.fullmatch("[0-9a-f]{20}", id):
        raise Invalid(f"{id[:60]!r} is not the id of an alert, which has 20 hexadecimal digits")
    return id


def read_alert(bus: BucketApi, id: str) -> Procedure[Alert]:
    """An open or muted alert; `NotFound` if there is none."""
    check_id(id)
    for prefix in (OPEN, MUTED):
        found = yield from _read(bus, f"{prefix}{id}.json")
        if found is not None:
            return found[0]
    raise NotFound(f"there is no open alert {id!r} (see: bucketmq logs alerts)")


def read_mutes(bucket: OpenBucket) -> Procedure[Mutes]:
    found = yield from get_document(Mutes, full_key(bucket, MUTES))
    return Mutes() if found is None else found[0]


def mute(bus: BucketApi, id: str, *, by: str, seconds: float, note: str = "", what: str = "") -> Procedure[Mute | None]:
    """Mute an incident for a while; with no seconds, unmute it. Leaves a line in the audit log.

    An alert that is open is moved to those that are muted, and whoever was paged hears that it is resolved. Heard of
    again it is open, and is not told a second time: the next incident is.
    """
    check_id(id)
    bucket = yield from bus.open()
    now = yield from Now()
    made = Mute(by, now, now + seconds, note[:500], what[:300]) if seconds > 0 else None

    def change(register: Mutes) -> Mutes:
        kept = {name: each for name, each in register.mutes.items() if each.until > now and name != id}
        if made is not None:
            kept[id] = made
        return msgspec.structs.replace(register, mutes=dict(sorted(kept.items())))

    yield from update_document(Mutes, full_key(bucket, MUTES), Mutes(), change)
    if made is not None:
        yield from _hide(bus, id, by)
    else:
        try:
            yield from bus.move(f"{MUTED}{id}.json", f"{OPEN}{id}.json", replace=True)
        except NotFound:
            pass  # nothing of its kind is going on
    line = {"did": "mute" if made is not None else "unmute", "alert": id, "by": by, "at": time_text(now), "note": note}
    yield from bus.queue(AUDIT).send({**line, **({"until": time_text(made.until)} if made is not None else {})})
    return made


def _hide(bus: BucketApi, id: str, by: str) -> Procedure[None]:
    """Tell that an open alert is resolved, and move it to those that are muted. Each step may be repeated."""
    patience = Patience(f"muting alert {id}")
    while True:
        there = yield from _read(bus, f"{OPEN}{id}.json")
        if there is None or there[0].state != "open":
            return  # nothing of its kind is going on
        alert, found = there
        try:
            if not alert.muted_at:
                at = time_text((yield from Now()))
                over = msgspec.structs.replace(
                    alert, state="resolved", resolved_at=at, text=f"muted by {by}\n{alert.text}"
                )
                # Again by who repeats this after a crash: the first may not have been reported.
                yield from bus.put(hushed_key(alert), document(over))
                hidden = msgspec.structs.replace(alert, muted_at=at)
                yield from bus.put(found.key, document(hidden), if_version=found.version)
                continue
            yield from bus.move(found.key, f"{MUTED}{id}.json", if_version=found.version, replace=True)
            return
        except (Contended, NotFound):
            yield from patience.again("the alert is being resolved")

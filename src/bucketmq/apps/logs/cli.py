"""The verbs of logs: tail, templates, alerts, mute, explain. Thin; what they show is `look`'s and `alerts`'."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
import typer

from bucketmq.cli.group import Group
from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import age, emit, emit_all, emit_text, flush, plural, say, table
from bucketmq.errors import Invalid

ServiceName = Annotated[str, typer.Argument(metavar="SERVICE", help="The service, as in logs/SERVICE/...")]
AlertId = Annotated[str, typer.Argument(metavar="ALERT", help="The alert's id.")]

FOLLOW_SECONDS = 2.0
UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}


def tail(
    service: ServiceName,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many lines.")] = 20,
    level: Annotated[str, typer.Option(help="Lines of this level or a worse one: info, warning, error, ...")] = "",
    template: Annotated[str, typer.Option(metavar="ID", help="Lines of this template alone.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the newest lines of a service, with secrets masked."""
    import time

    from bucketmq.apps.logs import look
    from bucketmq.apps.logs.parse import LEVELS

    if level not in LEVELS:
        raise Invalid(f"a level is one of {', '.join(LEVELS[1:])}, not {level!r}")
    shown: set[look.Shown] = set()
    with open_bucket(url, probe=False) as bucket:
        while True:
            if template:
                lines = bucket.run(look.lines_of(bucket.api, service, template, limit=count))[::-1]
            else:
                lines = bucket.run(look.tail(bucket.api, service, limit=count, level=level))
            for line in (each for each in lines if each not in shown):
                if as_json:
                    emit(line)
                else:
                    emit_text(f"{_moment(line.at)}  {line.level or '-':<8}  {line.text}")
            if not follow:
                return
            shown = set(lines)
            flush()
            time.sleep(FOLLOW_SECONDS)


def templates(
    service: ServiceName,
    *,
    hours: Annotated[int, typer.Option(min=1, max=24 * 60, help="Count the lines of this many hours.")] = 24,
    new: Annotated[bool, typer.Option("--new", help="The newest patterns first.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="How many.")] = 50,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the patterns of a service's lines, and how often each came."""
    from bucketmq.apps.logs import look
    from bucketmq.apps.logs.models import read_model

    with open_bucket(url, probe=False) as bucket:
        bus = bucket.api
        until = bucket.now_seconds + 60.0
        since = until - 3600.0 * hours
        model = bucket.run(read_model(bucket.run(bus.open()), service))
        rows = look.between(bucket.run(look.counts(bus)), since, until, service)
        found = look.patterns(model, rows, since, until)
    if new:
        found = sorted(found, key=lambda each: (-each.first_at, each.id))
    if as_json:
        for each in found[:count]:
            emit({name: value for name, value in msgspec.to_builtins(each).items() if name != "minutes"})
        return
    table(
        ("id", "#lines", "level", "first", "template"),
        [
            (each.id, f"{each.lines:,}", each.level or "-", _moment(each.first_at), each.template)
            for each in found[:count]
        ],
    )
    say(f"{plural(len(found), 'pattern')} of {service}; lines of the last {plural(hours, 'hour')}")


def alerts(
    *,
    which: Annotated[str, typer.Option("--in", metavar="STATE", help="open, muted or resolved.")] = "open",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List alerts: those that are open, muted, or over."""
    from bucketmq.apps.logs import alerts as of_logs
    from bucketmq.apps.logs.names import MUTED, OPEN, RESOLVED

    places = {"open": OPEN, "muted": MUTED, "resolved": RESOLVED}
    if which not in places:
        raise Invalid(f"alerts are open, muted or resolved, not {which!r}")
    with open_bucket(url, probe=False) as bucket:
        found = bucket.run(of_logs.open_alerts(bucket.api, places[which]))
    if as_json:
        emit_all(map(of_logs.document, found))
        return
    table(
        ("id", "severity", "opened", "what", "why"),
        [(each.id, each.severity, each.opened_at[:19], each.summary, each.why) for each in found],
    )
    say(f"{plural(len(found), 'alert')} {which}")


def mute(
    alert: AlertId,
    *,
    how_long: Annotated[str, typer.Option("--for", metavar="TIME", help="30m, 8h or 7d.")] = "8h",
    off: Annotated[bool, typer.Option("--off", help="Notify again.")] = False,
    note: Annotated[str, typer.Option(help="Why, for the audit log.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Mute an incident for a while. Who muted it is kept in the queue log-audit."""
    from bucketmq.apps.logs import alerts as of_logs

    seconds = 0.0 if off else _seconds(how_long)
    with open_bucket(url, probe=False) as bucket:
        made = bucket.run(of_logs.mute(bucket.api, alert, by=getpass.getuser(), seconds=seconds, note=note))
    if as_json:
        emit({"alert": alert, "until": None if made is None else made.until})
    else:
        emit_text(f"{alert} is heard of again" if made is None else f"{alert} is muted for {age(seconds)}")


def explain(
    alert: AlertId,
    *,
    claude: Annotated[
        bool, typer.Option("--claude", help="Ask Claude for a summary (env: ANTHROPIC_API_KEY).")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say what an open alert is about: what was found, what is usual, examples, the runbook."""
    from bucketmq.apps.logs import alerts as of_logs
    from bucketmq.apps.logs import explain as of_claude

    with open_bucket(url, probe=False) as bucket:
        bus = bucket.api
        found = bucket.run(of_logs.read_alert(bus, alert))
        said = of_claude.ask(found) if claude else bucket.run(of_claude.said_of(bus, found))
    if as_json:
        emit({**of_logs.document(found), "said": said})
        return
    rows: list[tuple[str, str]] = [
        ("alert", found.id),
        ("what", found.summary),
        ("why", found.why),
        ("severity", found.severity),
        ("since", _moment(found.since)),
        ("opened", found.opened_at),
        ("object", found.source),
        ("runbook", found.link),
    ]
    for name, value in rows:
        if value:
            emit_text(f"{name:<9} {value}")
    for line in found.examples:
        emit_text(f"  | {line}")
    if said:
        emit_text("")
        emit_text(f"Claude: {said}")


def _moment(at: float | None) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") if at else "-"


def _seconds(text: str) -> float:
    unit: Literal["m", "h", "d"] | str = text[-1:]
    number = text[:-1]
    if unit not in UNITS or not number.isdecimal() or not 0 < float(number) * UNITS[unit] <= 30 * 86400:
        raise Invalid(f"{text!r} is not a time to mute for; write 30m, 8h or 7d, 30 days at most")
    return float(number) * UNITS[unit]


GROUP = Group("logs", "Logs: patterns, counts, and one alert for each incident.")

GROUP.add("Look", tail, "bucketmq logs tail web", "bucketmq logs tail web --level error --json")
GROUP.add("Look", templates, "bucketmq logs templates web", "bucketmq logs templates web --new --count 10 --json")
GROUP.add("Look", alerts, "bucketmq logs alerts", "bucketmq logs alerts --in resolved --json")
GROUP.add("Look", explain, "bucketmq logs explain 0123456789abcdef0123")
GROUP.add(
    "Work",
    mute,
    "bucketmq logs mute 0123456789abcdef0123 --for 8h --note 'being repaired'",
    "bucketmq logs mute 0123456789abcdef0123 --off",
)

"""The verbs of moderation: ingest, route, desk, status, demo. Thin: what they run are the agents beside this module."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketmq import aio
from bucketmq.apps.app import Here
from bucketmq.apps.moderation.agents import pull
from bucketmq.apps.moderation.demo.verb import demo
from bucketmq.cli.agent import run_agent
from bucketmq.cli.group import Group
from bucketmq.cli.options import Json, open_bucket, url_option
from bucketmq.cli.output import age, emit, emit_text, flush, plural, say, table
from bucketmq.cli.serve import TrustedProxy, buckets_of, warn_plain_http
from bucketmq.client import Bucket
from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.queues import EVENTS

if TYPE_CHECKING:
    from bucketmq.apps.moderation.posts import RoutedPost
    from bucketmq.apps.moderation.routing import Thresholds

BucketUrl = Annotated[str | None, url_option("The bucket (env: BUCKET_NAME, a name on S3, a URL or a folder).")]
Host = Annotated[str, typer.Option(help="Where to listen. 0.0.0.0 is everywhere.")]


def ingest(
    *,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="0 is any free one (env: PORT_INGEST; 8080).")
    ] = None,
    token: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help="Required of submissions (env: INGEST_TOKEN).")
    ] = None,
    insecure_no_token: Annotated[
        bool, typer.Option("--insecure-no-token", help="Accept posts without a token on a public address.")
    ] = False,
    trusted_proxy: TrustedProxy = None,
    url: BucketUrl = None,
    as_json: Json = False,
) -> None:
    """Take posts: POST /submit with {"id", "text", "media_url"?} is answered 201 when the post is durable.

    Without a token every program on this machine may submit, and no other address is listened on. /docs shows the API,
    /metrics is for Prometheus. SIGTERM and Ctrl-C finish what is in flight.
    """
    from bucketmq.apps.moderation.settings import settings_from

    settings = settings_from(
        url=url,
        port_ingest=port,
        ingest_tokens=tuple(token or ()),
        trusted_proxies=tuple(trusted_proxy or ()),
    )

    async def serve(bucket: aio.Bucket) -> None:
        from bucketmq.apps.moderation.ingest import serve as run_ingest

        await run_ingest(bucket, settings, host=host, listening=listening, insecure_no_token=insecure_no_token)

    def listening(address: str) -> None:
        _tell_address(address, as_json=as_json)
        say(f"posts go to {address}/submit; stop it with Ctrl-C")
        if insecure_no_token and not settings.ingest_tokens:
            say("WITHOUT A TOKEN: everybody who reaches this port can submit")
        warn_plain_http(host, settings.trusted_proxies)
        flush()

    run_agent(settings.url, serve)


def route(
    *,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to do now.")] = False,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="Also take notifications at POST /webhook; so too if there is a secret.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="0 is any free one (env: PORT_ROUTER; 8081).")
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help="Required of notifications (env: WEBHOOK_SECRET).")
    ] = None,
    review_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Notified of flagged posts (env: REVIEW_WEBHOOK_URL).")
    ] = None,
    review_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="slack, json or pagerduty (env: REVIEW_WEBHOOK_FORMAT; slack).")
    ] = None,
    trusted_proxy: TrustedProxy = None,
    flag_above: Annotated[
        list[str] | None,
        typer.Option(metavar="[CATEGORY=]N", help="A violation above it is flagged without a person; 0.85."),
    ] = None,
    clear_up_to: Annotated[
        list[str] | None,
        typer.Option(metavar="[CATEGORY=]N", help="Posts without a violation are approved up to it; 0.3."),
    ] = None,
    url: BucketUrl = None,
    as_json: Json = False,
) -> None:
    """Move judged posts from pending/ to approved/, flagged/ or needs-review/, and notify people of flagged ones.

    Pulls the bucket's events; with --webhook the bucket's provider may post them too. Any number of routers may run.
    Prints a line for each post. SIGTERM and Ctrl-C finish what is in hand.
    """
    from bucketmq.apps.moderation.settings import settings_from

    settings = settings_from(
        url=url,
        port_router=port,
        webhook_secrets=tuple(secret or ()),
        review_url=review_url,
        review_format=review_format,
        trusted_proxies=tuple(trusted_proxy or ()),
        thresholds=_thresholds(flag_above or [], clear_up_to or []),
    )
    told = _teller(as_json=as_json)

    def listening(address: str) -> None:
        _tell_address(address, as_json=as_json)
        say(f"routing; notifications go to {address}/webhook; stop it with Ctrl-C")
        warn_plain_http(host, settings.trusted_proxies)
        flush()

    async def work(bucket: aio.Bucket) -> None:
        from bucketmq.apps.moderation.router import Router, serve

        if once:
            await Router(bucket, settings, told=told).run_once()
        elif webhook or settings.webhook_secrets:
            buckets = buckets_of(settings.url, [])
            await serve(bucket, settings, host=host, buckets=buckets, told=told, listening=listening)
        else:
            ready = functools.partial(say, "routing; stop it with Ctrl-C")
            await pull(Here(bucket, settings, ready=lambda _: ready()), told)

    run_agent(settings.url, work)


def desk(
    *,
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="0 is any free one (env: PORT_DESK; 8082).")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TOKEN:ROLE", help="Who may log in: look, operate, review or administer (env: DESK_TOKENS)."
        ),
    ] = None,
    token_file: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="The same, one in each line.")] = None,
    https: Annotated[
        bool, typer.Option("--https", help="A proxy in front speaks https: the cookie goes over nothing else.")
    ] = False,
    trusted_proxy: TrustedProxy = None,
    private_images: Annotated[
        bool, typer.Option("--private-images", help="Also fetch images from this machine and private networks.")
    ] = False,
    undo_seconds: Annotated[
        float | None, typer.Option(min=0, help="How long people may take back their own decisions.")
    ] = None,
    url: BucketUrl = None,
    as_json: Json = False,
) -> None:
    """Open the dashboard with the review desk: a page for people.

    It shows how posts flow, queues, rules and dead letters, and lets those with the role review decide about the posts
    that wait for them. Each person has a token. Others on this machine can read a command line: better keep tokens in
    DESK_TOKENS, separated by spaces, or in a file. SIGTERM and Ctrl-C finish what is in flight.
    """
    from bucketmq.apps.moderation.settings import DESK_TOKENS, settings_from
    from bucketmq.cli.tokens import gate_settings, warn_of_plain_http

    own = settings_from(url=url, port_desk=port, desk_tokens=tuple(token or ()), undo_seconds=undo_seconds)
    settings = gate_settings(
        (token or []) if token_file else own.desk_tokens,
        token_file or [],
        variable=DESK_TOKENS,
        https=https,
        trusted_proxies=trusted_proxy or [],
    )

    async def serve(bucket: aio.Bucket) -> None:
        from bucketmq.apps.moderation.desk.tabs import tabs
        from bucketmq.dashboard.app import serve as run_dashboard

        added = tabs(private_images=private_images, undo_seconds=own.undo_seconds)
        await run_dashboard(bucket, settings, tabs=added, host=host, port=own.port_desk, listening=listening)

    def listening(address: str) -> None:
        _tell_address(address, as_json=as_json)
        say(f"the desk is open at {address}/ for people with a token; stop it with Ctrl-C")
        warn_of_plain_http(host, https=https)
        flush()

    run_agent(own.url, serve)


def status(*, url: BucketUrl = None, as_json: Json = False) -> None:
    """How many posts are where: waiting to be judged, pending, decided, waiting for a person."""
    from bucketmq.apps.moderation.settings import settings_from

    settings = settings_from(url=url)
    with open_bucket(settings.url, probe=False) as bucket:
        found = _status(bucket)
    if as_json:
        emit(found)
        return
    table(("where", "#posts"), [("not judged yet", found["unjudged"]), *found["objects"].items()])
    oldest = age(found["oldest_waiting_seconds"])
    people = f"{plural(found['waiting_for_people'], 'post')} wait for a person"
    say(f"{people}{f', the oldest for {oldest}' if oldest else ''}; {found['reviewed']:,} were decided by people")
    if found["dead_letters"]:
        say(f"{plural(found['dead_letters'], 'event')} could not be handled; see: bucketmq dead {EVENTS}")


def _status(bucket: Bucket) -> dict[str, Any]:
    from bucketmq.apps.moderation import posts
    from bucketmq.server.place import bus_of, run_now, seconds_now

    bus = bus_of(bucket)
    waiting = run_now(bucket, posts.waiting(bus))
    oldest = waiting.entries[0].stored_at if waiting.entries else None
    counted = run_now(bucket, posts.overview(bus))
    return {
        "submitted": counted.submitted,
        "unjudged": counted.unjudged,
        "objects": counted.objects,
        "waiting_for_people": len(waiting.entries),
        "oldest_waiting_seconds": None if oldest is None else max(0.0, seconds_now(bucket) - oldest),
        "reviewed": waiting.reviewed,
        "dead_letters": _dead(bucket, EVENTS),
    }


def _dead(bucket: Bucket, queue: str) -> int:
    try:
        return bucket.existing_queue(queue).stats().dead
    except NotFound:
        return 0


def _thresholds(flag_above: list[str], clear_up_to: list[str]) -> Thresholds:
    from bucketmq.apps.moderation.routing import CLEAR_UP_TO, FLAG_ABOVE, make_thresholds

    flag, flag_by = _numbers(flag_above, FLAG_ABOVE)
    clear, clear_by = _numbers(clear_up_to, CLEAR_UP_TO)
    return make_thresholds(flag=flag, clear=clear, flag_by=flag_by, clear_by=clear_by)


def _numbers(texts: list[str], default: float) -> tuple[float, dict[str, float]]:
    """Thresholds as they are written: 0.9 for all, spam=0.95 for one."""
    common, by_category = default, {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise Invalid(f"{text!r} is not a threshold; write 0.9, or spam=0.95") from None
        if equals:
            by_category[name] = value
        else:
            common = value
    return common, by_category


def _teller(*, as_json: bool) -> Callable[[RoutedPost], None]:
    import msgspec

    def told(routed: RoutedPost) -> None:
        if as_json:
            emit(msgspec.to_builtins(routed))
        else:
            where = routed.outcome or "nowhere, for a newer revision was decided"
            emit_text(f"{routed.id!r} revision {routed.revision}: {where} {routed.reason}".rstrip())
        flush()

    return told


def _tell_address(address: str, *, as_json: bool) -> None:
    if as_json:
        emit({"url": address, "pid": os.getpid()})


GROUP = Group("moderation", "Content moderation: posts in, judged, routed, reviewed.")

GROUP.add(
    "Agents",
    ingest,
    "timeout 2 bucketmq moderation ingest --port 0",
    "timeout 2 bucketmq moderation ingest --port 0 --token example-token-0001 --json",
)
GROUP.add(
    "Agents",
    route,
    "bucketmq moderation route --once",
    "timeout 2 bucketmq moderation route --flag-above 0.9 --flag-above self_harm=0.7 --clear-up-to 0.2",
    "timeout 2 bucketmq moderation route --webhook --port 0 --secret example-token-0001",
)
GROUP.add("Work", demo, "bucketmq moderation demo", "bucketmq moderation demo --count 60 --json")
GROUP.add(
    "Agents",
    desk,
    "timeout 2 bucketmq moderation desk --port 0 --token rosa=example-token-of-rosa:review",
    "timeout 2 bucketmq moderation desk --port 0 --json --https --token vera=example-token-of-vera:look",
)
GROUP.add("Look", status, "bucketmq moderation status", "bucketmq moderation status --json")

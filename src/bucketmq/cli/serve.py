"""The verb serve: receivers for other systems' notifications over HTTP, with the bucket's rules run beside them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from bucketmq import aio
from bucketmq.cli.agent import needs_server, run_agent
from bucketmq.cli.figures import OtlpOption
from bucketmq.cli.options import Json, Url, the_url
from bucketmq.cli.output import emit, flush, say
from bucketmq.cli.tokens import gate_settings
from bucketmq.cli.worker import log_to_stderr
from bucketmq.errors import Invalid
from bucketmq.server.people import TOKENS_VARIABLE

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bucketmq.server.access import Access
    from bucketmq.server.gate import GateSettings
    from bucketmq.server.pubsub import Push

TOKEN_VARIABLE = "BUCKETMQ_TOKEN"
BASIC_VARIABLE = "BUCKETMQ_BASIC"
SIGNING_VARIABLE = "BUCKETMQ_SIGNING_SECRET"

ANY_BUCKET = "*"

TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(metavar="CIDR", help="A proxy in front, such as 10.0.0.0/8: its X-Forwarded-For says who calls."),
]


def serve(
    place: Annotated[str | None, typer.Argument(metavar="[URL]", help="The bucket; else --url.")] = None,
    *,
    host: Annotated[str, typer.Option(help="Where to listen. 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 is any free one.")] = 8080,
    token: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help=f"Required of callers (env: {TOKEN_VARIABLE}).")
    ] = None,
    token_file: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A file with a token in each line.")
    ] = None,
    basic: Annotated[
        list[str] | None, typer.Option(metavar="USER:PASSWORD", help=f"The same by name (env: {BASIC_VARIABLE}).")
    ] = None,
    signing_secret: Annotated[
        list[str] | None,
        typer.Option(metavar="WHSEC", help=f"Takes requests signed with it (env: {SIGNING_VARIABLE})."),
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="No secrets: for this machine alone.")] = False,
    no_notify: Annotated[bool, typer.Option("--no-notify", help="Do not run the bucket's rules.")] = False,
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not watch the files of a folder.")] = False,
    sweep_every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Find changes without a notification; starts with a baseline."),
    ] = None,
    from_bucket: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take events of this bucket; '*' of all. Default: the URL's."),
    ] = None,
    sns_topic: Annotated[
        list[str] | None, typer.Option(metavar="ARN", help="Take messages of this topic, and confirm it, alone.")
    ] = None,
    sns_verify: Annotated[
        bool, typer.Option("--sns-verify/--no-sns-verify", help="Take only what SNS signed; test servers do not sign.")
    ] = True,
    sns_url: Annotated[
        str | None, typer.Option(metavar="URL", help="An SNS that is not Amazon's, such as a test server.")
    ] = None,
    pubsub_audience: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Take pushes of Pub/Sub whose token is for this audience.")
    ] = None,
    pubsub_email: Annotated[
        str | None, typer.Option(metavar="EMAIL", help="The service account that Pub/Sub pushes on behalf of.")
    ] = None,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Show the dashboard too, at /, to people with one of its tokens."),
    ] = False,
    dashboard_tokens: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help=f"Who may log in there, one in each line (env: {TOKENS_VARIABLE})."),
    ] = None,
    https: Annotated[
        bool, typer.Option("--https", help="A proxy in front speaks https: the dashboard's cookie needs that.")
    ] = False,
    otlp: OtlpOption = None,
    trusted_proxy: TrustedProxy = None,
    origin: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="May ask to send CloudEvents. Default: anybody.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Receive notifications over HTTP, and run the bucket's rules.

    Point Tigris, S3, SNS, EventBridge, MinIO, Ceph, SeaweedFS, Pub/Sub, Event Grid or CloudEvents at
    /events/SOURCE (/events/auto finds out). To rotate a secret, give the old and the new one: each opens the door.
    Others on this machine can read a command line: better keep secrets in variables or files.
    /docs shows the API, /metrics is for Prometheus. SIGTERM and Ctrl-C finish what is in hand.
    """
    wanted = the_url(place or url)
    log_to_stderr(_JsonLines() if as_json else None)
    with needs_server():
        from bucketmq.server.access import make_access
        from bucketmq.server.run import check_host
        from bucketmq.server.settings import ServerSettings, check_settings

        access = make_access(
            bearer=[*(token or []), *_from_files(token_file or []), *_from_environment(TOKEN_VARIABLE)],
            basic=[*(basic or []), *_from_environment(BASIC_VARIABLE)],
            signing=[*(signing_secret or []), *_from_environment(SIGNING_VARIABLE)],
            push=_push(pubsub_audience, pubsub_email),
            no_auth=no_auth,
        )
        settings = check_settings(
            ServerSettings(
                access=access,
                buckets=buckets_of(wanted, from_bucket or []),
                sns_topics=tuple(sns_topic or []),
                sns_verify=sns_verify,
                sns_prefix=sns_url,
                trusted_proxies=tuple(trusted_proxy or []),
                origins=tuple(origin or []),
                notify=not no_notify,
                files=not no_files,
                sweep_seconds=sweep_every,
            )
        )
        page = None
        if dashboard or dashboard_tokens:
            page = gate_settings(
                [],
                dashboard_tokens or [],
                variable=TOKENS_VARIABLE,
                https=https,
                trusted_proxies=trusted_proxy or [],
            )
        check_host(settings, host)

    def listening(address: str) -> None:
        if as_json:
            emit({"url": address, "pid": os.getpid()})
        say(f"listening on {address}: notifications go to {address}/events/SOURCE; stop it with Ctrl-C")
        say(_who(access))
        if page is not None:
            say(f"the dashboard is open at {address}/ for people with one of its tokens")
        warn_plain_http(host, settings.trusted_proxies)
        flush()

    async def work(bucket: aio.Bucket) -> None:
        from bucketmq.server.run import serve as run_server

        beside = _page(bucket, page)
        await run_server(bucket, settings, host=host, port=port, listening=listening, beside=beside, otlp=otlp)

    run_agent(wanted, work)


def _page(bucket: aio.Bucket, settings: GateSettings | None) -> FastAPI | None:
    """The dashboard, if it is wanted."""
    if settings is None:
        return None
    from bucketmq.dashboard.app import make_app

    return make_app(bucket, settings, samples=True)


def warn_plain_http(host: str, trusted_proxies: Sequence[str] = ()) -> None:
    """Whoever names a proxy has one in front, which speaks HTTPS."""
    from bucketmq.server.access import is_loopback

    if not is_loopback(host) and not trusted_proxies:
        say("WITHOUT HTTPS: everybody on the way can read secrets; put a proxy in front, and name it: --trusted-proxy")


def _push(audience: str | None, email: str | None) -> Push | None:
    if audience is None and email is None:
        return None
    from bucketmq.server.pubsub import Push

    return Push(audience=audience or "", email=email or "")


def _who(access: Access) -> str:
    """How many secrets there are; none of them is shown."""
    if access.no_auth:
        return "WITHOUT SECRETS: every program on this machine can report events"
    kinds = {
        "token": len(access.bearer),
        "basic secret": len(access.basic),
        "signing secret": len(access.signing),
        "Pub/Sub account": int(access.push is not None),
    }
    return "callers show one of: " + ", ".join(f"{count} {kind}(s)" for kind, count in kinds.items() if count)


def _from_environment(variable: str) -> list[str]:
    """Several are separated by spaces, for the time of a change."""
    return os.environ.get(variable, "").split()


def _from_files(paths: list[Path]) -> list[str]:
    found: list[str] = []
    for path in paths:
        try:
            lines = [line.strip() for line in path.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"the token file {path} cannot be read: {error}") from None
        tokens = [line for line in lines if line and not line.startswith("#")]
        if not tokens:
            raise Invalid(f"the token file {path} has no token in it; write one in each line")
        found += tokens
    return found


def buckets_of(url: str, given: list[str]) -> tuple[str, ...]:
    """Whose events count: those named, else the URL's own bucket where it has a name."""
    if given:
        return () if ANY_BUCKET in given else tuple(given)
    parts = urlsplit(url) if "://" in url else None
    return (parts.netloc,) if parts is not None and parts.scheme in ("s3", "gs", "az") and parts.netloc else ()


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        row = {"time": self.formatTime(record), "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return json.dumps(row)

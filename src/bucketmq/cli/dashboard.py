"""The verbs dashboard and token: the page for people, and the secrets that open it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bucketmq import aio
from bucketmq.cli.agent import needs_server, run_agent
from bucketmq.cli.figures import OtlpOption
from bucketmq.cli.options import Json, Url, the_url
from bucketmq.cli.output import emit, emit_text, flush, say
from bucketmq.cli.serve import TrustedProxy
from bucketmq.cli.tokens import gate_settings, warn_of_plain_http
from bucketmq.errors import Invalid
from bucketmq.server.people import TOKENS_VARIABLE


def dashboard(
    place: Annotated[str | None, typer.Argument(metavar="[URL]", help="The bucket; else --url.")] = None,
    *,
    host: Annotated[str, typer.Option(help="Where to listen. 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 is any free one.")] = 8090,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TOKEN:ROLE",
            help=f"Who may log in: look, operate, review or administer (env: {TOKENS_VARIABLE}).",
        ),
    ] = None,
    token_file: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="The same, one in each line.")] = None,
    app: Annotated[
        list[str] | None, typer.Option("--app", metavar="NAME", help="Add the tabs of this application.")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Keep figures of a week in the bucket, for charts.")
    ] = True,
    https: Annotated[
        bool, typer.Option("--https", help="A proxy in front speaks https: the cookie goes over nothing else.")
    ] = False,
    otlp: OtlpOption = None,
    trusted_proxy: TrustedProxy = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Open the dashboard: a page that shows what is stuck, why, and lets people mend it.

    For any bucket. Overview, queues, rules and dead letters; send, redrive, replay and purge for people with the role.
    Without a token one is made for this run, and shown once in a link that opens the page. Others on this machine can
    read a command line: better keep tokens in a file. SIGTERM and Ctrl-C finish what is in flight.
    """
    wanted = the_url(place or url)
    from bucketmq.apps import registry

    tabs = [tab for name in app or [] for tab in registry.get(name).tabs]
    with needs_server():
        given = list(token or []) or os.environ.get(TOKENS_VARIABLE, "").split()
        made = None if given or token_file else _own_token(host)
        settings = gate_settings(
            given if made is None else [made[1]],
            token_file or [],
            variable=TOKENS_VARIABLE,
            https=https,
            trusted_proxies=trusted_proxy or [],
        )

    def listening(address: str) -> None:
        if as_json:
            emit({"url": address, "pid": os.getpid()})
        say(f"the dashboard is open at {address}/ for people with a token; stop it with Ctrl-C")
        if made is not None:
            say(f"open it here, for this run: {address}/#token={made[0]}")
        warn_of_plain_http(host, https=https)
        flush()

    async def serve(bucket: aio.Bucket) -> None:
        from bucketmq.dashboard.app import serve as run_server

        await run_server(
            bucket, settings, host=host, port=port, listening=listening, tabs=tabs, samples=figures, otlp=otlp
        )

    run_agent(wanted, serve)


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is: a person, or a program.")],
    *,
    role: Annotated[
        list[str] | None, typer.Option("--role", "-r", help="look, operate, review or administer; several add up.")
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Only these queues; mail-* is all that begin so."),
    ] = None,
    prefixes: Annotated[
        list[str] | None, typer.Option("--prefix", metavar="PREFIX", help="Only objects below these prefixes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token, and the line that lets it in.

    Give the token to the person or program that uses it, and to nobody else; the line goes into the file of
    --token-file. It holds a hash: reading the file does not let anybody log in."""
    from bucketmq.server.people import token_line

    rights = "+".join(role or ["look"])
    rights += f";queues={','.join(queues)}" if queues else ""
    rights += f";prefixes={','.join(prefixes)}" if prefixes else ""
    made, line = token_line(name, rights)
    if as_json:
        emit({"name": name, "token": made, "line": line})
        return
    emit_text(line)
    say(f"the token of {name}, shown this once: {made}")
    say("append the line to a file, and serve with --token-file FILE")


def _own_token(host: str) -> tuple[str, str]:
    """A token for whoever started this, on their own machine alone."""
    from bucketmq.server.access import is_loopback
    from bucketmq.server.people import HOW, token_line

    if not is_loopback(host):
        raise Invalid(f"others can reach {host}: give --token or --token-file, or set {TOKENS_VARIABLE}; {HOW}")
    return token_line("you", "administer")

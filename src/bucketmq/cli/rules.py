"""Verbs that make and change rules: rules add, rm, pause, resume, rotate."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

import msgspec
import typer

from bucketmq.cli.credentials import given_secret
from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import answer, emit, emit_text, flush, say
from bucketmq.cli.rules_look import RuleName, destination_text, existing_rule, state_text
from bucketmq.errors import Invalid
from bucketmq.events.rule import Format, Gone, Notice, Secrets, Stale
from bucketmq.events.signing import new_secret
from bucketmq.rulebook import rotated

SECRET_BYTES = 32

AnyFormat = Literal[Format, Notice]


def fresh_secret() -> str:
    return new_secret(os.urandom(SECRET_BYTES))


def warn_private(url: str) -> None:
    say(
        "WARNING: --private lets this rule speak to this machine and to private networks, so that everyone who may "
        f"make rules can reach what only insiders should. For development only: {url}"
    )


def add(
    name: RuleName,
    *,
    to: Annotated[str, typer.Option("--to", metavar="WHERE", help="https://… or queue:NAME.")],
    text: Annotated[str, typer.Option("--filter", metavar="FILTER", help="Which events; all if left out.")] = "",
    start: Annotated[
        str, typer.Option(metavar="WHEN", help="now, beginning, or a time like 2030-01-31T12:00:00Z.")
    ] = "now",
    existing: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="First send what is there below it; '' is everything.")
    ] = None,
    wire: Annotated[
        AnyFormat | None, typer.Option("--format", help="The body of requests; tigris if left out.")
    ] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Events in one request, at most.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long an answer may take; 10.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Allow this machine and private networks, http://.")
    ] = False,
    bearer: Annotated[str | None, typer.Option(metavar="env:NAME", help="A bearer token.")] = None,
    bearer_file: Annotated[str | None, typer.Option(metavar="FILE", help="The token is in a file; '-': stdin.")] = None,
    basic: Annotated[str | None, typer.Option(metavar="env:NAME", help="user:password.")] = None,
    basic_file: Annotated[str | None, typer.Option(metavar="FILE", help="user:password is in a file.")] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign requests; prints the new whsec_ secret, once.")] = False,
    secret: Annotated[str | None, typer.Option(metavar="env:NAME", help="Sign with this whsec_ secret.")] = None,
    secret_file: Annotated[str | None, typer.Option(metavar="FILE", help="The whsec_ secret is in a file.")] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS=WHAT", help="400=bury, 4xx=retry; done, retry, bury or pause; may be repeated."),
    ] = None,
    retry: Annotated[str | None, typer.Option(metavar="SECONDS,…", help="The waits between attempts.")] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="Requests a second, at most.")] = None,
    concurrency: Annotated[int | None, typer.Option(metavar="N", help="Requests at a time, in each process.")] = None,
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long events stay with a process that died; 60.")
    ] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="One event of a key at a time, in order.")] = False,
    stale: Annotated[Stale | None, typer.Option(help="An event that came after a newer one of its key.")] = None,
    gone: Annotated[Gone | None, typer.Option(help="An object that is gone or changed by then.")] = None,
    hops: Annotated[int | None, typer.Option(metavar="N", help="The longest chain of events; 16.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the rule of this name; it goes on from its place.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a rule: which events go where, and how.

    A webhook is delivered by the process that runs the rules: bucketmq rules run, or bucketmq serve.
    """
    options: dict[str, Any] = {
        "format": wire,
        "batch": batch,
        "timeout_seconds": timeout,
        "private": private or None,
        "statuses": _statuses(on),
        "retry_seconds": _waits(retry),
        "rate_per_second": rate,
        "concurrency": concurrency,
        "lease_seconds": lease,
        "ordered": ordered or None,
        "stale": stale,
        "gone": gone,
        "hops_max": hops,
    }
    signing = given_secret("--secret", secret, secret_file)
    if sign and signing is not None:
        raise Invalid("--sign makes a signing secret, and --secret gives one; say one of the two")
    made = fresh_secret() if sign else None
    credentials: dict[str, Any] = {
        "signing": made or signing,
        "bearer": given_secret("--bearer", bearer, bearer_file),
        "basic": given_secret("--basic", basic, basic_file),
    }
    if to.startswith("queue:") and any(each is not None for each in credentials.values()):
        raise Invalid("secrets are for webhooks; a queue of the same bucket needs none")
    chosen = {option: value for option, value in options.items() if value is not None}
    with open_bucket(url) as bucket:
        rule = bucket.rules.add(
            name, to=to, filter=text, start=start, existing=existing, replace=replace, **credentials, **chosen
        )
    if private:
        warn_private(to)
    if as_json:
        emit({"rule": rule.to_dict(), **({"signing_secret": made} if made is not None else {})})
        return
    say(f"rule {name}: {rule.filter or 'every event'} goes to {destination_text(rule.to)}")
    if made is not None:
        say("the signing secret, which is not shown again:")
        emit_text(made)
        flush()
    say("deliver with: bucketmq rules run")


def _statuses(given: list[str] | None) -> dict[str, str] | None:
    statuses = {}
    for each in given or ():
        status, equals, what = each.partition("=")
        if not equals or what not in ("done", "retry", "bury", "pause"):
            raise Invalid(f"--on is STATUS=WHAT, like 400=bury or 4xx=retry (done, retry, bury, pause), not {each!r}")
        statuses[status] = what
    return statuses or None


def _waits(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise Invalid(f"--retry is seconds with commas between, like 5,300,1800, not {text!r}") from None


def rm(name: RuleName, url: Url = None, as_json: Json = False) -> None:
    """Remove a rule, and what it has not delivered."""
    with open_bucket(url) as bucket:
        existing_rule(bucket, name)
        bucket.rules.remove(name)
    answer({"rule": name, "removed": True}, f"rule {name} is removed", as_json=as_json)


def pause(
    name: RuleName,
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who look at the rule.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Stop delivering; what happens meanwhile waits."""
    with open_bucket(url) as bucket:
        existing_rule(bucket, name)
        rule = bucket.rules.pause(name, why)
    text = f"rule {name} is {state_text(rule)}; go on with: bucketmq rules resume {name}"
    answer({"rule": name, "paused": rule.paused}, text, as_json=as_json)


def resume(name: RuleName, url: Url = None, as_json: Json = False) -> None:
    """Go on delivering, from where the rule was paused."""
    with open_bucket(url) as bucket:
        existing_rule(bucket, name)
        rule = bucket.rules.resume(name)
    answer({"rule": name, "paused": rule.paused}, f"rule {name} is {state_text(rule)}", as_json=as_json)


def rotate(
    name: RuleName,
    *,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Make no new secret: sign with the newest one alone.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a new signing secret, printed once; requests are signed with it and the one before.

    Give it to the receiver, then end the use of the old one with --drop-old. Processes that deliver notice within half
    a minute.
    """
    made = None if drop_old else fresh_secret()
    with open_bucket(url) as bucket:
        rule = existing_rule(bucket, name)
        if destination_text(rule.to).startswith(("queue:", "watcher")):
            raise Invalid(f"rule {name} goes to {destination_text(rule.to)}; only webhooks are signed")
        if not drop_old or bucket.rules.secrets(name).signing:
            after = bucket.rules.change_secrets(name, lambda old: _newest(old) if made is None else rotated(old, made))
        else:
            raise Invalid(f"rule {name} has no signing secret; make one: bucketmq rules rotate {name}")
    if as_json:
        emit({"rule": name, "signs_with": len(after.signing)} | ({"signing_secret": made} if made is not None else {}))
        return
    if made is not None:
        say(f"rule {name} signs with {len(after.signing)} secrets; the new one, which is not shown again:")
        emit_text(made)
    else:
        say(f"rule {name} signs with its newest secret alone")


def _newest(secrets: Secrets) -> Secrets:
    return msgspec.structs.replace(secrets, signing=secrets.signing[:1])

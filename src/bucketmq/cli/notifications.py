"""Verbs in the shape that users of Tigris know: notifications set, show, reset. They keep one rule, `notifications`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bucketmq.cli.credentials import masked_secrets
from bucketmq.cli.exits import Code, nothing
from bucketmq.cli.options import URL_VARIABLE, Json, Url, open_bucket, url_option
from bucketmq.cli.output import answer, emit, say, table
from bucketmq.cli.rules import warn_private
from bucketmq.cli.rules_look import destination_text, state_text
from bucketmq.client import Bucket
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import Rule, Webhook

RULE = "notifications"


def set_(
    *,
    to: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Where requests go. Needed the first time.")
    ] = None,
    token: Annotated[str | None, typer.Option(metavar="TOKEN", help="A bearer token, or env:NAME.")] = None,
    text: Annotated[
        str | None, typer.Option("--filter", metavar="FILTER", help="Which events, with or without WHERE.")
    ] = None,
    username: Annotated[str | None, typer.Option(metavar="NAME", help="With --password, instead of a token.")] = None,
    password: Annotated[str | None, typer.Option(metavar="TEXT", help="With --username.")] = None,
    enable: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Deliver, or let what happens wait.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Allow this machine and private networks, http://.")
    ] = False,
    bucket_url: Annotated[str | None, url_option(f"The bucket (env: {URL_VARIABLE}).", "--bucket")] = None,
    as_json: Json = False,
) -> None:
    """Send the bucket's changes to an address. What you leave out stays as it is.

    Here --url is the address; the bucket is named by --bucket or the environment. For more than one address, other
    formats and signatures, see: bucketmq rules.
    """
    basic = _basic(username, password)
    if basic is not None and token is not None:
        raise Invalid("give --token, or --username and --password, not both")
    with open_bucket(bucket_url) as bucket:
        before = _found(bucket)
        if before is None and to is None:
            raise Invalid("there are no notifications yet; say where they go: --url https://example.com/hook")
        _write(bucket, before, to=to, text=text, private=private, token=token, basic=basic)
        wanted = enable if enable is not None else before is None or before.paused is None
        rule = bucket.rules.resume(RULE) if wanted else bucket.rules.pause(RULE, _why(before))
        secrets = masked_secrets(bucket.rules.secrets(RULE))
    if private:
        warn_private(destination_text(rule.to))
    _show(rule, secrets, as_json=as_json)
    say("deliver with: bucketmq rules run")


def _basic(username: str | None, password: str | None) -> str | None:
    if (username is None) != (password is None):
        raise Invalid("--username and --password go together")
    return None if username is None else f"{username}:{password}"


def _why(before: Rule | None) -> str:
    return before.paused if before is not None and before.paused else "disabled"


def _found(bucket: Bucket) -> Rule | None:
    try:
        rule = bucket.rules.get(RULE)
    except NotFound:
        return None
    if not isinstance(rule.to, Webhook):
        raise Invalid(
            f"the rule {RULE!r} goes to {destination_text(rule.to)}, so it was made otherwise; remove it first"
        )
    return rule


def _write(
    bucket: Bucket,
    before: Rule | None,
    *,
    to: str | None,
    text: str | None,
    private: bool,
    token: str | None,
    basic: str | None,
) -> None:
    """Make the rule, or change it if there is anything to change."""
    if before is not None and (to, text, token, basic, private) == (None, None, None, None, False):
        return
    old = before.to if before is not None else None
    assert old is None or isinstance(old, Webhook)
    url = to if to is not None or old is None else old.url
    assert url is not None, "checked before"
    bucket.rules.add(
        RULE,
        to=url,
        filter=text if text is not None else before.filter if before is not None else "",
        bearer=token,
        basic=basic,
        format="tigris",
        private=private or (old is not None and old.private),
        replace=before is not None,
    )


def show(url: Url = None, as_json: Json = False) -> None:
    """Show where the bucket's changes are sent; exit code 3 if nowhere."""
    with open_bucket(url, probe=False) as bucket:
        rule = _found(bucket)
        secrets = masked_secrets(bucket.rules.secrets(RULE)) if rule is not None else {}
    if rule is None:
        nothing("there are no notifications; make them: bucketmq notifications set --url https://example.com/hook")
    _show(rule, secrets, as_json=as_json)


def _show(rule: Rule, secrets: dict[str, Any], *, as_json: bool) -> None:
    url = destination_text(rule.to)
    if as_json:
        emit({"url": url, "filter": rule.filter, "enabled": rule.paused is None, "paused": rule.paused, **secrets})
        return
    rows = [
        ("url", url),
        ("filter", rule.filter or "(everything)"),
        ("state", state_text(rule)),
        *((kind, ", ".join(value) if isinstance(value, list) else value) for kind, value in secrets.items()),
    ]
    table(("notifications", ""), rows)


def reset(url: Url = None, as_json: Json = False) -> None:
    """End the notifications, and drop what was not delivered; exit code 3 if there are none."""
    with open_bucket(url) as bucket:
        rule = _found(bucket)
        if rule is not None:
            bucket.rules.remove(RULE)
    text = "notifications are removed" if rule is not None else "there are no notifications"
    answer({"removed": rule is not None}, text, as_json=as_json)
    if rule is None:
        raise typer.Exit(Code.EMPTY)

"""From what users say to rules and their secrets. No requests here."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events import filters
from bucketmq.events.rule import (
    SECRETS_MAX,
    Destination,
    Policy,
    Rule,
    Secrets,
    ToQueue,
    Webhook,
    check_rule,
)
from bucketmq.events.signing import check_secret, new_secret
from bucketmq.queue.settings import check_name

WATCHER_POLICY = Policy(retry_seconds=(1.0, 5.0, 30.0, 120.0, 600.0, 3600.0), gone="drop")
"""The default of watchers: an hour of retries; events of objects that are gone are dropped."""

WEBHOOK_OPTIONS = frozenset({"format", "batch", "timeout_seconds", "private", "statuses"})
POLICY_OPTIONS = frozenset(Policy.__struct_fields__)


def destination(to: str, **options: Any) -> Destination:
    """`https://...` is a webhook, `queue:NAME` a queue of the bucket."""
    if not isinstance(to, str):
        raise Invalid(f"a rule goes to a URL or to queue:NAME, not to {to!r}")
    if to.startswith("queue:"):
        if options:
            raise Invalid(f"{sorted(options)[0]} is for webhooks; a queue has no such thing")
        return ToQueue(queue=check_name(to.removeprefix("queue:"), "queue name"))
    if "://" not in to:
        raise Invalid(f"a rule goes to a URL like https://example.com/hook or to queue:NAME, not to {to[:100]!r}")
    return _convert({"kind": "webhook", "url": to, **options}, Webhook)


def make_policy(base: Policy, options: dict[str, Any]) -> Policy:
    """The policy with these fields changed."""
    unknown = sorted(set(options) - POLICY_OPTIONS)
    if unknown:
        raise Invalid(
            f"unknown option {unknown[0]!r}; there are {', '.join(sorted(POLICY_OPTIONS))} "
            f"and, for webhooks, {', '.join(sorted(WEBHOOK_OPTIONS))}"
        )
    defaults: dict[str, Any] = msgspec.to_builtins(base)
    return _convert({**defaults, **msgspec.to_builtins(options)}, Policy)


def make_rule(name: str, filter: str, to: str, **options: Any) -> Rule:
    """A rule from what a user said, checked."""
    webhook = {key: options.pop(key) for key in sorted(set(options) & WEBHOOK_OPTIONS)}
    rule = Rule(name=name, filter=filter, to=destination(to, **webhook), policy=make_policy(Policy(), options))
    filters.parse(filter)
    return check_rule(rule)


def make_secrets(
    signing: str | Sequence[str] | None, bearer: str | None, basic: str | None, *, sign: bool
) -> Secrets | None:
    """The secrets of a rule; None if it has none. With `sign`, a signing secret is made where none is given."""
    given = () if signing is None else (signing,) if isinstance(signing, str) else tuple(signing)
    if not given and sign:
        given = (new_secret(os.urandom(32)),)
    if len(given) > SECRETS_MAX:
        raise Invalid(f"a rule has at most {SECRETS_MAX} signing secrets")
    for each in given:
        if not each.startswith("env:"):
            check_secret(each)
    if bearer is not None and basic is not None:
        raise Invalid("give a bearer token or a basic user and password, not both")
    if basic is not None and not basic.startswith("env:") and ":" not in basic:
        raise Invalid("basic must be user:password")
    if not given and bearer is None and basic is None:
        return None
    return Secrets(signing=given, bearer=bearer, basic=basic)


def rotated(secrets: Secrets, new: str, *, keep: int = 1) -> Secrets:
    """The secrets with a new one in front; requests are signed with it and with `keep` of the old ones."""
    check_secret(new)
    return msgspec.structs.replace(
        secrets, signing=(new, *(each for each in secrets.signing if each != new))[: keep + 1]
    )


Struct = TypeVar("Struct", bound=msgspec.Struct)


def _convert(values: dict[str, Any], kind: type[Struct]) -> Struct:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"bad option: {error}") from None


def is_async(handler: Callable[[Any], Any]) -> bool:
    """Whether a handler wants the awaitable kind of change."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def ignore(_: object) -> None:
    """For callers that do not follow progress."""


def environment(name: str) -> str | None:
    return os.environ.get(name)

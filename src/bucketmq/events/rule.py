"""A rule: which events, to where, how. Stored as `rules/<name>.json`, one for each name.

Each rule is a subscription of the queue `events` with a head of its own, so rules neither wait for nor see each other.
How a delivery is made belongs to `procedures.rules.deliver`; what a filter means, to `bucketmq.events.filters`.
"""

from __future__ import annotations

import re
from typing import Literal, get_args
from urllib.parse import urlsplit

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import HOPS_MAX_DEFAULT
from bucketmq.queue.settings import DEAD_SUFFIX, check_name
from bucketmq.values import Value

FORMAT = 1
SUBSCRIPTION_PREFIX = "rule-"
NAME_CHARS_MAX = 64

RETRY_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""Standard Webhooks' example schedule: ten attempts over 75 hours."""

OWN_QUEUES = frozenset({"events", "deliveries"})
"""The log of events and the journal: no rule sends there."""

BATCH_MAX = 1000
CONCURRENCY_MAX = 256
SECRETS_MAX = 8

Format = Literal["tigris", "s3", "cloudevents"]
"""Bodies for programs: events, in batches if wanted."""
Notice = Literal["slack", "json", "pagerduty"]
"""Bodies for people: one event and what its object says."""
Verdict = Literal["done", "retry", "bury", "pause"]
"""What an answer's status makes of a delivery: settled, tried again, made a dead letter, or the whole rule stopped."""

Gone = Literal["deliver", "drop", "bury"]
Stale = Literal["deliver", "drop"]


class Webhook(msgspec.Struct, frozen=True, tag="webhook", tag_field="kind", omit_defaults=True, kw_only=True):
    """Somebody's HTTP address. Secrets lie in an object of their own; see `Secrets`."""

    url: str
    format: Format | Notice = "tigris"
    batch: int = 1
    """Events in one request, at most."""
    timeout_seconds: float = 10.0
    private: bool = False
    """Whether the address may be on this machine or a private network: for development."""
    statuses: dict[str, Verdict] = {}
    """Exceptions to the rule that 2xx is done, 410 pauses and all else is tried again: "400": "bury", "4xx": ..."""

    def __repr__(self) -> str:
        """Without the path, which is a secret where an address alone lets anybody post."""
        parts = urlsplit(self.url)
        return f"Webhook(url='{parts.scheme}://{parts.hostname}/...', format={self.format!r}, batch={self.batch})"


class ToQueue(msgspec.Struct, frozen=True, tag="queue", tag_field="kind", kw_only=True):
    """A queue of the same bucket; each event is a message whose key is the object's key."""

    queue: str


class ToWatcher(msgspec.Struct, frozen=True, tag="watcher", tag_field="kind", kw_only=True):
    """A Python handler that pulls: `@bucket.watch(...)`."""


Destination = Webhook | ToQueue | ToWatcher


class Breaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """After `failures` failed requests in a row nothing is sent for `seconds`, then one request tries, twice as long
    after each that fails, at most `seconds_max`."""

    failures: int = 10
    seconds: float = 5.0
    seconds_max: float = 300.0


class Policy(Value, msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a rule delivers."""

    retry_seconds: tuple[float, ...] = RETRY_SECONDS
    """The wait after each failed attempt; the attempt after the last one is the last."""
    jitter: float = 0.2
    breaker: Breaker = Breaker()
    rate_per_second: float = 0.0
    """0 means as fast as it goes."""
    concurrency: int = 4
    """Requests or handlers at a time, for each process that runs the rule."""
    lease_seconds: float = 60.0
    """How long an event stays with a process that died; one that lives keeps it for as long as it works."""
    ordered: bool = False
    """One event of a key at a time, in the order of the log; a failing one holds up its key alone."""
    stale: Stale = "deliver"
    """What to do with an event of a key of which a newer one came before it."""
    gone: Gone = "deliver"
    """What to do when the object is not there any more, or was written again since. Costs a request for each event
    unless it is "deliver"."""
    hops_max: int = HOPS_MAX_DEFAULT
    body_bytes_max: int = 1 << 20
    """The largest object whose JSON a filter is given; larger ones do not match."""


class Rule(Value, msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What `rules/<name>.json` holds."""

    name: str
    filter: str = ""
    """Empty matches every event."""
    to: Destination
    policy: Policy = Policy()
    format: int = FORMAT
    revision: int = 0
    """Grows with every change, so that equal bytes never recur."""
    subscription: str = ""
    """By which subscription of the queue `events` it reads; a new rule under an old name gets another."""
    created_at: str = ""
    begins: dict[int, int] | None = None
    """By shard, the first offset of the queue `events` that it answers for; a shard that is not here, from its
    beginning. None in rules that an earlier release made: then from `created_at` on."""
    paused: str | None = None
    """Why it is paused; None while it runs."""
    removed_at: str | None = None
    """When it was removed. It stays until every process that runs it has noticed; then its heads go, then the rule."""


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What `rules/<name>.secrets.json` holds. A value `env:NAME` is read from the environment when it is needed."""

    signing: tuple[str, ...] = ()
    """Standard Webhooks secrets, `whsec_...`; a request is signed with each of them."""
    bearer: str | None = None
    basic: str | None = None
    """user:password"""
    format: int = FORMAT
    revision: int = 0

    def __repr__(self) -> str:
        """Which there are, never what they are."""
        kept = [name for name in ("bearer", "basic") if getattr(self, name) is not None]
        return f"<Secrets: {', '.join([f'{len(self.signing)} to sign with', *kept])}>"


def edited(rule: Rule, **fields: object) -> Rule:
    """The rule with these fields, and a new revision if that changes anything."""
    after = msgspec.structs.replace(rule, **fields)
    return rule if after == rule else msgspec.structs.replace(after, revision=rule.revision + 1)


def subscription_name(rule_name: str, mark: str) -> str:
    """A name for the subscription of a new rule."""
    return f"{SUBSCRIPTION_PREFIX}{rule_name}-{mark[:6]}"


def rule_of(subscription: str) -> str | None:
    """The rule that a subscription belongs to, or None if it is not a rule's."""
    if not subscription.startswith(SUBSCRIPTION_PREFIX):
        return None
    return subscription.removeprefix(SUBSCRIPTION_PREFIX).rpartition("-")[0] or None


def spoken(queue: str, subscription: str) -> str:
    """A subscription as people know it: that of a rule by the rule's name, not by the id behind it."""
    rule = rule_of(subscription) if queue in OWN_QUEUES else None
    return subscription if rule is None else f"rule {rule}"


def check_rule_name(name: str) -> str:
    check_name(name, "rule name")
    if len(name) > NAME_CHARS_MAX or name.endswith((".json", ".secrets")):
        raise Invalid(f"rule name {name!r} must be at most {NAME_CHARS_MAX} characters and not end with .json")
    return name


def check_rule(rule: Rule) -> Rule:
    """Raise `Invalid` for what cannot work, saying which and what would. Filters are checked by `filters.parse`."""
    check_rule_name(rule.name)
    policy = rule.policy
    limits = (
        (len(policy.retry_seconds) <= 100, "retry_seconds must have at most 100 waits"),
        (all(0 <= each <= 30 * 86400 for each in policy.retry_seconds), "each of retry_seconds must be 0 to 30 days"),
        (0 <= policy.jitter <= 1, "jitter must be 0 to 1"),
        (1 <= policy.breaker.failures <= 100_000, "breaker.failures must be 1 to 100000"),
        (0.1 <= policy.breaker.seconds <= policy.breaker.seconds_max <= 86400, "breaker.seconds must be 0.1 to 86400"),
        (0 <= policy.rate_per_second <= 100_000, "rate_per_second must be 0 to 100000"),
        (1 <= policy.concurrency <= CONCURRENCY_MAX, f"concurrency must be 1 to {CONCURRENCY_MAX}"),
        (1 <= policy.lease_seconds <= 12 * 3600, "lease_seconds must be 1 to 43200"),
        (0 <= policy.hops_max <= 1000, "hops_max must be 0 to 1000"),
        (0 <= policy.body_bytes_max <= 64 << 20, "body_bytes_max must be 0 to 64 MiB"),
    )
    for holds, text in limits:
        if not holds:
            raise Invalid(f"rule {rule.name}: {text}")
    match rule.to:
        case Webhook():
            _check_webhook(rule.name, rule.to)
        case ToQueue(queue=queue):
            check_name(queue, "queue name")
            if queue in OWN_QUEUES or queue.endswith(DEAD_SUFFIX):
                raise Invalid(f"rule {rule.name}: the queue {queue!r} is the event bus's own; send to another one")
        case ToWatcher():
            pass
    return rule


_STATUS = re.compile(r"[2345](\d\d|xx)\Z")


def _check_webhook(name: str, to: Webhook) -> None:
    try:
        parts = urlsplit(to.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise Invalid(f"rule {name}: {to.url[:200]!r} is not a URL; write it like https://example.com/hook") from None
    if parts.scheme not in ("https", "http") or not host:
        raise Invalid(f"rule {name}: {to.url[:200]!r} must begin with https:// (or http://) and name a host")
    if parts.scheme == "http" and not to.private:
        raise Invalid(f"rule {name}: {to.url[:200]!r} is not encrypted; use https://, or allow private targets")
    if "@" in parts.netloc or parts.fragment or port == 0:
        raise Invalid(f"rule {name}: a URL may have no user, password or '#'; give a token or a basic secret instead")
    if any(ord(c) <= 32 or ord(c) >= 127 for c in to.url) or len(to.url) > 2000:
        raise Invalid(f"rule {name}: a URL must be ASCII without spaces, at most 2000 characters; encode the rest")
    if not 1 <= to.batch <= BATCH_MAX:
        raise Invalid(f"rule {name}: batch must be 1 to {BATCH_MAX}")
    if to.batch > 1 and to.format in get_args(Notice):
        raise Invalid(f"rule {name}: a notice in format {to.format} is about one object; leave out batch")
    if not 0.1 <= to.timeout_seconds <= 120:
        raise Invalid(f"rule {name}: timeout_seconds must be 0.1 to 120")
    for status in to.statuses:
        if not _STATUS.match(status):
            raise Invalid(f"rule {name}: {status!r} is not a status like 404 or 4xx")


def verdict(to: Webhook, status: int) -> Verdict:
    """What an answer with this status makes of a delivery."""
    for name in (str(status), f"{status // 100}xx"):
        if name in to.statuses:
            return to.statuses[name]
    if 200 <= status < 300:
        return "done"
    return "pause" if status == 410 else "retry"


def wait_seconds(policy: Policy, attempt: int, chance: float, retry_after: float | None) -> float | None:
    """How long after failed attempt number `attempt` the next one is; None when that was the last.

    The receiver's own wish (`Retry-After`) counts when it is longer, up to a day.
    """
    if attempt > len(policy.retry_seconds):
        return None
    plain = policy.retry_seconds[attempt - 1] * (1 + policy.jitter * (2 * chance - 1))
    return max(plain, min(retry_after, 86400.0)) if retry_after is not None else plain

"""The numbers and choices of a server. What a user tunes, not what the server is made of."""

from __future__ import annotations

import msgspec

from bucketmq.errors import Invalid
from bucketmq.notify.addresses import Target, target
from bucketmq.server.access import WRONG_SECRETS_MAX, Access
from bucketmq.server.callers import proxies_of

BODY_BYTES_MAX = 1 << 20
BODY_SECONDS = 10.0
REPORT_SECONDS = 8.0
"""Tigris, which has the least patience, waits 10 s for an answer."""
SWEEP_SECONDS_MIN = 1.0


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a server runs."""

    access: Access
    buckets: tuple[str, ...] = ()
    """Only events of buckets with these names are ours; empty: of any. A filer reports everything it holds."""
    body_bytes_max: int = BODY_BYTES_MAX
    body_seconds: float = BODY_SECONDS
    report_seconds: float = REPORT_SECONDS
    """How long a sender is kept waiting for its events to be stored before it is told to try again."""
    sns_topics: tuple[str, ...] = ()
    """Topics that may send, and whose subscriptions are confirmed; empty: any that a known caller sends for."""
    sns_verify: bool = True
    """Whether messages of SNS must be signed by Amazon. Test servers do not sign."""
    sns_prefix: str | None = None
    """Where an SNS that is not Amazon's may be asked to confirm, and has its certificates: for test servers."""
    origins: tuple[str, ...] = ()
    """Who may ask, by `OPTIONS`, to send CloudEvents here; empty: anybody. Each request shows a secret all the same."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose `X-Forwarded-For` says who is calling."""
    wrong_secrets_max: int = WRONG_SECRETS_MAX
    """Wrong secrets that one address may show within a minute before it is sent away for a while."""
    notify: bool = True
    """Whether rules to webhooks and queues are run as well."""
    files: bool = True
    """Whether changes in a folder are noticed as they happen."""
    sweep_seconds: float | None = None
    """How often the bucket is swept; None: never. The first sweep only notes what is there."""
    stop_seconds: float = 30.0
    """How long what is in hand may take when the server stops."""


def check_settings(settings: ServerSettings) -> ServerSettings:
    """Raise `Invalid` for what cannot work."""
    if settings.body_bytes_max < 1024:
        raise Invalid(f"body_bytes_max must be at least 1024, not {settings.body_bytes_max}")
    for name in ("body_seconds", "report_seconds", "stop_seconds"):
        if not 0 < getattr(settings, name) <= 3600:
            raise Invalid(f"{name} must be more than 0 and at most 3600, not {getattr(settings, name)}")
    if settings.sweep_seconds is not None and not SWEEP_SECONDS_MIN <= settings.sweep_seconds <= 31 * 86400:
        raise Invalid(f"sweep_seconds must be {SWEEP_SECONDS_MIN:g} s to 31 days, not {settings.sweep_seconds}")
    if settings.wrong_secrets_max < 1:
        raise Invalid(f"wrong_secrets_max must be at least 1, not {settings.wrong_secrets_max}")
    proxies_of(settings.trusted_proxies)
    if settings.sns_prefix is not None and not isinstance(target(settings.sns_prefix, private=True), Target):
        raise Invalid(f"sns_prefix must be a URL like http://127.0.0.1:5000/, not {settings.sns_prefix[:100]!r}")
    return settings

"""The settings of moderation: from the command line and the environment, under the names that the public demo uses.

A flag wins over a variable. Secrets are never shown. What an agent does with its settings belongs to the agent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from bucketmq.apps.moderation.routing import STANDARD, Thresholds
from bucketmq.errors import Invalid

BUCKET_NAME = "BUCKET_NAME"
BUCKETMQ_URL = "BUCKETMQ_URL"
WEBHOOK_SECRET = "WEBHOOK_SECRET"
REVIEW_WEBHOOK_URL = "REVIEW_WEBHOOK_URL"
REVIEW_WEBHOOK_FORMAT = "REVIEW_WEBHOOK_FORMAT"
REVIEW_WEBHOOK_TOKEN = "REVIEW_WEBHOOK_TOKEN"
INGEST_TOKEN = "INGEST_TOKEN"
PORT_INGEST = "PORT_INGEST"
PORT_ROUTER = "PORT_ROUTER"
ANTHROPIC_API_KEY = "ANTHROPIC_API_KEY"
ANTHROPIC_BASE_URL = "ANTHROPIC_BASE_URL"

OF_AGENTS = (
    BUCKET_NAME,
    WEBHOOK_SECRET,
    REVIEW_WEBHOOK_URL,
    REVIEW_WEBHOOK_FORMAT,
    REVIEW_WEBHOOK_TOKEN,
    INGEST_TOKEN,
    PORT_INGEST,
    PORT_ROUTER,
)
"""The variables that are moderation's own."""

PORT_INGEST_DEFAULT = 8080
PORT_ROUTER_DEFAULT = 8081

REVIEW_FORMATS = ("slack", "json", "pagerduty")

_SCHEMES = ("s3://", "gs://", "az://", "file://", "memory://")


class ModerationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all agents of moderation share."""

    url: str
    """The bucket."""
    port_ingest: int = PORT_INGEST_DEFAULT
    port_router: int = PORT_ROUTER_DEFAULT
    ingest_tokens: tuple[str, ...] = ()
    """Who submits shows one of these; with none, anybody may submit."""
    webhook_secrets: tuple[str, ...] = ()
    """Callers that post events to the router show one of these; with none, there is no webhook."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies whose `X-Forwarded-For` says who is calling."""
    review_url: str | None = None
    """The webhook that is told about flagged posts."""
    review_format: str = "slack"
    review_token: str | None = None
    """Shown there as a bearer token; PagerDuty's routing key."""
    anthropic_api_key: str | None = None
    anthropic_base_url: str | None = None
    thresholds: Thresholds = STANDARD

    def __repr__(self) -> str:
        shown = {
            "url": _host_only(self.url),
            "ports": (self.port_ingest, self.port_router),
            "ingest_tokens": len(self.ingest_tokens),
            "webhook_secrets": len(self.webhook_secrets),
            "review_format": self.review_format if self.review_url else None,
            "anthropic": self.anthropic_api_key is not None,
        }
        return f"ModerationSettings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def settings_from(
    environment: Mapping[str, str] | None = None,
    *,
    url: str | None = None,
    port_ingest: int | None = None,
    port_router: int | None = None,
    ingest_tokens: tuple[str, ...] = (),
    webhook_secrets: tuple[str, ...] = (),
    trusted_proxies: tuple[str, ...] = (),
    review_url: str | None = None,
    review_format: str | None = None,
    review_token: str | None = None,
    thresholds: Thresholds = STANDARD,
) -> ModerationSettings:
    """The settings: what is given, else what the environment says. `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` and the
    other `AWS_*` variables are read where the bucket is opened, as for every other use of it."""
    found = os.environ if environment is None else environment
    format = review_format or found.get(REVIEW_WEBHOOK_FORMAT) or "slack"
    if format not in REVIEW_FORMATS:
        raise Invalid(f"review notices come as {', '.join(REVIEW_FORMATS)}, not {format!r}")
    return ModerationSettings(
        url=url or bucket_url(found),
        port_ingest=_port(port_ingest, found, PORT_INGEST, PORT_INGEST_DEFAULT),
        port_router=_port(port_router, found, PORT_ROUTER, PORT_ROUTER_DEFAULT),
        ingest_tokens=ingest_tokens or tuple(found.get(INGEST_TOKEN, "").split()),
        webhook_secrets=webhook_secrets or tuple(found.get(WEBHOOK_SECRET, "").split()),
        trusted_proxies=trusted_proxies,
        review_url=review_url or found.get(REVIEW_WEBHOOK_URL) or None,
        review_format=format,
        review_token=review_token or found.get(REVIEW_WEBHOOK_TOKEN) or None,
        anthropic_api_key=found.get(ANTHROPIC_API_KEY) or None,
        anthropic_base_url=found.get(ANTHROPIC_BASE_URL) or None,
        thresholds=thresholds,
    )


def bucket_url(environment: Mapping[str, str]) -> str:
    """The bucket: `BUCKET_NAME` as the demo has it, a name on S3, or a URL or folder; else `BUCKETMQ_URL`."""
    given = environment.get(BUCKET_NAME, "").strip()
    if not given:
        url = environment.get(BUCKETMQ_URL, "").strip()
        if not url:
            raise Invalid(
                f"no bucket: give --url, set {BUCKET_NAME} to a bucket's name, URL or folder, "
                "or export BUCKETMQ_URL=file:///path/to/folder"
            )
        return url
    if given.startswith((*_SCHEMES, "/", "./", "../")):
        return given
    return f"s3://{given}"


def _port(given: int | None, environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if given is None and text and not (text.isascii() and text.isdecimal() and int(text) <= 65535):
        raise Invalid(f"{name} must be a port, 0 to 65535, not {text[:20]!r}")
    port = given if given is not None else int(text) if text else default
    if not 0 <= port <= 65535:
        raise Invalid(f"a port is 0 to 65535, not {port}")
    return port


def _host_only(url: str) -> str:
    """A URL as it may be shown: without its query, which may hold keys."""
    return url.partition("?")[0]


__all__ = ["ModerationSettings", "bucket_url", "settings_from"]

"""The settings of moderation: options, and variables under the names that the public demo uses.

What an agent does with its settings belongs to the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from bucketmq.apps.moderation.register import UNDO_SECONDS
from bucketmq.apps.moderation.routing import STANDARD, Thresholds
from bucketmq.apps.settings import SECRET, THE_BUCKET, AppSettings, Variable, read_settings

REVIEW_WEBHOOK_TOKEN = "REVIEW_WEBHOOK_TOKEN"
DESK_TOKENS = "DESK_TOKENS"

_SCHEMES = ("s3://", "gs://", "az://", "file://", "memory://")


def bucket_called(name: str) -> str:
    """The bucket's URL for `BUCKET_NAME`: a name on S3, as the demo has it, or a URL or folder."""
    return name if name.startswith((*_SCHEMES, "/", "./", "../")) else f"s3://{name}"


def _port(about: str) -> Meta:
    return Meta(ge=0, le=65535, description=f"{about}; 0 is any free port")


class ModerationSettings(AppSettings, frozen=True, kw_only=True):
    """What all agents of moderation share."""

    url: Annotated[str, Meta(description="the bucket"), Variable("BUCKET_NAME", read=bucket_called), THE_BUCKET]
    port_ingest: Annotated[int, _port("where posts are submitted"), Variable("PORT_INGEST")] = 8080
    port_router: Annotated[int, _port("where the provider posts notifications"), Variable("PORT_ROUTER")] = 8081
    port_desk: Annotated[int, _port("where people review"), Variable("PORT_DESK")] = 8082
    ingest_tokens: Annotated[
        tuple[str, ...],
        Meta(description="required of submissions; none: anybody may submit"),
        Variable("INGEST_TOKEN"),
        SECRET,
    ] = ()
    webhook_secrets: Annotated[
        tuple[str, ...],
        Meta(description="required of notifications; none: no webhook"),
        Variable("WEBHOOK_SECRET"),
        SECRET,
    ] = ()
    desk_tokens: Annotated[
        tuple[str, ...], Meta(description="who may review: NAME=TOKEN:ROLE"), Variable(DESK_TOKENS), SECRET
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], Meta(description="proxies whose X-Forwarded-For says who is calling")
    ] = ()
    review_url: Annotated[
        str | None, Meta(description="the webhook notified of flagged posts"), Variable("REVIEW_WEBHOOK_URL"), SECRET
    ] = None
    review_format: Annotated[
        Literal["slack", "json", "pagerduty"],
        Meta(description="the format of its requests"),
        Variable("REVIEW_WEBHOOK_FORMAT"),
    ] = "slack"
    review_token: Annotated[
        str | None,
        Meta(description="shown there as a bearer token; PagerDuty's routing key"),
        Variable(REVIEW_WEBHOOK_TOKEN),
        SECRET,
    ] = None
    classifier: Annotated[
        str, Meta(description="the classifier: embedded, claude, cascade or none"), Variable("MODERATION_CLASSIFIER")
    ] = "embedded"
    private_images: Annotated[
        bool,
        Meta(description="also fetch images from this machine and private networks"),
        Variable("MODERATION_PRIVATE_IMAGES"),
    ] = False
    undo_seconds: Annotated[
        float,
        Meta(ge=0, description="how long people may take back their own decisions"),
        Variable("MODERATION_UNDO_SECONDS"),
    ] = UNDO_SECONDS
    anthropic_api_key: Annotated[str | None, Variable("ANTHROPIC_API_KEY"), SECRET] = None
    anthropic_base_url: Annotated[str | None, Variable("ANTHROPIC_BASE_URL")] = None
    thresholds: Annotated[Thresholds, Meta(description="which probability leads where")] = STANDARD


def settings_from(environment: Mapping[str, str] | None = None, **options: Any) -> ModerationSettings:
    """The settings: what is given, else what the environment says. `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` and the
    other `AWS_*` variables are read where the bucket is opened, as for every other use of it."""
    return read_settings(ModerationSettings, app="moderation", options=options, environment=environment)

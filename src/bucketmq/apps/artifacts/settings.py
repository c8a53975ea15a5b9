"""The settings of the application's parts: the page and the deploy agent. Files with keys are named, never held."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from bucketmq.apps.page import PageSettings
from bucketmq.apps.settings import Variable
from bucketmq.errors import Invalid, NotFound

if TYPE_CHECKING:
    from bucketmq.apps.artifacts.deploy import DeployPlan

TRUST_VARIABLE = "ARTIFACTS_TRUST"
KEY_VARIABLE = "ARTIFACTS_KEY"


class ArtifactsSettings(PageSettings, frozen=True, kw_only=True):
    """Which keys are trusted, which key signs here, and what is deployed on this machine."""

    trust: Annotated[str, Meta(description="the file with the pinned trust document"), Variable(TRUST_VARIABLE)] = ""
    key: Annotated[str, Meta(description="the file with the private key that signs here"), Variable(KEY_VARIABLE)] = ""
    environment: Annotated[
        str, Meta(description="what the deploy agent deploys here; empty: nothing"), Variable("ARTIFACTS_ENVIRONMENT")
    ] = ""
    agent: Annotated[
        str, Meta(description="the deploy agent's name; empty: this machine's"), Variable("ARTIFACTS_AGENT")
    ] = ""
    folder: Annotated[str, Meta(description="where releases are put"), Variable("ARTIFACTS_FOLDER")] = "deployed"
    only: Annotated[tuple[str, ...], Meta(description="deploy these artifacts alone")] = ()
    hook: Annotated[str, Meta(description="a command after a release was activated"), Variable("ARTIFACTS_HOOK")] = ""
    webhook: Annotated[str, Meta(description="a URL to notify instead"), Variable("ARTIFACTS_WEBHOOK")] = ""
    health: Annotated[str, Meta(description="a command that checks a release"), Variable("ARTIFACTS_HEALTH")] = ""
    health_url: Annotated[str, Meta(description="a URL that answers 2xx if it works")] = ""
    private: Annotated[bool, Meta(description="these URLs may be on this machine and private networks")] = False
    hook_seconds: Annotated[float, Meta(gt=0, description="the hook may take so long")] = 120.0
    health_seconds: Annotated[float, Meta(gt=0, description="it must be healthy after so long")] = 60.0
    look_seconds: Annotated[float, Meta(gt=0, description="how often to look at pointers without an event")] = 60.0


def plan_of(settings: ArtifactsSettings) -> DeployPlan:
    """What the deploy agent does."""
    from bucketmq.apps.artifacts.deploy import DeployPlan
    from bucketmq.apps.artifacts.hooks import HookPlan

    own = settings.agent or socket.gethostname().split(".")[0].lower()
    return DeployPlan(
        environment=settings.environment,
        agent=own,
        folder=Path(settings.folder).resolve(),
        names=settings.only,
        hooks=msgspec.convert(settings, HookPlan, from_attributes=True),
    )


def read_pin(path: str) -> bytes:
    """The pinned trust document. Without one nothing is believed."""
    if not path:
        raise Invalid(
            f"which keys are trusted? Name the file that you were given: --trust FILE (env: {TRUST_VARIABLE}), or make "
            "one: bucketmq artifacts trust --help"
        )
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFound(
            f"the trust document {path} cannot be read: {error.strerror}; ask the keeper of the keys"
        ) from None

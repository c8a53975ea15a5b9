"""The settings of research."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from bucketmq.apps.page import PageSettings
from bucketmq.apps.settings import Variable


class ResearchSettings(PageSettings, frozen=True, kw_only=True):
    """What all parts of research share."""

    slots: Annotated[
        int,
        Meta(ge=0, le=1024, description="trials at a time in a worker; 0: one for each core"),
        Variable("RESEARCH_SLOTS"),
    ] = 0
    simulators: Annotated[
        tuple[str, ...],
        Meta(description="what workers may run beside the built-in ones: module:function, or a command's first word"),
        Variable("RESEARCH_SIMULATORS"),
    ] = ()
    look_seconds: Annotated[
        float, Meta(ge=0.2, le=3600, description="how often the planner looks for deadlines and lost rounds")
    ] = 5.0

"""The settings of documents: the encoders that chunks are indexed with, and those of the page."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bucketmq.apps.page import PageSettings
from bucketmq.apps.settings import SECRET, Variable


class DocumentSettings(PageSettings, frozen=True, kw_only=True):
    """What the pipeline and the page of documents can be told."""

    encoders: Annotated[
        tuple[str, ...],
        Meta(description="encoders to index with: granite, minilm, none (BM25 alone); two while one is built beside"),
        Variable("DOCUMENTS_ENCODERS"),
    ] = ("granite",)
    relations: Annotated[
        Literal["text", "claude"],
        Meta(description="what finds relations: text (verbs between names), or claude as well, where there is a key"),
        Variable("DOCUMENTS_RELATIONS"),
    ] = "text"
    relations_requests_max: Annotated[
        int,
        Meta(ge=0, description="chunks that each process may ask Claude about in a day"),
        Variable("DOCUMENTS_RELATIONS_REQUESTS_MAX"),
    ] = 10_000
    anthropic_api_key: Annotated[str | None, Variable("ANTHROPIC_API_KEY"), SECRET] = None

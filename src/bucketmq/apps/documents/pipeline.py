"""The pipeline that keeps the index: what happens below docs/ becomes rows of a table for each encoder.

A document is a group of the table, so what it had is replaced, or goes, in one commit; the time of the event says which
state is newer, so a late run for an older state changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from bucketmq.apps.documents.encoders import check_encoder
from bucketmq.apps.documents.names import FILTER, PIPELINE, table_of
from bucketmq.apps.documents.relations import REQUESTS_MAX, SOURCES, Extracting, relations_with
from bucketmq.apps.documents.stages import chunks, evidence, terms, text, vectors_with
from bucketmq.errors import Invalid
from bucketmq.pipeline import FromEvents, Pipeline, ToUpserts

DOCUMENT_BYTES_MAX = 32 << 20
TASK_ROWS = 4
"""Documents that are worth a task of their own: a document takes seconds where an event takes none."""


def index(
    *,
    encoders: Sequence[str] = ("granite",),
    relations: str = "text",
    relations_requests_max: int = REQUESTS_MAX,
    url: str = "",
) -> Pipeline:
    """The pipeline for these encoders: the same chunks go into the table of each.

    With relations by `claude`, chunks that the table at `url` has already are not asked about again.
    """
    names = tuple(dict.fromkeys(map(check_encoder, encoders)))
    if not names:
        raise Invalid("name an encoder, or none for BM25 alone: --encoders granite")
    if relations not in SOURCES:
        raise Invalid(f"{relations[:80]!r} is not where relations come from; there are: {', '.join(SOURCES)}")
    asks = relations == "claude"
    typing = (relations_with(Extracting(encoder=names[0], requests_max=relations_requests_max, url=url)),)
    return Pipeline(
        name=PIPELINE,
        about="what lies below docs/ as chunks with terms, entities and vectors",
        source=FromEvents(filter=FILTER, content="bytes", size_bytes_max=DOCUMENT_BYTES_MAX, concurrency=4),
        stages=(text, chunks, terms, evidence, *(typing if asks else ()), vectors_with(names, typed=asks)),
        task_rows=TASK_ROWS,
        targets=tuple(
            ToUpserts(
                table=table_of(name),
                key="chunk",
                group="doc",
                newer_by="at",
                delete_when="gone",
                where=f"encoder = '{name}'",
            )
            for name in names
        ),
    )

"""Names in the bucket: which objects are documents, the tables of their chunks, and which of them serves.

A chunk is called after its document and its place in it, `docs/a.pdf#3`.
"""

from __future__ import annotations

from bucketmq.errors import Invalid

PREFIX = "docs/"
FILTER = f'key LIKE "{PREFIX}%" OR from_key LIKE "{PREFIX}%"'
"""Objects that leave the prefix are told by where they came from."""

PIPELINE = "documents-index"
SERVING = "bucketmq/documents/serving.json"
"""Below the bucket's prefix: the register that says which table is searched."""


def table_of(encoder: str) -> str:
    """The table with the chunks whose vectors are of this encoder."""
    return f"documents-{encoder}"


def chunk_id(doc: str, chunk: int) -> str:
    return f"{doc}#{chunk}"


def of_chunk_id(id: str) -> tuple[str, int]:
    """Document and place of a chunk, or `Invalid`."""
    doc, mark, number = id.rpartition("#")
    if not mark or not doc or not number.isdecimal() or len(number) > 9:
        raise Invalid(f"{id[:200]!r} is not the name of a chunk; search shows them, like docs/a.pdf#3")
    return doc, int(number)

"""What a write of ours leaves beside an object's bytes: whose write it was, where it came from, after which events.

Stamps are metadata under names of our own, which readers of the object are not shown. By the id of a write its writer
knows it again, by its origin a move that is repeated goes on, and by its hops the loop guard counts. Values only:
writing is `procedures.objects.put`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from bucketmq.bucket.port import METADATA_BYTES_MAX, Attributes, Found, Object
from bucketmq.errors import Invalid
from bucketmq.events.event import LINEAGE_MAX, ObjectEvent, plain_version

WRITE = "bucketmq-write"
FROM = "bucketmq-from"
HOPS = "bucketmq-hops"
LINEAGE = "bucketmq-lineage"
OWN_METADATA = frozenset({WRITE, FROM, HOPS, LINEAGE})

AGAIN = "-again"
"""Ends the id of a write by which a recovery puts the target of a move where it is already. It makes a new version and
no change: the event of the move stands for both."""


class Cause(msgspec.Struct, frozen=True):
    """The event in whose handling something is written: it makes the chain of hops that the loop guard counts."""

    hops: int = 0
    """Of the write itself: one more than of the event."""
    lineage: tuple[str, ...] = ()


NO_CAUSE = Cause()


def cause_of(event: ObjectEvent) -> Cause:
    return Cause(event.hops + 1, (*event.lineage, event.id)[-LINEAGE_MAX:])


def attributes_of(content_type: str | None, metadata: Mapping[str, str] | None, cause: Cause, **own: str) -> Attributes:
    """What goes beside the bytes of a write of ours."""
    given = {} if metadata is None else metadata
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise Invalid(f"metadata is text by name, such as {{'made-by': 'ada'}}, not {metadata!r:.80}")
    kept = {name.lower(): value for name, value in given.items() if name.lower() not in OWN_METADATA}
    kept.update({name.replace("_", "-"): value for name, value in own.items()})
    if cause.hops:
        kept[HOPS] = str(cause.hops)
        kept[LINEAGE] = _fitting(cause.lineage, METADATA_BYTES_MAX - _size(kept) - len(LINEAGE))
    return Attributes(content_type or "application/octet-stream", kept)


def _size(metadata: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in metadata.items())


def _fitting(lineage: tuple[str, ...], bytes_max: int) -> str:
    """As many of the nearest ancestors as there is room for: the hops are counted apart."""
    while lineage and len(",".join(lineage)) > bytes_max:
        lineage = lineage[1:]
    return ",".join(lineage)


def without_stamps(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata that is the user's."""
    return {name: value for name, value in metadata.items() if name not in OWN_METADATA}


def hops_of(attributes: Attributes) -> int:
    """In which hop of a chain of events an object was written, as its writer stamped it; 0 if it did not."""
    text = attributes.metadata.get(HOPS, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def is_ours(found: Found | Object, attributes: Attributes) -> bool:
    """Whether the state was written with these attributes: their write id says so."""
    return found.attributes.metadata.get(WRITE) == attributes.metadata[WRITE]


def is_written_again(found: Found | Object) -> bool:
    """Whether the state is what a move had made already, written once more by a recovery."""
    return found.attributes.metadata.get(WRITE, "").endswith(AGAIN)


def origin_mark(key: str, version: str) -> str:
    """How a target names the state it was moved from."""
    return hashlib.sha256(f"{key}\0{plain_version(version)}".encode()).hexdigest()[:32]

"""From a notification's bytes to object events: one module for each family of senders.

A receiver checks who is calling, then hands over headers and body; what to answer, and doing a handshake that the body
asks for, is the receiver's. Keys come out as the store has them; `below` makes them those of a bucket with a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bucketmq.errors import Invalid
from bucketmq.events.parse import aws, azure, cloudevents, gcs, r2, records, seaweedfs, tigris
from bucketmq.events.parse.fields import Reading, decode
from bucketmq.events.parse.prefix import below
from bucketmq.events.parse.recognise import recognise
from bucketmq.events.parse.result import EVENTS_MAX, KEY_BYTES_MAX, Bad, Confirm, Parsed

__all__ = ["EVENTS_MAX", "KEY_BYTES_MAX", "SOURCES", "Bad", "Confirm", "Parsed", "below", "parse"]

_READERS: dict[str, Callable[[object, Reading], Parsed]] = {
    "tigris": tigris.read,
    "s3": records.read,
    "minio": records.read,
    "ceph": records.read,
    "seaweedfs": seaweedfs.read,
    "eventbridge": aws.eventbridge,
    "sns": aws.sns,
    "gcs": gcs.read,
    "azure": azure.read,
    "r2": r2.read,
    "cloudevents": cloudevents.read,
}

_MAYBE_CLOUDEVENTS = frozenset({"auto", "cloudevents", "azure", "gcs"})
"""Azure and Google send their own forms or CloudEvents, as the user set it up."""

SOURCES = ("auto", *_READERS)


def parse(
    source: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    own: bool = False,
    received_at: str | None = None,
    signed_body_only: bool = False,
) -> Parsed:
    """What a notification says. Header names are in lower case.

    `source` is one of `SOURCES`; "auto" goes by headers and shape. `own` believes the events of ours that `tigris` and
    `s3` items carry: only for senders that proved to be us. `received_at`, as events tell time, is used where a source
    tells none; without it such an item is bad. `signed_body_only` says that a signature over the body is the only proof
    of who sent it: then nothing is read from headers, and CloudEvents in binary mode are refused.

    Raises `Invalid` if the body as a whole cannot be read. A bad item is listed in `bad` and loses no other.
    """
    if source not in SOURCES:
        raise Invalid(f"{source[:100]!r} is not a source of events; choose one of {', '.join(SOURCES)}")
    if signed_body_only:
        if cloudevents.is_binary(headers):
            raise Invalid(
                "CloudEvents in binary mode say what happened in headers, which the signature does not cover; send "
                "them in structured mode (application/cloudevents+json), or show a token"
            )
        headers = {}
    reading = Reading(source=source, own=own, received_at=received_at)
    try:
        return _parse(source, headers, body, reading)
    except RecursionError:  # comparing or showing what the decoder just let through
        raise Invalid("the body's JSON is nested too deeply") from None


def _parse(source: str, headers: Mapping[str, str], body: bytes, reading: Reading) -> Parsed:
    if source in _MAYBE_CLOUDEVENTS and cloudevents.is_binary(headers):
        return cloudevents.read_binary(headers, body, reading)
    value = decode(body)
    if source == "auto":
        if value == []:
            return Parsed()
        found = recognise(headers, value)
        if found is None:
            raise Invalid("the body is not a notification of a known form; name its source in the address")
        source = found
    elif source == "gcs" and isinstance(value, dict) and "specversion" in value:
        source = "cloudevents"
    return _READERS[source](value, reading)

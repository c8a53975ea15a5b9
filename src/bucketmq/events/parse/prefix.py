"""From a bucket's events to those of a place in it: `s3://name/prefix` sees only what lies below, by shorter names."""

from __future__ import annotations

import msgspec

from bucketmq.events.event import ObjectEvent
from bucketmq.log.layout import is_bookkeeping


def below(prefix: str, event: ObjectEvent) -> ObjectEvent | None:
    """`event` as seen from `prefix`; None if it is about nothing there, or about our own bookkeeping.

    A move into the place is a creation there, and a move out of it a deletion.
    """
    key = _below(prefix, event.key)
    from_key = None if event.from_key is None else _below(prefix, event.from_key)
    if key is not None:
        kind = "created" if event.kind == "moved" and event.from_key is not None and from_key is None else event.kind
        return msgspec.structs.replace(event, key=key, from_key=from_key, kind=kind)
    if event.kind != "moved" or from_key is None:
        return None
    # Version, size and mark are those of the object where it is now.
    return msgspec.structs.replace(
        event, kind="deleted", key=from_key, from_key=None, version=None, version_id=None, exact=False, order=None
    )


def _below(prefix: str, key: str) -> str | None:
    folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    found = key.removeprefix(folder) if key.startswith(folder) else ""
    return found if found and not is_bookkeeping(found) else None

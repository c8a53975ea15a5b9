"""From a post's id to a part of a key and back: whatever a post is called, it is one part, and no other post's.

Letters, digits and `-_.~` stay as they are; every other byte of the UTF-8 form is written `%XX`. So an id with a slash,
a `..`, a control character or a `%2e` is an ordinary name, and two ids that only look alike stay two. Which prefix a
key has does not belong here.
"""

from __future__ import annotations

import functools
from urllib.parse import quote, unquote_to_bytes

from bucketmq.errors import Invalid

ID_BYTES_MAX = 200
PART_BYTES_MAX = 240
"""Of the part of a key that an id becomes: file systems allow 255 between two slashes, and `.json` goes behind it."""

SUFFIX = ".json"


def check_id(id: object) -> str:
    """Raise `Invalid` unless a post may be called so."""
    if not isinstance(id, str) or not id:
        raise Invalid("an id must be text that is not empty")
    try:
        size = len(id.encode())
    except UnicodeEncodeError:
        raise Invalid("the id has broken Unicode (a lone surrogate); send proper text") from None
    if size > ID_BYTES_MAX:
        raise Invalid(f"the id has {size:,} bytes; {ID_BYTES_MAX} are allowed")
    written = len(_written(id))
    if written > PART_BYTES_MAX:
        raise Invalid(
            f"the id has {written} bytes when it is written into a key; {PART_BYTES_MAX} are allowed: "
            "use fewer characters that are not ASCII letters or digits"
        )
    return id


def part_of(id: str) -> str:
    """The id as one part of a key."""
    return _written(check_id(id))


@functools.lru_cache(maxsize=4096)  # every step of a post asks again
def _written(id: str) -> str:
    part = quote(id, safe="")
    # A part that begins with a dot is hidden by some tools, and may be `.` or `..`.
    return f"%2E{part[1:]}" if part.startswith(".") else part


def id_of(part: str) -> str | None:
    """The id that was written so; None if no id is."""
    try:
        id = unquote_to_bytes(part).decode()
        return id if part_of(id) == part else None
    except (Invalid, UnicodeDecodeError):
        return None


def key_of(prefix: str, id: str) -> str:
    """The key of a post's object below a prefix such as `pending/`."""
    return f"{prefix}{part_of(id)}{SUFFIX}"


def id_at(prefix: str, key: str) -> str | None:
    """The id of the post whose object lies at `key` below `prefix`; None if it is not one that `key_of` makes."""
    if not key.startswith(prefix) or not key.endswith(SUFFIX):
        return None
    return id_of(key.removeprefix(prefix).removesuffix(SUFFIX))

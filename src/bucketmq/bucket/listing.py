"""What every store checks about a listing before it makes one.

Stores call this first thing in `list`. How a listing is made is the store's own business and does not belong here.
"""

from __future__ import annotations

from bucketmq.bucket.port import check_key
from bucketmq.errors import Invalid


def check_listing(prefix: str, after: str, limit: int) -> None:
    """Raise `Invalid` unless the arguments of `list` mean the same on every store.

    Object stores disagree about a prefix that stops inside a segment: S3 matches the text, the client library matches
    whole segments, a folder has only directories. So a prefix is empty or ends with '/'.
    """
    if prefix:
        if not prefix.endswith("/"):
            raise Invalid(f"prefix {prefix[:80]!r} must be empty or end with '/', as in 'orders/'")
        check_key(prefix[:-1])
    if after and after != prefix:
        check_key(after)
    if limit < 1:
        raise Invalid(f"limit {limit} must be 1 or more")

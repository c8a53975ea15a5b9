"""Facades are tested on the same buckets as procedures."""

from procedures.conftest import blocking, bucket, queue, world

__all__ = ["blocking", "bucket", "queue", "world"]

"""Rules are tested on the same buckets as objects."""

from procedures.objects.conftest import bucket, memory, world

__all__ = ["bucket", "memory", "world"]

"""The archive's register is tested on the same buckets as objects."""

from procedures.objects.conftest import memory

__all__ = ["memory"]

"""Bulk writes: parts that executors wrote become segments, once; parts that never did are removed."""

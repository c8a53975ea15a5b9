"""A table in a store in memory, on both facades, and a real server."""

from __future__ import annotations

from stores.conftest import seaweedfs_url

__all__ = ["seaweedfs_url"]

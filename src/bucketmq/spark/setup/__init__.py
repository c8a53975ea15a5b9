"""Getting a session: Java, the Python that Spark starts, this package as a file, and the folders of this user."""

from __future__ import annotations

from pathlib import Path

from bucketmq.errors import Unsupported

APP = "bucketmq"
"""The name below which platformdirs finds folders for caches and state."""


def private(folder: Path) -> Path:
    """The folder, made if need be, with those above it that are missing, and closed to others."""
    try:
        for each in (*reversed(folder.parents), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unsupported(
            f"the folder {folder} cannot be made: {error}; set XDG_CACHE_HOME and XDG_STATE_HOME to other places"
        ) from error
    return folder

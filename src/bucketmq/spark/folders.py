"""Folders of this user on this machine: for what can be made again (cache) and for what should be kept (state).

Nothing about buckets or Spark belongs here.
"""

from __future__ import annotations

import os
from pathlib import Path

from bucketmq.errors import Unsupported

CACHE_VARIABLE, STATE_VARIABLE = "XDG_CACHE_HOME", "XDG_STATE_HOME"


def cache_folder(*names: str) -> Path:
    """A private folder below the user's cache, made if need be."""
    return _private(CACHE_VARIABLE, ".cache", names)


def state_folder(*names: str) -> Path:
    """A private folder below the user's state, made if need be."""
    return _private(STATE_VARIABLE, ".local/state", names)


def _private(variable: str, default: str, names: tuple[str, ...]) -> Path:
    """The specification (XDG base directories) has relative paths ignored and new folders closed to others."""
    given = os.environ.get(variable, "")
    root = Path(given) if Path(given).is_absolute() else Path.home() / default
    folder = root.joinpath("bucketmq", *names)
    try:
        for each in (*reversed(folder.parents), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unsupported(f"the folder {folder} cannot be made: {error}; set {variable} to another place") from error
    return folder

"""From the bytes of an object to lines with a time, a level and a key; one module for each format."""

from __future__ import annotations

from bucketmq.apps.logs.parse.lines import LEVELS, Line, level_of
from bucketmq.apps.logs.parse.read import TooLarge, read

__all__ = ["LEVELS", "Line", "TooLarge", "level_of", "read"]

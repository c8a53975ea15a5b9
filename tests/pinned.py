"""Golden files: bytes that a release has written, beside the values they stand for and the code that writes and reads
them. Which values there are, and the tests, are in `log/test_golden.py` and `events/test_golden_events.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bucketmq.log import documents

Files = dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], object]]]
"""By name: the value, how it is written, how it is read."""


class Golden:
    """The files in one folder."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def kept(self, name: str) -> bytes:
        """The bytes in the folder; written anew first, if that is asked for."""
        if "BUCKETMQ_WRITE_GOLDEN" in os.environ:
            (self._folder / name).write_bytes(self.written(name))
        return (self._folder / name).read_bytes()

    def written(self, name: str) -> bytes:
        """What today's code writes."""
        value, encode, _ = self._files[name]
        return encode(value)

    def read(self, name: str) -> object:
        """What today's code reads."""
        return self._files[name][2](self.kept(name))

    def value(self, name: str) -> object:
        return self._files[name][0]

    def in_the_folder(self) -> set[str]:
        return {path.name for path in self._folder.iterdir()}

    def fields_at_their_defaults(self, *, but: frozenset[type] = frozenset()) -> set[tuple[type, str]]:
        """Fields of the values' kinds that no value uses: they could be renamed without any file noticing."""
        used = set().union(*(_fields(value) for value, _, _ in self._files.values()))
        kinds = {kind for kind, _ in used} - but
        return {(kind, name) for kind in kinds for name in kind.__struct_fields__} - used


def document(kind: type) -> Callable[[bytes], object]:
    """Reads a document of this kind."""
    return lambda body: documents.decode(kind, body, "it")


def _fields(value: Any) -> set[tuple[Any, str]]:
    """The fields that are given within a value, other than as their defaults."""
    if isinstance(value, tuple | list):
        return set().union(*map(_fields, value))
    if isinstance(value, dict):
        return set().union(*map(_fields, value.values()))
    if not hasattr(type(value), "__struct_fields__"):
        return set()
    names, given = type(value).__struct_fields__, type(value).__struct_defaults__
    defaults = dict(zip(reversed(names), reversed(given), strict=False))
    found: set[tuple[Any, str]] = set()
    for name in names:
        inner = getattr(value, name)
        if name == "format" or name not in defaults or inner != defaults[name]:
            found.add((type(value), name))
        found |= _fields(inner)
    return found

"""Which applications there are: those that come with BucketMQ, and those that other packages bring.

A package brings one by an entry point of the group `bucketmq.apps`, whose name is the application's:

```toml
[project.entry-points."bucketmq.apps"]
index = "index_app:INDEX"
```

An application is imported when it is wanted. One that cannot be imported is listed with what went wrong, and harms no
other.
"""

from __future__ import annotations

import difflib
import pkgutil
from importlib.metadata import EntryPoint, entry_points

import msgspec

from bucketmq.apps.app import App
from bucketmq.apps.page import with_page
from bucketmq.errors import BucketMQError, Invalid, NotFound

GROUP = "bucketmq.apps"

BUILT_IN = {
    "artifacts": "bucketmq.apps.artifacts.app:ARTIFACTS",
    "documents": "bucketmq.apps.documents.app:DOCUMENTS",
    "logs": "bucketmq.apps.logs.app:LOGS",
    "moderation": "bucketmq.apps.moderation.app:MODERATION",
    "research": "bucketmq.apps.research.app:RESEARCH",
    "images": "bucketmq.apps.images.app:IMAGES",
}
"""Name -> module:attribute. A table, so that listing names imports nothing and works without installed metadata."""


class Listed(msgspec.Struct, frozen=True):
    """An application that is there, or should be."""

    name: str
    where: str
    """module:attribute."""
    brought_by: str
    """The package and its version; empty for those that come with BucketMQ."""
    app: App | None = None
    problem: str = ""


def names() -> list[str]:
    """The names of all of them, in order. Imports none of them."""
    return sorted({*BUILT_IN, *_others()})


def get(name: str) -> App:
    """The application of this name. `NotFound` says which there are, `Invalid` what is wrong with it."""
    listed = look(name)
    if listed.app is None:
        raise Invalid(f"application {name!r} of {listed.brought_by or 'bucketmq'} cannot be used: {listed.problem}")
    return listed.app


def look(name: str) -> Listed:
    """The same, with what is wrong with it as a value."""
    if name in BUILT_IN:
        return _loaded(name, BUILT_IN[name], "")
    found = _others().get(name)
    if found is None:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names())}"
        raise NotFound(f"there is no application {name!r}; {hint} (see: bucketmq apps ls)")
    return _loaded(name, found.value, _package(found))


def every() -> list[Listed]:
    return [look(name) for name in names()]


def _others() -> dict[str, EntryPoint]:
    """By name. A name of our own is ours, and of two packages with the same name the first in the path counts."""
    found: dict[str, EntryPoint] = {}
    for each in entry_points(group=GROUP):
        if each.name not in BUILT_IN:
            found.setdefault(each.name, each)
    return found


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package without a name"


def _loaded(name: str, where: str, brought_by: str) -> Listed:
    try:
        found = pkgutil.resolve_name(where)
    except BucketMQError as error:
        return Listed(name, where, brought_by, problem=str(error))
    except (Exception, SystemExit) as error:  # whatever the module of another package raises
        return Listed(name, where, brought_by, problem=f"{where} cannot be imported: {type(error).__name__}: {error}")
    if not isinstance(found, App):
        return Listed(name, where, brought_by, problem=f"{where} is not an App but {type(found).__name__}")
    if found.name != name:
        return Listed(
            name, where, brought_by, problem=f"{where} calls itself {found.name!r}; the entry point must have that name"
        )
    return Listed(name, where, brought_by, with_page(found))

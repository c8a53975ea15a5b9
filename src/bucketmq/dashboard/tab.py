"""A tab of the dashboard as a value: what an application adds to the page. Nothing is registered by name.

The script is a module whose default export is a class: `new Part(place, session, tell)`, with `update()` for news, and
`leave()` and `key(event)` if it needs them. It may import the page's own modules from `/static/` (`api.js`, `dom.js`,
`words.js`, and `plot` of `charts.js` for lines over time). The files of a tab are served below `/tabs/NAME/`, to
anybody: they hold no data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

import msgspec

from bucketmq.errors import Invalid

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bucketmq.dashboard.site import Site

Routes = Callable[["Site"], "APIRouter"]
"""Makes the tab's routes for one dashboard, each below `/api/NAME/`. `Site` says who asks and may do what; what has to
be closed at the end is told to it with `on_close`."""

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""The kinds of files that a page is made of, by the end of their names; others are not served."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")


class Tab(msgspec.Struct, frozen=True):
    """One tab. `Tab("review", "Review", review_routes, files(__package__) / "static", "review.js")`."""

    name: str
    """As it stands in the address (`/#review`) and in the paths of its routes."""
    title: str
    """As people read it."""
    routes: Routes | None = None
    static: Traversable | None = None
    """A folder with the tab's script and styles."""
    script: str = ""
    style: str = ""
    """A style sheet of the folder, if the tab needs one of its own."""
    keys: Mapping[str, str] = {}
    """Keys that the tab understands, for the page's help: `{"a": "approve"}`."""

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise Invalid(f"the name of a tab must be a-z, 0-9 and -, beginning with a letter, not {self.name[:60]!r}")
        if not self.title or not self.script:
            raise Invalid(f"tab {self.name!r} needs a title and a script")


def files_of(folder: Traversable) -> dict[str, bytes]:
    """What a folder holds for the page, read once: no path of a request can lead elsewhere."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in MEDIA_TYPES}


def media_type(name: str) -> str:
    return MEDIA_TYPES[name.rpartition(".")[2]]

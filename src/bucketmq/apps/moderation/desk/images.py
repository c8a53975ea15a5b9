"""The image of a post for the reviewer's eyes: fetched by us through the guarded client, never by the browser.

Where Pillow is there, what is shown is redrawn from the pixels, within limits: no bytes of a stranger reach the
browser's decoder, and every frame that was judged can be seen. Without it the image is handed on as it came.
"""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from bucketmq.errors import Unsupported
from bucketmq.models.fetch import Fetcher, FetchSettings, Unseen
from bucketmq.models.pictures import pictures

if TYPE_CHECKING:
    from PIL.Image import Image

AT_A_TIME = 4
KEPT_BYTES_MAX = 64 << 20
QUALITY = 85


class Shown(msgspec.Struct, frozen=True):
    """An image as the page gets it."""

    data: bytes
    media_type: str


class Images:
    """Fetches images, a few at a time, and keeps the last ones."""

    def __init__(self, settings: FetchSettings) -> None:
        self._fetcher = Fetcher(settings)
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._kept: OrderedDict[str, Shown] = OrderedDict()

    async def show(self, url: str) -> Shown | Unseen:
        """The image at a URL that a post names."""
        if url in self._kept:
            self._kept.move_to_end(url)
            return self._kept[url]
        async with self._turn:
            shown = await asyncio.to_thread(self._fetch, url)
        if isinstance(shown, Shown):
            self._kept[url] = shown
            while sum(len(each.data) for each in self._kept.values()) > KEPT_BYTES_MAX:
                self._kept.popitem(last=False)
        return shown

    def close(self) -> None:
        self._fetcher.close()

    def _fetch(self, url: str) -> Shown | Unseen:
        fetched = self._fetcher.fetch(url)
        if isinstance(fetched, Unseen):
            return fetched
        try:
            seen = pictures(fetched)
        except Unsupported:
            return Shown(fetched.data, f"image/{fetched.kind}")
        return seen if isinstance(seen, Unseen) else drawn(seen)


def drawn(frames: list[Image]) -> Shown:
    """The pictures below one another, as one JPEG."""
    from PIL import Image

    width, height = max(each.width for each in frames), sum(each.height for each in frames)
    whole = Image.new("RGB", (width, height), "white")
    top = 0
    for each in frames:
        whole.paste(each, (0, top))
        top += each.height
    out = io.BytesIO()
    whole.save(out, "JPEG", quality=QUALITY)
    return Shown(out.getvalue(), "image/jpeg")

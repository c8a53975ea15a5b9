"""Fetches the image of a post from an address that a stranger wrote, through the guarded client.

The address may lead anywhere: into our own network, to a redirect that does, to a body without end. `notify.http` looks
each host up once, refuses private addresses and keeps one deadline; here redirects are followed by hand, each checked
like the first address, and what came must say that it is an image and begin like one. What is in it is `pictures`'.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin

import msgspec

from bucketmq.errors import Invalid
from bucketmq.procedures.requests import Answer, NoAnswer

if TYPE_CHECKING:
    from bucketmq.notify.http import Poster

KINDS = {"image/jpeg": "jpeg", "image/jpg": "jpeg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}
"""Content types that are looked at, and the format each stands for. SVG is a program, not a picture."""
ATTEMPTS_MAX = 2


class FetchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What may be fetched."""

    bytes_max: int = 10 << 20
    seconds_max: float = 15.0
    """For one image, redirects and a second attempt included."""
    redirects_max: int = 3
    private: bool = False
    """Whether this machine, private networks, plain http and odd ports may be spoken to. For tests."""

    def __post_init__(self) -> None:
        if not (self.bytes_max > 0 and self.seconds_max > 0 and self.redirects_max >= 0):
            raise Invalid("bytes_max and seconds_max must be more than 0, redirects_max 0 or more")


PLAIN_SETTINGS = FetchSettings()


class Fetched(msgspec.Struct, frozen=True):
    """The bytes of an image, of the format they begin like: jpeg, png, gif or webp."""

    data: bytes
    kind: str


class Unseen(msgspec.Struct, frozen=True):
    """Why an image could not be looked at, in words for the person who has to."""

    reason: str


class Fetcher:
    """Fetches images, from any thread. `close` when done."""

    def __init__(self, settings: FetchSettings = PLAIN_SETTINGS) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._poster: Poster | None = None

    def fetch(self, url: str) -> Fetched | Unseen:
        """The image at a URL. At most two requests, and one for each redirect."""
        deadline = time.monotonic() + self.settings.seconds_max
        for _ in range(self.settings.redirects_max + 1):
            answer = self._get(url, deadline)
            if isinstance(answer, Unseen):
                return answer
            if answer.status not in (301, 302, 303, 307, 308):
                return self._image(answer)
            location = answer.headers.get("location", "")
            if not location:
                return Unseen(f"the image could not be fetched: a redirect (status {answer.status}) leads nowhere")
            try:
                url = urljoin(url, location)
            except ValueError:
                return Unseen("the image could not be fetched: a redirect leads to an address that cannot be read")
        return Unseen(f"the image could not be fetched: more than {self.settings.redirects_max} redirects")

    def close(self) -> None:
        """Close the connections that are kept, if there are any."""
        with self._lock:
            poster, self._poster = self._poster, None
        if poster is not None:
            poster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Fetcher], tuple[FetchSettings]]:
        return Fetcher, (self.settings,)

    def _get(self, url: str, deadline: float) -> Answer | Unseen:
        poster = self._opened()
        why = "no time was left"
        for _ in range(ATTEMPTS_MAX):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            # One byte more than allowed tells a body that is too long from one that fits exactly.
            match poster.get(
                url, bytes_max=self.settings.bytes_max + 1, timeout_seconds=left, private=self.settings.private
            ):
                case NoAnswer(reason=reason, refused=refused):
                    why = reason
                    if refused:
                        break
                case Answer() as answer:
                    if answer.status < 500:
                        return answer
                    why = f"status {answer.status}"
        return Unseen(f"the image could not be fetched: {why}")

    def _opened(self) -> Poster:
        with self._lock:
            if self._poster is None:
                from bucketmq.notify.http import Poster

                self._poster = Poster(get_bytes_max=self.settings.bytes_max + 1)
            return self._poster

    def _image(self, answer: Answer) -> Fetched | Unseen:
        if answer.status != 200:
            return Unseen(f"the image could not be fetched: status {answer.status}")
        if len(answer.body) > self.settings.bytes_max:
            return Unseen(f"the image is larger than {self.settings.bytes_max} bytes")
        said = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if said not in KINDS:
            return Unseen(
                f"what the media URL leads to is of type {said[:60] or 'unknown'!r}, not an image we can judge"
            )
        # A browser may go by either, so both must be an image; which of them need not agree.
        kind = kind_of(answer.body)
        if kind is None:
            return Unseen(f"the media URL leads to something that says it is {said} and does not begin like an image")
        return Fetched(answer.body, kind)


def kind_of(data: bytes) -> str | None:
    """The format that bytes begin like."""
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return None

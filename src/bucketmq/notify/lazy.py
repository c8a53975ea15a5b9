"""A poster that is made when it is first needed, so that programs without webhooks need no HTTP client."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from bucketmq.procedures.requests import Answer, NoAnswer, Post

if TYPE_CHECKING:
    from bucketmq.notify.http import Poster


class LazyPoster:
    """Called with a request, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._poster: Poster | None = None

    def __call__(self, request: Post) -> Answer | NoAnswer:
        return self._made().post(request)

    def get(self, url: str, *, timeout_seconds: float, private: bool) -> Answer | NoAnswer:
        return self._made().get(url, timeout_seconds=timeout_seconds, private=private)

    def close(self) -> None:
        """Close the connections that are kept, if there are any."""
        with self._lock:
            poster, self._poster = self._poster, None
        if poster is not None:
            poster.close()

    def _made(self) -> Poster:
        with self._lock:
            if self._poster is None:
                from bucketmq.notify.http import Poster

                self._poster = Poster()
            return self._poster

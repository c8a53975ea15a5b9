"""Submitting the demo's posts to the ingest agent, as clients do: some twice, some changed, some wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from bucketmq.apps.moderation.demo.posts import Sample

CLIENTS = 4
DUPLICATE_EVERY = 15
CHANGED_EVERY = 40
HOSTILE_ID = "../approved/post-0001"

WRONG = (
    ("not JSON", b'{"id": "post-broken", "text": '),
    ("no text", b'{"id": "post-empty"}'),
)


class Told(msgspec.Struct):
    """What the ingest agent answered. Changed by the feed's threads under its lock."""

    accepted: dict[str, float] = msgspec.field(default_factory=dict)
    """id -> when the answer came that it is durable."""
    answer_seconds: list[float] = msgspec.field(default_factory=list)
    repeated: int = 0
    """Submitted again just as it was."""
    revised: int = 0
    """Submitted again with another text."""
    refused: int = 0
    """Wrong ones that were refused, as they should be."""
    failed: list[str] = msgspec.field(default_factory=list)
    """Whatever else came back."""


class Feed:
    """A thread that submits everything once the agent is there, spread over `seconds`."""

    def __init__(self, url: str, samples: list[Sample], seconds: float) -> None:
        self.told = Told()
        self._url = url
        self._samples = samples
        self._pause = seconds * CLIENTS / max(1, len(samples))
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        import httpx2

        with httpx2.Client(timeout=30.0) as client, ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda work: self._submit(client, *work), self._works()))

    def _works(self) -> Iterator[tuple[str, Any]]:
        hostile = Sample(HOSTILE_ID, "An id that tries to be another key. Nice weather today.", "clean")
        for number, sample in enumerate([*self._samples, hostile], start=1):
            yield "new", sample
            if number % DUPLICATE_EVERY == 0:
                yield "again", sample
            if number % CHANGED_EVERY == 0:
                yield "changed", msgspec.structs.replace(sample, text=sample.text + " (edited)")
        for _, body in WRONG:
            yield "wrong", body

    def _submit(self, client: Any, kind: str, what: Any) -> None:
        body = what if isinstance(what, bytes) else msgspec.json.encode({"id": what.id, "text": what.text})
        began = time.time()
        try:
            status = client.post(self._url, content=body, headers={"Content-Type": "application/json"}).status_code
        except Exception as error:
            with self._lock:
                self.told.failed.append(f"{kind}: {error}")
            return
        with self._lock:
            self._note(kind, what, status, began)
        time.sleep(max(0.0, self._pause - (time.time() - began)))

    def _note(self, kind: str, what: Any, status: int, began: float) -> None:
        told = self.told
        if status != (400 if kind == "wrong" else 201):
            told.failed.append(f"{kind}: answered {status}")
        elif kind == "wrong":
            told.refused += 1
        else:
            now = time.time()
            told.accepted.setdefault(what.id, now)
            told.answer_seconds.append(now - began)
            told.repeated += kind == "again"
            told.revised += kind == "changed"

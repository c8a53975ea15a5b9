"""Where the demo's review notices arrive.

It refuses the first few, as a chat service having a bad day does, so that the retries of the outbox are seen to work.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

import msgspec

from bucketmq.apps import mailbox

REFUSED_FIRST = 2


class Mailbox(mailbox.Mailbox):
    """`arrived` tells, for each post's id, when its first notice came."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.notices: Counter[str] = Counter()
        self.refused = 0
        self._lock = threading.Lock()
        super().__init__("/review")

    def take(self, body: bytes) -> int:
        """Note a notice; the status to answer with."""
        try:
            id_ = msgspec.json.decode(body, type=_Notice).content.id
        except msgspec.DecodeError:
            return 400
        with self._lock:
            if self.refused < REFUSED_FIRST:
                self.refused += 1
                return 503
            self.arrived.setdefault(id_, time.time())
            self.notices[id_] += 1
        return 204


class _Content(msgspec.Struct):
    id: str


class _Notice(msgspec.Struct):
    """What is read of a notice in the format `json`."""

    content: _Content

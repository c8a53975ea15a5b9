"""A process that ends between two of its writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from bucketmq.engines.perform import Hands
from bucketmq.procedures.requests import Create, Replace


class Stopped(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def dying_after(writes: int, kinds: tuple[type, ...] = (Create, Replace)) -> Iterator[None]:
    """So many writes are made, whatever bucket they go to; the next one ends the process."""
    left, perform = [writes], Hands.perform

    def dying(hands: Hands, request: Any) -> Any:
        if isinstance(request, kinds):
            if left[0] == 0:
                raise Stopped
            left[0] -= 1
        return perform(hands, request)

    with patch.object(Hands, "perform", dying):
        yield

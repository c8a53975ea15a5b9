"""What a user can ask of the dead letters of a queue: a queue too, with messages that say how they died."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bucketmq.api.subscription import NamedQueue, SubscriptionApi
from bucketmq.deliveries import DeadLetter, matching
from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.claiming import browse
from bucketmq.procedures.claiming.browse import Place
from bucketmq.procedures.claiming.receive import OpenSubscription
from bucketmq.procedures.claiming.redrive import LETTERS_MAX, Redriven, count_matching, delete_matching, redrive
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.queue.settings import DEAD_SUFFIX


class DeadQueue:
    """The queue that holds another one's dead letters."""

    def __init__(self, origin: NamedQueue) -> None:
        self.origin = origin
        self.bucket = origin.bucket
        self.name = origin.name + DEAD_SUFFIX

    def open(self) -> Procedure[OpenQueue]:
        """`NotFound` before the first message has died: looking for dead letters makes no queue."""
        origin = yield from self.origin.open()
        return (yield from open_queue(origin.bucket, self.name, {}, create=False))


class DeadApi:
    """The dead letters of one queue."""

    def __init__(self, origin: NamedQueue) -> None:
        self.origin = origin
        self._sub: SubscriptionApi[Any] = SubscriptionApi(DeadQueue(origin))

    def peek(self, limit: int = 10, *, after: Place | None = None) -> Procedure[list[DeadLetter]]:
        """The oldest dead letters with everything that went wrong, without touching them. `after` goes on behind one
        that was seen (its `place`)."""
        sub = yield from self._opened()
        seen = (yield from browse.peek(sub, limit, after)) if sub is not None else []
        return [DeadLetter(each) for each in seen]

    def _opened(self) -> Procedure[OpenSubscription | None]:
        """Nothing before the first message has died; `NotFound` if the queue itself does not exist."""
        yield from self.origin.open()
        try:
            return (yield from self._sub.subscribed())
        except NotFound:
            return None

    def redrive(
        self,
        *,
        ids: Iterable[str] | None = None,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Procedure[Redriven]:
        """Send dead letters again, all of them or those with these ids or for which `where` holds."""
        wanted = matching(ids, where)
        sub = yield from self._opened()
        if sub is None:
            return Redriven(0, 0)
        how = count_matching if dry_run else redrive
        return (yield from how(sub, wanted, LETTERS_MAX if limit is None else limit))

    def delete(
        self,
        *,
        ids: Iterable[str] | None = None,
        where: Callable[[DeadLetter], bool] | None = None,
        limit: int | None = None,
    ) -> Procedure[int]:
        """Forget dead letters: those with these ids, or for which `where` holds; returns how many. There is no way
        back. `Invalid` without a choice: forgetting all of them is `purge`."""
        if ids is None and where is None:
            raise Invalid("say which dead letters, by ids or where; to forget all of them: purge")
        sub = yield from self._opened()
        if sub is None:
            return 0
        return (yield from delete_matching(sub, matching(ids, where), LETTERS_MAX if limit is None else limit))

    def purge(self) -> Procedure[int]:
        """Forget all dead letters; returns how many."""
        sub = yield from self._opened()
        return (yield from browse.purge(sub)) if sub is not None else 0

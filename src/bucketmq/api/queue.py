"""What a user can ask of a queue: sending, looking, settings. Its own receive is the subscription `main`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bucketmq.api.dead_letters import DeadApi
from bucketmq.api.objects import several
from bucketmq.api.opening import Opening
from bucketmq.api.subscription import Delivery, SubscriptionApi
from bucketmq.api.times import delay_of
from bucketmq.deliveries import PeekedMessage
from bucketmq.procedures.claiming import browse
from bucketmq.procedures.claiming.receive import position_of_offset
from bucketmq.procedures.lane import Once
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import check_queue_name, wanted_settings
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import fresh_tail, trim_mark
from bucketmq.procedures.sending.send import KeyOf, Letters, Sent, letters, send
from bucketmq.procedures.sending.shards import raise_shards, use_queue
from bucketmq.procedures.upkeep.pausing import pause, resume
from bucketmq.procedures.upkeep.stats import QueueStats, SubscriptionStats, stats, subscriptions
from bucketmq.procedures.upkeep.subscriptions import remove_subscription
from bucketmq.procedures.upkeep.trim import Trimmed, trim_all
from bucketmq.queue.settings import Settings


class UserQueue:
    """A queue by name, opened by the first procedure that needs it."""

    def __init__(self, bucket: Opening, name: str, options: dict[str, Any], *, create: bool) -> None:
        self.bucket = bucket
        self.name = check_queue_name(name)
        self.options = wanted_settings(options)
        self.create = create
        self._once = Once(self._open)

    def open(self) -> Procedure[OpenQueue]:
        return (yield from self._once.get())

    def _open(self) -> Procedure[OpenQueue]:
        bucket = yield from self.bucket.open()
        return (yield from use_queue(bucket, self.name, self.options, create=self.create))


class QueueApi(SubscriptionApi[Delivery]):
    """One queue by name."""

    def __init__(self, bucket: Opening, name: str, options: dict[str, Any], *, create: bool = True) -> None:
        super().__init__(UserQueue(bucket, name, options, create=create))

    @property
    def name(self) -> str:
        return self.queue.name

    def open(self) -> Procedure[OpenQueue]:
        """The queue as this process knows it. One GET the first time."""
        return (yield from self.queue.open())

    def settings(self) -> Procedure[Settings]:
        """The queue's settings as this process knows them."""
        return (yield from self.open()).settings

    def send(
        self,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | None = None,
        at: object = None,
        dedup_key: str | None = None,
    ) -> Procedure[Sent]:
        """Send one message; returns when it is durable. One PUT, shared with other sends of this process."""
        return (yield from self.post(letters([body], key, headers, dedup_key), delay_seconds, at))[0]

    def send_many(
        self,
        bodies: Iterable[Any],
        *,
        key: KeyOf = None,
        headers: Mapping[str, str] | None = None,
        delay_seconds: float | None = None,
        at: object = None,
    ) -> Procedure[list[Sent]]:
        """Send many messages in one segment, or one for each shard that their keys go to. One PUT each.

        `key` is a key for all of them, or a function that finds the key of a body.
        """
        return (yield from self.post(letters(several(bodies, "bodies"), key, headers), delay_seconds, at))

    def post(self, wanted: Letters, delay_seconds: float | None, at: object) -> Procedure[list[Sent]]:
        """What both ways of sending come to."""
        queue = yield from self.open()
        return (yield from send(queue, wanted, (yield from delay_of(delay_seconds, at))))

    def subscription(self, name: str, *, start: object = "earliest") -> Procedure[SubscriptionApi[Delivery]]:
        """Another reader of the same messages.

        `start` counts when it is first used: "earliest", "latest", a time, or a dict of offsets by shard.
        """
        made: SubscriptionApi[Delivery] = SubscriptionApi(self.queue, name, start)
        yield from made.begin()
        return made

    def subscriptions(self) -> Procedure[tuple[SubscriptionStats, ...]]:
        """The queue's subscriptions, and how each is doing. A LIST, and for each a GET and a LIST per shard."""
        return (yield from subscriptions((yield from self.open())))

    def remove_subscription(self, name: str, *, force: bool = False) -> Procedure[int]:
        """Remove a subscription with everything it has not settled; returns how many heads that were.

        Messages are no longer kept for it. `Invalid` if some are in flight, unless `force`. Stop its workers first: one
        that goes on reading makes it again, from the oldest message that is kept. Two GETs and a DELETE for each shard.
        """
        return (yield from remove_subscription((yield from self.open()), name, force=force))

    def stats(self) -> Procedure[QueueStats]:
        """How the queue is doing, in a handful of requests however deep it is."""
        return (yield from stats((yield from self.open())))

    def tails(self) -> Procedure[dict[int, int]]:
        """The offset behind the last message of each shard."""
        queue = yield from self.open()
        tails = {}
        for shard in range(queue.settings.shards):
            tails[shard] = yield from fresh_tail(queue, queue.log(shard))
        return tails

    def back(self, count: int | None) -> Procedure[dict[int, int]]:
        """Positions for `tail` so that it begins about `count` messages before the end of each shard: at the segment
        that holds that message, or the oldest one that is kept. None means everything that is kept."""
        queue = yield from self.open()
        positions = yield from self.tails()
        for shard, end in positions.items():
            log = queue.log(shard)
            low = yield from trim_mark(log)
            if count is None or end - count <= low:
                positions[shard] = low
            else:
                positions[shard] = (yield from position_of_offset(queue, log, end - count))[1]
        return positions

    def tail(self, positions: dict[int, int]) -> Procedure[list[PeekedMessage]]:
        """Messages sent behind `positions` (an offset for each shard, see `tails`), which are moved on."""
        queue = yield from self.open()
        seen: list[PeekedMessage] = []
        for shard in range(queue.settings.shards):
            found, positions[shard] = yield from browse.read_on(queue, shard, positions.get(shard, 0))
            seen += [PeekedMessage(each) for each in found]
        return seen

    def raise_shards(self, shards: int) -> Procedure[Settings]:
        """Raise the shard count, while the queue is in use."""
        return (yield from raise_shards((yield from self.open()), shards))

    def trim(self) -> Procedure[Trimmed]:
        """Delete what every subscription has settled and retention allows. Workers do this by themselves."""
        return (yield from trim_all((yield from self.open())))

    def pause(self, why: str = "", *, subscription: str | None = None) -> Procedure[Settings]:
        """Hand out nothing more, to one subscription or to all, until `resume`. Sends go on, and so does what is in
        flight. In this process at once, in others within 30 seconds. Readers by offset, as of Spark, go on reading.

        Two GETs and a PUT; a LIST more for one subscription.
        """
        return (yield from pause((yield from self.open()), subscription, why))

    def resume(self, *, subscription: str | None = None) -> Procedure[Settings]:
        """End a pause: that of the queue, or that of one subscription. In other processes within 30 seconds."""
        return (yield from resume((yield from self.open()), subscription))

    def dead(self) -> DeadApi:
        return DeadApi(self.queue)

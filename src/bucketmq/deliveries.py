"""What both facades share: a delivery's data, and the batch it came in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from msgspec import UNSET

from bucketmq.errors import Invalid
from bucketmq.procedures.api import write_receipt
from bucketmq.procedures.browse import Seen, inline_body
from bucketmq.procedures.receive import Lot
from bucketmq.procedures.subscription import Nobody
from bucketmq.queue.message import Message


class HasMessage:
    """What can be told of anything that has a message."""

    __slots__ = ("message",)
    message: Message

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def key(self) -> str | None:
        return self.message.key

    @property
    def headers(self) -> Mapping[str, str]:
        return self.message.headers or {}

    @property
    def sent_at(self) -> datetime:
        return datetime.fromisoformat(self.message.at)


class DeliveryData(HasMessage):
    """A message in your hands until its lease is over. Settle it: ack, retry, bury or release."""

    __slots__ = ("_lot", "attempt", "offset")

    def __init__(self, lot: Lot, message: Message, offset: int, attempt: int) -> None:
        self._lot = lot
        self.message = message
        self.offset = offset
        self.attempt = attempt
        """1 for the first delivery, counted when it was handed out."""

    @property
    def body(self) -> Any:
        """The body as it was sent: a JSON value, text or bytes."""
        message = self.message
        if message.body is not UNSET:
            return message.body
        if message.body_at is None:
            return inline_body(message)
        body = self._lot.bodies[message.id]
        if isinstance(body, Exception):
            raise body
        return body

    @property
    def shard(self) -> int:
        return self._lot.desk.shard

    @property
    def lease_until(self) -> float:
        """When the lease is over: seconds since 1970 on the store's clock."""
        return self._lot.until

    @property
    def settled(self) -> bool:
        return self.offset in self._lot.settled

    @property
    def lost(self) -> bool:
        """Whether the bucket has said that the lease is gone, so that settling changed nothing."""
        return self._lot.lost

    @property
    def receipt(self) -> str:
        """Text that settles this delivery from another process: `queue.delivery(receipt)`."""
        return write_receipt(self._lot, self.offset, self.attempt)

    def _open(self) -> Lot:
        """The lot, if this delivery may still be settled."""
        lot = self._lot
        if self.offset in lot.settled:
            raise Invalid(f"message {self.id} was settled already; settle each delivery once")
        if lot.lost:
            lot.check()
        return lot

    def __repr__(self) -> str:
        return f"<Delivery {self.id} attempt {self.attempt} of {self._lot.desk.queue.name}/{self.shard}/{self.offset}>"


Kind = TypeVar("Kind", bound=DeliveryData)


class Batch(Sequence[Kind], Generic[Kind]):
    """What one receive gave: deliveries, perhaps none.

    When there are none it says why. `full`: so much is in flight that nothing more is handed out until some of it is
    settled. `contended`: other workers were taking what is there all the while you waited. Neither: nothing was there.
    """

    __slots__ = ("_deliveries", "contended", "full")

    def __init__(self, deliveries: list[Kind], why: Nobody) -> None:
        self._deliveries = deliveries
        self.full = why.full
        self.contended = why.contended

    @overload
    def __getitem__(self, index: int) -> Kind: ...
    @overload
    def __getitem__(self, index: slice) -> list[Kind]: ...
    def __getitem__(self, index: int | slice) -> Kind | list[Kind]:
        return self._deliveries[index]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._deliveries)

    def __len__(self) -> int:
        return len(self._deliveries)

    def __repr__(self) -> str:
        why = " (full)" if self.full else " (contended)" if self.contended else ""
        return f"<Batch of {len(self)}{why}>"


def deliveries_of(kind: type[Kind], lot: Lot, bodies: dict[str, Any]) -> list[Kind]:
    """The deliveries of a lot, in order."""
    lot.bodies = bodies
    return [
        kind(lot, message, offset, attempt)
        for message, (offset, attempt) in zip(lot.messages, lot.places(), strict=True)
    ]


def give_back(deliveries: Iterable[DeliveryData]) -> None:
    """Release deliveries that nobody has looked at; the next commit says so."""
    for delivery in deliveries:
        delivery._lot.release(delivery.offset, delivery.attempt)


class PeekedMessage(HasMessage):
    """A message as looked at without claiming it."""

    __slots__ = ("attempts", "offset", "shard", "state")

    def __init__(self, seen: Seen) -> None:
        self.message = seen.message
        self.shard = seen.shard
        self.offset = seen.offset
        self.state = seen.state
        self.attempts = seen.attempts

    @property
    def body(self) -> Any:
        """The body; None for a large one, which lies in an object of its own (`message.body_at`)."""
        return inline_body(self.message)

    def __repr__(self) -> str:
        return f"<Message {self.id} {self.state} at {self.shard}/{self.offset}>"


class DeadLetter(PeekedMessage):
    """A message that will not be handed out any more, with everything that went wrong."""

    __slots__ = ()

    @property
    def reason(self) -> str:
        """The last failure's first line that says something, which for a traceback is its last line."""
        failures = self.message.died.failures if self.message.died else ()
        lines = [line for line in failures[-1].error.splitlines() if line.strip()] if failures else []
        return (lines[-1] if lines[0].startswith("Traceback") else lines[0]) if lines else ""

    @property
    def subscription(self) -> str:
        return self.message.died.subscription if self.message.died else ""

    @property
    def failures(self) -> tuple[dict[str, Any], ...]:
        """Every failed attempt: attempt, error, at, holder."""
        died = self.message.died
        return tuple(
            {"attempt": each.attempt, "error": each.error, "at": each.at, "holder": each.holder}
            for each in (died.failures if died else ())
        )


def matching(ids: Iterable[str] | None, where: Callable[[DeadLetter], bool] | None) -> Callable[[Seen], bool]:
    """One question out of the two ways to choose dead letters."""
    chosen = None if ids is None else frozenset(ids)
    return lambda seen: (chosen is None or seen.message.id in chosen) and (where is None or where(DeadLetter(seen)))

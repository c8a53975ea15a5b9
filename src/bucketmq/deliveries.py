"""What a receive or a look at a queue gives: deliveries with their verbs, the batch they came in, peeked messages.

The facades bind the verbs of `DeliveryApi` to their engines; everything else is the same in both.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, repeat
from typing import Any, Generic, Self, TypeVar, overload

from msgspec import UNSET, Struct

from bucketmq.errors import BucketMQError, Invalid, Unfit
from bucketmq.procedures.checks import check_seconds
from bucketmq.procedures.claiming.browse import Peeked, Place, inline_body
from bucketmq.procedures.claiming.claim import Lot, extend
from bucketmq.procedures.claiming.receipts import write_receipt
from bucketmq.procedures.claiming.receive import Nobody, look_after
from bucketmq.procedures.heads.desk import commit
from bucketmq.procedures.requests import Procedure
from bucketmq.queue.message import Message
from bucketmq.queue.settings import LEASE_SECONDS_MAX
from bucketmq.typed import fitted
from bucketmq.values import Value

Body = TypeVar("Body")


class HasMessage(Value):
    """What is known of anything that has a message."""

    __slots__ = ()
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


def message_dict(message: DeliveryData | PeekedMessage) -> dict[str, Any]:
    """A message as JSON: `body`, or `body_base64` for bytes, or `body_at` for a large one that was not fetched."""
    row: dict[str, Any] = {
        "id": message.id,
        "shard": message.shard,
        "offset": message.offset,
        "sent_at": message.sent_at.isoformat(),
    }
    if message.key is not None:
        row["key"] = message.key
    if message.headers:
        row["headers"] = dict(message.headers)
    return row | _body_dict(message)


def _body_dict(message: DeliveryData | PeekedMessage) -> dict[str, Any]:
    at = message.message.body_at
    if at is not None and isinstance(message, PeekedMessage):
        return {"body_at": at.key, "body_bytes": at.size_bytes}
    try:
        body = message.plain_body if isinstance(message, DeliveryData) else message.body
    except BucketMQError as error:
        return {"body_error": str(error)}
    if isinstance(body, bytes):
        return {"body_base64": base64.b64encode(body).decode()}
    return {"body": body}


class DeliveryData(HasMessage, Struct, eq=False):
    """A message in your hands until its lease is over.

    Settling notes what becomes of it and returns at once; that is written with the next receive, by `flush`, or in the
    background within a few seconds. `wait=True` writes it now and raises `LeaseLost` if the lease is gone.
    """

    # A struct, because that is made in two thirds of the time.
    lot: Lot
    """What this process holds under the same lease, for programs with procedures of their own."""
    message: Message
    offset: int
    attempt: int
    """1 for the first delivery, counted when it was handed out."""

    @property
    def body(self) -> Any:
        """The body as it was sent: a JSON value, text or bytes. Or the model that was asked for; `Unfit` if it does not
        fit, and the delivery can still be settled."""
        body = self.message.body
        return body if body is not UNSET else self.plain_body

    @property
    def plain_body(self) -> Any:
        """The body as it was sent, whatever model was asked for."""
        message = self.message
        if message.body is not UNSET:
            return message.body
        if message.body_at is None:
            return inline_body(message)
        body = self.lot.bodies[message.id]
        if isinstance(body, Exception):
            raise body
        return body

    @property
    def shard(self) -> int:
        return self.lot.desk.shard

    @property
    def lease_until(self) -> float:
        """When the lease is over: seconds since 1970 on the store's clock."""
        return self.lot.until

    @property
    def settled(self) -> bool:
        return self.offset not in self.lot.unsettled

    @property
    def lost(self) -> bool:
        """Whether the bucket has said that it is not ours any more, so that settling changed nothing."""
        return self.lot.is_gone(self.offset)

    @property
    def receipt(self) -> str:
        """Text that settles this delivery from another process: `queue.delivery(receipt)`."""
        return write_receipt(self.lot, self.offset, self.attempt)

    def to_dict(self) -> dict[str, Any]:
        """The delivery as plain values that `json.dumps` takes. Bytes become Base64 text."""
        return {"receipt": self.receipt, "attempt": self.attempt, **message_dict(self)}

    @property
    def _api(self) -> Self:
        """Its verbs need nothing but itself."""
        return self

    @property
    def _run(self) -> Callable[[Procedure[Any]], Any]:
        run: Callable[[Procedure[Any]], Any] = self.lot.engine.run
        return run

    def _open(self) -> Lot:
        """The lot, if this delivery may still be settled."""
        lot = self.lot
        if self.offset not in lot.unsettled:
            raise Invalid(f"message {self.id} was settled already; settle each delivery once")
        if lot.lost:
            lot.check()
        return lot

    def __repr__(self) -> str:
        state = "settled" if self.settled else "lease lost" if self.lost else "in flight"
        where = f"{self.lot.desk.queue.name}/{self.shard}/{self.offset}"
        return f"<Delivery {self.id} at {where}, attempt {self.attempt}, {state}>"


class HasModel(DeliveryData, Generic[Body]):
    """A delivery whose body is the model that the receive asked for. It is made once, when it is looked at, and kept in
    the lot; a model may refer to its delivery."""

    @property
    def body(self) -> Body:
        """The model made of the body; `Unfit` if it does not fit, and the delivery can still be settled."""
        made = self.lot.fitted
        if self.offset not in made:
            made[self.offset] = self._fitted()
        body: Body = made[self.offset]
        return body

    def _fitted(self) -> Any:
        model = self.lot.model
        assert model is not None
        try:
            return fitted(self.plain_body, model)
        except Unfit as error:
            raise Unfit(f"the body of message {self.id} {error}; bury it, or change the model", error.path) from None


class Settling(DeliveryData):
    """What can become of a delivery. To settle is to make a note in memory, once for each message: a plain method
    that runs a procedure only with `wait`."""

    def ack(self, *, wait: bool = False) -> None:
        """Done with it."""
        lot = self.lot
        if lot.lost:
            self._open()
        lot.ack(self.offset)
        if wait:
            self._run(settle_now(lot, self.offset))

    def retry(self, reason: str = "", *, delay_seconds: float | None = None, wait: bool = False) -> None:
        """It failed: hand it out again after the queue's back-off, or after `delay_seconds`."""
        lot = self._open()
        if delay_seconds is None:
            delay_seconds = lot.desk.queue.settings.backoff.seconds(self.attempt, lot.engine.hands.chance())
        lot.retry(self.offset, self.attempt, delay_seconds, reason)
        if wait:
            self._run(settle_now(lot, self.offset))

    def bury(self, reason: str = "", *, wait: bool = False) -> None:
        """It can never succeed: make it a dead letter."""
        lot = self._open()
        lot.bury(self.offset, self.attempt, reason)
        if wait:
            self._run(settle_now(lot, self.offset))

    def release(self, *, wait: bool = False) -> None:
        """Not tried: hand it out again at once, without counting the attempt."""
        lot = self._open()
        lot.release(self.offset, self.attempt)
        if wait:
            self._run(settle_now(lot, self.offset))


class DeliveryApi(Settling):
    """Every verb of a delivery."""

    def extend(self, seconds: float | None = None) -> Procedure[float]:
        """Keep the lease for `seconds` from now (the queue's own lease time by default). One PUT."""
        return (yield from extend_now(self._open(), seconds))


def settle_now(lot: Lot, offset: int | None = None) -> Procedure[None]:
    """Commit what waits for this lot's head and raise `LeaseLost` if this message, or any of the lot, was not ours to
    settle. One PUT."""
    yield from commit(lot.desk)
    yield from look_after(lot.desk)
    lot.check(offset)


def extend_now(lot: Lot, seconds: float | None) -> Procedure[float]:
    """Keep a lot's lease for `seconds` from now; its own lease time by default. One PUT."""
    lease_seconds = lot.lease_seconds if seconds is None else check_seconds(seconds, "seconds", high=LEASE_SECONDS_MAX)
    return (yield from extend(lot, lease_seconds))


Kind = TypeVar("Kind", bound=DeliveryData)


class Batch(Sequence[Kind], Generic[Kind]):
    """What one receive gave: deliveries, perhaps none.

    When there are none it says why. `full`: so much is in flight that nothing more is handed out until some of it is
    settled. `contended`: other workers took what was there while you waited. `paused`: the queue or the
    subscription is. None of these: nothing was there.
    """

    __slots__ = ("_deliveries", "contended", "full", "paused")

    def __init__(self, deliveries: list[Kind], why: Nobody) -> None:
        self._deliveries = deliveries
        self.full = why.full
        self.contended = why.contended
        self.paused = why.paused

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
        why = " (full)" if self.full else " (contended)" if self.contended else " (paused)" if self.paused else ""
        return f"<Batch of {len(self)}{why}>"


def deliveries_of(kind: type[Kind], typed: type[Kind], engine: Any, lot: Lot, bodies: dict[str, Any]) -> list[Kind]:
    """The deliveries of a lot, in order, which settle through `engine`; those of a model are `typed`."""
    lot.engine = engine
    lot.bodies = bodies
    kind = kind if lot.model is None else typed
    messages = iter(lot.messages)
    made: list[Kind] = []
    for held in lot.held:
        span, attempts = held.span, repeat(held.attempt)
        made += map(kind, repeat(lot), islice(messages, span.count), range(span.start, span.stop), attempts)
    return made


class PeekedMessage(HasMessage):
    """A message as looked at without claiming it."""

    __slots__ = ("attempts", "message", "offset", "place", "shard", "state")

    def __init__(self, seen: Peeked) -> None:
        self.message = seen.message
        self.place: Place = (seen.shard, seen.offset, seen.base)
        """For `peek(after=...)`, to go on behind it."""
        self.shard = seen.shard
        self.offset = seen.offset
        self.state = seen.state
        self.attempts = seen.attempts

    @property
    def body(self) -> Any:
        """The body; None for a large one, which lies in an object of its own (`message.body_at`)."""
        return inline_body(self.message)

    def to_dict(self) -> dict[str, Any]:
        """The message as plain values that `json.dumps` takes. Bytes become Base64 text."""
        return {"state": self.state, "attempts": self.attempts, **message_dict(self)}

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

    def to_dict(self) -> dict[str, Any]:
        """The dead letter as plain values that `json.dumps` takes, with every failure."""
        died = self.message.died
        return {
            **message_dict(self),
            "subscription": self.subscription,
            "reason": self.reason,
            "died_at": died.at if died else None,
            "attempts": died.attempts if died else None,
            "failures": list(self.failures),
        }

    def __repr__(self) -> str:
        return f"<DeadLetter {self.id} at {self.shard}/{self.offset}: {self.reason[:80]}>"


def matching(ids: Iterable[str] | None, where: Callable[[DeadLetter], bool] | None) -> Callable[[Peeked], bool]:
    """One question out of the two ways to choose dead letters."""
    chosen = None if ids is None else frozenset(ids)
    return lambda seen: (chosen is None or seen.message.id in chosen) and (where is None or where(DeadLetter(seen)))

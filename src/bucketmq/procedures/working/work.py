"""A worker: receives, has a handler called for each delivery, and settles by what the handler returns.

One procedure fetches, `concurrency` others handle. Exceptions become retries with the traceback kept. When told to stop
it finishes what is in hand, releases what was fetched and not begun, and hands everything in.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from bucketmq import outcomes
from bucketmq.errors import BucketMQError, Corrupt, Invalid, LeaseLost
from bucketmq.log.segment import time_seconds
from bucketmq.procedures.checks import check_seconds, plain_text
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.receive import Nobody, OpenSubscription, flush_all, give_back, receive
from bucketmq.procedures.observers import Handed
from bucketmq.procedures.requests import Call, Chance, Crew, IfAbandoned, Latch, Now, Pause, Procedure, Spawn, Wait
from bucketmq.procedures.upkeep.trim import trim_all
from bucketmq.procedures.working.keeper import Keeper
from bucketmq.queue.message import Message

WAIT_SECONDS = 20.0
FAULT_PAUSE_SECONDS = 1.0
TRIM_SECONDS = 300.0
TRACEBACK_CHARS = 3_500

logger = logging.getLogger("bucketmq")


class Piece:
    """One delivery of a lot, in a worker's hands."""

    __slots__ = ("attempt", "crew", "delivery", "lot", "message", "offset")

    def __init__(self, lot: Lot, message: Message, place: tuple[int, int], delivery: Any, crew: Crew) -> None:
        self.lot = lot
        self.message = message
        self.offset, self.attempt = place
        self.delivery = delivery
        """What the handler is given."""
        self.crew = crew
        """Those who call the handler."""


class Work:
    """The state of one running worker."""

    def __init__(
        self,
        subscription: OpenSubscription,
        keeper: Keeper,
        handle: Callable[[list[Piece]], Procedure[list[object]]],
        wrap: Callable[[Lot], Procedure[list[Any]]],
        *,
        concurrency: int,
        prefetch: int,
        lease_seconds: float,
        stop_when_empty: bool,
        batch: int = 1,
        apart: bool = False,
        trims: bool = True,
    ) -> None:
        if concurrency < 1 or prefetch < 1:
            raise Invalid(f"concurrency and prefetch must be at least 1, not {concurrency} and {prefetch}")
        self.subscription = subscription
        self.keeper = keeper
        self.handle = handle
        """Does the work for some pieces and says what becomes of each; an error is a retry for all of them."""
        self.wrap = wrap
        self.batch = batch
        """How many pieces are handled together, at most."""
        self.apart = apart
        """Whether no two of them have the same message key."""
        self.trims = trims
        """Whether it trims the queue now and then; among many workers of one process one is enough."""
        self.concurrency = concurrency
        self.crew = Crew(concurrency)
        self.prefetch = prefetch
        self.lease_seconds = lease_seconds
        self.stop_when_empty = stop_when_empty
        self.waiting: deque[Piece] = deque()
        self.busy: set[int] = set()
        """The numbers of the handlers that have something in hand."""
        self.runners = set(range(concurrency))
        """The numbers of the handlers that have not ended."""
        self.hungry = Latch()
        """Opens when a handler finds nothing to do."""
        self.fed = Latch()
        """Opens when there is something to do, or nothing more to come."""
        self.ending = False
        self.stopping = Latch()
        """Opens to end a wait for messages early."""
        self.ended = Latch()

    def stop(self) -> None:
        """Finish what is in hand, release the rest, end."""
        self.ending = True
        self.stopping.open()
        self._turn("hungry")
        self._turn("fed")

    def abandon(self) -> Procedure[None]:
        """Stop without waiting for async handlers: they are cancelled and their messages given back."""
        self.stop()
        self.crew.cancelled.open()
        yield from ()

    def _turn(self, name: str) -> None:
        """Open a latch and put a shut one in its place."""
        latch = getattr(self, name)
        setattr(self, name, Latch())
        latch.open()


def work(state: Work) -> Procedure[None]:
    """Run the worker until it is stopped, its caller leaves, the bucket is closed, or the queue is empty if it is to
    stop then."""
    state.keeper.closing.on_open(state.stop)
    yield from IfAbandoned(state.abandon)
    for number in range(state.concurrency):
        yield from Spawn(_runner(state, number), f"handler-{number}")
    trim_at = (yield from Now()) + TRIM_SECONDS * (yield from Chance())
    try:
        while not state.ending:
            latch = state.hungry
            if state.waiting or len(state.busy) >= state.concurrency:
                yield from Wait(latch)
                continue
            yield from _fetch(state)
            trim_at = yield from _maybe_trim(state, trim_at)
    finally:
        state.ending = True
        state._turn("fed")
        state.keeper.closing.forget(state.stop)
    yield from Wait(state.ended)
    state.crew.ended.open()
    for desk in list(state.subscription.desks.values()):
        give_back(desk)
    for piece in state.waiting:
        piece.lot.release(piece.offset, piece.attempt)
    yield from flush_all(state.subscription)


def _fetch(state: Work) -> Procedure[None]:
    """Get the next lot. A store that fails is asked again later; a worker does not end because of it."""
    quiet = not state.busy  # asked before the look: a busy handler may still give something back
    wait = 0.0 if state.stop_when_empty or not quiet else WAIT_SECONDS
    lot: Lot | None = None
    try:
        found = yield from receive(
            state.subscription,
            state.prefetch,
            wait_seconds=wait,
            lease_seconds=state.lease_seconds,
            stop=state.stopping,
        )
        if isinstance(found, Nobody):
            if state.stop_when_empty and quiet:
                if not (found.full and _in_flight(state)):
                    state.ending = True
                else:  # what is ready behind it is handed out when some of it is settled
                    yield from Wait(state.stopping, FAULT_PAUSE_SECONDS)
            elif state.busy:
                yield from Wait(state.hungry, FAULT_PAUSE_SECONDS)
            return
        (lot,) = found
        deliveries = yield from state.wrap(lot)
    except BucketMQError as error:
        logger.warning("action=receive_failed queue=%s kind=%s %s", state.subscription.queue.name, error.kind, error)
        if lot is not None:
            lot.release_all()
        yield from Pause(FAULT_PAUSE_SECONDS)
        return
    state.keeper.keep_alive(lot)
    for message, place, delivery in zip(lot.messages, lot.places(), deliveries, strict=True):
        state.waiting.append(Piece(lot, message, place, delivery, state.crew))
    state._turn("fed")


def _in_flight(state: Work) -> bool:
    """Whether some worker holds messages of this subscription."""
    heads = (desk.head for desk in state.subscription.desks.values())
    return any(head is not None and head.leases for head in heads)


def _maybe_trim(state: Work, trim_at: float) -> Procedure[float]:
    now = yield from Now()
    if now < trim_at or not state.trims:
        return trim_at
    try:
        yield from trim_all(state.subscription.queue)
    except BucketMQError as error:
        logger.warning("action=trim_failed queue=%s kind=%s %s", state.subscription.queue.name, error.kind, error)
    return now + TRIM_SECONDS


def _runner(state: Work, number: int) -> Procedure[None]:
    try:
        while True:
            latch = state.fed  # before looking at anything it announces
            if state.ending:
                break
            pieces = _take(state)
            if not pieces:
                state._turn("hungry")
                yield from Wait(latch)
                continue
            state.busy.add(number)
            try:
                yield from _handle(state, pieces)
            finally:
                state.busy.discard(number)
    finally:
        state.runners.discard(number)
        state._turn("hungry")
        if not state.runners:
            state.ended.open()


def _take(state: Work) -> list[Piece]:
    """The next pieces off the left, as many as are handled together; other threads may be taking too."""
    pieces: list[Piece] = []
    keys: set[str | None] = set()
    try:
        while len(pieces) < state.batch:
            piece = state.waiting.popleft()
            if state.apart and piece.message.key in keys:
                state.waiting.appendleft(piece)
                break
            keys.add(piece.message.key)
            pieces.append(piece)
    except IndexError:
        pass
    return pieces


def call_handler(handler: Callable[[Any], Any]) -> Callable[[list[Piece]], Procedure[list[object]]]:
    """One piece at a time to a user's function."""

    def handle(pieces: list[Piece]) -> Procedure[list[object]]:
        (piece,) = pieces
        return [(yield from Call(handler, piece.delivery, piece.crew))]

    return handle


def _handle(state: Work, pieces: list[Piece]) -> Procedure[None]:
    now = yield from Now()
    name = state.subscription.queue.name
    for piece in pieces:
        if piece.lot.over(now):  # we slept, or the bucket was out of reach: somebody else may have it
            logger.warning("action=lease_over queue=%s lease=%d", name, piece.lot.lease)
            piece.lot.release(piece.offset, piece.attempt)  # if nobody has it, the keeper would keep it for ever
    pieces = [piece for piece in pieces if piece.offset in piece.lot.unsettled]
    if not pieces:
        return
    try:
        answers = yield from state.handle(pieces)
    except (Exception, SystemExit) as error:  # a handler that calls sys.exit() must not take its runner along
        if isinstance(error, LeaseLost) and any(piece.lot.is_gone(piece.offset) for piece in pieces):
            logger.warning("action=lease_lost queue=%s %s", name, error)
            yield from _tell(state, pieces, [error] * len(pieces), now)
            return
        answers = [outcomes.Retry(_log_failure(state, pieces, error))] * len(pieces)
    except BaseException:  # stopped in the middle: nobody knows what came of it, so somebody shall try again
        for piece in pieces:
            if piece.offset in piece.lot.unsettled:
                piece.lot.release(piece.offset, piece.attempt)
        raise
    ends = [outcome_of(answer) for answer in answers]
    for piece, outcome in zip(pieces, ends, strict=True):
        try:
            yield from _settle(state, piece, outcome)
        except Invalid:
            if piece.offset in piece.lot.unsettled:
                raise
            # The handler has settled it itself, perhaps from another thread just now.
    if state.keeper.observers.work:
        yield from _tell(state, pieces, ends, now)


def _tell(
    state: Work, pieces: list[Piece], ends: Sequence[outcomes.Outcome | BaseException], began: float
) -> Procedure[None]:
    """Tell the observers what became of these."""
    sub, seconds = state.subscription, (yield from Now()) - began
    for piece, outcome in zip(pieces, ends, strict=True):
        waited = _waited_seconds(piece.message, began)
        handed = Handed(piece.message, piece.lot.desk.shard, piece.offset, piece.attempt, waited)
        state.keeper.observers.on_handled(sub.queue.name, sub.name, handed, outcome, seconds)


def _waited_seconds(message: Message, began: float) -> float:
    """Since it was sent; 0 if another program wrote an invalid time, which does not keep the message from being
    settled."""
    try:
        return max(0.0, began - time_seconds(message.at))
    except Corrupt:
        return 0.0


def _log_failure(state: Work, pieces: list[Piece], error: BaseException) -> str:
    """Log a handler's failure, once, and return what is kept of it."""
    text, first, sub = failure_text(error), pieces[0], state.subscription
    more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    logger.warning(
        "action=handler_failed queue=%s subscription=%s message=%s%s attempt=%d error=%.200s\n%s",
        sub.queue.name,
        sub.name,
        first.message.id,
        more,
        first.attempt,
        plain_text(traceback.format_exception_only(error)[-1].partition("\n")[0]),
        plain_text(text),
    )
    return text


def traceback_of(error: BaseException) -> str:
    """The traceback from the handler on, without the frames of this library that called it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None and "bucketmq" in at.tb_frame.f_globals.get("__name__", ""):
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at))


def failure_text(error: BaseException) -> str:
    """A traceback's end, which says most, under the line by which one is recognised."""
    text = traceback_of(error)
    if len(text) <= TRACEBACK_CHARS:
        return text
    return "Traceback (most recent call last):\n  ...\n" + text[-TRACEBACK_CHARS:]


def outcome_of(answer: object) -> outcomes.Outcome:
    """What a handler means by what it returned."""
    if isinstance(answer, type) and issubclass(answer, outcomes.Outcome):
        answer = answer()  # `return Retry` means `return Retry()`, not "done"
    return answer if isinstance(answer, outcomes.Outcome) else outcomes.Done()


def _settle(state: Work, piece: Piece, outcome: outcomes.Outcome) -> Procedure[None]:
    lot = piece.lot
    match outcome:
        case outcomes.Retry(reason, delay_seconds):
            try:
                delay = None if delay_seconds is None else check_seconds(delay_seconds, "Retry.delay_seconds")
            except Invalid as error:
                delay, reason = None, f"{reason}\n({error})"
            if delay is None:
                backoff = state.subscription.queue.settings.backoff
                delay = backoff.seconds(piece.attempt, (yield from Chance()))
            lot.retry(piece.offset, piece.attempt, delay, reason)
        case outcomes.Bury(reason):
            lot.bury(piece.offset, piece.attempt, reason)
        case outcomes.Release():
            lot.release(piece.offset, piece.attempt)
        case outcomes.Done():
            lot.ack(piece.offset)
        case _:
            assert_never(outcome)

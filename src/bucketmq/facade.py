"""What the blocking and the asyncio facade have in common: everything that is answered without a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, Unpack

from bucketmq.api.bucket import BucketApi
from bucketmq.api.dead_letters import DeadApi
from bucketmq.api.opening import Lent, Opening
from bucketmq.api.options import WorkOptions
from bucketmq.api.queue import QueueApi
from bucketmq.api.rules import RulesApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.api.tables import TableApi
from bucketmq.api.watching import Watchers
from bucketmq.binding import plain
from bucketmq.bucket.port import Store
from bucketmq.deliveries import DeliveryData
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.meter import Requests
from bucketmq.engines.perform import Hands
from bucketmq.engines.signals import StopOnSignal
from bucketmq.procedures.observers import RequestObserver, WorkObserver
from bucketmq.procedures.requests import Procedure
from bucketmq.rulebook import environment

Delivery = TypeVar("Delivery", bound=DeliveryData)
Given_contra = TypeVar("Given_contra", contravariant=True)
Given = TypeVar("Given")
Gives_co = TypeVar("Gives_co", covariant=True)
Ran = TypeVar("Ran")
Result = TypeVar("Result")
Ran_co = TypeVar("Ran_co", covariant=True)
"""What running a worker returns: None, or something to await."""


class Bound:
    """What verbs are bound to (see `binding`): what can be asked, and the engine that carries it out."""

    _api: Any

    def __init__(self, engine: Any, api: Any) -> None:
        self._engine = engine
        self._hands: Hands = engine.hands
        self._run = engine.run
        self._api = api


class Observable(Bound, ABC):
    """What can be looked on at: a bucket, or one through its queue, whichever engine it has."""

    @property
    def requests(self) -> Requests:
        """Requests made through this bucket so far, by kind."""
        return self._hands.meter.read()

    def observe(self, observer: RequestObserver | WorkObserver) -> None:
        """Call `observer.on_request` for every request to the store from now on, and `observer.on_handled` for every
        message that a worker of this bucket has handled; it may have either or both. Calls come from several threads;
        what they raise is logged and changes nothing."""
        self._hands.observers.add(observer)

    @property
    @abstractmethod
    def opening(self) -> Opening:
        """The bucket, for procedures that `run_apart` carries out."""

    def run_apart(self, procedure: Procedure[Result]) -> Result:
        """Carry out a procedure in this very thread, which may be none of the engine's: for those who look on."""
        return Blocking(self._hands).run(procedure)


class BucketFacade(Observable):
    """What a bucket knows of itself."""

    _api: BucketApi

    def __init__(self, engine: Any, prefix: str, *, probe: bool, where: str, deliveries: Any, change: Any) -> None:
        lent = Lent(
            deliveries=partial(deliveries, engine),
            change=partial(change, engine),
            stops=lambda active: StopOnSignal(active=active),
            environment=environment,
        )
        super().__init__(engine, BucketApi.on(engine.hands.store, prefix, probe=probe, lent=lent, where=where))
        self._api.keeper.observers = self._hands.observers

    watch = plain(BucketApi.watch)
    when_all = plain(BucketApi.when_all)
    change_for = plain(BucketApi.change_for)

    @property
    def watchers(self) -> Watchers:
        """The handlers registered with `watch` and `when_all`."""
        return self._api.watchers

    @property
    def opening(self) -> Opening:
        return self._api

    def on_close(self, function: Callable[[], None]) -> None:
        """Call a function when the bucket is closed and its workers have ended."""
        self._hands.at_last.append(function)

    @property
    def clock_skew_seconds(self) -> float:
        """How far this machine's clock is ahead of the store's."""
        return self._hands.clock.skew_seconds

    @property
    def now_seconds(self) -> float:
        """The time by the store's clock, in seconds since 1970."""
        return self._hands.clock.now()

    @property
    def prefix(self) -> str:
        """What every key of this bucket begins with in its store; empty if its URL names no prefix."""
        return self._api.prefix

    @property
    def store(self) -> Store:
        """The store of this bucket. What is asked of it directly is not counted in `requests`."""
        return self._hands.store

    @property
    def api(self) -> BucketApi:
        """What can be asked of this bucket, as procedures: for programs that bring procedures of their own and have
        them carried out with `run`."""
        return self._api

    def __repr__(self) -> str:
        state = "closed" if self._hands.closed else "open"
        return f"<Bucket {self._api.where} {state}>"


class SubscriptionFacade(Bound):
    """What a subscription knows of itself."""

    _api: SubscriptionApi[Any]

    @property
    def name(self) -> str:
        return self._api.subscription_name

    def __repr__(self) -> str:
        queue = self._api.queue
        return f"<Subscription {self._api.subscription_name!r} of queue {queue.name!r} in {queue.bucket.where}>"


class QueueHandler(Protocol[Given_contra, Gives_co, Ran_co]):
    """A function that `@queue.handler` was put on: called as before, and it can run as a worker."""

    def __call__(self, delivery: Given_contra, /) -> Gives_co: ...

    def run(self, **options: Unpack[WorkOptions]) -> Ran_co:
        """Work on its queue until told to stop; the options are those of `queue.run`."""
        ...

    @property
    def queue(self) -> Any:
        """The queue whose messages it handles."""


class QueueFacade(Observable, SubscriptionFacade, Generic[Delivery, Ran]):
    """What a queue knows of itself."""

    _api: QueueApi[Any]

    @property
    def name(self) -> str:
        return self._api.name

    @property
    def api(self) -> QueueApi[Any]:
        """What can be asked of this queue, as procedures that its bucket carries out: `bucket.run(procedure)`."""
        return self._api

    @property
    def opening(self) -> Opening:
        return self._api.queue.bucket

    def handler(self, function: Callable[[Delivery], Given]) -> QueueHandler[Delivery, Given, Ran]:
        """A decorator that makes the function this queue's handler, for `bucketmq worker` and for `function.run()`."""
        made: Any = function
        made.run = lambda **options: self.run(function, **options)  # type: ignore[attr-defined]
        made.queue = self
        handler: QueueHandler[Delivery, Given, Ran] = made
        return handler

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self._api.queue.bucket.where}>"


class DeadLettersFacade(Bound):
    """What the dead letters of a queue know of themselves."""

    _api: DeadApi

    def __repr__(self) -> str:
        origin = self._api.origin
        return f"<DeadLetters of queue {origin.name!r} in {origin.bucket.where}>"


class RulesFacade(Bound):
    """What the rules of a bucket answer by themselves."""

    _api: RulesApi

    explain = plain(RulesApi.explain)

    def __repr__(self) -> str:
        return f"<Rules of {self._api.bucket.where}>"


class TableFacade(Bound):
    """What a table knows of itself."""

    _api: TableApi

    @property
    def name(self) -> str:
        return self._api.name

    @property
    def api(self) -> TableApi:
        """What can be asked of this table, as procedures that its bucket carries out: `bucket.run(procedure)`."""
        return self._api

    def __repr__(self) -> str:
        return f"<Table {self.name!r} in {self._api.bucket.where}>"

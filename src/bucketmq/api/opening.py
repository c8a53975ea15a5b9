"""A bucket as one process has it open: probed once, with one keeper, and what its facade lends to the procedures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, Self

import msgspec

from bucketmq.bucket.port import Store
from bucketmq.deliveries import DeliveryData, deliveries_of
from bucketmq.events.event import ObjectEvent
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.lane import Once
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.probe import probe
from bucketmq.procedures.requests import NewId, Procedure, Spawn
from bucketmq.procedures.rules.run import Environment
from bucketmq.procedures.working.keeper import Keeper, hand_in_all, keep


class Stoppable(Protocol):
    """A worker or a notifier."""

    def stop(self) -> None: ...


class Stops(Protocol):
    """Stops what it watches when the process is asked to end."""

    def watch(self, work: Stoppable) -> None: ...


class _Never:
    def watch(self, work: Stoppable) -> None:
        """Nothing asks this process to end."""


def _never(active: bool) -> AbstractContextManager[Stops]:
    return nullcontext(_Never())


def _bare(lot: Lot, bodies: dict[str, Any]) -> list[DeliveryData]:
    return deliveries_of(DeliveryData, DeliveryData, None, lot, bodies)


class Lent(msgspec.Struct, frozen=True):
    """What a facade lends to the procedures it runs."""

    deliveries: Callable[[Lot, dict[str, Any]], list[Any]] = _bare
    """A lot's deliveries, of the facade's kind."""
    change: Callable[[Opening, Callable[[Any], Any], ObjectEvent, int], Any] | None = None
    """What a watcher's handler is given, of the facade's kind."""
    stops: Callable[[bool], AbstractContextManager[Stops]] = _never
    """While it lasts, signals stop what it watches; with False they are left alone."""
    environment: Environment = lambda _: None
    """Where secrets that are named `env:NAME` are looked up."""


NOTHING_LENT = Lent()


class Opening:
    """A bucket that is opened by the first procedure that needs it."""

    def __init__(
        self,
        prefix: str,
        *,
        lists_in_order: bool,
        local: bool,
        probe_first: bool,
        renames: bool = False,
        copies: bool = False,
        exact_versions: bool = False,
        lent: Lent = NOTHING_LENT,
        where: str = "",
    ) -> None:
        self.prefix = prefix
        self.where = where or prefix or "memory://"
        """Where it is, for people: a URL without secrets."""
        self.keeper = Keeper()
        self.lent = lent
        self._probe_first = probe_first
        self._make = partial(
            OpenBucket,
            prefix,
            lists_in_order=lists_in_order,
            local=local,
            renames=renames,
            copies=copies,
            exact_versions=exact_versions,
        )
        self._once = Once(self._open)

    @classmethod
    def on(cls, store: Store, prefix: str, *, probe: bool, lent: Lent = NOTHING_LENT, where: str = "") -> Self:
        """A bucket in a store, which says by itself what it can do."""
        return cls(
            prefix,
            lists_in_order=store.lists_in_order,
            local=store.local,
            probe_first=probe,
            renames=store.renames,
            copies=store.copies,
            exact_versions=store.exact_versions,
            lent=lent,
            where=where or repr(store),
        )

    def open(self) -> Procedure[OpenBucket]:
        """Probe the store, once. About ten requests."""
        return (yield from self._once.get())

    def _open(self) -> Procedure[OpenBucket]:
        if self._probe_first:
            yield from probe(self.prefix)
        bucket = self._make((yield from NewId()))
        bucket.unsettled = self.keeper.unsettled
        return bucket

    def start_keeper(self) -> Procedure[None]:
        """Hand in settlements and keep leases alive in the background, from the first time on."""
        if not self.keeper.running:
            self.keeper.running = True
            yield from Spawn(keep(self.keeper), "keeper")

    def close(self) -> Procedure[None]:
        """Stop the workers and hand in every settlement that waits."""
        self.keeper.closing.open()
        self.keeper.stop.open()
        errors = yield from hand_in_all(self.keeper)
        if errors:
            first, *others = errors
            for other in others:
                first.add_note(f"and: {other.kind}: {other}")
            raise first

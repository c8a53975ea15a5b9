"""Figures over time: how queues stood each minute and each hour, in two rings of small documents. Pure.

A ring has a fixed number of documents, each for one stretch of time; a new stretch takes the place of the oldest. So a
week of figures is bounded in number and in bytes, whatever the bucket holds. Writing them is
`procedures.upkeep.figures`'.
"""

from __future__ import annotations

import msgspec

from bucketmq.log.layout import join
from bucketmq.queue.settings import FORMAT

ALL = "*"
"""The sum over all queues; no queue can have this name."""
QUEUES_MAX = 40
"""Queues in a sample, those with the most unsettled messages. The sum has all of them."""
SUBSCRIPTIONS_MAX = 40
"""Subscriptions in a sample, of these queues."""
BETWEEN = "/"
"""Between the names of a queue and a subscription; neither can have it."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """How a queue stood."""

    ready: int
    in_flight: int
    delayed: int
    dead: int
    oldest_ready_seconds: float
    """0 if none is ready."""
    sent: int
    """Ever: the difference of two samples is what was sent in between."""
    settled: int = 0
    """Ever, over all subscriptions: the difference of two samples is what went out. 0 where it was not noted."""


Samples = dict[str, Sample]


class Stretch(msgspec.Struct, frozen=True):
    """`bucketmq/figures/<ring>/<place>.json`: the samples of one stretch of time."""

    start: int
    """Seconds since 1970."""
    step: int
    """Seconds from one slot to the next."""
    samples: dict[int, Samples] = {}
    """By slot: sample n was taken within `step` seconds after `start + n * step`."""
    format: int = FORMAT


class Ring(msgspec.Struct, frozen=True):
    """So many stretches of the same length."""

    name: str
    step: int
    stretch: int
    count: int

    def start(self, at: float) -> int:
        return int(at) - int(at) % self.stretch

    def slot(self, at: float) -> int:
        return (int(at) - self.start(at)) // self.step

    def key(self, prefix: str, at: float) -> str:
        place = self.start(at) // self.stretch % self.count
        return join(prefix, "bucketmq/figures", self.name, f"{place:02}.json")


MINUTES = Ring("minutes", 60, 3600, 26)
HOURS = Ring("hours", 3600, 86400, 9)


def fresh(ring: Ring, at: float) -> Stretch:
    return Stretch(ring.start(at), ring.step)


def added(stretch: Stretch, ring: Ring, at: float, samples: Samples) -> Stretch:
    """The stretch with these samples. Of two writers the first one's count; one whose clock is a stretch behind changes
    nothing; what lay there from the last time round is gone."""
    if stretch.start > ring.start(at):
        return stretch
    if stretch.start < ring.start(at):
        stretch = fresh(ring, at)
    slot = ring.slot(at)
    if slot in stretch.samples:
        return stretch
    return msgspec.structs.replace(stretch, samples={**stretch.samples, slot: bounded(samples)})


def bounded(samples: Samples) -> Samples:
    """The sum, and the queues with the most to do, and their subscriptions."""
    heaviest = sorted(samples, key=lambda name: (-_weight(samples[name]), name))
    queues = [name for name in heaviest if name != ALL and BETWEEN not in name][:QUEUES_MAX]
    subscriptions = [name for name in heaviest if name.partition(BETWEEN)[0] in queues and BETWEEN in name]
    return {name: samples[name] for name in (ALL, *queues, *subscriptions[:SUBSCRIPTIONS_MAX]) if name in samples}


def summed(samples: Samples) -> Samples:
    """The samples with the sum over all queues."""
    found = [each for name, each in samples.items() if BETWEEN not in name]
    return {
        ALL: Sample(
            sum(each.ready for each in found),
            sum(each.in_flight for each in found),
            sum(each.delayed for each in found),
            sum(each.dead for each in found),
            max((each.oldest_ready_seconds for each in found), default=0.0),
            sum(each.sent for each in found),
            sum(each.settled for each in found),
        ),
        **samples,
    }


def rolled(stretch: Stretch) -> Samples:
    """One sample for a whole stretch: the most there was at any time. `sent` only grows, so that is its last."""
    most: Samples = {}
    for samples in stretch.samples.values():
        for name, each in samples.items():
            before = most.get(name, each)
            pairs = zip(msgspec.structs.astuple(before), msgspec.structs.astuple(each), strict=True)
            most[name] = Sample(*(max(pair) for pair in pairs))
    return bounded(most)


def _weight(sample: Sample) -> int:
    return sample.ready + sample.in_flight + sample.delayed + sample.dead

"""Seeds that once failed, each with what it showed. They stay, so that it does not come back."""

from __future__ import annotations

import pytest

from bucketmq.testing.simulation import run_seed
from bucketmq.testing.simulation.bus.plan import FINE, Tilt
from bucketmq.testing.simulation.bus.run import run_seed as run_bus_seed
from bucketmq.testing.simulation.faults import Faults, only
from bucketmq.testing.simulation.plan import PLAIN

NAMED = {
    0: "a worker that had slept kept the lease of a message that it did not handle",
    65: "a trim looked twice at the shard count and passed a subscription that had no head yet",
    445: "trimming a dead name took the large body of the second copy along",
    3158: "a taken-over deduplication key passed a fence without noticing it",
    7: "a delayed message was placed behind the fence in its old shard",
    80: "two letters of one message were redriven together",
    97: "a sender walked past a fence because another caller had refreshed the settings",
    123: "stats raced with a redrive",
    269: "two messages of one key were in flight in two shards",
    798: "a sender that had slept created a dead name and did not look",
    806: "settings were believed fresh while they were still being read",
    1191: "a group of delayed messages was divided by two shard counts and one part was empty",
    1206: "a sender slept between landing and hearing, and sent again",
    1320: "a subscription began while a trim was under way",
    1474: "a group of delayed messages was divided by two shard counts",
    1740: "a receipt told the offset of another message",
    1808: "a tail learnt by reading was believed fresh",
    1845: "a tail learnt from another sleeper's segment was believed fresh",
    1930: "a segment was missing because it had been trimmed, and was taken for the tail",
    3417: "one record told of two failures of one message, and the letter took the other one",
    3787: "one record told of two failures of one message, and the letter took the other one",
    5137: "a worker that had slept read a dead segment and taught the senders of its process a tail beside the log",
    2802: "workers that saw each other's commits never looked at the trim mark, and what had expired moved for ever",
    155228: "a segment that was created long after its place was chosen was taken for a sleeper's by then",
    156348: "a receiver that had slept was handed what its own publisher put at a name that had been trimmed",
    141736: "a head began by jumping to a trim mark that moved on before the head was there",
    117647: "a publisher finished a rival's batch behind a fence, and its next send passed that fence unseen",
    2164: "a sender slept between landing and hearing, and sent again",
}


@pytest.mark.parametrize("seed", NAMED, ids=lambda seed: f"{seed}-{NAMED[seed].replace(' ', '-')}")
def test_a_seed_that_once_failed_passes(seed: int) -> None:
    assert run_seed(seed, tilt=PLAIN).problems == []


def test_a_subscription_that_begins_beside_a_trim_keeps_the_parts_that_it_was_handed() -> None:
    assert run_seed(3010918).problems == []


def test_a_trimmer_that_slept_does_not_take_from_a_subscription_that_began_meanwhile() -> None:
    assert run_seed(28316).problems == []


def test_a_subscription_that_begins_late_claims_nothing_that_a_sleeper_created_below_the_trim_mark() -> None:
    assert run_seed(200002, faults=only(("late_landing", "freeze"))).problems == []


BUS_NAMED = {
    690: "an audit compared a writer's time with the store's stamp exactly, and called a reported object missed",
    12122: "a copy had no answer, the next was refused, and the first landed when nobody had a note of it any more",
    16724: "a move was done by another attempt, and the write of this one landed over it later",
    19452: "a delete without an answer landed late and took along what had been written since",
    43144: "a recovery's second write of a moved object landed when the move had been reported",
    44220: "the auditor did not allow the same bytes within moments where it looks at posts",
    8284: "the auditor did not wait for a request that was slow before all was well",
}


@pytest.mark.parametrize(
    "seed", [pytest.param(1000311, id="a retry"), pytest.param(1002749, id="a claim of what waited")]
)
def test_what_travels_with_a_purge_counts(seed: int) -> None:
    assert run_seed(seed).problems == []


@pytest.mark.parametrize("seed", BUS_NAMED, ids=lambda seed: f"{seed}-{BUS_NAMED[seed].replace(' ', '-')}")
def test_a_seed_of_the_event_bus_that_once_failed_passes(seed: int) -> None:
    assert run_bus_seed(seed).problems == []


def test_a_copy_that_lands_again_after_its_move_was_undone_is_told_of() -> None:
    """The first create had no answer, the second one was undone, and then the first landed: the note was gone."""
    tilt = Tilt(
        documents=True,
        moderation=True,
        together=8,
        notifies=False,
        sweepers=0,
        weather=FINE,
        faults=Faults(crash=0.02, late_landing=0.5),
        victims="writer",
    )
    assert run_bus_seed(13, tilt=tilt).problems == []

"""Restored and damaged buckets: a healthy queue, then damage from outside, then life goes on, then it is mended.

What must hold: a send that is acknowledged after the damage is delivered, or somebody is told (`Corrupt`); what lies
behind a gap is delivered; mending repairs what can be, and then everything that can be read and was not settled is
delivered, every gap is recorded as a loss, and nothing else is.

Two limits are known, and not asked for here. Where listing is not in order, receivers do not look for gaps and a hint
is believed, so something may be silent until the queue is mended. And a process that lived through the damage may send
below a head for up to a minute before it is refused: stop senders before restoring a bucket.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.api.queue import QueueApi
from bucketmq.bucket.port import PLAIN
from bucketmq.log.documents import Hint, decode_settings, encode
from bucketmq.procedures.segments.losses import Lost, read_losses
from bucketmq.procedures.upkeep.mend import mend
from bucketmq.queue.settings import MAIN
from bucketmq.testing.simulation.crew import KEYS, Crew, SceneReport
from bucketmq.testing.simulation.engine import run_alone
from bucketmq.testing.simulation.plan import AUDIT, QUEUE
from bucketmq.testing.simulation.run import near_hints, quiet

AFTERMATH_SECONDS = 700.0
"""Longer than an idle receiver waits before it looks again where the log really ends."""

OUTSIDE = "outside"


def run_damaged(seed: int, *, traced: bool = False) -> SceneReport:
    """One seed of the scene. The same seed gives the same history."""
    with quiet(), near_hints():
        return Damaged(seed, traced=traced).report()


class Damaged:
    """One healthy queue and what becomes of it."""

    def __init__(self, seed: int, *, traced: bool) -> None:
        self.seed = seed
        self.dice = random.Random(f"damage {seed}")
        settings = {
            "shards": self.dice.choice((1, 1, 2, 3)),
            "lease_seconds": 5.0,
            "attempts_max": 50,
            "keep_seconds": 0.0,
        }
        self.crew = Crew(
            f"damage run {seed}",
            settings,
            (MAIN, AUDIT) if self.dice.random() < 0.4 else (MAIN,),
            lists_in_order=self.dice.random() < 0.7,
            answer_stamps=True,
            traced=traced,
        )
        self.damage = self.dice.choice(list(DAMAGE))
        self.gone: set[tuple[int, int]] = set()
        """Shard and offset of every message that was deleted."""

    def report(self) -> SceneReport:
        crew, began = self.crew, [f"healthy-{n}" for n in range(self.dice.randint(4, 14))]
        self._begin(began, acks=self.dice.choice((0.0, 0.6, 1.0)), stop=self.dice.random() < 0.5)
        self.copies = {key: crew.store.objects[key].body for key in crew.store.keys(KEYS.heads)}
        later = [f"later-{n}" for n in range(self.dice.randint(0, 6))]
        self._begin(later, acks=self.dice.choice((0.0, 0.5, 1.0, 1.0)), stop=False)
        survivor = crew.queue() if self.dice.random() < 0.3 else None
        if survivor is not None:  # a process that knows where the log ended before the damage
            crew.start_sender(["healthy-last"], survivor)
            crew.run(5.0)
        crew.world.note(OUTSIDE, f"DAMAGE {self.damage}")
        DAMAGE[self.damage](self)
        crew.covered[self.damage] += 1
        crew.forget_deliveries()
        expected = {name: crew.unsettled(name) for name in crew.subscriptions}
        if self.dice.random() < 0.7:
            self._live_on(survivor, expected)
        self._mend(expected)
        return crew.report(self.seed, self.damage)

    def _begin(self, tokens: list[str], *, acks: float, stop: bool) -> None:
        """Send these and receive some of them; then everybody dies. `stop` kills receivers half-way."""
        crew = self.crew
        crew.start_sender(tokens)
        receivers = [crew.start_receiver(name, acks=acks) for name in crew.subscriptions]
        crew.run(2.0)
        if stop:
            for receiver in receivers:
                receiver.kill()
        crew.run(6.0)
        crew.kill()

    def _live_on(self, survivor: QueueApi[Any] | None, expected: dict[str, set[str]]) -> None:
        """Processes that know nothing of the damage, and perhaps one that was there before it."""
        crew, before = self.crew, set(self.crew.sent)
        for number in range(2):
            tokens = [f"after-{number}-{n}" for n in range(self.dice.randint(1, 4))]
            crew.start_sender(tokens, gap_seconds=20.0)
        if survivor is not None:
            crew.start_sender(["survivor-0", "survivor-1"], survivor, gap_seconds=20.0)
        for name in crew.subscriptions:
            crew.start_receiver(name)
        crew.run(AFTERMATH_SECONDS, lambda: not crew.sending and crew.is_drained())
        acknowledged = crew.sent - before
        crew.covered["acknowledged after damage"] += len(acknowledged)
        for name in crew.subscriptions:
            missing = (expected[name] | acknowledged) - crew.got[name]
            expected[name] = missing
            if missing and name not in crew.loud and crew.store.lists_in_order and not self.is_quiet:
                crew.problem(f"{name}: {sorted(missing)} lie in the log and nobody is told")
            crew.covered["silent until mended"] += bool(missing and name not in crew.loud)
        crew.kill()

    def _mend(self, expected: dict[str, set[str]]) -> None:
        """After mending everything is as it should be, and everything that is left is delivered."""
        crew = self.crew
        done = run_alone(crew.world, crew.store, mend("", QUEUE))
        crew.covered["mended"] += len(done.mended)
        if done.left:
            crew.problem(f"not mended: {[(each.kind, each.what) for each in done.left]}")
        crew.forget_deliveries()
        before = set(crew.sent)
        crew.start_sender(["mended-0", "mended-1"])
        for name in crew.subscriptions:
            crew.start_receiver(name)
        crew.run(AFTERMATH_SECONDS, lambda: not crew.sending and crew.is_drained())
        if len(crew.sent - before) != 2:
            crew.problem("a mended queue refuses what is sent to it")
        for name in crew.subscriptions:
            missing = (expected[name] | (crew.sent - before)) - crew.got[name]
            if missing:
                crew.problem(f"{name}: {sorted(missing)} are lost though the queue was mended; {crew.loud.get(name)}")
        if not crew.is_drained():
            crew.problem(f"a mended queue is not drained: {crew.loud}")
        self._check_losses()

    def _check_losses(self) -> None:
        """Every gap is recorded, and nothing that was never there."""
        crew = self.crew
        losses = run_alone(crew.world, crew.store, read_losses(KEYS))
        recorded = {
            (shard, offset) for shard, gaps in losses.lost.items() for each in gaps for offset in _offsets(each)
        }
        there, ends = set(crew.messages()), crew.ends()
        gaps = {(shard, offset) for shard, end in ends.items() for offset in range(end)} - there
        crew.covered["loss recorded"] += bool(recorded)
        if gaps - recorded:
            crew.problem(f"gaps that were never reported: {sorted(gaps - recorded)}")
        if recorded - self.gone and crew.store.lists_in_order:
            crew.problem(f"recorded as lost though never there: {sorted(recorded - self.gone)}")

    # Damage

    def delete(self, choose: Callable[[list[int]], list[int]]) -> None:
        """Delete the segments of one shard that `choose` picks from their bases."""
        segments = self.crew.segments()
        shard = self.dice.choice(sorted({shard for shard, _ in segments}))
        bases = sorted(base for there, base in segments if there == shard)
        for base in choose(bases):
            self.gone |= {(shard, offset) for offset in range(base, segments[shard, base].end)}
            self.crew.store.erase(OUTSIDE, KEYS.segment(shard, base))

    def write(self, key: str, body: bytes) -> None:
        self.crew.store.overwrite(OUTSIDE, key, body, PLAIN)

    def restore_heads(self) -> None:
        """Heads as they were a while ago: what was settled since is delivered again."""
        for key, body in self.copies.items():
            self.write(key, body)

    @property
    def is_quiet(self) -> bool:
        """Whether receivers cannot know: with older settings they never look at the other shards. `stats` does."""
        return self.damage == FEWER_SHARDS

    def restore_settings(self) -> None:
        """Settings as they were when there was one shard."""
        settings = decode_settings(self.crew.store.objects[KEYS.settings].body, KEYS.settings)
        self.write(KEYS.settings, encode(msgspec.structs.replace(settings, shards=1)))

    def hint(self) -> None:
        """A hint that nobody of ours wrote: beyond the end, or inside the log."""
        end = max(self.crew.ends().values())
        self.write(KEYS.hint(0), encode(Hint(self.dice.choice((end + 5, end + 1, max(1, end - 1), 1)))))


def _offsets(lost: Lost) -> range:
    return range(lost.start, lost.stop)


FEWER_SHARDS = "the settings are rolled back to one shard"

DAMAGE: dict[str, Callable[[Damaged], None]] = {
    "a middle segment is deleted": lambda d: d.delete(lambda bases: [d.dice.choice(bases[1:-1] or bases)]),
    "several middle segments are deleted": lambda d: d.delete(lambda bases: bases[1:-1][: d.dice.randint(1, 3)]),
    "the first segment is deleted": lambda d: d.delete(lambda bases: bases[:1]),
    "the last segment is deleted": lambda d: d.delete(lambda bases: bases[-1:]),
    "the log is rolled back": lambda d: d.delete(lambda bases: bases[-d.dice.randint(2, 6) :]),
    "the log is gone": lambda d: d.delete(lambda bases: bases),
    "the heads are rolled back": Damaged.restore_heads,
    "the hint is garbage": lambda d: d.write(KEYS.hint(0), d.dice.choice((b"", b"{", b"\xff\xfe", b'{"base":-1}'))),
    "the hint is wrong": Damaged.hint,
    "the settings are deleted": lambda d: d.crew.store.erase(OUTSIDE, KEYS.settings),
    FEWER_SHARDS: Damaged.restore_settings,
}
"""What can befall a bucket from outside."""

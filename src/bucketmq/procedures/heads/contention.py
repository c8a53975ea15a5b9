"""Contention: what a process does so that its commits rarely collide with those of other processes. Advice only; the
conditional write of the head decides.

`Tactics` has the numbers, `Contention` what one process has learnt about one subscription, and `ShardContention` about
one of its shards. Nothing here asks the store for anything: that is in `turns`, `desk` and `claiming`. What each tactic
is worth was measured with `python -m bench.tactics`; see decision 0026.
"""

from __future__ import annotations

import msgspec


class Tactics(msgspec.Struct, frozen=True):
    """The numbers. The bench switches each tactic off by another value; everybody else takes the defaults."""

    shared_seconds: float = 30.0
    """A head is shared if another holder committed to it within this time. Most tactics apply to shared heads only."""
    turn_requests: float = 4.0
    turn_seconds_max: float = 2.0
    """A turn lasts as long as this many requests, and at most this long."""
    own_turns: float = 0.6
    """A worker that claimed within this part of a turn claims again without looking at the head first."""
    caution: float = 2.0
    """A claim that would collide with probability p is tried with probability 1 - caution * p."""
    rereads: bool = True
    """Whether a shared head that was seen longer than a turn ago is read again before a commit."""
    gives_way: bool = True
    """Whether a claim that lost a race waits instead of racing again."""
    lost_rest_turns: float = 1.0
    """How long it waits, on average."""
    conflict_pause_seconds: float = 0.01
    """How long a commit that cannot give way waits after a lost race, at most, times the races lost in a row."""
    stays: bool = True
    """Whether a receive begins with the shard that the last one was served from."""
    stay_lots: int = 16
    stay_rest_turns: float = 4.0
    """After this many lots in a row from one shard a worker goes on to the next, and stays away for so many turns."""
    at_once: int = 8
    """Once a claim had to wait or lost a race, claims serve up to this many receives."""
    spare_seconds: float = 1.0
    """A claim takes no more than the caller is likely to ask for within this time."""
    reads_ahead: bool = True
    """Whether a claim on a shared head reads all segments that the next one needs, instead of only the first."""
    linger_seconds: float = 5.0
    """How long settlements of a shared head wait for a claim to travel with."""
    slow_weight: float = 0.3
    fast_weight: float = 0.05
    """How much a request counts that was slower, or faster, than the average."""
    advice_commits: int = 50
    advice_conflicts: float = 0.3
    """The shard count is raised, if the queue allows it, when over so many commits this many races each were lost."""


TACTICS = Tactics()


class Contention:
    """What one process has learnt about those it shares one subscription with."""

    def __init__(self, tactics: Tactics = TACTICS) -> None:
        self.tactics = tactics
        self.request_seconds = 0.0
        """How long a request about a head takes: a moving average in which slow ones count more."""
        self.shard, self.stayed = -1, 0
        """The shard to try first, and how many lots in a row came from it."""
        self.at_once = 1
        """How many receives one claim may serve."""

    @property
    def turn_seconds(self) -> float:
        return min(self.tactics.turn_requests * self.request_seconds, self.tactics.turn_seconds_max)

    def time_request(self, seconds: float) -> None:
        weight = self.tactics.slow_weight if seconds > self.request_seconds else self.tactics.fast_weight
        self.request_seconds += (seconds - self.request_seconds) * (weight if self.request_seconds else 1.0)

    def serves(self, since: float, lease_seconds: float) -> int:
        """How many receives the next claim should serve, when the last receive was `since` seconds ago."""
        likely = min(self.tactics.spare_seconds, lease_seconds / 4) / max(since, 0.001)
        return max(1, min(self.at_once, int(likely)))

    def widen(self) -> None:
        """A claim lost a race or was put off: let the next ones serve several receives."""
        self.at_once = self.tactics.at_once

    def served(self, shard: int) -> bool:
        """Note that a lot came from this shard; whether it is time to leave it."""
        self.stayed = self.stayed + 1 if self.shard == shard else 1
        self.shard = shard
        if self.stayed < self.tactics.stay_lots:
            return False
        self.shard, self.stayed = shard + 1, 0
        return True


class ShardContention:
    """The same for one shard."""

    def __init__(self, shared: Contention) -> None:
        self.shared = shared
        self.tactics = shared.tactics
        self.conflicts = 0
        """Races lost so far."""
        self.recent = 0, 0
        """Commits and lost races since they were last judged."""
        self.claimed_at = 0.0
        """When we last claimed something, or 0 once we gave up our turn."""
        self.looked, self.looked_commits, self.looked_at = -1, 0, 0.0
        """The head's version when we last looked whether others commit, our own commits by then, and when."""
        self.rest_until = 0.0

    def has_turn(self, now: float) -> bool:
        """Whether we claimed from this shard within a turn, so that our copy of the head is most likely the newest."""
        return now - self.claimed_at < self.tactics.own_turns * self.shared.turn_seconds

    def rest(self, now: float, turns: float) -> None:
        """Stay away from this shard for that many turns."""
        self.rest_until = now + turns * self.shared.turn_seconds
        self.claimed_at = 0.0

    def collision(self, version: int, commits: int, now: float) -> float:
        """The probability that another commit lands while ours is on its way, from what changed since the last look."""
        before, own, at = self.looked, self.looked_commits, self.looked_at
        self.looked, self.looked_commits, self.looked_at = version, commits, now
        if before < 0 or now <= at:  # several callers may look at one moment
            return 1.0
        others = version - before - (commits - own)
        return max(0, others) / max(now - at, 0.001) * self.shared.request_seconds

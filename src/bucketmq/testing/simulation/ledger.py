"""What the workload asked for and was told: the one side of the books. The other side is what landed in the store."""

from __future__ import annotations

from typing import Any

from bucketmq.queue.message import Message
from bucketmq.testing.simulation.plan import Job, Plan

PAD = "x" * 200

Place = tuple[str, str, int, int, int]
"""Queue, subscription, shard, offset and lease: what a receipt proves."""


class Send:
    """One message as a caller meant it."""

    __slots__ = ("began_at", "ids", "job", "key", "ok_at", "place", "slept", "tries")

    def __init__(self, job: Job, place: int) -> None:
        self.job = job
        self.place = place
        self.key = job.keys[place]
        self.began_at: float | None = None
        self.ok_at: float | None = None
        """When a call returned without an error; None while the outcome is unknown."""
        self.ids: set[str] = set()
        """Every id a caller was told."""
        self.tries = 0
        self.slept = False
        """Whether its sender slept so long under way that nobody can tell "it was trimmed" from "it never landed"."""

    def begin(self, now: float) -> None:
        self.began_at = now if self.began_at is None else self.began_at

    def answered(self, now: float) -> None:
        self.ok_at = now if self.ok_at is None else self.ok_at

    def precedes(self, other: Send) -> bool:
        """Whether whoever sent `other` could know that this one was sent."""
        if self.job is other.job:
            return self.place < other.place
        return self.ok_at is not None and other.began_at is not None and self.ok_at < other.began_at


class Ledger:
    """Sends by token, and what receivers decided."""

    def __init__(self, plan: Plan) -> None:
        self.sends = {
            token: Send(job, place)
            for role in plan.roles
            for job in (*role.jobs, *role.batches)
            for place, token in enumerate(job.tokens)
        }
        self.decisions: dict[Place, list[str]] = {}
        self.delivered: dict[Place, int] = {}
        self.fetched: set[Place] = set()
        """Those of them that a worker has and no handler has begun: it may give them back."""
        self.calls_open = 0
        """Sends that are under way."""

    def of(self, job: Job) -> list[Send]:
        """The sends of the messages of one call."""
        return [self.sends[token] for token in job.tokens]

    def decide(self, place: Place, kind: str) -> None:
        self.decisions.setdefault(place, []).append(kind)


def body_of(token: str, job: Job) -> Any:
    """The body a token is sent with, so that everybody can tell whether it arrived whole."""
    return {"token": token, "pad": PAD} if job.large else {"token": token}


def header_of(job: Job) -> dict[str, str]:
    """Marks a send's messages, so that they can be told apart though only `send` knows their ids."""
    return {"job": job.tokens[0].partition("-")[0]}


def token_of(message: Message) -> str:
    """The token of a message out of a log: its job, and its place in it, which its id ends with."""
    _, dash, place = message.id.partition("-")
    return (message.headers or {}).get("job", "") + dash + place

"""One rule as one process runs it: its handler or secrets, what its endpoint was like lately, what it came to.

What is known here is lost with the process and found out again; the truth is in the heads of the rule's subscription.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.rule import Rule, Secrets
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.rules.choice import RuleChoice
from bucketmq.procedures.rules.registry import get_secrets
from bucketmq.procedures.working.work import Piece, Work
from bucketmq.queue.message import Message

SECRETS_SECONDS = 30.0
"""How long secrets are believed before they are read again, so that a rotation is noticed."""

Environment = Callable[[str], str | None]
Wrap = Callable[[Callable[[Any], Any], ObjectEvent, int], Any]
"""Makes the change that a watcher's handler is given, of the handler, the event and the number of the attempt."""


class Counts:
    """What a rule came to in this process, since it started."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.buried = 0
        self.dropped = 0


class Parcel(msgspec.Struct):
    """One event on its way, and what becomes of it."""

    piece: Piece
    event: ObjectEvent
    outcome: object = None


class RuleRun:
    """One rule as one process runs it."""

    def __init__(
        self,
        bucket: OpenBucket,
        rule: Rule,
        *,
        environment: Environment = lambda _: None,
        handler: Callable[[Any], Any] | None = None,
        wrap: Wrap | None = None,
        batch: int | None = None,
        together: Callable[[Sequence[Any]], Any] = list,
    ) -> None:
        self.bucket = bucket
        self.rule = rule
        self.filter = filters.parse(rule.filter)
        self.choice = RuleChoice(rule, self.filter)
        self.environment = environment
        self.handler = handler
        self.wrap = wrap
        self.batch = batch
        """How many changes a watcher's handler is given at a time; None if it takes them one by one."""
        self.together = together
        """Makes what it is given then, of the changes."""
        self.counts = Counts()
        self.lock = threading.Lock()
        """Over what follows: a rule's requests run on several threads."""
        self.failures_in_a_row = 0
        self.shut_until = 0.0
        """The breaker: nothing is sent before this time."""
        self.shut_seconds = rule.policy.breaker.seconds
        self.trying = False
        """Whether one request is out to see if the endpoint is back."""
        self.next_send_at = 0.0
        self.work: Work | None = None
        self.control: Callable[[Message], Procedure[object]] | None = None
        """What to do with a message to this rule that is not an event (see `procedures.rules.fan_in`)."""
        self.act: Callable[[Parcel], Procedure[None]] | None = None
        """What to do with an event instead of calling the handler with it (see `procedures.rules.fan_in`)."""
        self._secrets: tuple[Secrets, float] | None = None

    @property
    def stopping(self) -> bool:
        return self.work is not None and self.work.ending

    def secrets(self) -> Procedure[Secrets]:
        now = yield from Now()
        if self._secrets is None or now - self._secrets[1] > SECRETS_SECONDS:
            self._secrets = (yield from get_secrets(self.bucket, self.rule.name)), now
        return self._secrets[0]

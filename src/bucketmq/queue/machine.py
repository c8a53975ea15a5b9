"""`apply(head, commands, now, policy) -> head, outcomes`: every rule of the queue, as a pure function.

```
            Claim                 Ack
  fresh ───────────▶ held ───────────────▶ settled
               ▲      │ Retry, Release         ▲
         Claim │      │ lease expired          │ Moved
               │      ▼                        │
             waiting   ─ out of attempts ▶  moving
                      Bury, Redrive ─────────────▶┘
```

The order of commands in one call is the order in which they take effect. Time enters only as `now`, the store's clock,
and decides two things: which leases and waits are over. That a settlement counts is decided by lease numbers alone, so
a lease that is over but was not taken yet can still be settled by its holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from bucketmq.queue.claiming import claim, expire
from bucketmq.queue.commands import (
    Ack,
    Aim,
    Bury,
    Claim,
    Command,
    Extend,
    Jump,
    Moved,
    Noted,
    Outcome,
    Redrive,
    Release,
    Retry,
    Skip,
)
from bucketmq.queue.head import Head, check
from bucketmq.queue.policy import Policy
from bucketmq.queue.settling import extend, settle

replace = msgspec.structs.replace


def apply(head: Head, commands: Sequence[Command], now: float, policy: Policy) -> tuple[Head, tuple[Outcome, ...]]:
    """The head after `commands`, and one outcome for each."""
    outcomes = []
    for command in commands:
        head, outcome = _apply_one(head, command, now, policy)
        outcomes.append(outcome)
    return check(head), tuple(outcomes)


def _apply_one(head: Head, command: Command, now: float, policy: Policy) -> tuple[Head, Outcome]:
    match command:
        case Claim():
            return claim(expire(head, now, policy), command, now, policy)
        case Ack() | Retry() | Bury() | Release() | Redrive():
            return settle(head, command, now, policy)
        case Extend():
            return extend(head, command, now)
        case Aim():
            return _aim(head, command)
        case Moved():
            moving = tuple(entry for entry in head.moving if entry.target != command.target)
            return replace(head, moving=moving), Noted(moving != head.moving)
        case Jump():
            return _jump(head, command.to)
        case Skip(start, to):
            inside = start <= head.next < to
            return (replace(head, next=to, segment=to) if inside else head), Noted(inside)
        case _:
            assert_never(command)


def _aim(head: Head, command: Aim) -> tuple[Head, Outcome]:
    moving = tuple(
        replace(entry, target=command.target)
        if entry.span.start in command.starts and entry.target == command.was
        else entry
        for entry in head.moving
    )
    return replace(head, moving=moving), Noted(moving != head.moving)


def _jump(head: Head, to: int) -> tuple[Head, Outcome]:
    leases = []
    for lease in head.leases:
        held = tuple(entry for entry in lease.held if entry.span.base >= to)
        if held:
            leases.append(replace(lease, held=held))
    after = replace(
        head,
        leases=tuple(leases),
        waiting=tuple(entry for entry in head.waiting if entry.span.base >= to),
        moving=tuple(entry for entry in head.moving if entry.span.base >= to),
        next=max(head.next, to),
        segment=max(head.segment, to) if head.next < to else head.segment,
    )
    return after, Noted(after != head)

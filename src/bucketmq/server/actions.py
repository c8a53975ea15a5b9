"""The log of actions: a line of the queue `bucketmq-actions` for every change that somebody asked for through a door.

A line is written before the change is made, so nothing is done that nobody can be asked about; one that was refused has
a line too. Looking writes none, nor does logging in: the program's log has those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from bucketmq.events.event import time_text
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import ACTIONS, open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.sending.send import letters, send

TEXT_CHARS_MAX = 1_000
HOW_CHARS_MAX = 1 << 20
"""As much as a request may hold: a line names every message that somebody chose."""

Door = Literal["dashboard", "rest", "sqs", "mcp"]


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody asked for."""

    id: str
    at: str
    by: str
    did: str
    """The verb: redrive, pause, purge ..."""
    to: str
    """What it was done to: `queue jobs`, `rule hook`."""
    how: str = ""
    """What else belongs to it: how many, which, why."""
    door: Door = "dashboard"
    denied: str = ""
    """Why it was not allowed; empty if it was."""


def note(bucket: OpenBucket, *, by: str, did: str, to: str, how: str, door: Door, denied: str) -> Procedure[Action]:
    """Append a line. One PUT; a GET or two more the first time."""
    action = Action(
        id=(yield from NewId()),
        at=time_text((yield from Now())),
        by=by[:TEXT_CHARS_MAX],
        did=did,
        to=to[:TEXT_CHARS_MAX],
        how=how[:HOW_CHARS_MAX],
        door=door,
        denied=denied[:TEXT_CHARS_MAX],
    )
    yield from send((yield from open_queue(bucket, ACTIONS, {})), letters([action], None, None))
    return action


def read(bodies: Iterable[Any]) -> list[Action]:
    """The lines among these messages' bodies. What is not a line is skipped."""
    found = []
    for body in bodies:
        try:
            found.append(msgspec.convert(body, Action))
        except msgspec.ValidationError:
            continue
    return found

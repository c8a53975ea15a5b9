"""What people decided, the latest first: who, when, what was taken back, and how often they agreed with the model.

Kept in memory from the end of the queue `moderation-decisions`, and followed from there. Whether something may be taken
back is decided by the register (`posts.undo`); here is only said to whom it is worth offering.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from bucketmq import aio
from bucketmq.apps.moderation.audit import DECIDED, Line
from bucketmq.apps.moderation.desk.index import read_cursor, write_cursor
from bucketmq.apps.moderation.desk.reading import Reader, last
from bucketmq.apps.moderation.queues import DECISIONS
from bucketmq.apps.moderation.record import FLAGGED, NEEDS_REVIEW
from bucketmq.apps.moderation.register import Action
from bucketmq.dashboard.site import Kept
from bucketmq.errors import Invalid
from bucketmq.events.event import seconds_of
from bucketmq.procedures.claiming.browse import inline_body
from bucketmq.server.people import Caller

KEPT_MAX = 2_000
"""Lines that are kept and shown; all of them are in the queue, and in the audit log."""
PAGE = 50


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions somebody wants to see."""

    by: str = ""
    did: Literal["", "approve", "uphold", "escalate"] = ""
    q: str = ""
    """A part of the post's id or of the note."""
    taken_back: Literal["", "yes", "no"] = ""
    agreed: Literal["", "yes", "no"] = ""
    """Whether the person said what the model had said."""
    after: str = ""
    limit: int = PAGE

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE:
            raise Invalid(f"limit must be 1 to {PAGE}, not {self.limit}")
        if len(self.q) > 200 or len(self.by) > 200:
            raise Invalid("a filter has more than 200 characters")


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """One decision."""

    id: str
    revision: int
    action: Action
    turn: int
    by: str
    at: str
    note: str
    outcome: str
    before: str
    agreed: bool | None
    """Whether the model had said the same; None if it was not sure, or nothing was decided."""
    undone_by: str = ""
    undone_at: str = ""
    undone_note: str = ""
    may_undo: bool = False
    undo_seconds: float | None = None
    """For how long yet, if not for ever."""


class Agreement(msgspec.Struct, frozen=True):
    """What people said of posts that the model had flagged, and of those that it was not sure about. What was taken
    back does not count."""

    upheld: int
    approved: int
    unsure_upheld: int
    unsure_approved: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[Decided, ...]
    matching: int
    kept: int
    full: bool
    """Whether there are older ones that are not kept here."""
    people: tuple[str, ...]
    agreement: Agreement
    next: str | None


class Ledger:
    """The last lines of one bucket. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket, *, undo_seconds: float) -> None:
        self._reader = Reader(bucket, DECISIONS, last(KEPT_MAX))
        self._undo_seconds = undo_seconds
        self._lines: deque[Line] = deque(maxlen=KEPT_MAX)
        self._seen: set[str] = set()
        self._fresh = Kept(self._read)

    async def refresh(self) -> None:
        """See what is new. One GET, at most every two seconds; at first up to `KEPT_MAX` more."""
        await self._fresh.read()

    async def _read(self) -> bool:
        for message in await self._reader.read():
            self.add(inline_body(message))
        return True

    def add(self, body: object) -> None:
        """A line as the queue holds it; what is not one, and duplicates, are skipped."""
        try:
            line = msgspec.convert(body, Line)
            seconds_of(line.at)
        except ValueError:  # of its shape, or of its time
            return
        if line.did not in DECIDED or line.action in self._seen:
            return
        if len(self._lines) == KEPT_MAX:
            self._seen.discard(self._lines[0].action)
        self._lines.append(line)
        self._seen.add(line.action)

    def find(self, wanted: Wanted, caller: Caller, now: float) -> Page:
        """A page of what matches, for somebody who looks."""
        undone = {line.of: line for line in self._lines if line.did == "undo"}
        rows = [self._row(line, undone.get(line.action), caller, now) for line in self._lines if line.did != "undo"]
        rows.sort(key=_place, reverse=True)
        of_filter = [row for row in rows if _fits(row, wanted)]
        start: Place | None = read_cursor(wanted.after, Place) if wanted.after else None
        rest = of_filter if start is None else [row for row in of_filter if _place(row) < start]
        page = rest[: wanted.limit]
        return Page(
            decisions=tuple(page),
            matching=len(of_filter),
            kept=len(rows),
            full=len(self._lines) == KEPT_MAX,
            people=tuple(sorted({row.by for row in rows})),
            agreement=agreement(of_filter),
            next=write_cursor(_place(page[-1])) if len(rest) > wanted.limit else None,
        )

    def _row(self, line: Line, undo: Line | None, caller: Caller, now: float) -> Decided:
        left = self._undo_seconds - (now - seconds_of(line.at))
        own = line.by == caller.name and left > 0
        may = undo is None and caller.may("review") and (own or caller.may("administer"))
        action: Action = line.did  # type: ignore[assignment]  # `find` passes no other lines
        return Decided(
            id=line.id,
            revision=line.revision,
            action=action,
            turn=line.turn,
            by=line.by,
            at=line.at,
            note=line.reason,
            outcome=line.outcome,
            before=line.before,
            agreed=line.did == "uphold" if line.before == FLAGGED and line.did != "escalate" else None,
            undone_by=undo.by if undo is not None else "",
            undone_at=undo.at if undo is not None else "",
            undone_note=undo.reason if undo is not None else "",
            may_undo=may,
            undo_seconds=max(0.0, left) if may and not caller.may("administer") else None,
        )


def agreement(rows: Iterable[Decided]) -> Agreement:
    stand = [row for row in rows if row.action != "escalate" and not row.undone_by]

    def count(before: str, action: Action) -> int:
        return sum(row.before == before and row.action == action for row in stand)

    return Agreement(
        count(FLAGGED, "uphold"),
        count(FLAGGED, "approve"),
        count(NEEDS_REVIEW, "uphold"),
        count(NEEDS_REVIEW, "approve"),
    )


def _fits(row: Decided, wanted: Wanted) -> bool:
    if wanted.by and row.by != wanted.by:
        return False
    if wanted.did and row.action != wanted.did:
        return False
    if wanted.taken_back and bool(row.undone_by) != (wanted.taken_back == "yes"):
        return False
    if wanted.agreed and row.agreed is not (wanted.agreed == "yes"):
        return False
    text = f"{row.id}\n{row.note}".casefold()
    return all(word in text for word in wanted.q.casefold().split())


Place = tuple[str, str, str]


def _place(row: Decided) -> Place:
    return row.at, row.id, f"{row.turn}{row.action}"

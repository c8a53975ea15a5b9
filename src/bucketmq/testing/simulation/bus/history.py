"""What really happened to users' objects: every state of every key, from when it landed to when it ended."""

from __future__ import annotations

from collections.abc import Iterator

from bucketmq.bucket.port import Object
from bucketmq.events.event import plain_version
from bucketmq.procedures.objects.metadata import FROM, WRITE

LONG = float("inf")


class State:
    """One state of one user's object."""

    __slots__ = (
        "body",
        "ended_at",
        "ended_by",
        "ended_who",
        "from_mark",
        "key",
        "landed_at",
        "stored_at",
        "version",
        "who",
        "write",
    )

    def __init__(self, key: str, found: Object, who: str, landed_at: float) -> None:
        self.key = key
        self.body = found.body
        self.version = plain_version(found.version)
        self.stored_at = found.stored_at
        self.landed_at = landed_at
        self.who = who
        self.write = found.attributes.metadata.get(WRITE)
        self.from_mark = found.attributes.metadata.get(FROM)
        self.ended_at = LONG
        self.ended_by = ""
        """overwritten or deleted; empty while it lasts."""
        self.ended_who = ""

    def __repr__(self) -> str:
        return f"{self.key}@{self.version[:8]} ({self.body[:60].decode(errors='replace')})"


class Key:
    """All states of one key, in order."""

    __slots__ = ("deletions", "states")

    def __init__(self) -> None:
        self.states: list[State] = []
        self.deletions: list[float] = []

    @property
    def current(self) -> State | None:
        return self.states[-1] if self.states and self.states[-1].ended_at == LONG else None


class History:
    """Every key that ever had an object."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}

    def of(self, key: str) -> Key:
        found = self.keys.get(key)
        if found is None:
            found = self.keys[key] = Key()
        return found

    def current(self, key: str) -> State | None:
        found = self.keys.get(key)
        return found.current if found is not None else None

    def wrote(self, key: str, found: Object, who: str, now: float) -> tuple[State, State | None]:
        """A write landed: the new state, and the one it ended."""
        known = self.of(key)
        before = known.current
        if before is not None:
            before.ended_at, before.ended_by, before.ended_who = now, "overwritten", who
        state = State(key, found, who, now)
        known.states.append(state)
        return state, before

    def deleted(self, key: str, who: str, now: float) -> State | None:
        """A deletion landed: the state it ended."""
        known = self.of(key)
        before = known.current
        if before is not None:
            before.ended_at, before.ended_by, before.ended_who = now, "deleted", who
            known.deletions.append(now)
        return before

    def with_body(self, body: bytes) -> Iterator[State]:
        """Every state that ever had these bytes, whatever its key."""
        return (state for key in self.keys.values() for state in key.states if state.body == body)

    def below(self, prefix: str) -> list[State]:
        """What is there now under a prefix."""
        found = (key.current for name, key in self.keys.items() if name.startswith(prefix))
        return [state for state in found if state is not None]

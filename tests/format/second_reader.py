"""A reader of buckets, written from docs/format alone: it imports nothing of the library.

It is given the objects of a bucket as a dict and says what lies in each queue: which messages a shard holds, where its
log has holes, and in which state each offset is for each subscription. The section numbers are those of the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Objects = dict[str, bytes]

FORMAT = 1
STATES = ("held", "waiting", "moving")


class Damaged(Exception):
    """An object is not what the page says."""


@dataclass
class Shard:
    """What a shard's log holds for readers (4.2, 4.4)."""

    low: int = 0
    end: int = 0
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    """For each offset the base of its segment."""
    holes: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Standing:
    """How one subscription stands in one shard (5.1)."""

    next: int = 0
    segment: int = 0
    version: int = 0
    states: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Listed offsets: the state, and how many attempts were begun."""

    def state(self, offset: int) -> str:
        """The one state of an offset (5.2)."""
        if offset in self.states:
            return self.states[offset][0]
        return "fresh" if offset >= self.next else "settled"


@dataclass
class Queue:
    settings: dict[str, Any]
    shards: dict[int, Shard]
    heads: dict[tuple[str, int], Standing]
    delayed: list[dict[str, Any]]


def paused(queue: Queue, subscription: str) -> str | None:
    """Why nothing is handed out to a subscription (4.1)."""
    reasons = queue.settings.get("paused", {})
    found: str | None = reasons.get("*", reasons.get(subscription))
    return found


def queues(objects: Objects, prefix: str = "") -> list[str]:
    """The names of all queues (2)."""
    root = _join(prefix, "queues/")
    return sorted({key[len(root) :].split("/")[0] for key in objects if key.startswith(root)})


def read(objects: Objects, queue: str, prefix: str = "") -> Queue:
    root = _join(prefix, f"queues/{queue}/")
    inside = {key[len(root) :]: body for key, body in objects.items() if key.startswith(root)}
    settings = _document(inside, "queue.json") or {"format": FORMAT, "shards": 1}
    found = {int(key.split("/")[1].removesuffix(".json")) for key in inside if key.startswith(("log/", "trim/"))}
    heads = {}
    for key in inside:
        if key.startswith("heads/"):
            _, subscription, name = key.split("/")
            heads[subscription, int(name.removesuffix(".json"))] = _standing(inside, key)
    shards = {shard: _shard(inside, shard) for shard in sorted(found | set(range(settings["shards"])))}
    return Queue(settings, shards, heads, _delayed(inside))


def _shard(inside: Objects, shard: int) -> Shard:
    trim = _document(inside, f"trim/{shard}.json")
    low: int = trim["low"] if trim else 0
    made = Shard(low, low)
    folder = f"log/{shard}/"
    for key in sorted(key for key in inside if key.startswith(folder)):
        base = int(key[len(folder) :].removesuffix(".ndjson"))
        if base < low:
            continue  # no segment below the mark exists for readers (4.4)
        if base < made.end:
            raise Damaged(f"{key} begins inside the segment before it, which ends at {made.end}")
        if base > made.end:
            made.holes.append((made.end, base))
        for place, message in enumerate(_lines_of_segment(inside, key)):
            made.messages[base + place] = message
            made.bases[base + place] = base
            made.end = base + place + 1
    return made


def _lines_of_segment(inside: Objects, key: str) -> list[dict[str, Any]]:
    body = inside[key]
    if not body.startswith(b'{"parts"'):
        return _lines(inside, key)
    (line,) = _lines(inside, key)
    messages = []
    for part in line["parts"]:
        if part["key"] not in inside:
            raise Damaged(f"{part['key']} is missing though {key} names it")
        lines = _lines(inside, part["key"])
        if len(lines) != part["count"]:
            raise Damaged(f"{part['key']} has {len(lines)} lines, {key} says {part['count']}")
        messages += lines
    return messages


def _lines(inside: Objects, key: str) -> list[dict[str, Any]]:
    """Every line, the last one too, ends with a line feed, and there are no empty ones (3)."""
    body = inside[key]
    if not body.endswith(b"\n"):
        raise Damaged(f"{key} does not end with a line feed")
    try:
        return [json.loads(line) for line in body[:-1].split(b"\n")]
    except ValueError as error:
        raise Damaged(f"{key}: {error}") from error


def body_of(inside: Objects, root: str, message: dict[str, Any]) -> Any:
    """The body of a message, wherever it lies (4.2, 4.9)."""
    if "body_base64" in message:
        return base64.b64decode(message["body_base64"], validate=True)
    if "body_at" in message:
        raw = inside[_join(root, message["body_at"]["key"])]
        return json.loads(raw) if message["body_at"].get("json", True) else raw
    return message.get("body")


def _standing(inside: Objects, key: str) -> Standing:
    head = _document(inside, key)
    assert head is not None
    made = Standing(head["next"], head["segment"], head.get("version", 0))
    listed = [
        ("held", each["span"], each.get("attempt", 1)) for lease in head.get("leases", ()) for each in lease["held"]
    ]
    listed += [("waiting", each["span"], each.get("attempts", 0)) for each in head.get("waiting", ())]
    listed += [("moving", each["span"], each.get("attempts", 0)) for each in head.get("moving", ())]
    for state, (base, start, stop), attempts in listed:
        if not base <= start < stop <= made.next:
            raise Damaged(f"{key} lists {[base, start, stop]}, which is not below {made.next} (rule 1)")
        for offset in range(start, stop):
            if offset in made.states:
                raise Damaged(f"{key} lists offset {offset} twice (rule 1)")
            made.states[offset] = state, attempts
    numbers = [lease["number"] for lease in head.get("leases", ())]
    if len(set(numbers)) != len(numbers) or any(not 0 < each <= head.get("lease", 0) for each in numbers):
        raise Damaged(f"{key} has leases {numbers} of {head.get('lease', 0)} (rule 2)")
    if made.segment > made.next:
        raise Damaged(f"{key} reads from {made.segment}, behind {made.next} (rule 1)")
    return made


def _delayed(inside: Objects) -> list[dict[str, Any]]:
    """Messages that are still delayed: objects that have not arrived (4.7)."""
    register = _document(inside, "later.json") or {}
    finished = register.get("finished", {})
    keys = sorted(key for key in inside if key.startswith("later/") and key not in finished)
    return [message for key in keys for message in _lines(inside, key)]


def _document(inside: Objects, key: str) -> dict[str, Any] | None:
    if key not in inside:
        return None
    try:
        found = json.loads(inside[key])
    except ValueError as error:
        raise Damaged(f"{key}: {error}") from error
    if not isinstance(found, dict) or found.get("format", 0) > FORMAT:
        raise Damaged(f"{key} is of format {found.get('format') if isinstance(found, dict) else None!r}")
    return found


def _join(prefix: str, rest: str) -> str:
    return f"{prefix.rstrip('/')}/{rest}" if prefix else rest


def shard_of(shards: int, key: str) -> int:
    """The shard of a key (6.7): a jump consistent hash."""
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
    shard, candidate = -1, 0
    while candidate < shards:
        shard = candidate
        state = (state * 2862933555777941757 + 1) % (1 << 64)
        candidate = int((shard + 1) * (1 << 31) / ((state >> 33) + 1))
    return shard

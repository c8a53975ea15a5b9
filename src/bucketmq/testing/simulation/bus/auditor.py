"""The auditor of the event bus: sees every object as it lands and every event as it arrives, and says what must not be.

 * I7: each post ends in one outcome, nothing is destroyed on the way, and humans are notified of what is flagged.
 * I8: what a rule wants reaches it or its dead letters; nothing else does; ids stay; bookkeeping makes no events.
 * Moves, sweeps, fan-in and duplicates, each with its own sentence.

It knows what really happened (`history`) and never asks the code under test what should have.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from bucketmq.errors import BucketMQError
from bucketmq.events.event import ObjectEvent, event_id, seconds_of, time_text
from bucketmq.events.inventory import Manifest, decode_items
from bucketmq.events.rule import Rule, rule_of
from bucketmq.log import segment as lines
from bucketmq.log.documents import decode_head
from bucketmq.log.layout import base_of, is_bookkeeping, join
from bucketmq.procedures.objects.metadata import AGAIN, origin_mark
from bucketmq.procedures.objects.notes import Note, decode_note
from bucketmq.procedures.objects.report import REPLAY_HEADER
from bucketmq.queue.message import Message
from bucketmq.testing.simulation import population
from bucketmq.testing.simulation.bus.history import LONG, History, Key, State
from bucketmq.testing.simulation.bus.plan import AGAIN_SECONDS, OUTCOMES, Plan
from bucketmq.testing.simulation.bus.provider import Provider
from bucketmq.testing.simulation.bus.scenario import ARCHIVE, DEADLINE_SECONDS, HUMANS, Spec, rule_at
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import World

FOREIGN = "foreign"
COPIES = tuple(f"{name}/" for name in (*OUTCOMES, "kept"))
"""Where moves go to."""


class Post(msgspec.Struct):
    """What a post's body says."""

    id: str = ""
    n: int = 0
    verdict: str = ""


class Told(msgspec.Struct, frozen=True):
    """One line of the log of events."""

    event: ObjectEvent
    to: str | None
    at: float
    place: int
    """In which order they were told."""


class Auditor(population.Auditor):
    """A `store.Witness`, and the endpoints' ear."""

    def __init__(self, plan: Plan, world: World, store: SimStore, provider: Provider) -> None:
        super().__init__(world)
        self.plan = plan
        self.store = store
        self.provider = provider
        self.history = History()
        self.specs: dict[str, Spec] = {}
        self.began: dict[str, float] = {}
        """Since when a rule must see everything."""
        self.asked: dict[str, float] = {}
        """Before when what was told is not for a rule that is to begin with what comes."""
        self.existing: set[str] = set()
        """Rules that must also see what was there before and is still."""
        self.rules: dict[str, Rule] = {}
        """As they lie in the bucket."""
        self.arrived_at: dict[tuple[str, str, str | None], float] = {}
        """For each rule, key and version (None for a deletion), when it arrived last."""
        self.arrivals: Counter[tuple[str, str]] = Counter()
        """By rule and event id."""
        self.webhook_ids: dict[tuple[str, str], set[str]] = {}
        self.told: dict[str, list[Told]] = {}
        """By event id."""
        self.told_states: dict[State, set[str]] = {}
        """For each state which sources reported it to everybody."""
        self.gone_told: dict[tuple[str, float], str] = {}
        """Deletions that were reported to everybody: key and moment."""
        self.ids: dict[tuple[State, str], set[str]] = {}
        """Under which ids a state was reported, by each source that must always use the same."""
        self.last_place: dict[tuple[str, str], int] = {}
        """For each rule and key the place of the event that arrived last for the first time."""
        self.meant: set[tuple[str, str]] = set()
        """Which process deletes which key on purpose."""
        self.inventory: dict[str, dict[str, tuple[str | None, float]]] = {}
        """For each chunk its keys, with version and time."""
        self.manifests: dict[str, Manifest] = {}
        self.busy: dict[str, bool] = {}
        """For each head whether anything is in somebody's hands."""
        self.fired: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
        """For each set of the fan-in when its handler ended well, and what was missing."""
        self.active_at = 0.0
        """When something last happened that may lead to more."""
        self.events = 0
        self._root = f"{plan.prefix}/" if plan.prefix else ""

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        """Something changed in the store."""
        name = key.removeprefix(self._root)
        bookkeeping = is_bookkeeping(name)
        found = self.store.objects.get(key)
        self.provider.changed(key, None if found is None else found.version, len(body or b""), bookkeeping=bookkeeping)
        if bookkeeping:
            try:
                self._own(name, body)
            except (BucketMQError, msgspec.MsgspecError) as error:
                self.problem(f"{name} was written so that it cannot be read: {error}")
            return
        self.active_at = self.world.now
        if found is None:
            before = self.history.deleted(name, who, self.world.now)
            if before is not None and who != FOREIGN:
                self.world.after(0.0, self._check_deleted, who, before)
            return
        state, before = self.history.wrote(name, found, who, self.world.now)
        if before is not None and who != FOREIGN:
            self._check_overwritten(who, before, state)

    # Users' objects (I7)

    def _check_deleted(self, who: str, before: State) -> None:
        """A process of ours ended a state: it meant to, or there is a copy, or it took back its own copy."""
        if self._on_purpose(who, before.key):
            return
        if before.key.startswith(COPIES):
            self.world.covered["move undone"] += 1
            if all(
                state.ended_by == "deleted" and not self._on_purpose(state.ended_who, state.key)
                for state in self.history.with_body(before.body)
                if not state.key.startswith(COPIES) and state.landed_at <= before.landed_at
            ):
                self.problem(f"destroyed: {who} deleted {before}, the only copy of what was moved there")
            return
        if not any(
            state.key.startswith(COPIES) and state.ended_at > before.landed_at
            for state in self.history.with_body(before.body)
        ):
            self.problem(f"destroyed: {who} deleted {before}, and there is no copy of it")

    def _on_purpose(self, who: str, key: str) -> bool:
        return who == FOREIGN or (who, key) in self.meant

    def _check_overwritten(self, who: str, before: State, after: State) -> None:
        """A move may only write over what is there if it was told to, and never an older post over a newer."""
        if after.from_mark is None or not after.key.startswith(COPIES) or before.body == after.body:
            return
        if self.plan.moving != "replace" or before.key.startswith("kept/"):
            self.problem(f"destroyed: {who} moved {after} over {before}")
        elif self._submitted_at(before.body) > self._submitted_at(after.body):
            self.problem(f"destroyed: {who} moved {after} over {before}, which came later")

    def _submitted_at(self, body: bytes) -> float:
        """When a post was last put into pending/."""
        posts = (state for state in self.history.with_body(body) if state.key.startswith("pending/"))
        return max((state.landed_at for state in posts), default=0.0)

    # Our own objects

    def _own(self, name: str, body: bytes | None) -> None:
        parts = name.split("/")
        if parts[0] == "queues" and body is not None:
            if parts[2] == "log":
                self._appended(parts[1], base_of(name), body)
            elif parts[2] == "heads" and parts[1] == "events":
                head = decode_head(body, name)
                self.busy[name] = bool(head.leases or head.waiting or head.moving)
                if head.leases:
                    self.active_at = self.world.now
        elif parts[0] == "queues" and parts[1:3] == ["events", "heads"]:
            self.busy.pop(name, None)
        elif parts[0] == "rules" and len(parts) == 2 and not name.endswith(".secrets.json"):
            rule = parts[1].removesuffix(".json")
            if body is None:
                self.rules.pop(rule, None)
                self.world.covered["removed rule tidied"] += 1
            else:
                self.rules[rule] = msgspec.json.decode(body, type=Rule)
        elif parts[:2] == ["inventory", "sweeps"]:
            self._swept(parts, body)
        elif parts[:2] == ["inventory", "notes"] and body is not None:
            decode_note(body, name)

    def _swept(self, parts: list[str], body: bytes | None) -> None:
        if parts[3] == "manifest.json":
            if body is not None:
                self.manifests[parts[2]] = msgspec.json.decode(body, type=Manifest)
        elif body is None:
            self.inventory.pop(parts[4], None)
        else:
            items = decode_items(body, parts[4]) if body.strip() else []
            self.inventory[parts[4]] = {item.key: (item.version, item.stored_at) for item in items}

    def inventoried(self) -> dict[str, tuple[str | None, float]]:
        """What the last committed sweep of everything believes to be there."""
        manifest = self.manifests.get("all")
        found: dict[str, tuple[str | None, float]] = {}
        for chunk in manifest.chunks if manifest is not None else ():
            found.update(self.inventory.get(chunk.name + ".ndjson", {}))
        return found

    def _appended(self, queue: str, base: int, body: bytes) -> None:
        if queue not in ("events", "events.dead", ARCHIVE):
            return
        segment = lines.Segment(base, body)
        for message in segment.messages(base, segment.end):
            if queue == "events":
                if message.move is None:
                    self._told(message)
            elif queue == ARCHIVE:
                event = msgspec.convert(message.body, ObjectEvent)
                self.arrived(ARCHIVE, (message.headers or {})["event-id"], event)
            elif message.died is not None:
                self._died(message)
        self.active_at = self.world.now

    def _died(self, message: Message) -> None:
        assert message.died is not None
        rule = rule_of(message.died.subscription)
        try:
            event = msgspec.convert(message.body, ObjectEvent)
        except msgspec.ValidationError:
            return
        self.world.covered["dead letter"] += 1
        self.world.note("AUDIT", f"dead letter of {rule}: {event.key} {event.id}")
        if rule is not None:
            self._mark(rule, event)

    # The log of events

    def _told(self, message: Message) -> None:
        try:
            event = msgspec.convert(message.body, ObjectEvent)
        except msgspec.ValidationError:
            if message.to is None:
                self.problem(f"the log of events was given something else: {message.body}")
            return
        self.events += 1
        if is_bookkeeping(event.key) or event.key.startswith(self._root or "\0"):
            self.problem(f"an event about bookkeeping: {event.key} ({event.source})")
            return
        if (message.headers or {}).get(REPLAY_HEADER):
            self.world.covered["replayed"] += 1
            if message.to is None:
                self.problem(f"{event.id} ({event.key}) was replayed to everybody")
        state, deleted_at = self._attributed(event)
        self.told.setdefault(event.id, []).append(Told(event, message.to, self.world.now, self.events))
        if state is not None and message.to is None:
            self.told_states.setdefault(state, set()).add(event.source)
        if deleted_at is not None and message.to is None:
            self.gone_told[event.key, deleted_at] = event.source
        if state is not None and event.source in ("sweep", "writer"):
            ids = self.ids.setdefault((state, event.source), set())
            ids.add(event.id)
            if len(ids) > 1:
                self.problem(f"one change, two ids: {state} was reported by {event.source} as {sorted(ids)}")

    def _attributed(self, event: ObjectEvent) -> tuple[State | None, float | None]:
        """What an event is about: a state, or the moment of a deletion. It is a problem if there was no such thing."""
        known = self.history.keys.get(event.key)
        states = known.states if known is not None else []
        if event.kind == "deleted":
            return None, self._deletion(event, states)
        about = [state for state in states if self._is_about(event, state)]
        about = [state for state in about if state.version == event.version] or about
        if about:
            # A request may land twice under one id: what is reported again about it is not new.
            first = event.id not in self.told or event.source != "writer"
            return (min(about, key=lambda state: abs(state.landed_at - seconds_of(event.at))) if first else None), None
        if event.kind == "moved" and self.plan.renames and event.from_key in self.history.keys:
            return None, None  # a rename keeps what is written beside the object, so nobody can tell its writes apart
        self.problem(f"invented: {event.source} tells that {event.key} was {event.kind} ({event.version}), it was not")
        return None, None

    def _is_about(self, event: ObjectEvent, state: State) -> bool:
        if event.source == "writer":
            verb = "move" if event.kind == "moved" else "put"
            if event.version != state.version and event.kind != "moved":
                return False
            return state.write is not None and event.id == event_id("writer", "", event.key, verb, state.write)
        if event.version != state.version:
            return False
        if event.source == "sweep":
            return event.at == time_text(state.stored_at)
        return event.at[:-4] == time_text(state.landed_at)[:-4]

    def _deletion(self, event: ObjectEvent, states: list[State]) -> float | None:
        """When the deletion was that an event reports."""
        if event.source == "writer":
            if event.key not in {key for _, key in self.meant}:
                self.problem(f"invented: a writer tells that {event.key} was deleted, and nobody did")
            return None
        for state in reversed(states):
            if event.source == "sweep":
                if event.version == state.version and event.seen_at == time_text(state.stored_at):
                    later = [each.ended_at for each in states if each.ended_by == "deleted"]
                    moments = [moment for moment in later if moment > state.landed_at]
                    if moments:
                        return min(moments)
            elif state.ended_by == "deleted" and event.at[:-4] == time_text(state.ended_at)[:-4]:
                return state.ended_at
        self.problem(f"invented: {event.source} tells that {event.key} ({event.version}) was deleted, it was not")
        return None

    # Arrivals (I8)

    def posted(self, url: str, webhook_id: str, event: ObjectEvent) -> None:
        """An endpoint processed an event."""
        self.arrived(rule_at(url), webhook_id, event)

    def arrived(self, rule: str, webhook_id: str, event: ObjectEvent) -> None:
        self.active_at = self.world.now
        self.world.note("AUDIT", f"{rule} was given {event.kind} {event.key} {event.version} {event.id}")
        spec = self.specs[rule]
        if not spec.wants(event.key, event.kind):
            self.problem(f"{rule} was given {event.kind} {event.key}, which it does not want")
        lines_ = self.told.get(event.id, [])
        if not any(rule_of(line.to) == rule if line.to else True for line in lines_):
            self.problem(f"{rule} was given {event.id} ({event.key}), which was for {[line.to for line in lines_]}")
        if lines_ and all(line.to is None and line.at < self.asked.get(rule, 0.0) for line in lines_):
            self.problem(f"{rule} was given {event.id} ({event.key}), which was told before there was such a rule")
        places = [line.place for line in lines_ if line.to is None]
        if spec.rule.policy.ordered and places and not self.arrivals[rule, event.id]:
            self._check_order(rule, event, places[0])
        self.arrivals[rule, event.id] += 1
        ids = self.webhook_ids.setdefault((rule, event.id), set())
        ids.add(webhook_id)
        if self.plan.batch == 1 and ids != {event.id}:
            self.problem(f"{rule} was given {event.id} under the webhook-ids {sorted(ids)}")
        self._mark(rule, event)

    def _check_order(self, rule: str, event: ObjectEvent, place: int) -> None:
        """What a rule in order is given of one key for the first time follows the log."""
        last = self.last_place.get((rule, event.key), 0)
        if place < last:
            self.problem(f"{rule} was given {event.id} ({event.key}) after what was told later of the same key")
        self.last_place[rule, event.key] = max(place, last)

    def _mark(self, rule: str, event: ObjectEvent) -> None:
        version = None if event.kind == "deleted" else event.version
        self.arrived_at[rule, event.key, version] = self.world.now
        if event.kind == "moved" and event.from_key is not None:
            self.arrived_at[rule, event.from_key, None] = self.world.now  # it says that it is not there any more

    # What our own writers did, when their notes are seen to and before a sweep helps out

    def check_reported(self, under_way: set[str]) -> None:
        """Whatever became of a writer of ours: what it has written or deleted, and is so still, was reported. Writes
        that are under way are not judged."""
        if self.plan.renames:
            return  # what was renamed has the mark of the write before
        told = {(state.key, (state.write or "").removesuffix(AGAIN)) for state in self.told_states}
        for name, known in self.history.keys.items():
            state = known.states[-1] if known.states else None
            if state is None or state.who == FOREIGN:
                continue
            if state.ended_at == LONG:
                if state.write is None or state.write in under_way:
                    continue
                if (name, state.write.removesuffix(AGAIN)) not in told and state not in self.told_states:
                    self.problem(f"unreported: {state.who} wrote {state}, and nobody reported it")
            elif (state.ended_who, name) in self.meant and self._gone_at(name) < state.ended_at:
                self.problem(f"unreported: {state.ended_who} deleted {state}, and nobody reported it")

    def _gone_at(self, key: str) -> float:
        """When it was last told that a key is gone, be it to another place."""
        lines = (line for told in self.told.values() for line in told if line.to is None)
        gone = (line.at for line in lines if _leaves(line.event) == key)
        return max(gone, default=0.0)

    # The end

    def is_idle(self) -> bool:
        return not any(self.busy.get(name) for name in self.busy if self._counts(name))

    def _counts(self, head: str) -> bool:
        rule = rule_of(head.split("/")[3])
        found = self.rules.get(rule or "")
        return found is not None and found.removed_at is None and found.subscription == head.split("/")[3]

    def close(self, deleted_before: set[str], old_notes: list[Note]) -> None:
        """Balance the books. `deleted_before`: keys an inventory had that are gone; `old_notes`: those still there."""
        for note in old_notes:
            there = self.history.current(note.key if note.verb == "put" else note.target or "")
            mark = origin_mark(note.key, note.version or "")
            done = there is not None and (there.write == note.write if note.verb == "put" else there.from_mark == mark)
            if done:
                self.problem(f"nobody saw to the note of the {note.verb} of {note.key}, though {there} is there")
        for name, spec in self.specs.items():
            rule = self.rules.get(name)
            if rule is not None and rule.removed_at is None:
                self._check_rule(spec, deleted_before)
        if self.plan.calm:
            for (name, id_), count in self.arrivals.items():
                replays = sum(line.to is not None for line in self.told[id_])
                if count > 1 + replays:
                    self.problem(f"{name} was given {id_} {count} times, and nothing had gone wrong")
        self._check_moves()
        if self.plan.moderation:
            self._check_posts()
        if self.plan.fan_in:
            self._check_sets()

    def _check_rule(self, spec: Spec, deleted_before: set[str]) -> None:
        name, began = spec.rule.name, self.began[spec.rule.name]
        for key, known in self.history.keys.items():
            if not spec.wants(key, "created"):
                continue
            for state in known.states:
                last = state.ended_at == LONG
                if state.landed_at < began and not (last and name in self.existing):
                    continue
                if not (last or (spec.all_states and state in self.told_states)) or self._doubtful(known.states, state):
                    continue
                arrived = self.arrived_at.get((name, key, state.version), 0.0)
                if arrived < state.landed_at:
                    told = sorted(self.told_states.get(state, ()))
                    self.problem(
                        f"missed: {name} was never given {state} of {time_text(state.landed_at)}, "
                        f"{'which is there' if last else 'which was there'}; told by {told}"
                    )
            if not spec.deletions or not known.deletions:
                continue
            self._check_deletions(spec, key, known, final=key in deleted_before and known.current is None)

    def _check_deletions(self, spec: Spec, key: str, known: Key, *, final: bool) -> None:
        """Deletions that were told arrive; and where an object is gone for good, that is the last word about it."""
        name, arrived = spec.rule.name, self.arrived_at.get((spec.rule.name, key, None), 0.0)
        for moment in known.deletions:
            if (key, moment) in self.gone_told and spec.all_states and arrived < moment:
                self.problem(
                    f"missed: {name} was never told that {key} was deleted at {time_text(moment)}; "
                    f"told by {self.gone_told[key, moment]}"
                )
        last = max((state.landed_at for state in known.states if state in self.told_states), default=0.0)
        if final and arrived < max(last, known.states[0].landed_at):
            self.problem(f"missed: {name} was never told that {key} is gone since {time_text(known.deletions[-1])}")

    def _check_moves(self) -> None:
        """No move is left half done: what was moved is not in its old place any more."""
        for state in self.history.below("docs/"):
            mark = origin_mark(state.key, state.version)
            for copy in self.history.below("kept/"):
                if copy.from_mark == mark and copy.landed_at > state.landed_at:
                    self.problem(f"half a move: {state} was moved to {copy.key}, and is still there")

    def _doubtful(self, states: list[State], state: State) -> bool:
        """Whether the same bytes were put twice within moments on a store that cannot tell: a known weakness."""
        return len(self._alike(states, state)) > 1

    def _alike(self, states: list[State], state: State) -> list[State]:
        """A state, and those of the same bytes within moments of it on a store that cannot tell them apart."""
        return [
            each
            for each in states
            if each is state
            or (
                self.plan.content_versions
                and each.version == state.version
                and abs(each.landed_at - state.landed_at) <= AGAIN_SECONDS
            )
        ]

    def _check_posts(self) -> None:
        """I7."""
        for state in self.history.below("pending/"):
            self.problem(f"I7: {state} is still in pending/")
        posts: dict[str, State] = {}
        for key, known in self.history.keys.items():
            if key.startswith("pending/") and known.states:
                posts[key] = known.states[-1]
        ends = [state for outcome in OUTCOMES for state in self.history.below(f"{outcome}/")]
        for key, last in posts.items():
            found = [state for state in ends if state.body == last.body]
            same = sum(state.body == last.body for state in self.history.keys[key].states)
            if last.ended_at != LONG and not 1 <= len(found) <= same and (found or not self._was_replaced(last)):
                self.problem(f"I7: the last state of {key}, {last}, is at {[each.key for each in found]}")
        for state in self.history.below("flagged/"):
            if state.from_mark is None:
                continue
            arrived = self.arrived_at.get((HUMANS, state.key, state.version), 0.0)
            if arrived < min(each.landed_at for each in self._alike(self.history.keys[state.key].states, state)):
                self.problem(f"I7: no human was notified of {state}")

    def _was_replaced(self, post: State) -> bool:
        """Whether a post was in an outcome and somebody wrote over it there."""
        return any(
            state.key.startswith(COPIES) and state.ended_by == "overwritten"
            for state in self.history.with_body(post.body)
        )

    def _check_sets(self) -> None:
        complete: dict[str, list[State]] = {}
        for key, known in self.history.keys.items():
            if key.startswith("parts/") and known.states:
                complete.setdefault(key.split("/")[1], []).append(known.states[0])
        for name, parts in complete.items():
            fired = self.fired.get(name, [])
            whole = len(parts) == 2
            if not fired and (whole or self.plan.deadline):
                self.problem(f"fan-in: the set {name} ({len(parts)} of 2) never fired")
            if len(fired) > 1 and self.plan.calm:
                self.problem(f"fan-in: the set {name} fired {len(fired)} times, and nothing had gone wrong")
            for _, missing in fired:
                self.world.covered["deadline fired" if missing else "set complete"] += 1
                if missing and not self.plan.deadline:
                    self.problem(f"fan-in: the set {name} fired without {missing}, and there was no deadline")
                expected = {f"parts/{name}/{part}.json" for part in "ab"} - {part.key for part in parts}
                if not whole and set(missing) != expected:
                    self.problem(f"fan-in: the set {name} fired without {missing}, missing is {sorted(expected)}")
            first = min(part.landed_at for part in parts)
            early = [moment for moment, missing in fired if missing and moment < first + DEADLINE_SECONDS - 1.5]
            if early:
                self.problem(f"fan-in: the set {name} fired incomplete {early[0] - first:.1f} s after its first part")


def _leaves(event: ObjectEvent) -> str | None:
    """The key that an event says is free."""
    return event.key if event.kind == "deleted" else event.from_key


def post_of(body: bytes) -> Post:
    try:
        return msgspec.json.decode(body, type=Post)
    except msgspec.MsgspecError:
        return Post()


def full_key(plan: Plan, key: str) -> str:
    return join(plan.prefix, key)

"""The auditor of tables: sees every object as it lands, and keeps a plain dict beside the table.

1. Each head that lands is the one before it with one or several whole commits applied, each for the first time.
2. A commit that returned is in the table, and says which groups were newer.
3. A reader sees a state that the table had between the begin and the end of its call; of a snapshot, its own.
4. A file that a head names is there, and stays for the promised time after the last head that named it.
5. A file that no head names goes, in the end.

It knows what was asked (`plan`) and never asks the code under test what should have come of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from bucketmq.procedures.tables.files import decode
from bucketmq.procedures.tables.opened import decode_head
from bucketmq.tables.head import Head
from bucketmq.testing.simulation import population
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.tables.plan import Drop, Plan, Planned, Put
from bucketmq.testing.simulation.world import World

ROOT = "tables/t/"
HEAD = f"{ROOT}head.json"

CLOCKS_SECONDS = 7.0
"""By so much two processes may differ about how long ago something was."""

Row = tuple[str, int, int, str]
"""Group, key, state, and the token of the commit that put it."""
Rows = frozenset[Row]


class Model:
    """Groups as plain dicts."""

    def __init__(self, guarded: bool) -> None:
        self.guarded = guarded
        self.groups: dict[str, dict[int, Row]] = {}
        self.gone: dict[str, int] = {}

    def copy(self) -> Model:
        made = Model(self.guarded)
        made.groups = {group: dict(rows) for group, rows in self.groups.items()}
        made.gone = dict(self.gone)
        return made

    def rows(self) -> Rows:
        return frozenset(row for rows in self.groups.values() for row in rows.values())

    def apply(self, commit: Planned) -> set[str]:
        """Apply a commit; returns the groups that were newer."""
        stale = {change.group for change in commit.changes if not self._change(change, commit.token)}
        self._change(Put(commit.token, (0,), 0, whole=True), commit.token)
        return stale

    def _change(self, change: Put | Drop, token: str) -> bool:
        rows = self.groups.get(change.group, {})
        state = max([*(row[2] for row in rows.values()), self.gone.get(change.group, -1)])
        comes = change.rev if isinstance(change, Put) else change.newer
        if self.guarded and comes is not None and state > comes:
            return False
        if isinstance(change, Put):
            kept = {} if change.whole else dict(rows)
            kept |= {key: (change.group, key, change.rev, token) for key in change.keys}
        else:
            kept = {key: row for key, row in rows.items() if change.keys is not None and key not in change.keys}
        self.groups[change.group] = kept
        self.gone[change.group] = max(state, -1 if comes is None else comes)
        return True


class TableState(msgspec.Struct, frozen=True):
    """One version of the table."""

    rows: Rows
    files: frozenset[str]


class Auditor(population.Auditor):
    """What has landed, and what is wrong with it."""

    def __init__(self, plan: Plan, world: World, store: SimStore) -> None:
        super().__init__(world)
        self.store = store
        self.commits = plan.commits
        self.model = Model(plan.shape["newer_by"] is not None)
        self.seen: list[TableState] = [TableState(frozenset(), frozenset())]
        """By version."""
        self.applied: dict[str, list[set[str]]] = {}
        """The commits that are in, and which groups were newer than they: several answers, where commits rode together
        in an order that their rows do not tell."""
        self.unnamed_since: dict[str, float] = {}
        """For each file that is there and in no head: since when."""

    @property
    def version(self) -> int:
        return len(self.seen) - 1

    def add(self, commit: Planned) -> None:
        """A commit that was not planned, to keep the table alive."""
        self.commits[commit.token] = commit

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        try:
            if key == HEAD and body is not None:
                self._head(who, decode_head(body, key))
            elif key.startswith(f"{ROOT}data/"):
                self._file(who, key.removeprefix(ROOT), body)
        except Exception as error:  # the simulator would take it for one of the process'
            self.problem(f"{who} wrote {key}: {error!r}")

    def _file(self, who: str, file: str, body: bytes | None) -> None:
        if body is not None:
            self.unnamed_since[file] = self.world.now
            return
        self.world.covered["file removed"] += 1
        if file in self.seen[-1].files:
            self.problem(f"{who} removed {file}, which the head names")
            return
        age = self.world.now - self.unnamed_since.pop(file)
        named = any(file in version.files for version in self.seen)
        if age < self.keep_seconds - CLOCKS_SECONDS and named:
            self.problem(f"{who} removed {file} {age:.1f} s after the last head that named it")

    keep_seconds = 0.0
    """How long a file stays after the last head that named it."""

    def _head(self, who: str, head: Head) -> None:
        if head.version != self.version + 1:
            self.problem(f"{who} wrote version {head.version} after {self.version}")
        rows = self._rows(head)
        new = [row[0] for row in rows if row[0] in self.commits and row[0] not in self.applied]
        if not new:
            self.problem(f"{who} wrote version {head.version}, which has no commit that was not in before")
        self._explain(who, head, rows, sorted(new))
        covered = self.world.covered
        covered["rode together"] += len(new) > 1
        covered["shard split"] += len(head.shards) > len(self.seen[-1].files) > 0
        covered["several shards"] += len(head.files - self.seen[-1].files) > 1
        for file in self.seen[-1].files - head.files:
            self.unnamed_since[file] = self.world.now
        for file in head.files:
            self.unnamed_since.pop(file, None)
        self.seen.append(TableState(rows, head.files))

    def _rows(self, head: Head) -> Rows:
        found: list[Row] = []
        for shard in head.shards:
            there = self.store.objects.get(ROOT + shard.file)
            if there is None:
                self.problem(f"version {head.version} names {shard.file}, which is not there")
                continue
            rows = decode(there.body, shard.file, sha256=shard.sha256).rows
            if rows.num_rows != shard.rows:
                self.problem(f"{shard.file} has {rows.num_rows} rows, the head says {shard.rows}")
            found += rows_of(rows)
        if len(set(found)) != len(found) or len({row[:2] for row in found}) != len(found):
            self.problem(f"version {head.version} has a row twice")
        return frozenset(found)

    def _explain(self, who: str, head: Head, rows: Rows, new: list[str]) -> None:
        """Find the orders in which these commits make the new rows of the old ones."""
        ways = [self._in_order(order) for order in itertools.permutations(new)]
        right = [(model, stale) for model, stale in ways if model.rows() == rows]
        self.model, _ = (right or ways)[0]
        self.applied |= {token: [stale[token] for _, stale in right or ways] for token in new}
        if not right:
            expected = self.model.rows()
            self.problem(
                f"{who} wrote version {head.version} with {new}: {_told(rows - expected)} too many, "
                f"{_told(expected - rows)} missing"
            )

    def _in_order(self, order: Iterable[str]) -> tuple[Model, dict[str, set[str]]]:
        """What the table becomes, and which groups are newer than each of these commits."""
        model = self.model.copy()
        return model, {token: model.apply(self.commits[token]) for token in order}

    def returned(self, commit: Planned, stale: Iterable[object], *, already: bool) -> None:
        """A caller was told that its commit is in."""
        if commit.token not in self.applied:
            self.problem(f"commit {commit.token} returned and is not in the table")
        elif not already and set(stale) not in self.applied[commit.token]:
            self.problem(f"commit {commit.token} says {stale} are newer, it was {self.applied[commit.token]}")

    def read(self, who: str, rows: Any, first: int, last: int) -> None:
        """A reader has got the table as of one of these versions."""
        found = rows_of(rows)
        if not any(frozenset(found) == self.seen[version].rows for version in range(first, last + 1)):
            self.problem(f"{who} read a state that the table did not have in versions {first} to {last}")
        if len(set(found)) != len(found):
            self.problem(f"{who} read a row twice")

    def leftovers(self, older_seconds: float) -> list[str]:
        """Files that no head names for so long."""
        return sorted(file for file, since in self.unnamed_since.items() if self.world.now - since > older_seconds)


def rows_of(rows: Any) -> list[Row]:
    return [(row["doc"], row["id"], row["rev"], row["by"]) for row in rows.to_pylist()]


def _told(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows)[:4]

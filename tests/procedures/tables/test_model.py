"""A table and a plain dict that get the same changes have the same rows, whatever the changes and the splits."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bucketmq.procedures.tables import files
from bucketmq.tables import Delete, Replace, Upsert
from procedures.world import World

Row = dict[str, Any]
GROUPS, KEYS, STATES = st.integers(0, 5).map(lambda n: f"g{n}"), st.integers(0, 3), st.integers(0, 6)


@st.composite
def rows(draw: st.DrawFn, group: str, state: int) -> list[Row]:
    keys = draw(st.lists(KEYS, max_size=4))
    return [{"id": key, "doc": group, "rev": state, "text": draw(st.text(max_size=3)) + "x" * 200} for key in keys]


@st.composite
def changes(draw: st.DrawFn) -> Any:
    kind, group, state = draw(st.sampled_from(["upsert", "replace", "delete", "keys"])), draw(GROUPS), draw(STATES)
    newer = draw(st.sampled_from([None, state]))
    if kind == "upsert":
        first = draw(rows(group, state))
        other = draw(rows(draw(GROUPS), draw(STATES)))
        return Upsert([*first, *other] or [{"id": 0, "doc": group, "rev": state, "text": ""}])
    if kind == "replace":
        given_rows = draw(rows(group, state)) or [{"id": 0, "doc": group, "rev": state, "text": ""}]
        return Replace(given_rows, group)
    if kind == "delete":
        return Delete([group, draw(GROUPS)], newer)
    return Delete([group], newer, keys=[draw(KEYS)])


class Model:
    """Groups as plain dicts."""

    def __init__(self, grouped: bool, guarded: bool) -> None:
        self.grouped, self.guarded = grouped, guarded
        self.groups: dict[Any, dict[int, Row]] = {}
        self.known: dict[Any, int] = {}
        """The newest state that each group ever had: a deletion may be newer than any row that is left."""

    def by(self, row: Row) -> Any:
        return row["doc"] if self.grouped else row["id"]

    def state(self, group: Any) -> int:
        states = [row["rev"] for row in self.groups.get(group, {}).values()]
        return max([*states, self.known.get(group, -1)])

    def change(self, change: Any) -> None:
        match change:
            case Delete(groups=groups, newer=newer, keys=keys):
                for group in dict.fromkeys(groups):
                    self.put(group, [], newer if self.guarded else None, keys)
            case Upsert(rows=rows) | Replace(rows=rows):
                whole = isinstance(change, Replace) or not self.grouped
                for group in dict.fromkeys(self.by(row) for row in rows):
                    its = [row for row in rows if self.by(row) == group]
                    newest = max(row["rev"] for row in its)
                    self.put(group, its, newest if self.guarded else None, None if whole else ())

    def put(self, group: Any, rows: list[Row], newer: int | None, keys: Any) -> None:
        """Put rows into a group; `keys` says which go besides, None for all."""
        before = self.state(group)
        if newer is not None and before > newer:
            return
        kept = {} if keys is None or not self.grouped else dict(self.groups.get(group, {}))
        for key in keys or ():
            kept.pop(key, None)
        for row in sorted(rows, key=lambda row: row["rev"]) if self.guarded else rows:
            kept[row["id"]] = row
        self.groups[group] = kept
        self.known[group] = max(before, -1 if newer is None else newer)

    def rows(self) -> list[Row]:
        return sorted((row for group in self.groups.values() for row in group.values()), key=_name)


def _name(row: Row) -> Any:
    return row["doc"], row["id"]


def for_rows(change: Any) -> Any:
    """A change of groups as one of rows, for a table that has no groups."""
    match change:
        case Delete(groups=groups, newer=newer):
            return Delete([int(group[1:]) for group in groups], newer)
        case Replace(rows=rows):
            return Upsert(rows)
    return change


COMMITS = st.lists(st.lists(changes(), min_size=1, max_size=3), max_size=8)


def run(grouped: bool, guarded: bool, commits: list[list[Any]]) -> None:
    world, model = World(), Model(grouped, guarded)
    shape = {"key": "id", "group": "doc" if grouped else None, "newer_by": "rev" if guarded else None}
    empty = [{"id": 0, "doc": "g0", "rev": 0, "text": ""}]
    with patch.object(files, "SPLIT_BYTES", 2_500):
        table = world.connect().table("t", **shape)
        table.upsert(empty)
        model.change(Upsert(empty))
        for commit in commits:
            its = [change if grouped else for_rows(change) for change in commit]
            its = [
                each if guarded or not isinstance(each, Delete) else Delete(each.groups, None, each.keys)
                for each in its
            ]
            table.commit(*its)
            for change in its:
                model.change(change)
            assert sorted(table.read().to_pylist(), key=_name) == model.rows()
        for group in model.groups:
            wanted = {"groups": [group]} if grouped else {"keys": [group]}
            got = world.connect().table("t").read(**wanted).to_pylist()
            assert sorted(got, key=_name) == sorted(model.groups[group].values(), key=_name)
        assert table.snapshot().rows == len(model.rows())
    world.close()


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.booleans(), COMMITS)
def test_a_table_has_the_rows_that_a_dict_has(grouped: bool, guarded: bool, commits: list[list[Any]]) -> None:
    run(grouped, guarded, commits)


PLANTED = {
    "what is newer does not count": ("_states", lambda *_: {}),
    "what a group had stays": ("_kept", lambda theirs, *_: [True] * theirs.num_rows),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    name, instead = PLANTED[bug]
    hunt = settings(max_examples=300, deadline=None, database=None, phases=[Phase.generate], derandomize=True)
    with patch.object(files, name, instead), pytest.raises(AssertionError):
        hunt(given(st.booleans(), st.just(True), COMMITS)(run))()

"""What a commit does to a table, as values: rows to put, groups to replace, groups or rows to delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from bucketmq.tables.head import GroupValue

Rows = Any
"""An Arrow table or record batch, a DataFrame of pandas or Polars, or a list of dicts."""


class Upsert(msgspec.Struct, frozen=True):
    """Put rows: each takes the place of the row of its group with the same key, if there is one."""

    rows: Rows


class Replace(msgspec.Struct, frozen=True):
    """Put rows in place of everything that their groups have; `group` is needed where there may be no rows."""

    rows: Rows
    group: GroupValue | None = None
    newer: int | datetime | None = None
    """The state of the group, where there are no rows to tell it."""


class Delete(msgspec.Struct, frozen=True):
    """Delete everything that groups have, or of one group the rows with these keys."""

    groups: Sequence[GroupValue]
    newer: int | datetime | None = None
    """The state that says so: a group that is newer stays, and an older one that comes late does not return."""
    keys: Sequence[GroupValue] | None = None


Change = Upsert | Replace | Delete

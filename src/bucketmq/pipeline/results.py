"""What a stage may say of each row it was given: made, failed, or not now. And how a chain reads it.

Finding out which row raised is `pipeline.bisection`, which a stage that says it itself never needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.pipeline.fitting import Misshapen

if TYPE_CHECKING:
    import pyarrow as pa

DELAY_SECONDS = 60.0
DELAY_SECONDS_MAX = 7 * 86400.0


class Later(msgspec.Struct, frozen=True):
    """Not now: the row comes back after `delay_seconds`, until its stage's `later_max` is reached."""

    delay_seconds: float = DELAY_SECONDS
    reason: str = "the stage asked for it"

    def __post_init__(self) -> None:
        if not 0 <= self.delay_seconds <= DELAY_SECONDS_MAX:
            raise Invalid(f"a row can come back after 0 to {DELAY_SECONDS_MAX:.0f} seconds, not {self.delay_seconds}")


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage may return instead of a batch, to say what became of each row. Rows are told by their places in
    the batch that the function was given, from 0.

    `rows` is what it would return for the others alone: with `adds=` one row for each of them, in their order.
    `failed` rows are buried with the reason; `later` rows come back. With `gives=`, `of` says for each of `rows` which
    row it was made of: then nothing has to be run again to find out when a later stage fails.
    """

    rows: Any
    failed: Mapping[int, str] = {}
    later: Mapping[int, Later] = {}
    of: Sequence[int] | None = None


class Result(msgspec.Struct, frozen=True):
    """What a stage made of a batch: the rows that came out, and what became of the others, by their places in it."""

    batch: pa.RecordBatch
    of: Sequence[int] | None
    """The row that each was made of; None if the stage did not say."""
    failed: Mapping[int, str] = {}
    later: Mapping[int, Later] = {}

    @property
    def is_whole(self) -> bool:
        """Whether every row passed."""
        return not self.failed and not self.later


def check_told(told: Outcomes, count: int, what: str) -> None:
    """`Misshapen` if a stage speaks of rows that it was not given, or says two things of one, or nothing."""
    if not isinstance(told.failed, Mapping) or not isinstance(told.later, Mapping):
        raise Misshapen(f"{what}: failed= and later= are dicts, with what is said of each row")
    for name, kind, said in (("failed", str, told.failed), ("later", Later, told.later)):
        for row, value in said.items():
            if not isinstance(value, kind):
                raise Misshapen(f"{what}: {name}= has {value!r:.80} for row {row}; say it as {kind.__name__}")
    for row in (*told.failed, *told.later, *(told.of or ())):
        if not 0 <= row < count:
            raise Misshapen(f"{what} speaks of row {row}, but it was given {count}: rows are counted from 0")
    twice = set(told.failed) & set(told.later)
    if twice:
        raise Misshapen(f"{what} has row {min(twice)} among those that failed and among those to try later")
    gone = set(told.of or ()) & (set(told.failed) | set(told.later))
    if gone:
        raise Misshapen(f"{what} was made of row {min(gone)}, which it says did not pass")

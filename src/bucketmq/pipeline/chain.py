"""A chain: stages run one after the other on a batch, and the rows that make them fail set apart from the rest.

When a stage raises, its rows are bisected (`pipeline.bisection`): each row at fault is a `Failed`, and everything else
goes on. Rows that passed the stages before do not run through these again, as long as each row became one row. Where
that is not so, nothing says which row a result belongs to, and the halves go through the whole chain again.

Some errors are not about rows at all (`PLACE_ERRORS`, `Misshapen`): these are raised, so that the work as a whole
fails, is tried again or repaired, and nothing is lost. What becomes of failed rows does not belong here.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Denied, Invalid, Unavailable, Unsupported
from bucketmq.pipeline.bisection import NEVER_OF_AN_ITEM, Bad, Good, bisected
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.stages import Misshapen, Stage, fit
from bucketmq.procedures.checks import plain_text
from bucketmq.queue.message import ATTEMPT_ERROR_CHARS_MAX

if TYPE_CHECKING:
    import pyarrow as pa

PLACE_ERRORS = (Unavailable, Denied, Unsupported, ImportError)
"""Errors of the place where a stage runs, not of a row: later or elsewhere the row would pass. Not `MemoryError`: a
place that is short of memory kills its processes, while a row that asks for more than there can be is refused."""

RAISED = (*PLACE_ERRORS, Misshapen)


class Failed(msgspec.Struct, frozen=True):
    """A row that cannot pass: its place in the batch, the stage that failed on it, and how."""

    row: int
    stage: str
    error: str


class Passed(msgspec.Struct, frozen=True):
    """Rows that came out of the chain, and the rows of the batch that they were made of."""

    start: int
    stop: int
    batch: pa.RecordBatch


class Ran(msgspec.Struct, frozen=True):
    """What became of a batch, in the order of its rows."""

    passed: tuple[Passed, ...]
    failed: tuple[Failed, ...]

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return [each.batch for each in self.passed]


class StageError(Exception):
    """An error on its way from the stage where it was raised to the bisection."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = error


class Chain:
    """Stages joined. Each takes what the one before gives."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)
        for before, after in zip(self.stages, self.stages[1:], strict=False):
            check_join(f"stage {before.name!r}", before.gives, after)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stages,)

    def run(self, batch: pa.RecordBatch) -> Ran:
        """Run all rows: the results of those that pass, and those that fail, both in the order of the rows."""
        passed = [Passed(0, batch.num_rows, batch)] if batch.num_rows else []
        failed: list[Failed] = []
        for depth in range(len(self.stages)):
            parts = [part for piece in passed for part in self._next(depth, piece, batch)]
            passed = [Passed(part.start, part.stop, part.result) for part in parts if isinstance(part, Good)]
            failed += [_failed(part) for part in parts if isinstance(part, Bad)]
        return Ran(tuple(passed), tuple(sorted(failed, key=lambda each: each.row)))

    def _next(self, depth: int, piece: Passed, source: pa.RecordBatch) -> list[Good[pa.RecordBatch] | Bad]:
        """What a stage makes of rows that came through those before it."""
        if piece.batch.num_rows == piece.stop - piece.start:

            def alone(start: int, stop: int) -> pa.RecordBatch:
                return self._run(depth, piece.batch.slice(start - piece.start, stop - start))

            parts = list(bisected(alone, piece.start, piece.stop, raises=RAISED))
            if all(self._is_of(depth, part.start, piece, source) for part in parts if isinstance(part, Bad)):
                return parts

        def whole(start: int, stop: int) -> pa.RecordBatch:
            if (start, stop) == (piece.start, piece.stop):
                return self._run(depth, piece.batch)
            return self._run(depth, self._before(depth, source.slice(start, stop - start)))

        return list(bisected(whole, piece.start, piece.stop, raises=RAISED))

    def _is_of(self, depth: int, row: int, piece: Passed, source: pa.RecordBatch) -> bool:
        """Whether the result in a row's place is all that became of it: stages may drop, add and reorder rows."""
        became: pa.RecordBatch = self._before(depth, source.slice(row, 1))
        return bool(became.equals(piece.batch.slice(row - piece.start, 1)))

    def _before(self, depth: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        for number in range(depth):
            batch = self._run(number, batch)
        return batch

    def _run(self, depth: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        stage = self.stages[depth]
        try:
            return stage.run(batch)
        except (*NEVER_OF_AN_ITEM, *RAISED):
            raise
        except BaseException as error:
            raise StageError(stage.name, error) from error


def _failed(part: Bad) -> Failed:
    assert isinstance(part.error, StageError)
    return Failed(part.start, part.error.stage, error_text(part.error.stage, part.error.error))


def check_join(what: str, gives: str, after: Stage) -> None:
    """Raise `Invalid` unless a stage can take what comes from `what`."""
    import pyarrow as pa

    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(gives))
    try:
        fit(empty, arrow_schema(after.takes), f"what {what} gives to stage {after.name!r}")
    except Misshapen as error:
        raise Invalid(str(error)) from None


def error_text(stage: str, error: BaseException) -> str:
    """What went wrong, in a line, and where: the innermost part of the traceback, as far as there is room."""
    kind = type(error).__name__
    try:
        said = plain_text(error).strip()
    except Exception:  # a class of its own may fail at that, too
        said = ""
    first = f"stage {stage}: {kind}: {said}" if said else f"stage {stage}: {kind}"
    first = first[: ATTEMPT_ERROR_CHARS_MAX // 2]
    where = plain_text("".join(traceback.format_tb(error.__traceback__)).rstrip())
    room = ATTEMPT_ERROR_CHARS_MAX - len(first) - 1
    return f"{first}\n{where[-room:]}" if where else first

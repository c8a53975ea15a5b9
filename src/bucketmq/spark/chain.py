"""A chain: stages run one after the other on a batch, and the rows that make them fail told apart from the rest.

When a stage raises, the batch is halved and each half goes through the whole chain again, until single rows fail: each
of these is a `Failed`, and everything else goes on. It costs about `2 * log2(rows)` runs for each failing row. Some
errors are not about rows at all (`PLACE_ERRORS`, `Misshapen`): these are raised, so that the work as a whole fails, is
tried again or repaired, and nothing is lost.

What becomes of failed rows and of the others does not belong here.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Denied, Invalid, Unavailable, Unsupported
from bucketmq.procedures.checks import plain_text
from bucketmq.queue.message import ATTEMPT_ERROR_CHARS_MAX
from bucketmq.spark.ddl import arrow_schema
from bucketmq.spark.stage import Misshapen, Stage, fit

if TYPE_CHECKING:
    import pyarrow as pa

PLACE_ERRORS = (Unavailable, Denied, Unsupported, ImportError, KeyboardInterrupt, GeneratorExit)
"""Errors of the place where a stage runs, not of a row: another time or elsewhere it would do. `MemoryError` is none: a
place that is short of memory kills its processes, while a row that asks for more than there can be is refused."""


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
        """Run all rows; those that fail are told, the others' results come in order."""
        passed: list[Passed] = []
        failed: list[Failed] = []
        waiting = [(0, batch.num_rows)]
        while waiting:
            start, stop = waiting.pop()
            if start == stop:
                continue
            try:
                passed.append(Passed(start, stop, self._pass(batch.slice(start, stop - start))))
            except StageError as problem:
                if stop - start == 1:
                    failed.append(Failed(start, problem.stage, error_text(problem.stage, problem.error)))
                else:
                    middle = (start + stop) // 2
                    waiting += [(middle, stop), (start, middle)]
        return Ran(tuple(passed), tuple(failed))

    def _pass(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for stage in self.stages:
            try:
                batch = stage.run(batch)
            except (*PLACE_ERRORS, Misshapen):
                raise
            except BaseException as error:  # a panic in a library of Rust, and `sys.exit`, are no `Exception`
                raise StageError(stage.name, error) from error
        return batch


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

"""A chain: stages run one after the other on a batch, and the rows that make them fail set apart from the rest.

A stage may say itself what became of each row (`pipeline.results`). When it raises, its rows are bisected
(`pipeline.bisection`): each row at fault is a `Failed`, and everything else goes on.

Of rows that are *traced* it is known which row of the batch they were made of: stages that add columns, or that give
`of=`, keep it so, and no stage runs again for a row that passed it. A stage that reshapes and says nothing ends that.
Then a result is taken for its row's as long as there are as many, and compared with what the stages before make of
the row alone; where that is not so, the halves go through the whole chain again.

Some errors are not about rows at all (`PLACE_ERRORS`, `Misshapen`): these are raised, so that the work as a whole
fails, is tried again or repaired, and nothing is lost. What becomes of failed rows does not belong here.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Denied, Invalid, Unavailable, Unsupported
from bucketmq.pipeline.bisection import NEVER_OF_AN_ITEM, Bad, Good, bisected
from bucketmq.pipeline.fitting import Misshapen, joined
from bucketmq.pipeline.registers import Memory, groups_of
from bucketmq.pipeline.results import Later, Result
from bucketmq.pipeline.stages import Stage
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


class PutOff(msgspec.Struct, frozen=True):
    """A row that a stage wants to see again, and how often it may."""

    row: int
    stage: str
    later: Later
    later_max: int

    def failed(self, why: str) -> Failed:
        """The row, and what is to become of it instead."""
        said = f"stage {self.stage}: {why}: {plain_text(self.later.reason)}"
        return Failed(self.row, self.stage, said[:ATTEMPT_ERROR_CHARS_MAX])


class Passed(msgspec.Struct, frozen=True):
    """Rows that came out of the chain, and the rows of the batch that they were made of."""

    rows: Sequence[int]
    """The rows of the batch, in their order."""
    batch: pa.RecordBatch
    of: Sequence[int] | None
    """The row of the batch that each was made of; None if that is not known."""


class Ran(msgspec.Struct, frozen=True):
    """What became of a batch, in the order of its rows."""

    passed: tuple[Passed, ...]
    failed: tuple[Failed, ...]
    put_off: tuple[PutOff, ...] = ()

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return [each.batch for each in self.passed]


class StageError(Exception):
    """An error on its way from the stage where it was raised to the bisection."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = error


class Told(Exception):
    """What a stage said of rows that are not traced, on its way to the bisection, which finds the row it means."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


class Chain:
    """Stages joined. Each takes what the one before gives."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stages,)

    def run(self, batch: pa.RecordBatch, memory: Memory | None = None) -> Ran:
        """Run all rows: the results of those that pass, and those that do not, all in the order of the rows.

        `memory` keeps what a stage with a key keeps.
        """
        rows = range(batch.num_rows)
        passed = [Passed(rows, batch, rows)] if batch.num_rows else []
        lost: dict[int, Failed | PutOff] = {}
        for depth in range(len(self.stages)):
            step = _Step(self, depth, batch, memory)
            after = [part for piece in passed for part in step.next(piece)]
            lost |= step.lost
            passed = _joined(after)
        row_of = attrgetter("row")
        failed = [each for each in lost.values() if isinstance(each, Failed)]
        put_off = [each for each in lost.values() if isinstance(each, PutOff)]
        return Ran(tuple(passed), tuple(sorted(failed, key=row_of)), tuple(sorted(put_off, key=row_of)))

    def before(self, depth: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the stages before one make of rows that passed them."""
        for stage in self.stages[:depth]:
            result = call(stage, batch)
            if not result.is_whole:
                raise Told(result)
            batch = result.batch
        return batch


class _Step:
    """One stage, run on what came through those before it."""

    def __init__(self, chain: Chain, depth: int, source: pa.RecordBatch, memory: Memory | None) -> None:
        self._chain = chain
        self._memory = memory
        self._depth = depth
        self._stage = chain.stages[depth]
        self._source = source
        self.lost: dict[int, Failed | PutOff] = {}

    def next(self, piece: Passed) -> list[Passed]:
        if self._stage.keyed is not None:
            return self._by_key(piece)
        if piece.of is not None:
            return self._traced(piece)
        if piece.batch.num_rows == len(piece.rows):
            return self._guessed(piece)
        return self._untraced(piece)

    def _by_key(self, piece: Passed) -> list[Passed]:
        """The rows of each key go through together, or fail together: what is kept is then as it was."""
        if self._memory is None:
            raise Invalid(f"stage {self._stage.name!r} keeps state; run it in a pipeline, or call its function itself")
        after = []
        for name, key, places in groups_of(self._stage, piece.batch):
            of = piece.rows if piece.of is None else [piece.of[place] for place in places]
            try:
                if key is None:
                    raise Invalid("the key is null")
                came = self._memory(self._stage, name, key, _rows(piece.batch, places))
            except (*NEVER_OF_AN_ITEM, *RAISED):
                raise
            except BaseException as error:
                said = error_text(self._stage.name, error)
                self.lost |= {row: Failed(row, self._stage.name, said) for row in of}
            else:
                known = of if self._stage.adds else [of[0]] * came.num_rows if len(set(of)) == 1 else None
                after.append(Passed(sorted(set(of)), came, known))
        return after

    def _traced(self, piece: Passed) -> list[Passed]:
        assert piece.of is not None
        parts, lost = self._parts(piece.batch, piece.of)
        self.lost |= lost
        if all(part.result.of is not None for part in parts):
            return [_of_part(part, piece.of, lost) for part in parts]
        if lost and len(set(piece.of)) < len(piece.of):
            # Something of a row that did not pass may be among the results, and nothing says where.
            return self._traced(_without(piece, lost))
        if len(parts) == 1 or len(set(piece.of)) == len(piece.of):
            return [_loose(part, piece.of[part.start : part.stop], lost) for part in parts]
        rows = sorted(set(piece.of))
        return [Passed(rows, joined([part.result.batch for part in parts]), None)]

    def _guessed(self, piece: Passed) -> list[Passed]:
        """As many rows as before are taken for the same ones, until one of them fails and turns out not to be."""
        parts, lost = self._parts(piece.batch, piece.rows)
        for place, row in enumerate(piece.rows):
            if row in lost and not self._is_of(row, piece.batch.slice(place, 1)):
                return self._untraced(piece)
        self.lost |= lost
        return [_loose(part, piece.rows[part.start : part.stop], lost) for part in parts]

    def _parts(self, batch: pa.RecordBatch, of: Sequence[int]) -> tuple[list[Good[Result]], dict[int, Failed | PutOff]]:
        """What comes of the rows in each call of the stage, and which do not pass. The stage's own pieces are bisected
        one by one, so that none is run again because of another."""
        parts: list[Good[Result]] = []
        lost: dict[int, Failed | PutOff] = {}

        def one(start: int, stop: int) -> Result:
            return call(self._stage, batch.slice(start, stop - start))

        for begin in range(0, batch.num_rows, self._stage.rows_max):
            end = min(begin + self._stage.rows_max, batch.num_rows)
            for part in bisected(one, begin, end, raises=RAISED):
                if isinstance(part, Bad):
                    lost[of[part.start]] = _failed(of[part.start], part.error)
                else:
                    parts.append(part)
                    self._lose(lost, part.result, of[part.start : part.stop])
        return parts, lost

    def _lose(self, lost: dict[int, Failed | PutOff], result: Result, of: Sequence[int]) -> None:
        """Note the rows that a stage said did not pass. A row that failed in part has failed."""
        for place, reason in result.failed.items():
            said = f"stage {self._stage.name}: {plain_text(reason)}"[:ATTEMPT_ERROR_CHARS_MAX]
            lost[of[place]] = Failed(of[place], self._stage.name, said)
        for place, later in result.later.items():
            lost.setdefault(of[place], PutOff(of[place], self._stage.name, later, self._stage.later_max))

    def _untraced(self, piece: Passed) -> list[Passed]:
        """Nothing says which row a result belongs to: the halves go through all stages up to this one."""

        def whole(start: int, stop: int) -> Result:
            batch = piece.batch
            if (start, stop) != (0, len(piece.rows)):
                batch = self._chain.before(self._depth, _rows(self._source, piece.rows[start:stop]))
            result = call(self._stage, batch)
            if not result.is_whole:
                raise Told(result)
            return result

        after = []
        for part in bisected(whole, 0, len(piece.rows), raises=RAISED):
            rows = piece.rows[part.start : part.stop]
            if isinstance(part, Good):
                known = [rows[0]] * part.result.batch.num_rows if len(rows) == 1 else None
                after.append(Passed(rows, part.result.batch, known))
            elif isinstance(part.error, Told):
                count = max((*part.error.result.failed, *part.error.result.later)) + 1
                self._lose(self.lost, part.error.result, [rows[0]] * count)
            else:
                self.lost[rows[0]] = _failed(rows[0], part.error)
        return after

    def _is_of(self, row: int, result: pa.RecordBatch) -> bool:
        """Whether the result in a row's place is all that became of it: stages may drop, add and reorder rows."""
        try:
            became = self._chain.before(self._depth, self._source.slice(row, 1))
        except (StageError, Told):
            return False
        return bool(became.equals(result))


def call(stage: Stage, batch: pa.RecordBatch) -> Result:
    """Run a stage; what it raises because of a row is a `StageError`."""
    try:
        return stage.result(batch)
    except (*NEVER_OF_AN_ITEM, *RAISED):
        raise
    except BaseException as error:
        raise StageError(stage.name, error) from error


def _of_part(part: Good[Result], of: Sequence[int], lost: dict[int, Any]) -> Passed:
    """What a part became, traced to the rows that its own rows were made of."""
    result = part.result
    assert result.of is not None
    mine = of[part.start : part.stop]
    made = mine if len(result.of) == len(mine) and _counts_up(result.of) else [mine[place] for place in result.of]
    return _without(Passed(_distinct(mine), result.batch, made), lost)


def _loose(part: Good[Result], rows: Sequence[int], lost: dict[int, Any]) -> Passed:
    left = [row for row in _distinct(rows) if row not in lost] if lost else _distinct(rows)
    known = [left[0]] * part.result.batch.num_rows if len(left) == 1 and len(rows) == 1 else None
    return Passed(left, part.result.batch, known)


def _without(piece: Passed, lost: dict[int, Any]) -> Passed:
    """Rows without all that became of those that did not pass."""
    assert piece.of is not None
    if not any(row in lost for row in piece.of):
        return piece
    kept = [place for place, row in enumerate(piece.of) if row not in lost]
    rows = [row for row in piece.rows if row not in lost]
    return Passed(rows, _rows(piece.batch, kept), [piece.of[place] for place in kept])


def _joined(pieces: list[Passed]) -> list[Passed]:
    """Traced pieces made one again: what follows is given few large batches rather than many small ones."""
    if len(pieces) < 2 or any(each.of is None for each in pieces):
        return pieces
    rows = sorted({row for each in pieces for row in each.rows})
    return [Passed(rows, joined([each.batch for each in pieces]), [row for each in pieces for row in each.of or ()])]


def _rows(batch: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.take(pa.array(places, pa.int64()))


def _counts_up(places: Sequence[int]) -> bool:
    return places == range(len(places)) or list(places) == list(range(len(places)))


def _distinct(rows: Sequence[int]) -> Sequence[int]:
    return rows if isinstance(rows, range) else list(dict.fromkeys(rows))


def _failed(row: int, error: BaseException) -> Failed:
    assert isinstance(error, StageError)
    return Failed(row, error.stage, error_text(error.stage, error.error))


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

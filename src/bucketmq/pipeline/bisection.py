"""Finding the items that make a batch fail: the batch is halved until single items fail. The one bisection there is.

It costs about `2 * log2(items)` calls for each item at fault. What becomes of good and bad items is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

Result = TypeVar("Result")

NEVER_OF_AN_ITEM = (KeyboardInterrupt, GeneratorExit)
"""Raised whatever the caller says: the process is asked to stop."""


class Good(msgspec.Struct, Generic[Result], frozen=True):
    """Items `start` to `stop` went through together."""

    start: int
    stop: int
    result: Result


class Bad(msgspec.Struct, frozen=True):
    """Items that failed: one, or several where `calls_max` was reached before they could be told apart."""

    start: int
    stop: int
    error: BaseException


def bisected(
    run: Callable[[int, int], Result],
    start: int,
    stop: int,
    *,
    raises: tuple[type[BaseException], ...] = (),
    calls_max: int | None = None,
) -> Iterator[Good[Result] | Bad]:
    """Call `run(start, stop)`, and where it raises call it for each half; what came of it, in the order of the items.

    An error in `raises` is not about items: it is raised. All others count, those that are not an `Exception` too: a
    panic in a library of Rust, and `sys.exit`.
    """
    raised: tuple[type[BaseException], ...] = (*NEVER_OF_AN_ITEM, *raises)
    waiting = [(start, stop)] if start < stop else []
    calls = 0
    while waiting:
        start, stop = waiting.pop()
        calls += 1
        try:
            result = run(start, stop)
        except raised:
            raise
        except BaseException as error:
            if stop - start == 1 or (calls_max is not None and calls >= calls_max):
                yield Bad(start, stop, error)
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
        else:
            yield Good(start, stop, result)

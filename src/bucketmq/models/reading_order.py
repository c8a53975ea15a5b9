"""The order in which people read the lines that were found on a page: down one column, then down the next. Pure.

A recogniser gives lines by their height on the page, so that columns come mixed. Two rules say which of two lines comes
first (T. M. Breuel, "High performance document layout analysis", 2003):

1. of lines that overlap from left to right, the upper one
2. of lines beside each other, the left one, unless a line lies between them in height that overlaps both: then they are
   parts of different sections, and rule 1 decides through that line

Sorting by these rules reads a headline, then the columns under it, then what lies across the page below them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

SLACK = 0.3
"""How far boxes may reach into each other and count as apart, in heights of the lower one: pages are scanned askew."""
LINES_MAX = 600
"""More lines are left as they came: what is needed grows with the cube of them."""


class Line(msgspec.Struct, frozen=True):
    """A line of text and the box that it lies in, in pixels."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


def in_reading_order(lines: Sequence[Line]) -> list[Line]:
    """The same lines as they are read."""
    if not 1 < len(lines) <= LINES_MAX:
        return list(lines)
    before = _before(lines)
    by_height = sorted(range(len(lines)), key=lambda place: (lines[place].top + lines[place].bottom, lines[place].left))
    read: list[int] = []
    seen: set[int] = set()
    for start in by_height:
        # Everything that comes before a line is read first. Where rules go in a circle, what was begun first wins.
        waiting = [(start, False)]
        while waiting:
            place, done = waiting.pop()
            if done:
                read.append(place)
            elif place not in seen:
                seen.add(place)
                waiting.append((place, True))
                waiting += [
                    (other, False) for other in reversed(by_height) if before[other][place] and other not in seen
                ]
    return [lines[place] for place in read]


def _before(lines: Sequence[Line]) -> list[list[bool]]:
    """Whether the first of two lines is certainly read before the second, by their places."""
    import numpy as np

    left, top, right, bottom = np.array([(each.left, each.top, each.right, each.bottom) for each in lines]).T
    middle = (top + bottom) / 2
    slack = SLACK * np.minimum.outer(bottom - top, bottom - top)
    overlap = np.minimum.outer(right, right) - np.maximum.outer(left, left) > slack
    above = middle[:, None] < middle[None, :]
    left_of = right[:, None] <= left[None, :] + slack
    found = overlap & above
    for place in range(len(lines)):
        low, high = np.minimum(middle[place], middle), np.maximum(middle[place], middle)
        between = (middle[:, None] > low[None, :]) & (middle[:, None] < high[None, :])
        parted = (between & overlap[:, place][:, None] & overlap).any(axis=0)
        found[place] |= left_of[place] & ~parted & ~overlap[place]
    ordered: list[list[bool]] = found.tolist()
    return ordered

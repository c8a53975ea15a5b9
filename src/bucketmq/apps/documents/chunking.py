"""Cuts a text into chunks at its own joints, and says where each stands: offsets, page, headings. Pure.

Chunks are bounded in characters, not in the tokens of an encoder: all encoders have the same chunks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

CHARACTERS_MAX = 2_000
"""A chunk ends at the best joint before this; 2,000 characters of English are some 450 tokens."""
SECTION_CHARACTERS = 300
"""What stands below a heading is a chunk of its own, unless it is shorter than this: then the next one joins it."""
PART_CHARACTERS_MAX = 100_000
"""A longer section is split in parts: of marks in marks (`>>>>`) the splitter's time grows with their square."""
HEADING_CHARACTERS_MAX = 300
BETWEEN = " / "

_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*)$", re.M)
_MARKDOWN = ("markdown", "html", "docx", "pptx")


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a text and its place."""

    text: str
    start: int
    """In characters of the text that was read."""
    stop: int
    page: int | None = None
    """The page it begins on, from 1, where the kind has pages."""
    heading: str = ""
    """The headings it stands below, the outermost first."""


def chunks_of(kind: str, text: str, pages: Sequence[int] = ()) -> Iterator[Chunk]:
    """The chunks of a text, in order. White space at their ends is in none of them."""
    from semantic_text_splitter import MarkdownSplitter, TextSplitter

    marked = kind in _MARKDOWN
    headings = list(_headings(text)) if marked else []
    splitter = MarkdownSplitter(CHARACTERS_MAX) if marked else TextSplitter(CHARACTERS_MAX)
    above = _Above(headings)
    sections = _sections(text, [at for at, _, _ in headings])
    for begin, end in (part for section in sections for part in _parts(text, *section)):
        for offset, piece in splitter.chunk_indices(text[begin:end]):
            start = begin + offset
            if not any(letter.isalnum() for letter in piece):
                continue
            page = bisect_right(pages, start) if pages else None
            yield Chunk(piece, start, start + len(piece), page, above.at(start))


def _sections(text: str, headings: Sequence[int]) -> Iterator[tuple[int, int]]:
    """What stands below each heading, with what comes after it where that is short."""
    begin = 0
    for at in headings:
        if len(text[begin:at].strip()) >= SECTION_CHARACTERS:
            yield begin, at
            begin = at
    yield begin, len(text)


def _parts(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """A section in parts that are not too long, cut between paragraphs, lines or words where there are some."""
    while end - begin > PART_CHARACTERS_MAX:
        within = begin + PART_CHARACTERS_MAX // 2, begin + PART_CHARACTERS_MAX
        cut = next((at for joint in ("\n\n", "\n", " ") if (at := text.rfind(joint, *within)) >= 0), within[1])
        yield begin, cut
        begin = cut
    yield begin, end


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    for found in _HEADING.finditer(text):
        yield found.start(), len(found[1]), found[2].rstrip(" \t#") or found[2][0]


class _Above:
    """The headings that chunks stand below, asked for in the order of the chunks."""

    def __init__(self, headings: Sequence[tuple[int, int, str]]) -> None:
        self._left = iter((*headings, None))
        self._next = next(self._left)
        self._path: dict[int, str] = {}

    def at(self, start: int) -> str:
        """The path of headings of a chunk that begins here, the one it begins with included."""
        while self._next is not None and self._next[0] <= start:
            _, level, title = self._next
            self._path = {other: text for other, text in self._path.items() if other < level} | {level: title}
            self._next = next(self._left)
        return BETWEEN.join(self._path.values())[:HEADING_CHARACTERS_MAX]

"""The text of documents of Word and PowerPoint, walked once as the XML that they are: time grows with their size alone.

Their libraries open them and know their styles. What those say of a table takes time that grows with the square of its
rows, fails where merged cells do not fit each other, and leaves out content controls, tracked insertions, tables in
tables and groups of shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[], None]

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
LEFT_OUT = ("{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback", WORD + "moveFrom")
"""What is there again for programs of before 2010, and what stands elsewhere now."""
PARAGRAPH, TABLE, ROW, CELL, RUN = (WORD + name for name in ("p", "tbl", "tr", "tc", "r"))
SPACES = {WORD + "tab": "\t", WORD + "br": "\n", WORD + "cr": "\n", WORD + "noBreakHyphen": "-"}
BLOCKS_TOLD = 200
"""After so many paragraphs or rows it is told that reading goes on."""


def lines_of_docx(document: Any, progress: Progress) -> Iterator[str]:
    """The lines of a document of Word: a paragraph and an empty one, headings as those of Markdown, rows of tables with
    bars between their cells."""
    names = {style.style_id: style.name or "" for style in document.styles}
    body = document.element.body
    for each in list(body.iter(*LEFT_OUT)):
        each.getparent().remove(each)
    for number, block in enumerate(_blocks(body)):
        if number % BLOCKS_TOLD == 0:
            progress()
        if block.tag == ROW:
            yield " | ".join(filter(None, map(_cell, _within(block, CELL))))
        else:
            yield from ("", _heading(_said(block).strip(), names.get(block.style or "", "")), "")


def _blocks(parent: Any) -> Iterator[Any]:
    """Paragraphs and rows of tables, in order; what a control wraps is what it has."""
    for child in parent:
        if child.tag == PARAGRAPH:
            yield child
        elif child.tag == TABLE:
            yield from child.iter(ROW)  # also of tables in it
        else:
            yield from _blocks(child)


def _within(parent: Any, tag: str) -> Iterator[Any]:
    """The elements of a kind, at any depth, but none of a table in it."""
    for child in parent:
        if child.tag == tag:
            yield child
        elif child.tag != TABLE:
            yield from _within(child, tag)


def _cell(cell: Any) -> str:
    return " ".join(text for each in _within(cell, PARAGRAPH) if (text := _said(each).strip()))


def _said(paragraph: Any) -> str:
    """The text of a paragraph, with what was inserted and without what was deleted."""
    return "".join(
        SPACES.get(each.tag) or each.text or ""
        for each in paragraph.iter(WORD + "t", *SPACES)
        if each.getparent().tag == RUN
    )


def _heading(text: str, style: str) -> str:
    level = "1" if style == "Title" else style.removeprefix("Heading ")
    return f"{'#' * int(level)} {text}" if text and level.isdecimal() and 1 <= int(level) <= 6 else text


def text_of_slide(slide: Any) -> str:
    """The text of a slide: its title, its shapes in order, its notes."""
    title = slide.shapes.title
    said = title.text_frame.text.strip() if title is not None else ""
    own = title.shape_id if title is not None else None
    lines = [f"# {said}", ""] if said else []
    for shape in _shapes(slide.shapes):
        if shape.shape_id == own:
            continue
        if shape.has_text_frame:
            lines += [shape.text_frame.text, ""]
        elif shape.has_table:
            lines += map(_row, shape.element.iter(DRAWING + "tr"))
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        lines += ["", slide.notes_slide.notes_text_frame.text]
    return "\n".join(lines)


def _shapes(shapes: Any) -> Iterator[Any]:
    from pptx.shapes.group import GroupShape

    for each in shapes:
        if isinstance(each, GroupShape):
            yield from _shapes(each.shapes)
        else:
            yield each


def _row(row: Any) -> str:
    return " | ".join("".join(each.text or "" for each in cell.iter(DRAWING + "t")).strip() for cell in row.tc_lst)

"""Documents of other kinds, made when they are wanted: a PDF by hand, a DOCX with its library. For the demo, the tests
and the benchmark; a real PDF has more in it."""

from __future__ import annotations

import io
from collections.abc import Sequence

LINES_MAX = 50


def pdf(pages: Sequence[str], *, title: str = "") -> bytes:
    """A PDF with these pages of Latin text, a line for each line."""
    objects: list[bytes] = []

    def add(body: bytes) -> int:
        objects.append(body)
        return len(objects)

    font = add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    contents = [add(_stream(_drawn(page))) for page in pages]
    tree = len(objects) + len(pages) + 1
    kids = [
        add(
            b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 %d 0 R >> >> >>" % (tree, content, font)
        )
        for content in contents
    ]
    add(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids)))
    root = add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    info = add(b"<< /Title (%s) >>" % _escaped(title))
    return _file(objects, root, info)


def _drawn(page: str) -> bytes:
    shown = b" ".join(b"(%s) Tj T*" % _escaped(line) for line in page.splitlines()[:LINES_MAX])
    return b"BT /F1 11 Tf 14 TL 60 780 Td %s ET" % shown


def _escaped(text: str) -> bytes:
    body = text.encode("cp1252", "replace")
    return body.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _stream(body: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(body), body)


def _file(objects: Sequence[bytes], root: int, info: int) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for place in places:
        out.write(b"%010d 00000 n \n" % place)
    out.write(b"trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R >>\n" % (len(objects) + 1, root, info))
    out.write(b"startxref\n%d\n%%%%EOF\n" % table)
    return out.getvalue()


def docx(title: str, sections: Sequence[tuple[str, str]]) -> bytes:
    """A DOCX with a title and sections of one paragraph each."""
    import docx as library

    document = library.Document()
    document.core_properties.title = title
    document.add_heading(title, 0)
    for heading, text in sections:
        document.add_heading(heading, 1)
        document.add_paragraph(text)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()

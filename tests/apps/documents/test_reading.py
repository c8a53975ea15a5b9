"""Text out of files of every kind, and what becomes of files that are not what they say: told, bounded, never half."""

from __future__ import annotations

import io
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apps.documents.shelf import Shelf
from apps.images.drawn import endless_jpeg, tiff_of
from bucketmq.apps.documents import reading
from bucketmq.apps.documents.chunking import chunks_of
from bucketmq.apps.documents.demo.made import docx, pdf
from bucketmq.apps.documents.reader import Readers
from bucketmq.apps.documents.reading import Unreadable, read_text


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    made = Readers()
    yield made
    made.close()


def slides() -> bytes:
    import pptx

    made = pptx.Presentation()
    for title, text in (("First slide", "Alpha beta"), ("Second slide", "Gamma delta")):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


HTML = b"""<html><head><title>A title</title></head><body><nav>Home Contact About</nav>
<article><h1>Heading</h1><p>What the page says, at some length, so that it is its main part.</p></article>
</body></html>"""


@pytest.mark.parametrize(
    ("key", "content", "kind", "says"),
    [
        ("docs/a.pdf", pdf(["Page one", "Page (two)"], title="T"), "pdf", "Page one\n\nPage (two)"),
        ("docs/a.html", HTML, "html", "# Heading\n\nWhat the page says"),
        ("docs/a.md", b"# Title\n\ntext", "markdown", "# Title\n\ntext"),
        ("docs/a.txt", "café\r\nline".encode(), "text", "café\nline"),
        ("docs/a.txt", "café".encode("cp1252"), "text", "café"),
        ("docs/a.txt", "שלום עולם".encode(), "text", "שלום עולם"),
        ("docs/a.txt", "zwei".encode("utf-16"), "text", "zwei"),
        ("docs/noname", b"plain", "text", "plain"),
        ("docs/a.docx", docx("Title", [("Part", "Some text.")]), "docx", "# Title\n\n# Part\n\nSome text."),
        ("docs/a.pptx", slides(), "pptx", "# First slide\n\nAlpha beta\n\n# Second slide"),
    ],
    ids=["pdf", "html", "markdown", "utf-8", "cp1252", "hebrew", "utf-16", "no suffix", "docx", "pptx"],
)
def test_each_kind_is_read(readers: Readers, key: str, content: bytes, kind: str, says: str) -> None:
    found = readers.read(key, content)
    assert found.kind == kind
    assert says in found.text
    assert "Contact" not in found.text  # what is around the text is left out


def test_a_chunk_says_on_which_page_and_below_which_heading_it_stands() -> None:
    read = read_text("docs/a.pdf", pdf([f"Page {n}\n" + "words and words " * 4 * n for n in (1, 2, 3)] * 20))
    chunks = list(chunks_of(read.kind, read.text, read.pages))
    assert len(read.pages) == 60 and len(chunks) > 1
    for each in chunks:
        assert read.text[each.start : each.stop] == each.text
        assert each.page is not None and read.pages[each.page - 1] <= each.start
    text = "# One\n\n" + "alpha " * 60 + "\n\n## Two\n\n" + "beta " * 80 + "\n\n# Three\n\n" + "gamma " * 80
    assert [each.heading for each in chunks_of("markdown", text)] == ["One", "One / Two", "Three"]


def test_headings_are_found_in_one_pass_however_many_or_long_they_are() -> None:
    """Of each of these, a pass for every chunk or character would take hours."""
    (*_, last) = chunks_of("markdown", "# a\n## b\n" * 300_000)
    assert last.heading == "a / b"
    (first, *_) = chunks_of("markdown", f"# a{'#' * 500_000}x")
    assert first.heading == f"a{'#' * 299}"
    assert [each.heading for each in chunks_of("markdown", "# One ##\n\ntext\n\n# #\n\n#  \n")] == ["One"]
    assert reading.clean(f"a{' ' * 1_000_000}b \nc") == f"a{' ' * 1_000_000}b\nc"


def test_text_is_cut_in_one_pass_however_its_marks_are_nested() -> None:
    """As one piece the first of these would take minutes."""
    assert list(chunks_of("markdown", ">" * 8_000_000)) == []
    text = "One line of words.\n" * 20_000 + "x" * 150_000
    chunks = list(chunks_of("text", text))
    assert "".join("".join(each.text.split()) for each in chunks) == "".join(text.split())
    assert all(text[each.start : each.stop] == each.text for each in chunks)
    assert all(len(each.text) <= 2_000 for each in chunks)


def test_what_a_table_or_a_control_of_word_holds_is_read_once(readers: Readers) -> None:
    said = worded(
        b"<w:sdt><w:sdtContent><w:p><w:r><w:t>In a control</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        b"<w:tbl><w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc>"  # merged with a row that is not there
        b"<w:tc><w:tcPr><w:gridSpan w:val='1000000000'/></w:tcPr><w:p><w:r><w:t>Wide</w:t></w:r></w:p></w:tc>"
        b"<w:tc><w:p><w:r><w:t>First</w:t><w:tab/><w:t>line</w:t></w:r></w:p>"
        b"<w:tbl><w:tr><w:tc><w:p><w:r><w:t>inner</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:tc></w:tr></w:tbl>"
        b"<w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>"
        b"<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
    )
    assert readers.read("docs/a.docx", said).text == "In a control\n\nWide | First\tline\ninner\n\ninserted"


def test_shapes_in_groups_and_tables_of_slides_are_read(readers: Readers) -> None:
    import pptx

    made = pptx.Presentation()
    shapes = made.slides.add_slide(made.slide_layouts[6]).shapes
    shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "In a group"
    table = shapes.add_table(1, 2, 0, 0, 9, 9).table
    table.cell(0, 0).text, table.cell(0, 1).text = "price", "3 euros"
    out = io.BytesIO()
    made.save(out)
    assert readers.read("docs/a.pptx", out.getvalue()).text == "In a group\n\nprice | 3 euros"


def test_tables_are_read_in_one_pass_however_long_or_wide_they_are() -> None:
    """Of each of these, a look at all rows above or at all cells before would take hours."""
    cell = b"<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc>"
    long = worded(b"<w:tbl>" + (b"<w:tr>" + cell + b"</w:tr>") * 40_000 + b"</w:tbl>")
    wide = worded(b"<w:tbl><w:tr>" + cell * 40_000 + b"</w:tr></w:tbl>")
    assert read_text("docs/a.docx", long).text == "\n".join("x" * 40_000)
    assert read_text("docs/a.docx", wide).text == " | ".join("x" * 40_000)


def bomb(size: int, *, parts: int = 1) -> bytes:
    """A DOCX whose document unpacks to much more than it has."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        for n in range(parts):
            archive.writestr("word/document.xml" if n == 0 else f"word/{n}.xml", b" " * size)
    return out.getvalue()


ENCRYPTED = pdf(["secret"]).replace(
    b"/Info",
    b"/Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <"
    + b"11" * 32
    + b"> /U <"
    + b"22" * 32
    + b"> >> /ID [<00><00>] /Info",
)

W = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
ENTITIES = b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
LAUGHS = b'<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa">' + ENTITIES + b"]>"


def office(base: bytes, part: str, body: bytes) -> bytes:
    """A document with another part."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(base)) as given, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name in given.namelist():
            made.writestr(name, body if name == part else given.read(name))
    return out.getvalue()


def worded(inside: bytes, before: bytes = b"") -> bytes:
    said = before + b"<w:document " + W + b"><w:body>" + inside + b"</w:body></w:document>"
    return office(docx("T", []), "word/document.xml", said)


def lying(content: bytes) -> bytes:
    """An archive whose list says that its document is small."""
    entry = content.rfind(b"word/document.xml") - 46
    return content[: entry + 24] + (1_000).to_bytes(4, "little") + content[entry + 28 :]


SLIDE = "ppt/slides/slide1.xml"
PARAGRAPH = b"<w:p><w:r><w:t>&j;</w:t></w:r></w:p>"

BAD = [
    ("secret.docx", reading.OLE + bytes(600), "it is encrypted, or of an Office before 2007"),
    ("secret.pptx", reading.OLE + bytes(600), "it is encrypted, or of an Office before 2007"),
    ("empty.pdf", b"", "it is empty"),
    ("laughs.docx", worded(PARAGRAPH, LAUGHS), "amplification"),
    ("deep.docx", worded(b"<w:p>" * 2_000 + b"</w:p>" * 2_000), "Excessive depth"),
    ("lying.docx", lying(worded(b" " * (3 << 20))), "its parts cannot be read"),
    ("bomb.pptx", office(slides(), SLIDE, b" " * (40 << 20)), "a ZIP bomb"),
    (
        "laughs.pptx",
        office(slides(), SLIDE, LAUGHS + b"<d>&j;</d>"),
        "amplification",
    ),
    ("encrypted.pdf", ENCRYPTED, "encrypted"),
    ("broken.pdf", pdf(["text"])[:200], "cannot be opened"),
    ("page.pdf", HTML, "its name ends in .pdf, but its content is a HTML"),
    ("letter.docx", pdf(["text"]), "its content is a PDF"),
    ("notes.txt", pdf(["text"]), "its content is a PDF"),
    ("bomb.docx", bomb(40 << 20), "a ZIP bomb"),
    ("many.docx", bomb(3 << 20, parts=100), "a ZIP bomb, or too large"),
    ("cut.docx", docx("T", [])[:2000], "cannot be opened"),
    ("odd.docx", bomb(10), "its parts cannot be read"),
    ("long.html", b"<html><body>" + b"<div>" * (reading.HTML_BYTES_MAX // 5 + 10), "more than"),
    ("data.bin", bytes(range(256)) * 10, "kind is not supported"),
    ("photo.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "cannot be decoded"),
    ("note.txt", b"\0\0\0\0", "not text"),
]


@pytest.mark.parametrize(("name", "content", "reason"), BAD, ids=[name for name, _, _ in BAD])
def test_a_document_that_cannot_be_read_says_why(readers: Readers, name: str, content: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        readers.read(f"docs/{name}", content)


def test_bad_documents_are_dead_letters_and_the_others_go_on(shelf: Shelf) -> None:
    shelf.bucket.put_many({f"docs/{name}": content for name, content, _ in BAD} | {"docs/good.md": b"good"})
    shelf.work()
    assert list(shelf.texts()) == ["docs/good.md"]
    assert len(shelf.reasons()) == len(BAD)
    assert all(reason.startswith("stage text: 'docs/") for reason in shelf.reasons())


def test_a_document_that_takes_too_long_is_told_and_the_next_is_read() -> None:
    readers = Readers(silent_seconds=0.0)
    with pytest.raises(Unreadable, match="took longer than 0 seconds"):
        readers.read("docs/a.txt", b"text")
    readers._silent_seconds = 60.0
    assert readers.read("docs/a.txt", b"text").text == "text"
    readers.close()


def test_a_document_that_ends_its_process_is_told_and_the_next_is_read(readers: Readers) -> None:
    readers.read("docs/a.txt", b"text")
    child: Any = readers._child
    os.kill(child.pid, signal.SIGSTOP)
    os.kill(child.pid, signal.SIGKILL)  # as the kernel does, or a crash
    with pytest.raises(Unreadable, match="ended its process"):
        _ask_the_dead(readers)
    assert readers.read("docs/a.txt", b"text").text == "text"


def _ask_the_dead(readers: Readers) -> None:
    """The process was there when it was asked."""
    child: Any = readers._child
    child.poll = lambda: None
    readers.read("docs/a.txt", b"text")


def test_a_document_that_names_a_file_of_this_machine_does_not_get_it(readers: Readers) -> None:
    named = worded(b"<w:p><w:r><w:t>&x;</w:t></w:r></w:p>", b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>')
    assert readers.read("docs/a.docx", named).text == ""


def test_html_that_is_made_to_take_long_is_told_and_bounded_by_its_size() -> None:
    """Deep nesting takes its parser time that grows with the square of it."""
    readers = Readers(html_seconds=0.5)
    with pytest.raises(Unreadable, match=r"took longer than 2\.4 seconds of CPU"):
        readers.read("docs/deep.html", b"<html><body>" + b"<div>" * 800_000)
    assert readers.read("docs/a.html", b"<div>" * 500 + b"still read").text == "still read"
    readers.close()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<div>a" * 20_000, "a\n\na\n\na"),
        (b"<ol><li>a" * 3_000, "a\n\na\n\na"),
        (b"words<br>" * 250_000, "words\nwords"),
    ],
    ids=["marks in marks", "lists in lists", "lines"],
)
def test_html_whose_main_content_would_take_long_is_read_as_a_whole(body: bytes, text: str) -> None:
    """Each took its library four seconds and more, or minutes."""
    readers = Readers(html_seconds=2.0)
    above = b"<script>no</script><h2>A <i>title</i></h2><table><tr><td>1<td>2 <b>3</b></table>"
    read = readers.read("docs/a.html", b"<html><body>" + above + body)
    assert read.text.startswith(f"## A title\n\n1 2 3\n\n{text}")
    readers.close()


@pytest.mark.parametrize("wrap", [bytes, lambda jpeg: tiff_of(jpeg, 3000)], ids=["jpeg", "jpeg in a tiff"])
def test_a_picture_of_endless_scans_is_told_before_anybody_waits_for_it(wrap: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Unreadable, match=r"more than 100 scans|cannot be decoded"):
        read_text("docs/scan.jpg", wrap(endless_jpeg(3000, 20_000)))


def test_headings_in_a_heading_are_one() -> None:
    """What stood in a heading is gone once the heading has its text."""
    page = b"<html><body><h1>One<div><h2>two</h2></div>three</h1><p>" + b"Some words that are a text. " * 9
    assert read_text("docs/a.html", page).text.startswith("# One## twothree\n\nSome words")


@pytest.mark.slow
def test_a_scan_is_read_by_its_letters(readers: Readers) -> None:
    pytest.importorskip("rapidocr")
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (900, 200), "white")
    ImageDraw.Draw(picture).text((30, 60), "Invoice of Acme Corp", fill="black", font=ImageFont.load_default(60))
    out = io.BytesIO()
    picture.save(out, "PDF")
    assert "Acme" in readers.read("docs/scan.pdf", out.getvalue()).text

"""The text of a document, by its kind: PDF, HTML, Markdown, DOCX, PPTX, pictures (by OCR) and plain text.

Bytes in, text out; whatever is wrong with a document is `Unreadable`, which says so. Bounds are checked before anything
is decoded. What cannot be bounded from inside a library (its time, its memory, a crash) is bounded by `reader`, which
runs this in a process of its own.

Headings become lines of Markdown (`## Title`), whatever the kind, so that chunks can say below which one they stand.
"""

from __future__ import annotations

import io
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bucketmq.apps.documents.markup import text_and_title
from bucketmq.apps.documents.office import Progress, lines_of_docx, text_of_slide

PAGES_MAX = 5_000
CHARACTERS_MAX = 10_000_000
HTML_BYTES_MAX = 8 << 20
UNZIPPED_BYTES_MAX = 256 << 20
UNZIPPED_TIMES_MAX = 200
"""A part that unpacks to more than so many times its size, and to more than a few megabytes, is a bomb."""
UNZIPPED_BYTES_FREE = 4 << 20
ZIPPED_PARTS_MAX = 10_000
SCANS_MAX = 100
"""Pages without text that are read by OCR, at most: each takes seconds."""
SCAN_DPI = 200
PIXELS_MAX = 25_000_000

SUFFIXES = {
    "pdf": "pdf",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "md": "markdown",
    "markdown": "markdown",
    "txt": "text",
    "text": "text",
    "docx": "docx",
    "pptx": "pptx",
    "png": "picture",
    "jpg": "picture",
    "jpeg": "picture",
    "tif": "picture",
    "tiff": "picture",
    "webp": "picture",
}
TITLES = {"pdf": "PDF", "html": "HTML", "docx": "DOCX", "pptx": "PPTX", "picture": "picture", "zip": "ZIP archive"}

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How encrypted documents of Office begin, and old ones."""

_HTML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
_SPACES = re.compile(r"(?<![ \t\xa0])[ \t\xa0]+\n")
_GAPS = re.compile(r"\n{3,}")


class Unreadable(Exception):
    """No text can be had of a document; the message says why, and what to do."""


class Text(msgspec.Struct, frozen=True):
    """What a document says."""

    kind: str
    text: str
    title: str = ""
    pages: tuple[int, ...] = ()
    """Where each page begins, in characters; none where a kind has no pages."""


def read_text(key: str, content: bytes, progress: Progress = lambda: None) -> Text:
    """The text of a document; `Unreadable` if there is none to be had. `progress` is told after every page."""
    kind = kind_of(key, content)
    match kind:
        case "pdf":
            found = _pdf(content, progress)
        case "html":
            found = _html(content)
        case "docx":
            found = _docx(content, progress)
        case "pptx":
            found = _pptx(content, progress)
        case "picture":
            found = Text(kind, _scanned(_picture(content)))
        case _:
            found = Text(kind, clean(_decoded(content)))
    if len(found.text) > CHARACTERS_MAX:
        raise Unreadable(f"it has {len(found.text):,} characters, more than {CHARACTERS_MAX:,}; divide it")
    return found


def kind_of(key: str, content: bytes) -> str:
    """What a document is, by its content; `Unreadable` if its name says something else."""
    name = key.rpartition("/")[2]
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    said, found = SUFFIXES.get(suffix), _sniffed(content)
    if said is None:
        if found in ("zip", None) and (b"\0" in content[:4096] or found == "zip"):
            raise Unreadable("its kind is not supported; supported are PDF, HTML, Markdown, text, DOCX, PPTX, pictures")
        return found or "text"
    if found == said or (found is None and said in ("markdown", "text")):
        return said
    if found is None and said == "html":
        return said  # a fragment
    if found == "html" and said in ("markdown", "text"):
        return said  # Markdown may begin with HTML, and text may be anything
    if not content:
        raise Unreadable("it is empty")
    if content.startswith(OLE) and said in ("docx", "pptx"):
        raise Unreadable("it is encrypted, or of an Office before 2007; store it without a password, as .docx or .pptx")
    what = f"a {TITLES.get(found, found)}" if found else "nothing of the kind"
    raise Unreadable(f"its name ends in .{suffix}, but its content is {what}; give it the name of what it is")


def _sniffed(content: bytes) -> str | None:
    if b"%PDF-" in content[:1024]:
        return "pdf"
    if content[:4] == b"PK\x03\x04":
        names = _names(content)
        if "word/document.xml" in names:
            return "docx"
        return "pptx" if "ppt/presentation.xml" in names else "zip"
    if content[:8] == b"\x89PNG\r\n\x1a\n" or content[:3] == b"\xff\xd8\xff" or content[:4] in (b"II*\0", b"MM\0*"):
        return "picture"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "picture"
    return "html" if _HTML.match(content[:4096]) else None


def _names(content: bytes) -> set[str]:
    """The parts of a ZIP archive, none of which unpacks to more than is allowed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise Unreadable(f"it is a ZIP archive that cannot be opened ({error}); it is broken or cut off") from None
    if len(parts) > ZIPPED_PARTS_MAX:
        raise Unreadable(f"it is an archive of {len(parts):,} parts, more than {ZIPPED_PARTS_MAX:,}")
    if any(part.flag_bits & 1 for part in parts):
        raise Unreadable("it is encrypted; store it without a password")
    total = sum(part.file_size for part in parts)
    if total > UNZIPPED_BYTES_MAX:
        raise Unreadable(f"it unpacks to {total:,} bytes, more than {UNZIPPED_BYTES_MAX:,}: a ZIP bomb, or too large")
    for part in parts:
        if part.file_size > max(UNZIPPED_BYTES_FREE, UNZIPPED_TIMES_MAX * part.compress_size):
            raise Unreadable(f"its part {part.filename[:80]!r} unpacks to {part.file_size:,} bytes: a ZIP bomb")
    return {part.filename for part in parts}


def clean(text: str) -> str:
    """Text without control characters, with plain line ends, composed, and without large gaps."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _GAPS.sub("\n\n", _SPACES.sub("\n", _CONTROL.sub("", text))).strip()


def _decoded(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise Unreadable(f"it begins like UTF-16 and is not ({error.reason} at byte {error.start})") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = content.decode("cp1252", "replace")
        if "\ufffd" in text or b"\0" in content:
            raise Unreadable(f"it is not text: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise Unreadable("it is not text: it has bytes that are zero")
    return text


def _joined(kind: str, pages: Iterator[str], title: str, progress: Progress) -> Text:
    """The pages of a document as one text, each begun where it says."""
    parts: list[str] = []
    starts: list[int] = []
    at = 0
    for page in pages:
        cleaned = clean(page)
        starts.append(at)
        parts.append(cleaned)
        at += len(cleaned) + 2
        if at > CHARACTERS_MAX:
            raise Unreadable(f"it has more than {CHARACTERS_MAX:,} characters; divide it")
        progress()
    return Text(kind, "\n\n".join(parts), clean(title)[:300], tuple(starts))


def _pdf(content: bytes, progress: Progress) -> Text:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("it is an encrypted PDF; store it without a password") from None
        raise Unreadable(f"it is a PDF that cannot be opened ({error}); it is broken or cut off") from None
    try:
        if len(document) > PAGES_MAX:
            raise Unreadable(f"it has {len(document):,} pages, more than {PAGES_MAX:,}; divide it")
        title = str(document.get_metadata_dict().get("Title") or "")
        return _joined("pdf", _pdf_pages(document), title, progress)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(f"a page of the PDF cannot be read ({error}); it is broken") from None
    finally:
        document.close()


def _pdf_pages(document: Any) -> Iterator[str]:
    scans = 0
    for number in range(len(document)):
        page = document[number]
        text = page.get_textpage().get_text_bounded()
        if not text.strip() and _is_scan(page):
            scans += 1
            if scans > SCANS_MAX:
                raise Unreadable(f"it has more than {SCANS_MAX} pages without text, which take seconds each by OCR")
            scale = min(SCAN_DPI / 72, (PIXELS_MAX / max(1.0, page.get_width() * page.get_height())) ** 0.5)
            text = _scanned(page.render(scale=scale).to_pil().convert("RGB"))
        page.close()
        yield text


def _is_scan(page: Any) -> bool:
    import pypdfium2.raw

    return any(True for _ in page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=4))


def _picture(content: bytes) -> Any:
    from PIL import Image

    from bucketmq.models.pictures import JPEG_SCANS_MAX, has_too_many_scans

    if content.startswith(b"\xff\xd8") and has_too_many_scans(content):  # of one in a TIFF, its decoder counts them
        raise Unreadable(f"the picture is coded in more than {JPEG_SCANS_MAX} scans, each a pass over all of it")
    try:
        picture = Image.open(io.BytesIO(content))
        if picture.width * picture.height > PIXELS_MAX:
            raise Unreadable(f"the picture has {picture.width:,} × {picture.height:,} pixels, more than {PIXELS_MAX:,}")
        return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Unreadable(f"the picture cannot be decoded ({error}); it is broken or cut off") from None


def _scanned(picture: Any) -> str:
    from bucketmq.errors import Unsupported

    try:
        return clean(_ocr().read([picture]).text)
    except Unsupported as error:
        raise Unreadable(f"it has a page without text, a scan: {error}") from None


_readers: list[Any] = []


def _ocr() -> Any:
    """The reader of scans, made when the first one comes."""
    if not _readers:
        from bucketmq.models.ocr import RapidOcr

        _readers.append(RapidOcr())
    return _readers[0]


def _html(content: bytes) -> Text:
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    if len(content) > HTML_BYTES_MAX:
        raise Unreadable(f"it is HTML of {len(content):,} bytes, more than {HTML_BYTES_MAX:,}; divide it")
    text, title = text_and_title(bytes_to_str(content, detect_encoding(content, from_html_meta=True)))
    return Text("html", clean(text), clean(title)[:300])


def _docx(content: bytes, progress: Progress) -> Text:
    import docx

    document = _opened(docx.Document, content)
    text = "\n".join(lines_of_docx(document, progress))
    return Text("docx", clean(text), clean(document.core_properties.title or "")[:300])


def _pptx(content: bytes, progress: Progress) -> Text:
    import pptx

    slides = _opened(pptx.Presentation, content)
    return _joined("pptx", map(text_of_slide, slides.slides), slides.core_properties.title or "", progress)


def _opened(make: Callable[[Any], Any], content: bytes) -> Any:
    """A document of Office, whose archive was looked at before."""
    try:
        return make(io.BytesIO(content))
    except Exception as error:  # whatever the library meets in an archive that is not what it says
        raise Unreadable(f"its parts cannot be read ({type(error).__name__}: {error}); it is broken") from None

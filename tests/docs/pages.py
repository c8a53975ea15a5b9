"""The documentation as data: its pages, their code blocks, links and headings."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(\s*)```+\s*(.*)$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.*)$")


class Block(msgspec.Struct, frozen=True):
    """One fenced block. `words` is what follows the backticks: a language, then marks such as `no-run`."""

    page: str
    line: int
    words: tuple[str, ...]
    code: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def padded(self) -> str:
        """The code with so many empty lines before it that line numbers are those of the page."""
        return "\n" * self.line + self.code


def pages() -> list[Path]:
    """Every page a reader may open, the README first."""
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    opened: tuple[int, str, tuple[str, ...]] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened, lines = (number, fence[1], tuple(fence[2].split())), []
        elif fence and opened is not None:
            found.append(Block(name_of(page), opened[0], opened[2], "\n".join(lines) + "\n"))
            opened = None
        elif opened is not None:
            lines.append(line.removeprefix(opened[1]))
    assert opened is None, f"{page} has a block that is not closed"
    return found


def prose(page: Path) -> str:
    """The page without its code blocks."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def links(page: Path) -> list[str]:
    """Targets of links inside the repository, as written."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [target for target in _LINK.findall(text) if "://" not in target and not target.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """The names that headings of a page get, as GitHub makes them."""
    found: set[str] = set()
    for line in prose(page).splitlines():
        heading = _HEADING.match(line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").strip().lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            name, again = slug, 0
            while name in found:
                again += 1
                name = f"{slug}-{again}"
            found.add(name)
    return found

"""One word, one meaning, and plain English: what CONTRIBUTING.md asks of code, help, errors and pages."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGES = ("src", "docs", "examples")
ENDINGS = {".py", ".md", ".js", ".html"}
NEWLINE = "\n"

ODD = {
    r"anew": "again",
    r"told of": "reported, notified of",
    r"tells? of": "reports, describes",
    r"hears? of": "sees, is notified of",
    r"comes? along": "is built in, is among them",
    r"such a one": "such a verdict: name it",
    r"in vain": "fails",
    r"(?<!there )(?<!There )(?:is|are) no (?!longer|more)\w+": "is not a",
    r"(?<!there )(?<!There )(?:is|are) none": "is not one",
    r"for who has": "for people with",
    r"who reads (?:it|the file) can": "reading it lets",
}
"""Phrases that have to be decoded, and what to write."""


@cache
def pages() -> dict[Path, str]:
    found = [path for place in PAGES for path in (PROJECT / place).rglob("*") if path.suffix in ENDINGS]
    return {path: path.read_text() for path in [*found, *sorted(PROJECT.glob("*.md"))]}


@pytest.mark.parametrize("phrase", ODD)
def test_no_page_uses_a_phrase_that_has_to_be_decoded(phrase: str) -> None:
    pattern = re.compile(rf"\b(?:{phrase})\b")
    found = [
        f"{path.relative_to(PROJECT)}:{text.count(NEWLINE, 0, place.start()) + 1}: {place[0]}"
        for path, text in pages().items()
        for place in pattern.finditer(text)
    ]
    assert not found, f"write {ODD[phrase]!r}"


def _names(source: str) -> set[str]:
    """The classes that a module defines, and the loggers it makes."""
    tree = ast.parse(source)
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    made = re.findall(r"^ *(\w+) = logging\.getLogger", source, re.MULTILINE)
    return classes | {f"{name} = getLogger" for name in made}


def test_names_with_one_meaning_have_no_other() -> None:
    named: dict[str, list[str]] = {}
    for path in (PROJECT / "src").rglob("*.py"):
        for name in _names(path.read_text()):
            named.setdefault(name, []).append(str(path.relative_to(PROJECT)))
    assert "Seen" not in named, "say what was seen"
    assert "Receipt" not in named, "a receipt is the text that settles; what a send answers is Sent"
    assert "log = getLogger" not in named, "log is the log of a shard; a logger is called logger"

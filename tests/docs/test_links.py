"""Links between pages, and from pages to files, lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages import ROOT, anchors, links, name_of, pages


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)

    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for target in links(page))
        waiting += [(page.parent / path).resolve() for path in targets if path and path.endswith(".md")]

    assert sorted(name_of(page) for page in set(pages()) - reached) == []


def test_each_promise_names_the_tests_that_would_fail_without_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    promises = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^\S|\Z)", _section(text, "What it promises"), re.M | re.S)

    assert [int(number) for number, _ in promises] == list(range(1, len(promises) + 1))
    assert len(promises) >= 9
    for number, promise in promises:
        tests = re.findall(r"\]\((tests/[^)]+)\)", promise)
        assert tests, f"promise {number} names no test"
        assert all((ROOT / target).exists() for target in tests), f"promise {number} names a test that is not there"


def _section(text: str, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found is not None, heading
    return found[1]

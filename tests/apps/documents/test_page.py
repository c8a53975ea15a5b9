"""The tab Documents: who may look, and how it works in a real browser, by mouse, by keyboard and on a small screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard.browsing import SMALL, WIDE, Browser, browser, chromium  # noqa: F401
from dashboard.opened import Opened, opened_on

from apps.documents.shelf import Shelf
from apps.moderation.agents import aio_on, sync_on
from bucketmq.apps.documents.demo.verb import samples
from bucketmq.apps.documents.pages.tabs import tabs
from bucketmq.bucket.memory import MemoryStore
from bucketmq.server.people import read_people

VERA = "token-of-vera-0001"
PEOPLE = read_people([f"vera={VERA}:read-only"], variable="TOKENS")
PATHS = ("search?q=x", "why?chunk=docs/a%230", "graph?name=x", "overview")


@pytest.fixture
def agent() -> Iterator[Opened]:
    store = MemoryStore()
    with sync_on(store) as bucket:
        shelf = Shelf(bucket)
        bucket.put_many(samples())
        shelf.put(evil_md="<b>bold</b> <script>alert(1)</script> 🙂 widget", broken_pdf=b"%PDF-1.4")
        with opened_on(lambda: aio_on(store), tabs=tabs(), people=PEOPLE) as made:
            yield made


def test_nobody_reads_documents_without_a_token(agent: Opened) -> None:
    for path in PATHS:
        assert agent.http.get(f"/api/documents/{path}").status_code == 401


@pytest.mark.xdist_group("browser")
def test_a_search_shows_hits_their_places_and_the_graph(browser: Browser, agent: Opened) -> None:  # noqa: F811
    try:
        browser.enter(agent, VERA, "documents")
        browser.until(lambda: "7 documents" in browser.text(".page-head"))
        browser.until(lambda: "broken.pdf" in browser.text(".doc-failures"))
        browser.keys("/")
        browser.keys("small widget costs")
        browser.until(lambda: "docs/prices.html#0" in browser.text(".doc-hit:first-child .source"))
        assert "costs" in browser.text(".doc-hit:first-child mark").split("\n")
        browser.until(lambda: "<script>alert(1)</script>" in browser.text("#doc-hits"))
        assert not browser.all("#doc-hits .text b") and not browser.all("#doc-hits script")
        browser.click(".doc-hit:first-child .source button")
        browser.until(lambda: "Acme Widgets" in browser.text(".doc-hit:first-child .doc-names"))
        browser.click(".doc-hit:first-child .doc-names button")
        browser.until(lambda: browser.shown("#doc-side svg"))
        browser.until(lambda: "Ada Example leads Acme Widgets" in browser.text(".doc-edges"))
        browser.shoot("documents")
        browser.size(*SMALL)
        assert browser.fits()
        browser.shoot("documents-small")
        browser.size(*SMALL, dark=True)
        browser.shoot("documents-small-dark")
        browser.size(*WIDE, dark=True)
        browser.shoot("documents-dark")
        browser.size(*WIDE)
        browser.find("#doc-query").send_keys("\ue00c")  # Escape leaves the field
        browser.keys("j", "j", "k")
        browser.until(lambda: browser.shown(".doc-hit.current"))
        browser.keys("g")
        browser.until(lambda: browser.shown("#doc-side h2"))
    finally:
        browser.driver.get("about:blank")

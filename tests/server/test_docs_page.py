"""The API's page: whatever it loads comes from the server itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dashboard.browsing import Browser, browser, chromium

from bucketmq.bucket.memory import MemoryStore
from server.running import Running, aio_on, serving, settings_with

__all__ = ["browser", "chromium"]

pytestmark = pytest.mark.xdist_group("browser")


def test_the_page_names_nothing_from_elsewhere(server: Running) -> None:
    page = server.http.get("/docs").text
    named = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sorted(named) == ["data:,", "docs/swagger-ui-bundle.js", "docs/swagger-ui.css"]
    assert "://" not in page and '"validatorUrl": null' in page
    for name in named[1:]:
        answer = server.http.get(f"/{name}") if name.startswith("docs/") else None
        assert answer is None or (answer.status_code == 200 and len(answer.content) > 10_000)
    assert server.stranger.get("/docs/swagger-ui.css").status_code == 401
    for name in ("redoc.standalone.js", "..%2fcore.py", "nothing"):
        assert server.http.get(f"/docs/{name}").status_code == 404


def test_a_browser_shows_the_page_and_asks_nobody_else(browser: Browser, store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with(no_auth=True)) as running:
        browser.driver.get(f"{running.url}/docs")
        browser.until(lambda: "/events/{source}" in browser.text("#swagger-ui"))
        loaded: Any = browser.driver.execute_script(
            "return performance.getEntriesByType('resource').map((each) => each.name)"
        )
        browser.shoot("api-docs")
        browser.driver.get("about:blank")
    assert len(loaded) >= 3
    assert [each for each in loaded if not each.startswith((running.url, "data:"))] == []
